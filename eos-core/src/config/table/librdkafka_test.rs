//! A comparison of the table of properties with librdkafka.

use super::{Kind, Status, all, property};

#[test]
fn the_table_of_properties_is_librdkafkas() {
    let names = eos_kafka::property_names().into_iter();
    let missing: Vec<_> = names.filter(|name| property(name).is_none()).collect();
    assert!(missing.is_empty(), "not in the table: {missing:?}");
    let mut refused = Vec::new();
    for property in all() {
        if !matches!(property.status, Status::Passed) {
            continue;
        }
        let values = match property.kind {
            Kind::Number { least, most } | Kind::Decimal { least, most } => {
                vec![least.to_string(), most.to_string()]
            }
            Kind::Flag => vec!["true".into(), "false".into()],
            Kind::OneOf(names) => names.iter().map(|&name| name.to_owned()).collect(),
            Kind::Text | Kind::Brokers | Kind::Secret => {
                vec![property.default.to_owned()]
            }
        };
        for value in values {
            let outcome = eos_kafka::check_property(property.name, &value);
            // librdkafka also knows the properties and values of features that this build lacks.
            let fine = match &outcome {
                Ok(()) => true,
                Err(text) if text.contains("No such") => false,
                Err(text) => {
                    text.contains("not available at build time")
                        || text.contains("not supported in this build")
                        || value.is_empty()
                }
            };
            if !fine {
                refused.push(format!("{} = {value}: {outcome:?}", property.name));
            }
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
}

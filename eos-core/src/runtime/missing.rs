//! Missing topics, with their roles and similar names.

use eos_protocol::TopicName;

use crate::client::ClusterFacts;
use crate::nearest::nearest;
use crate::topology::Topology;

/// A topic that does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingTopic {
    /// The name.
    pub name: TopicName,
    /// The roles of the topic in the app: `input`, `global table's`, `output`, `dead letter`, or several of them.
    pub roles: Vec<&'static str>,
    /// An existing topic with nearly the same name.
    pub nearest: Option<TopicName>,
}

/// Returns the external topics that the cluster does not have.
pub(super) fn missing(facts: &ClusterFacts, topology: &Topology) -> Vec<MissingTopic> {
    let missing = facts
        .topics
        .iter()
        .filter(|(_, facts)| facts.as_ref().is_none_or(|topic| topic.partitions == 0));
    let missing = missing.filter(|(name, _)| !topology.is_internal(name));
    let missing = missing.map(|(name, _)| {
        let others = facts.others.iter().filter(|other| *other != name);
        let nearest = nearest(name.as_str(), others.map(TopicName::as_str));
        MissingTopic {
            name: name.clone(),
            roles: roles(name, topology),
            nearest: nearest.map(TopicName::from),
        }
    });
    missing.collect()
}

fn roles(name: &TopicName, topology: &Topology) -> Vec<&'static str> {
    let mut inputs = topology.stages().iter().flat_map(|stage| &stage.topics);
    let roles = [
        ("input", inputs.any(|input| input == name)),
        (
            "global table's",
            topology.globals().iter().any(|it| it.topic == *name),
        ),
        ("output", topology.written_names().any(|out| out == name)),
        (
            "dead letter",
            topology.dead_letter_names().any(|dlq| dlq == name),
        ),
    ];
    let roles = roles.into_iter().filter(|(_, has)| *has);
    roles.map(|(role, _)| role).collect()
}

/// Returns the error text, with a command that creates each topic.
pub(super) fn text(topics: &[MissingTopic], bootstrap: &str) -> String {
    let described = |topic: &MissingTopic| {
        let nearest = topic.nearest.as_ref();
        let meant = nearest.map_or(String::new(), |name| format!(" (did you mean {name}?)"));
        format!(
            "the {} topic {}{meant}",
            topic.roles.join(" and "),
            topic.name
        )
    };
    let command = |topic: &MissingTopic| {
        format!(
            "kafka-topics.sh --create --bootstrap-server {bootstrap} --topic {} --partitions 6",
            topic.name
        )
    };
    let names: Vec<&str> = topics.iter().map(|topic| topic.name.as_str()).collect();
    let names = names.join(" ");
    if let [topic] = topics {
        return format!(
            "{} is missing. Create it: {}; or with the eos command line: eos kafka topic {names}",
            described(topic),
            command(topic)
        );
    }
    let lines = topics
        .iter()
        .map(|topic| format!("\n- {}: {}", described(topic), command(topic)));
    format!(
        "{} topics are missing:{}\nCreate them with these commands, or with the eos command line: \
         eos kafka topic {names}",
        topics.len(),
        lines.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{BrokerLimits, TopicFacts, Verification};
    use crate::{App, ErrorPolicy, Topic};

    fn told(there: &[&str], others: &[&str]) -> String {
        let mut app = App::new("a");
        let text = Topic::<String, String>::plain;
        app.source(&text("orders"))
            .on_error(ErrorPolicy::dead_letter("orders-dlq"))
            .to(&text("prices"));
        app.source(&text("prices")).to(&text("copies"));
        let topology = app.check().unwrap();
        let names = ["copies", "orders", "orders-dlq", "prices"];
        let topic = TopicFacts {
            partitions: 6,
            ..TopicFacts::default()
        };
        let found = |name| there.contains(&name).then(|| topic.clone());
        let facts = ClusterFacts {
            cluster_id: None,
            topics: names.map(|name| (name.into(), found(name))).into(),
            others: others.iter().map(|&name| name.into()).collect(),
            verification: Verification::On,
            limits: BrokerLimits::default(),
        };
        text_of(&missing(&facts, &topology))
    }

    fn text_of(topics: &[MissingTopic]) -> String {
        super::text(topics, "h:1")
    }

    #[test]
    fn one_is_named_with_its_role_and_the_command_that_makes_it() {
        assert_eq!(
            told(
                &["copies", "orders", "prices"],
                &["copies", "orders", "prices"]
            ),
            "the dead letter topic orders-dlq is missing. Create it: kafka-topics.sh --create \
             --bootstrap-server h:1 --topic orders-dlq --partitions 6; or with the eos command \
             line: eos kafka topic orders-dlq"
        );
    }

    #[test]
    fn several_topics_have_a_command_each_and_a_typo_has_a_suggestion() {
        assert_eq!(
            told(
                &["copies", "orders-dlq"],
                &["copies", "oders", "orders-dlq"]
            ),
            "2 topics are missing:\n- the input topic orders (did you mean oders?): \
             kafka-topics.sh --create --bootstrap-server h:1 --topic orders --partitions 6\n- the \
             input and output topic prices: kafka-topics.sh --create --bootstrap-server h:1 \
             --topic prices --partitions 6\nCreate them with these commands, or with the eos \
             command line: eos kafka topic orders prices"
        );
    }
}

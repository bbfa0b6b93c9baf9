//! The same scenarios on the embedded broker and on Apache Kafka.
//!
//! `cargo test -p conformance --test all both_brokers:: -- --nocapture` prints the table.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use conformance::{compare, scenarios};
use eos_broker::EmbeddedKafka;
use kafka_launcher::{ClusterOptions, own_for_tests};

fn mark() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    format!("{:x}", now.map_or(0, |it| it.as_millis()))
}

/// Returns all scenarios, or those with the word of `EOS_SCENARIO` in their name or group.
fn chosen() -> Vec<conformance::Scenario> {
    let mut all = scenarios::all();
    if let Ok(word) = std::env::var("EOS_SCENARIO") {
        all.retain(|it| it.name.contains(&word) || it.group.contains(&word));
    }
    all
}

#[test]
fn the_embedded_broker_and_kafka_answer_the_same() -> Result<()> {
    let embedded = EmbeddedKafka::start()?;
    let mut brokers = vec![("embedded", embedded.bootstrap())];
    let kafka = own_for_tests(&ClusterOptions::default())?;
    if let Some(kafka) = &kafka {
        brokers.push(("Kafka", kafka.bootstrap().to_owned()));
    }
    let report = compare(&chosen(), &brokers, &mark());
    println!("{report}");
    ensure!(report.wrong.is_empty(), "{}", report.wrong.join("\n"));
    Ok(())
}

#[test]
fn there_are_at_least_120_scenarios_and_no_two_have_one_name() {
    let all = scenarios::all();
    let names: BTreeSet<_> = all.iter().map(|it| (it.group, it.name)).collect();
    assert_eq!(names.len(), all.len());
    assert!(all.len() >= 120, "{}", all.len());
}

//! An input topic that is recreated while the app reads it.
//!
//! The new log is longer than the app's position in the old one. So no offset is out of range, but the app must not
//! continue in the middle of the new log. It stops with an error that names the topic, both ids and the fix. After the
//! fix, it reads the new topic from its first record.
//!
//! (The test with a stopped app is in `permanent_errors`.)

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::fleet::Fleet;
use integration_tests::process::{Program, build};
use integration_tests::wait::wait_until;
use kafka_launcher::os::Signal;
use kafka_launcher::{ClusterOptions, own_for_tests};
use kafka_wire::{Client, Isolation, Producer};
use serde_json::Value;

const APP: &str = "enrich-v1";
const OUTPUTS: [&str; 2] = ["cities-enriched", "cities-audit"];
/// Keeps records with any timestamp.
const KEEP: [(&str, &str); 1] = [("retention.ms", "-1")];
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_longer_log_under_the_name_of_an_input_is_not_read_from_its_middle() -> Result<()> {
    let Some(cluster) = own_for_tests(&ClusterOptions::default())? else {
        return Ok(());
    };
    let bootstrap = cluster.bootstrap();
    let mut client = Client::connect(bootstrap, PATIENCE)?;
    for topic in OUTPUTS.iter().chain([&"cities"]) {
        client.create_topic(topic, 1, 1, &KEEP)?;
    }
    let dir = tempfile::tempdir()?;
    let mut fleet = fleet(bootstrap, dir.path())?;
    fleet.start()?;
    send(bootstrap, 0..100)?;
    wait_until(PATIENCE, "the old topic is read to its end", || {
        fleet.check()?;
        Ok(output(&mut client)?.len() == 100)
    })?;

    // The process is frozen, so that the new log is longer before the app reads it.
    fleet.signal(0, Signal::Stop)?;
    client.delete_topic("cities")?;
    client.create_topic("cities", 1, 1, &KEEP)?;
    send(bootstrap, 1000..1500)?;
    fleet.signal(0, Signal::Continue)?;
    let (code, log) = fleet.await_own_end(0, PATIENCE)?;
    ensure!(code == 1, "exit code {code}:\n{log}");
    for part in [
        "the input topic cities was deleted and created again while the app ran",
        "it had the id ",
        "kafka-consumer-groups.sh --delete-offsets --group enrich-v1 --topic cities",
    ] {
        ensure!(log.contains(part), "{part:?} is not in:\n{log}");
    }
    ensure!(
        output(&mut client)? == (0..100).collect::<Vec<_>>(),
        "something of the new topic was read"
    );

    // Kafka has deleted the group's offsets with the topic, and there was no commit since. So the fix that the error
    // names is already done.
    let committed = client.committed(APP, "cities")?;
    ensure!(committed == [None], "{committed:?}");
    fleet.start()?;
    wait_until(PATIENCE, "the new topic is read to its end", || {
        fleet.check()?;
        Ok(output(&mut client)?.last() == Some(&1499))
    })?;
    fleet.stop(0, Signal::Term)?;
    let all: Vec<_> = (0..100).chain(1000..1500).collect();
    let found = output(&mut client)?;
    ensure!(found == all, "{}", difference(&found, &all));
    Ok(())
}

fn fleet(bootstrap: &str, dir: &std::path::Path) -> Result<Fleet> {
    let enrich = build("eos-examples", Program::Bin("02-enrich"), &[])?;
    let environment = [
        ("EOS_BOOTSTRAP_SERVERS", bootstrap.to_owned()),
        ("EOS_STATE_DIR", dir.join("state").display().to_string()),
        ("RUST_BACKTRACE", "0".into()),
    ];
    Fleet::new(&enrich, environment, &dir.join("logs"))
}

fn send(bootstrap: &str, numbers: std::ops::Range<u64>) -> Result<()> {
    let mut producer = Producer::new(bootstrap)?;
    for seq in numbers {
        let city = format!(r#"{{"seq":{seq},"name":"Vaduz","country":"LI","lat":47.1,"lon":9.5}}"#);
        let (key, value) = (Some(&b"LI"[..]), Some(city.as_bytes()));
        producer.send("cities", 0, key, value, &[], 1_790_000_000_000)?;
    }
    producer.flush()
}

/// Returns the numbers in the output, in order.
fn output(client: &mut Client) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    client.read_all(OUTPUTS[0], Isolation::ReadCommitted, |_, record| {
        let value = record.value.as_deref().unwrap_or_default();
        numbers.push(serde_json::from_slice::<Value>(value).map(|city| city["seq"].as_u64()));
    })?;
    let numbers = numbers.into_iter().map(|seq| seq?.context("no number"));
    numbers.collect()
}

fn difference(found: &[u64], wanted: &[u64]) -> String {
    let mut text = format!("{} records instead of {}", found.len(), wanted.len());
    let missing = wanted.iter().filter(|seq| !found.contains(seq));
    let _ = write!(text, ", missing: {:?}", missing.collect::<Vec<_>>());
    text
}

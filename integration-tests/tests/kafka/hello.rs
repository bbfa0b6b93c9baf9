//! The first example on 100,000 real records. Every city is greeted exactly once and in order. The greeting keeps the
//! key and the timestamp, and is in the partition that Java would choose.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::fleet::Fleet;
use integration_tests::partitioner;
use integration_tests::process::{Program, build};
use integration_tests::wait::{is_through, wait_until};
use kafka_launcher::os::Signal;
use kafka_launcher::{ClusterOptions, own_for_tests};
use kafka_wire::{Client, Isolation, Record};
use serde::Deserialize;

const RECORDS: usize = 100_000;
/// The partitions of the output. Their number differs from the input, so that only the key decides.
const OUTPUT_PARTITIONS: i32 = 4;
const PATIENCE: Duration = Duration::from_secs(120);

/// The sent or greeted cities of each key with their timestamps, in order.
type ByKey = BTreeMap<Vec<u8>, Vec<(String, i64)>>;

#[test]
fn every_city_is_greeted_once_in_order_under_its_key_and_time() -> Result<()> {
    let Some(cluster) = own_for_tests(&ClusterOptions::default())? else {
        return Ok(());
    };
    let bootstrap = cluster.bootstrap();
    let mut client = Client::connect(bootstrap, PATIENCE)?;
    client.create_topic("cities", 6, 1, &[])?;
    client.create_topic("greetings", OUTPUT_PARTITIONS, 1, &[])?;

    let dir = tempfile::tempdir()?;
    let environment = [
        ("EOS_BOOTSTRAP_SERVERS", bootstrap.to_owned()),
        ("EOS_STATE_DIR", dir.path().display().to_string()),
    ];
    let hello = build("eos-examples", Program::Bin("01-hello"), &[])?;
    let mut fleet = Fleet::new(&hello, environment, &dir.path().join("logs"))?;
    // Two processes, as the first lines of the example suggest.
    fleet.start()?;
    fleet.start()?;
    let mut generator = Command::new(env!("CARGO_BIN_EXE_generator"));
    generator.args(["--bootstrap", bootstrap, "--topic", "cities"]);
    generator.args(["--records", &RECORDS.to_string()]);
    let generated = generator.output()?;
    ensure!(generated.status.success(), "{generated:?}");

    let done = wait_until(PATIENCE, "every city is processed", || {
        fleet.check()?;
        is_through(&mut client, "hello-v1", "cities")
    });
    done.with_context(|| fleet.tails(25))?;
    fleet.stop_all(Signal::Term)?;

    let mut sent = ByKey::new();
    client.read_all("cities", Isolation::ReadUncommitted, |_, record| {
        add(&mut sent, record, greeting(record));
    })?;
    let (mut greeted, mut strayed) = (ByKey::new(), 0);
    client.read_all(
        "greetings",
        Isolation::ReadCommitted,
        |partition, record| {
            let key = record.key.as_deref().unwrap_or_default();
            let right = partitioner::partition(key, OUTPUT_PARTITIONS) == partition;
            strayed += usize::from(!right);
            let value = record.value.as_deref().unwrap_or_default();
            add(
                &mut greeted,
                record,
                String::from_utf8_lossy(value).into_owned(),
            );
        },
    )?;
    ensure!(
        strayed == 0,
        "{strayed} greetings in a partition that Java would not choose"
    );
    ensure!(sent.values().map(Vec::len).sum::<usize>() == RECORDS);
    let differing = sent
        .iter()
        .find(|(key, cities)| greeted.get(*key) != Some(*cities));
    ensure!(differing.is_none(), "greeted otherwise: {differing:?}");
    ensure!(
        sent.len() == greeted.len(),
        "greetings under keys that were never sent"
    );
    Ok(())
}

fn add(all: &mut ByKey, record: &Record, text: String) {
    let key = record.key.as_deref().unwrap_or_default().to_vec();
    all.entry(key).or_default().push((text, record.timestamp));
}

/// Returns the expected greeting for a record.
fn greeting(record: &Record) -> String {
    #[derive(Deserialize)]
    struct City {
        name: String,
    }
    let value = record.value.as_deref().unwrap_or_default();
    let city = serde_json::from_slice(value);
    city.map_or_else(
        |e| e.to_string(),
        |city: City| format!("Hello, {}!", city.name),
    )
}

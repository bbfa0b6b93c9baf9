//! Keys, values, nulls, headers and timestamps arrive as they were sent.

use std::collections::BTreeMap;

use kafka_launcher::for_tests;
use kafka_wire::{Client, Isolation, Producer};

use crate::common::{Case, PATIENCE, ended};
use anyhow::{Result, ensure};
use eos_core::Topic;
use eos_core::run::StopMode;
use integration_tests::partitioner;
use integration_tests::wait::wait_until;

type Bytes = Option<Vec<u8>>;
type Sent = (Bytes, Bytes, Vec<(String, Bytes)>, i64);

const PARTITIONS: i32 = 3;

#[test]
fn nothing_of_a_record_is_lost_on_the_way() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let mut case = Case::with_partitions(kafka.bootstrap(), "pass-through", PARTITIONS)?;
    let records = records();
    let mut producer = Producer::new(&case.bootstrap)?;
    for (key, value, headers, timestamp) in &records {
        // All in one input partition. The output partitions depend only on the keys.
        let headers = headers
            .iter()
            .map(|(name, v)| (&name[..], v.as_deref().unwrap_or_default()));
        let headers: Vec<_> = headers.collect();
        let (key, value) = (key.as_deref(), value.as_deref());
        producer.send(&case.input, 0, key, value, &headers, *timestamp)?;
    }
    producer.flush()?;

    let mut app = case.app();
    app.source(&Topic::<Bytes, Bytes>::plain(&case.input))
        .to(&Topic::plain(&case.output));
    let mut running = app.start_blocking(&case.bootstrap)?;
    let (output, mut found) = (case.output.clone(), Vec::new());
    wait_until(PATIENCE, "all records are there", || {
        found = read(&mut case.client, &output)?;
        Ok(found.len() >= records.len())
    })?;
    running.handle().stop(StopMode::Leave);
    ended(&mut running)??;

    // The order within a partition is kept. A record without a key may be in any partition.
    let mut arrived: BTreeMap<i64, Sent> = BTreeMap::new();
    for (partition, record) in found {
        if let Some(key) = &record.0 {
            let expected = partitioner::partition(key, PARTITIONS);
            ensure!(
                partition == expected,
                "{record:?} is in {partition}, not {expected}"
            );
        }
        let twice = arrived.insert(record.3, record);
        ensure!(twice.is_none(), "twice: {twice:?}");
    }
    let arrived: Vec<_> = arrived.into_values().collect();
    assert_eq!(arrived, records);
    Ok(())
}

fn records() -> Vec<Sent> {
    let bytes = |text: &str| Some(text.as_bytes().to_vec());
    let header = |name: &str, value: &str| (name.to_owned(), bytes(value));
    let shapes = [
        (bytes("a"), bytes("plain"), vec![]),
        (bytes("b"), None, vec![header("why", "a tombstone")]),
        (
            None,
            bytes("no key"),
            vec![header("x", "1"), header("x", "2"), header("", "")],
        ),
        (bytes(""), bytes(""), vec![header("empty", "")]),
        (
            bytes("Zürich"),
            Some(vec![0, 255, 7]),
            vec![header("größe", "ü\0")],
        ),
        (bytes("big"), Some(vec![b'x'; 500_000]), vec![]),
    ];
    // The timestamp identifies each record.
    let all = shapes.iter().cycle().take(60).enumerate();
    all.map(|(nth, (key, value, headers))| {
        (
            key.clone(),
            value.clone(),
            headers.clone(),
            1_700_000_000_000 + nth as i64,
        )
    })
    .collect()
}

fn read(client: &mut Client, topic: &str) -> Result<Vec<(i32, Sent)>> {
    let mut all = Vec::new();
    client.read_all(topic, Isolation::ReadCommitted, |partition, record| {
        let headers = record
            .headers
            .iter()
            .map(|(name, v)| (name.clone(), v.as_deref().map(<[u8]>::to_vec)));
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        let (key, value) = (key.map(<[u8]>::to_vec), value.map(<[u8]>::to_vec));
        let sent = (key, value, headers.collect(), record.timestamp);
        all.push((partition, sent));
    })?;
    Ok(all)
}

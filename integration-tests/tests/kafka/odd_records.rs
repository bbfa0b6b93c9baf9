//! Unusual but valid records: nulls, bytes that are not text, incomplete JSON, unusual timestamps, and partitions that
//! contain only markers.

use kafka_wire::{End, Isolation, Producer, Record, TransactionalProducer};

use crate::common::{Case, PATIENCE, ended, on_kafka};
use anyhow::{Context, Result, ensure};
use eos_core::run::StopMode;
use eos_core::{App, ErrorPolicy, Topic};
use integration_tests::wait::wait_until;
use std::time::Duration;

#[test]
fn odd_records_are_carried_or_told_of() -> Result<()> {
    on_kafka(&[
        ("what can't be decoded", undecodable),
        ("times of nowhere", odd_times),
        ("nothing but markers", nothing_but_markers),
    ])
}

fn read(case: &mut Case, topic: &str) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    case.client
        .read_all(topic, Isolation::ReadCommitted, |_, record| {
            records.push(record.clone());
        })?;
    Ok(records)
}

/// Runs an app until all of partition 0 is committed.
fn run_through(case: &mut Case, app: App) -> Result<()> {
    let mut running = app.start_blocking(&case.bootstrap)?;
    let input = case.input.clone();
    let ends = case.client.end_offsets(&input, Isolation::ReadCommitted)?;
    wait_until(PATIENCE, "everything is committed", || {
        Ok(case.committed()? == ends.first().copied())
    })?;
    running.handle().stop(StopMode::Leave);
    ended(&mut running)??;
    case.nothing_is_open()
}

/// Each invalid record becomes a dead letter with its reason, and each valid one an output.
fn undecodable(bootstrap: &str) -> Result<()> {
    let mut case = Case::new(bootstrap, "undecodable")?;
    let dead = format!("{}-dead", case.app);
    case.client
        .create_topic(&dead, 1, 1, &crate::common::KEEP)?;
    let deep = "[".repeat(100_000);
    let huge = format!("\"{}\"", "x".repeat(500_000));
    type Bytes<'a> = Option<&'a [u8]>;
    let records: [(Bytes<'_>, Bytes<'_>, Option<&str>); 8] = [
        (Some(b"k"), Some(b"[1]"), None),
        (None, Some(b"[1]"), Some("KeyDecodeError")),
        (Some(b"k"), None, Some("ValueDecodeError")),
        (Some(b"k"), Some(b""), Some("ValueDecodeError")),
        (Some(b"\xff\xfe"), Some(b"[1]"), Some("KeyDecodeError")),
        (Some(b"k"), Some(b"\"\xff\""), Some("ValueDecodeError")),
        (Some(b"k"), Some(deep.as_bytes()), Some("ValueDecodeError")),
        (Some(b"k"), Some(huge.as_bytes()), None),
    ];
    let mut producer = Producer::new(bootstrap)?;
    for (key, value, _) in &records {
        producer.send(&case.input, 0, *key, *value, &[], 1_000)?;
    }
    producer.flush()?;
    let mut app = case.app();
    app.source(&Topic::<String, serde_json::Value>::json(&case.input))
        .on_error(ErrorPolicy::dead_letter(&dead))
        .to(&Topic::json(&case.output));
    run_through(&mut case, app)?;

    let topic = case.output.clone();
    let output = read(&mut case, &topic)?;
    let good = records.iter().filter(|(_, _, error)| error.is_none());
    let values = output.iter().map(|record| record.value.as_deref());
    ensure!(values.eq(good.map(|(_, value, _)| *value)), "{output:?}");
    let letters = read(&mut case, &dead)?;
    let bad: Vec<_> = records.iter().filter(|(_, _, e)| e.is_some()).collect();
    ensure!(letters.len() == bad.len(), "{} dead letters", letters.len());
    for (letter, (key, value, error)) in letters.iter().zip(bad) {
        ensure!(letter.key.as_deref() == *key && letter.value.as_deref() == *value);
        let kind = letter
            .headers
            .iter()
            .find(|(name, _)| name == "__streams.errors.exception");
        let kind = kind.and_then(|(_, kind)| kind.as_deref());
        ensure!(kind == error.map(str::as_bytes), "{error:?}: {kind:?}");
    }
    Ok(())
}

/// Unusual timestamps are kept, and the order of the partition, too.
fn odd_times(bootstrap: &str) -> Result<()> {
    // No timestamp, the epoch, times that are decades apart, the year 9999, and an early time again.
    const TIMES: [i64; 6] = [-1, 0, 1_000, 1_700_000_000_000, 253_402_300_799_000, 5];
    let mut case = Case::new(bootstrap, "odd-times")?;
    let any = [
        ("retention.ms", "-1"),
        ("message.timestamp.after.max.ms", "9223372036854775807"),
    ];
    case.input = format!("{}-any", case.app);
    case.output = format!("{}-times", case.app);
    case.client.create_topic(&case.input, 1, 1, &any)?;
    case.client.create_topic(&case.output, 1, 1, &any)?;
    let mut producer = Producer::new(bootstrap)?;
    for time in TIMES {
        // One batch per record, because a batch has a single base timestamp.
        let value = time.to_string();
        let (key, value) = (Some(&b"k"[..]), Some(value.as_bytes()));
        producer.send(&case.input, 0, key, value, &[], time)?;
        producer.flush()?;
    }
    let app = case.copy();
    run_through(&mut case, app)?;
    let topic = case.output.clone();
    let output = read(&mut case, &topic)?;
    let values = output.iter().map(|record| record.value.as_deref());
    let wanted: Vec<_> = TIMES.iter().map(i64::to_string).collect();
    ensure!(values.eq(wanted.iter().map(|v| Some(v.as_bytes()))));
    for (record, time) in output.iter().zip(TIMES) {
        // A record without a timestamp gets the producer's time. For librdkafka 0 means no timestamp, so 0 becomes 1
        // ms.
        let kept = match time {
            -1 => record.timestamp > 1_600_000_000_000,
            0 => record.timestamp == 1,
            time => record.timestamp == time,
        };
        ensure!(kept, "{time} became {}", record.timestamp);
    }
    Ok(())
}

/// Two hundred aborted transactions, and then a record.
fn nothing_but_markers(bootstrap: &str) -> Result<()> {
    let mut case = Case::new(bootstrap, "markers")?;
    let timeout = Duration::from_secs(60);
    let id = format!("{}-writer", case.app);
    let mut writer = TransactionalProducer::new(bootstrap, &id, timeout)?;
    for _ in 0..200 {
        writer.send(&case.input, 0, &[("k", "aborted")])?;
        writer.end(End::Abort)?;
    }
    let mut running = case.copy().start_blocking(bootstrap)?;
    wait_until(PATIENCE, "it works", || {
        let workers = running.handle().metrics().workers;
        Ok(workers.iter().any(|worker| !worker.tasks.is_empty()))
    })?;
    writer.send(&case.input, 0, &[("k", "real")])?;
    writer.end(End::Commit)?;
    wait_until(PATIENCE, "the record is there", || {
        Ok(!case.output()?.is_empty())
    })?;
    running.handle().stop(StopMode::Leave);
    ended(&mut running)??;
    ensure!(case.output()? == ["real"], "{:?}", case.output()?);
    let committed = case.committed()?.context("nothing is committed")?;
    ensure!(committed == 401, "after the record: {committed}");
    case.nothing_is_open()
}

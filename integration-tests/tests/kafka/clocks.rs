//! Clocks that are hours apart. No decision of the runtime depends on the time of day (a unit test of `eos-core` checks
//! this). Only the timestamps of records matter, and these are from the clocks of producers.

use kafka_wire::{Isolation, Producer};

use crate::common::{Case, PATIENCE, ended, on_kafka, says};
use anyhow::{Result, bail, ensure};
use eos_core::errors::WorkerError;
use eos_core::run::StopMode;
use eos_core::{App, Error, ErrorPolicy, Topic};
use integration_tests::wait::wait_until;
use std::time::{SystemTime, UNIX_EPOCH};

const HOUR: i64 = 3_600_000;
/// Settings of a topic that accepts any timestamp. By default, brokers reject timestamps that are more than an hour
/// ahead.
const ANY_TIME: [(&str, &str); 2] = [
    ("retention.ms", "-1"),
    ("message.timestamp.after.max.ms", "9223372036854775807"),
];

#[test]
fn producers_whose_clocks_are_ten_hours_off_cause_no_loss() -> Result<()> {
    on_kafka(&[
        ("ahead and behind in one partition", in_one_partition),
        ("one sibling ahead, one behind", in_siblings),
        ("too far ahead for the output's brokers", too_far_ahead),
        ("too far ahead, and skipped", skipped),
        ("too far ahead for its dead letter, too", dead_letter),
    ])
}

/// Creates topics that accept any timestamp, unlike those of [`Case::new`].
fn any_time(bootstrap: &str, name: &str) -> Result<Case> {
    let mut case = Case::new(bootstrap, name)?;
    case.input = format!("{}-any-in", case.app);
    case.output = format!("{}-any-out", case.app);
    for topic in [&case.input, &case.output] {
        case.client.create_topic(topic, 1, 1, &ANY_TIME)?;
    }
    Ok(case)
}

fn in_one_partition(bootstrap: &str) -> Result<()> {
    let mut case = any_time(bootstrap, "clocks")?;
    let now = now()?;
    let mut producer = Producer::new(bootstrap)?;
    let times: Vec<i64> = (0..100)
        .map(|n| now + [10 * HOUR, 0, -10 * HOUR][n % 3] + n as i64)
        .collect();
    for time in &times {
        put(&mut producer, &case.input, *time)?;
    }
    producer.flush()?;
    case.run_to(case.copy(), times.len())?;
    let mut found = Vec::new();
    let output = case.output.clone();
    case.client
        .read_all(&output, Isolation::ReadCommitted, |_, record| {
            found.push(record.timestamp);
        })?;
    ensure!(found == times, "{found:?} instead of {times:?}");
    case.nothing_is_open()
}

/// Two topics are merged by time, and the task does not wait ten hours for one of them.
fn in_siblings(bootstrap: &str) -> Result<()> {
    let mut case = any_time(bootstrap, "sibling-clocks")?;
    let side = format!("{}-any-side", case.app);
    case.client.create_topic(&side, 1, 1, &ANY_TIME)?;
    let now = now()?;
    let mut producer = Producer::new(bootstrap)?;
    for n in 0..50 {
        put(&mut producer, &case.input, now + 10 * HOUR + n)?;
        put(&mut producer, &side, now - 10 * HOUR + n)?;
    }
    producer.flush()?;
    let mut app = case.app();
    let text = Topic::<String, String>::plain;
    let main = app.source(&text(&case.input));
    let other = app.source(&text(&side));
    main.merge(other).to(&text(&case.output));
    case.run_to(app, 100)?;
    let behind = (0..50).map(|n| now - 10 * HOUR + n);
    let ahead = (0..50).map(|n| now + 10 * HOUR + n);
    let wanted: Vec<_> = behind.chain(ahead).map(|time| time.to_string()).collect();
    let found = case.output()?;
    ensure!(found == wanted, "{found:?}");
    case.nothing_is_open()
}

/// Sends a record that is ten hours ahead, between two of now. The output topic accepts at most one hour.
fn mixed(bootstrap: &str, name: &str) -> Result<(Case, [i64; 3])> {
    let mut case = any_time(bootstrap, name)?;
    case.output = format!("{}-out", case.app);
    let now = now()?;
    let times = [now, now + 10 * HOUR, now + 1];
    let mut producer = Producer::new(bootstrap)?;
    for time in times {
        put(&mut producer, &case.input, time)?;
    }
    producer.flush()?;
    case.client
        .end_offsets(&case.input, Isolation::ReadUncommitted)?;
    Ok((case, times))
}

fn too_far_ahead(bootstrap: &str) -> Result<()> {
    let (mut case, [first, ..]) = mixed(bootstrap, "future-fails")?;
    let error = case.failure_of(case.copy())?;
    eprintln!("{error}");
    let Error::Worker(WorkerError::Record { .. }) = &error else {
        bail!("{error:?}");
    };
    let place = format!("record 1 of {}-0", case.input);
    says(&error, &[&place, "message.timestamp.after.max.ms"])?;
    ensure!(case.output()? == [first.to_string()]);
    case.nothing_is_open()
}

fn skipped(bootstrap: &str) -> Result<()> {
    let (mut case, [first, _, last]) = mixed(bootstrap, "future-skipped")?;
    let mut app: App = case.app();
    app.source(&Topic::<String, String>::plain(&case.input))
        .on_error(ErrorPolicy::skip())
        .to(&Topic::plain(&case.output));
    let mut running = app.start_blocking(&case.bootstrap)?;
    wait_until(PATIENCE, "everything is committed", || {
        Ok(case.committed()? == Some(3))
    })?;
    ensure!(running.handle().metrics().totals.skipped == 1);
    running.handle().stop(StopMode::Leave);
    ended(&mut running)??;
    ensure!(case.output()? == [first.to_string(), last.to_string()]);
    case.nothing_is_open()
}

/// A dead letter has the time of its record.
fn dead_letter(bootstrap: &str) -> Result<()> {
    let (mut case, [first, ..]) = mixed(bootstrap, "future-dead")?;
    let dead = format!("{}-dead", case.app);
    case.client
        .create_topic(&dead, 1, 1, &crate::common::KEEP)?;
    let mut app = case.app();
    app.source(&Topic::<String, String>::plain(&case.input))
        .on_error(ErrorPolicy::dead_letter(&dead))
        .to(&Topic::plain(&case.output));
    let error = case.failure_of(app)?;
    eprintln!("{error}");
    says(&error, &["message.timestamp.after.max.ms"])?;
    ensure!(case.output()? == [first.to_string()]);
    case.nothing_is_open()
}

/// Sends a record whose value is its timestamp.
fn put(producer: &mut Producer, topic: &str, time: i64) -> Result<()> {
    let value = time.to_string();
    let (key, value) = (Some(&b"k"[..]), Some(value.as_bytes()));
    producer.send(topic, 0, key, value, &[], time)?;
    // One batch per record, because a rejected record would reject its whole batch.
    producer.flush()
}

fn now() -> Result<i64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64)
}

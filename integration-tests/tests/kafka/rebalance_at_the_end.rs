//! A rebalance while all partitions are read to their ends must not lose the next records.
//!
//! librdkafka's batch call treats the end of a partition as a record and counts it as taken (librdkafka #4844). After a
//! rebalance it continues after the last taken record, even in partitions that stay. So the next record would be
//! skipped, and its offset would be committed with the later ones.

use std::thread;
use std::time::Duration;

use kafka_wire::{Isolation, Producer};

use crate::common::{Case, PATIENCE, ended, on_kafka};
use anyhow::{Context, Result, ensure};
use eos_core::run::{Running, StopMode};
use integration_tests::wait::wait_until;

const PARTITIONS: i32 = 4;

#[test]
fn what_comes_after_a_rebalance_at_the_end_is_read() -> Result<()> {
    on_kafka(&[
        ("static members", |kafka| {
            joined_by_another(kafka, "static", &[])
        }),
        ("dynamic members", |kafka| {
            joined_by_another(kafka, "dynamic", &[("static.membership", "false")])
        }),
        ("consumer protocol", |kafka| {
            joined_by_another(kafka, "consumer", &[("group.protocol", "consumer")])
        }),
    ])
}

fn joined_by_another(bootstrap: &str, name: &str, settings: &[(&str, &str)]) -> Result<()> {
    let mut case = Case::with_partitions(bootstrap, &format!("end-{name}"), PARTITIONS)?;
    let start = |case: &Case| -> Result<Running> {
        let mut app = case.copy();
        for (key, value) in settings {
            app.set(key, value);
        }
        Ok(app.start_blocking(bootstrap)?)
    };
    let mut producer = Producer::new(bootstrap)?;
    let mut first = start(&case)?;
    round(&mut case, &mut producer, &first, 1)?;
    let mut second = start(&case)?;
    wait_until(PATIENCE, "each has its share", || {
        Ok((tasks(&first), tasks(&second)) == (2, 2))
    })?;
    round(&mut case, &mut producer, &first, 2)?;
    second.handle().stop(StopMode::Leave);
    ended(&mut second)??;
    wait_until(PATIENCE, "the first has all", || Ok(tasks(&first) == 4))?;
    round(&mut case, &mut producer, &first, 3)?;
    first.handle().stop(StopMode::Leave);
    ended(&mut first)??;
    case.nothing_is_open()
}

fn tasks(running: &Running) -> usize {
    let workers = running.handle().metrics().workers;
    workers.iter().map(|worker| worker.tasks.len()).sum()
}

/// Sends one more record to each partition, and waits until the app has read the ends of all partitions.
fn round(case: &mut Case, producer: &mut Producer, first: &Running, nth: usize) -> Result<()> {
    let value = nth.to_string();
    for partition in 0..PARTITIONS {
        let (key, value) = (Some(&b"k"[..]), Some(value.as_bytes()));
        producer.send(&case.input, partition, key, value, &[], 1_000)?;
    }
    producer.flush()?;
    let wanted = PARTITIONS as usize * nth;
    let (client, topic) = (&mut case.client, &case.output);
    let mut found = 0;
    let arrived = wait_until(PATIENCE, "all records are there", || {
        found = 0;
        client.read_all(topic, Isolation::ReadCommitted, |_, _| found += 1)?;
        Ok(found >= wanted)
    });
    arrived.with_context(|| {
        let metrics = first.handle().metrics();
        format!("round {nth}: {found} of {wanted}; the first app: {metrics:?}")
    })?;
    ensure!(found == wanted, "round {nth}: {found} of {wanted}");
    // The end is reported with an empty response, after `fetch.wait.max.ms`.
    thread::sleep(Duration::from_millis(1_500));
    Ok(())
}

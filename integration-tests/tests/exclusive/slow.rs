//! Slow work delays as little as possible. A slow record causes no abort. A parked record, and an offset that a dead
//! peer still holds, do not delay the other partitions.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use kafka_wire::{End, Isolation, Producer, TransactionalProducer};

use crate::common::{Case, PATIENCE, ended, on_kafka};
use anyhow::{Context, Result, ensure};
use eos_core::run::{Running, StopMode};
use eos_core::{App, Backoff, ErrorPolicy, Failure, Handle, Topic};
use integration_tests::wait::wait_until;

#[test]
fn what_takes_long_holds_up_nothing_else() -> Result<()> {
    let _alone = crate::alone();
    on_kafka(&[
        ("a slow record among quick ones", a_slow_record),
        ("a parked record", a_parked_record),
        ("offsets of a dead peer", offsets_of_a_dead_peer),
    ])
}

/// Sends a record with this value to a partition.
fn put(producer: &mut Producer, topic: &str, partition: i32, value: &str) -> Result<()> {
    let key = format!("p{partition}");
    let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
    producer.send(topic, partition, key, value, &[], 1_000)
}

/// Returns the committed output of one input partition, in order.
fn output_of(case: &mut Case, partition: i32) -> Result<Vec<String>> {
    let (mut values, key) = (Vec::new(), format!("p{partition}"));
    let (client, topic) = (&mut case.client, &case.output);
    client.read_all(topic, Isolation::ReadCommitted, |_, record| {
        if record.key.as_deref() == Some(key.as_bytes()) {
            let value = record.value.as_deref().unwrap_or_default();
            values.push(String::from_utf8_lossy(value).into_owned());
        }
    })?;
    Ok(values)
}

fn await_output(case: &mut Case, partition: i32, records: usize) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let what = format!("{records} outputs of partition {partition}");
    wait_until(PATIENCE, &what, || {
        found = output_of(case, partition)?;
        Ok(found.len() >= records)
    })?;
    Ok(found)
}

fn stop(case: &mut Case, mut running: Running) -> Result<()> {
    running.handle().stop(StopMode::Leave);
    ended(&mut running)??;
    case.nothing_is_open()
}

/// A closure takes 12 s, with the default settings. This is longer than a commit may take, and longer than a third of
/// the transaction timeout.
fn a_slow_record(bootstrap: &str) -> Result<()> {
    const EACH: usize = 2_000;
    const NAP: Duration = Duration::from_secs(12);
    let mut case = Case::with_partitions(bootstrap, "slow", 3)?;
    let slept = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&slept);
    let mut app = case.app();
    app.source(&Topic::<String, String>::plain(&case.input))
        .map(move |text| {
            if text == "slow" {
                thread::sleep(NAP);
                counted.fetch_add(1, Ordering::Relaxed);
            }
            text
        })
        .to(&Topic::plain(&case.output));
    let mut producer = Producer::new(bootstrap)?;
    for n in 0..EACH {
        for partition in 0..3 {
            let value = match (n == EACH / 2, partition) {
                (true, 1) => "slow".to_owned(),
                _ => n.to_string(),
            };
            put(&mut producer, &case.input, partition, &value)?;
        }
    }
    producer.flush()?;
    let mut running = app.start_blocking(bootstrap)?;
    let handle = running.handle();
    for partition in 0..3 {
        let found = await_output(&mut case, partition, EACH)?;
        let wanted = (0..EACH).map(|n| match (n == EACH / 2, partition) {
            (true, 1) => "slow".to_owned(),
            _ => n.to_string(),
        });
        ensure!(found.into_iter().eq(wanted), "partition {partition}");
    }
    running.handle().stop(StopMode::Leave);
    ended(&mut running)??;
    let totals = handle.metrics().totals;
    ensure!(slept.load(Ordering::Relaxed) == 1, "it slept once");
    // A connection that was idle during the slow record may be closed at its next request, which then gets no response.
    ensure!(
        totals.aborts == 0 && totals.rebuilds == totals.quarantines,
        "{totals:?}"
    );
    ensure!(totals.records_in == 3 * EACH as u64, "{totals:?}");
    case.nothing_is_open()
}

/// A record waits 3 s for its next try. Meanwhile the other partitions have new output.
fn a_parked_record(bootstrap: &str) -> Result<()> {
    const PARKED: Duration = Duration::from_secs(3);
    let mut case = Case::with_partitions(bootstrap, "parked", 3)?;
    let tries: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let go = Arc::new(AtomicBool::new(false));
    let (noted, may_go) = (Arc::clone(&tries), Arc::clone(&go));
    let mut app = case.app();
    app.source(&Topic::<String, String>::plain(&case.input))
        .on_error(ErrorPolicy::retry(1_000, Backoff::fixed(PARKED)))
        .try_map(move |text| {
            if text == "poison" {
                let mut tries = noted.lock().unwrap_or_else(PoisonError::into_inner);
                tries.push(Instant::now());
                if !may_go.load(Ordering::Relaxed) {
                    return Err(Failure::from("not now"));
                }
            }
            Ok(text)
        })
        .to(&Topic::plain(&case.output));
    let running = app.start_blocking(bootstrap)?;
    let mut producer = Producer::new(bootstrap)?;
    for value in ["before", "poison", "after"] {
        put(&mut producer, &case.input, 0, value)?;
    }
    producer.flush()?;
    let tried = || tries.lock().unwrap_or_else(PoisonError::into_inner).clone();
    wait_until(PATIENCE, "it was tried", || Ok(!tried().is_empty()))?;
    // While the record waits, earlier records are committed, and the other partitions continue.
    for round in 0..3 {
        for partition in [1, 2] {
            put(&mut producer, &case.input, partition, &round.to_string())?;
        }
        producer.flush()?;
        for partition in [1, 2] {
            await_output(&mut case, partition, round + 1)?;
        }
        ensure!(output_of(&mut case, 0)? == ["before"]);
    }
    go.store(true, Ordering::Relaxed);
    wait_until(PATIENCE, "it was tried again", || Ok(tried().len() > 1))?;
    let waited = tried()[1] - tried()[0];
    ensure!(waited >= PARKED, "tried again after {waited:?}");
    let found = await_output(&mut case, 0, 3)?;
    ensure!(found == ["before", "poison", "after"], "{found:?}");
    let totals = running.handle().metrics().totals;
    ensure!(totals.retried >= 1 && totals.aborts == 0, "{totals:?}");
    stop(&mut case, running)
}

/// A producer has sent an offset of partition 0 in a transaction, and is dead. The position of partition 0 is unknown
/// until its transaction times out.
fn offsets_of_a_dead_peer(bootstrap: &str) -> Result<()> {
    let mut case = Case::with_partitions(bootstrap, "dead-peer", 2)?;
    let app = |case: &Case| -> App { case.copy() };
    let mut producer = Producer::new(bootstrap)?;
    for value in ["0", "1", "2"] {
        for partition in [0, 1] {
            put(&mut producer, &case.input, partition, value)?;
        }
    }
    producer.flush()?;
    // For the group, the app stops in the middle of its work.
    let running = app(&case).start_blocking(bootstrap)?;
    for partition in [0, 1] {
        await_output(&mut case, partition, 3)?;
    }
    stop(&mut case, running)?;

    let id = format!("{}-peer", case.app);
    let mut peer = TransactionalProducer::new(bootstrap, &id, Duration::from_secs(300))?;
    peer.send_offset(&case.app, &case.input, 0, 1)?;
    for partition in [0, 1] {
        put(&mut producer, &case.input, partition, "3")?;
    }
    producer.flush()?;
    let running = app(&case).start_blocking(bootstrap)?;
    let handle = running.handle();
    let joined = wait_until_joined(&handle)?;
    await_output(&mut case, 1, 4)?;
    let took = joined.elapsed();
    eprintln!("partition 1 had output {took:.1?} after it was assigned");
    // Partition 1 continues while partition 0 waits.
    for n in 4..10 {
        put(&mut producer, &case.input, 1, &n.to_string())?;
        producer.flush()?;
        await_output(&mut case, 1, n + 1)?;
    }
    // The peer's transaction has a timeout of 300 s, so it still holds the offset.
    ensure!(output_of(&mut case, 0)? == ["0", "1", "2"], "it is held");
    let open = case.client.transactions()?;
    let open = open.into_iter().find(|t| t.transactional_id == id);
    ensure!(open.context("the peer")?.is_open(), "the peer let go");

    peer.end(End::Abort)?;
    let found = await_output(&mut case, 0, 4)?;
    ensure!(found == ["0", "1", "2", "3"], "{found:?}");
    ensure!(handle.metrics().totals.aborts == 0);
    stop(&mut case, running)
}

/// Waits until the app has an assignment. Returns the time of this.
fn wait_until_joined(handle: &Handle) -> Result<Instant> {
    wait_until(PATIENCE, "an assignment is answered", || {
        Ok(handle.metrics().totals.rebalances > 0)
    })?;
    Ok(Instant::now())
}

//! What takes long holds up as little as can be: a slow record costs no abort, a parked one and an
//! offset that a dead peer still holds cost the other partitions nothing.

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

/// One record of this partition with this value.
fn put(producer: &mut Producer, topic: &str, partition: i32, value: &str) -> Result<()> {
    let key = format!("p{partition}");
    let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
    producer.send(topic, partition, key, value, &[], 1_000)
}

/// The committed output of one input partition, in order.
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

/// 12 s in one closure, with the settings that everybody has: longer than a commit may take, and
/// than a third of the transaction's time-out.
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
    // A connection that was idle for as long as the record took may be closed under its next request,
    // which then has no answer.
    ensure!(
        totals.aborts == 0 && totals.rebuilds == totals.quarantines,
        "{totals:?}"
    );
    ensure!(totals.records_in == 3 * EACH as u64, "{totals:?}");
    case.nothing_is_open()
}

/// A record that waits 3 s for its next try; meanwhile the other partitions have new output.
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
    // While it waits: what came before it is committed, and the others go on.
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

/// A producer that had sent an offset of partition 0 and is gone: until its transaction times out,
/// the position of partition 0 is unknown.
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
    // An app that stops in the middle, as far as its group can tell.
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
    // And it goes on, while partition 0 waits.
    for n in 4..10 {
        put(&mut producer, &case.input, 1, &n.to_string())?;
        producer.flush()?;
        await_output(&mut case, 1, n + 1)?;
    }
    // All of that while the peer, which has 300 s, lets nothing go.
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

/// When the app has got partitions to work on.
fn wait_until_joined(handle: &Handle) -> Result<Instant> {
    wait_until(PATIENCE, "an assignment is answered", || {
        Ok(handle.metrics().totals.rebalances > 0)
    })?;
    Ok(Instant::now())
}

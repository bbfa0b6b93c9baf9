//! Two topics that one task reads in order of time, on a real Kafka. The tests check the order, the waits for the other
//! topic, and that the partitions of both topics move together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kafka_wire::{Client, End, Isolation, Producer, TransactionalProducer};

use crate::common::{Case, KEEP, PATIENCE, With, ended, on_kafka, says};
use anyhow::{Context, Result, bail, ensure};
use eos_core::errors::{PreflightError, StartError, WorkerError};
use eos_core::run::{Running, StopMode};
use eos_core::{App, Error, Topic};
use integration_tests::wait::{is_through, wait_until};

#[test]
fn siblings_are_read_in_order_of_time() -> Result<()> {
    on_kafka(&[
        ("a slow sibling is waited for", a_slow_sibling),
        ("an empty sibling is not", an_empty_sibling),
        ("markers and aborted records are no records", markers),
        ("nor is an open transaction", an_open_transaction),
        ("both move together, classic", |kafka| {
            both_move(kafka, "classic")
        }),
        ("both move together, consumer", |kafka| {
            both_move(kafka, "consumer")
        }),
        ("unequal partition counts", unequal),
        ("a topic more is another layout", a_topic_more),
        ("64 partitions, one topic empty", many_partitions),
    ])
}

/// A case with a second input.
struct Pair {
    case: Case,
    side: String,
}

impl Pair {
    fn new(bootstrap: &str, name: &str, partitions: i32) -> Result<Pair> {
        let mut case = Case::with_partitions(bootstrap, name, partitions)?;
        let side = format!("{}-side", case.app);
        case.client.create_topic(&side, partitions, 1, &KEEP)?;
        Ok(Pair { case, side })
    }

    fn app(&self) -> App {
        let mut app = self.case.app();
        let side = app.source(&Topic::<String, String>::plain(&self.side));
        // The source that is declared first drives.
        let main = app.source(&Topic::<String, String>::plain(&self.case.input));
        side.merge(main).to(&Topic::plain(&self.case.output));
        app
    }

    /// Waits for this number of outputs. Returns the values of each key in order.
    fn outputs(&mut self, wanted: usize) -> Result<BTreeMap<String, Vec<String>>> {
        let mut found = BTreeMap::new();
        let what = format!("{wanted} records are in {}", self.case.output);
        wait_until(PATIENCE, &what, || {
            found = by_key(&mut self.case.client, &self.case.output)?;
            Ok(found.values().map(Vec::len).sum::<usize>() >= wanted)
        })
        .with_context(|| format!("{found:?}"))?;
        Ok(found)
    }

    /// Returns whether the group is at the end of both topics.
    fn is_through(&mut self) -> Result<bool> {
        let case = &mut self.case;
        Ok(case.is_through()? && is_through(&mut case.client, &case.app, &self.side)?)
    }

    fn stop(&mut self, mut running: Running) -> Result<()> {
        running.handle().stop(StopMode::Leave);
        ended(&mut running)??;
        self.case.nothing_is_open()
    }
}

fn by_key(client: &mut Client, topic: &str) -> Result<BTreeMap<String, Vec<String>>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    client.read_all(topic, Isolation::ReadCommitted, |_, record| {
        let text =
            |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        let key = text(record.key.as_deref());
        found
            .entry(key)
            .or_default()
            .push(text(record.value.as_deref()));
    })?;
    Ok(found)
}

/// Sends a record whose value is its timestamp, so that the outputs can be compared.
fn put(producer: &mut Producer, topic: &str, partition: i32, time: i64) -> Result<()> {
    let (key, value) = (format!("p{partition}"), format!("{time:06}"));
    let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
    producer.send(topic, partition, key, value, &[], time)
}

/// Two workers. The producer of the side topic is late, but by less than `max.task.idle.ms`.
fn a_slow_sibling(bootstrap: &str) -> Result<()> {
    // If the machine itself was later than that, the try proves nothing.
    for _ in 0..5 {
        if slow_sibling(bootstrap)? {
            return Ok(());
        }
    }
    anyhow::bail!("five times this machine took longer for 100 records than a task waits for them")
}

/// Returns whether the producer was late by less than `max.task.idle.ms`.
fn slow_sibling(bootstrap: &str) -> Result<bool> {
    const PARTITIONS: i32 = 4;
    const IDLE: Duration = Duration::from_secs(5);
    const LATE: Duration = Duration::from_millis(300);
    let mut pair = Pair::new(bootstrap, "slow-sibling", PARTITIONS)?;
    let idle = IDLE.as_millis();
    let app = pair
        .app()
        .with("num.stream.threads", 2)
        .with("max.task.idle.ms", idle);
    let running = app.start_blocking(bootstrap)?;
    let mut producer = Producer::new(bootstrap)?;
    let mut longest = Duration::ZERO;
    for round in 0..10_i64 {
        let since = Instant::now();
        for (topic, odd) in [(&pair.case.input, 0), (&pair.side, 1)] {
            for n in 0..50 {
                for partition in 0..PARTITIONS {
                    let time = round * 100 + n * 2 + odd;
                    put(&mut producer, topic, partition, time)?;
                }
            }
            producer.flush()?;
            thread::sleep(LATE);
        }
        longest = longest.max(since.elapsed());
    }
    let found = pair.outputs(1_000 * PARTITIONS as usize)?;
    if longest >= IDLE {
        eprintln!("not in time, once more: {longest:?}");
        pair.stop(running)?;
        return Ok(false);
    }
    ensure!(found.len() == PARTITIONS as usize, "{:?}", found.keys());
    for (key, values) in found {
        let wanted: Vec<_> = (0..1_000).map(|time| format!("{time:06}")).collect();
        ensure!(values == wanted, "{key}: {values:?}");
    }
    pair.stop(running)?;
    Ok(true)
}

fn an_empty_sibling(bootstrap: &str) -> Result<()> {
    let mut pair = Pair::new(bootstrap, "empty-sibling", 2)?;
    let running = pair.app().start_blocking(bootstrap)?;
    let mut producer = Producer::new(bootstrap)?;
    for time in 0..100 {
        put(&mut producer, &pair.case.input, 0, time)?;
    }
    producer.flush()?;
    pair.outputs(100)?;
    // The same with records that arrive one by one.
    for time in 100..110 {
        put(&mut producer, &pair.case.input, 0, time)?;
        producer.flush()?;
        let since = Instant::now();
        pair.outputs(time as usize + 1)?;
        ensure!(since.elapsed() < Duration::from_secs(10), "held up");
    }
    wait_until(PATIENCE, "both offsets are committed", || pair.is_through())?;
    pair.stop(running)
}

/// The rest of the sibling is a marker, aborted records and their marker.
fn markers(bootstrap: &str) -> Result<()> {
    let mut pair = Pair::new(bootstrap, "markers", 1)?;
    let timeout = Duration::from_secs(60);
    let mut writer = TransactionalProducer::new(bootstrap, &pair.side, timeout)?;
    writer.send(&pair.side, 0, &[("p0", "committed")])?;
    writer.end(End::Commit)?;
    writer.send(&pair.side, 0, &[("p0", "aborted"), ("p0", "aborted")])?;
    writer.end(End::Abort)?;
    let mut producer = Producer::new(bootstrap)?;
    // Later than all records of the sibling, whose timestamps are the current time.
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
    let later = now + 600_000;
    for time in later..later + 10 {
        put(&mut producer, &pair.case.input, 0, time)?;
    }
    producer.flush()?;
    let running = pair.app().start_blocking(bootstrap)?;
    let found = pair.outputs(11)?;
    ensure!(found["p0"][0] == "committed", "{found:?}");
    // Another aborted transaction while the app runs, and a record after it.
    writer.send(&pair.side, 0, &[("p0", "aborted")])?;
    writer.end(End::Abort)?;
    put(&mut producer, &pair.case.input, 0, later + 10)?;
    producer.flush()?;
    let found = pair.outputs(12)?;
    ensure!(found["p0"].len() == 12, "{found:?}");
    ensure!(!found["p0"].contains(&"aborted".to_owned()), "{found:?}");
    pair.stop(running)
}

/// The records of an open transaction in the sibling can't be read yet, so a wait for them would be useless.
fn an_open_transaction(bootstrap: &str) -> Result<()> {
    let mut pair = Pair::new(bootstrap, "open-sibling", 1)?;
    let timeout = Duration::from_secs(300);
    let mut writer = TransactionalProducer::new(bootstrap, &pair.side, timeout)?;
    writer.send(&pair.side, 0, &[("p0", "undecided")])?;
    let mut producer = Producer::new(bootstrap)?;
    for time in 0..10 {
        put(&mut producer, &pair.case.input, 0, time)?;
    }
    producer.flush()?;
    let running = pair.app().start_blocking(bootstrap)?;
    let found = pair.outputs(10)?;
    ensure!(found["p0"].len() == 10, "{found:?}");
    writer.end(End::Commit)?;
    let found = pair.outputs(11)?;
    ensure!(found["p0"][10] == "undecided", "{found:?}");
    pair.stop(running)
}

/// Returns the number of tasks of an app. Fails if one of them lacks an input.
fn tasks(running: &Running) -> Result<usize> {
    let workers = running.handle().metrics().workers;
    let tasks: Vec<_> = workers.into_iter().flat_map(|w| w.tasks).collect();
    for task in &tasks {
        ensure!(
            task.inputs.len() == 2,
            "one topic without the other: {task:?}"
        );
    }
    Ok(tasks.len())
}

/// A second process joins and leaves while records flow in both topics.
fn both_move(bootstrap: &str, protocol: &str) -> Result<()> {
    const PARTITIONS: i32 = 4;
    let mut pair = Pair::new(bootstrap, &format!("move-{protocol}"), PARTITIONS)?;
    let app = |pair: &Pair| pair.app().with("group.protocol", protocol);
    let enough = AtomicBool::new(false);
    let (input, side) = (pair.case.input.clone(), pair.side.clone());
    let sent = thread::scope(|scope| -> Result<i64> {
        let sending = scope.spawn(|| -> Result<i64> {
            let mut producer = Producer::new(bootstrap)?;
            let mut time = 0;
            while !enough.load(Ordering::Relaxed) {
                for _ in 0..20 {
                    for partition in 0..PARTITIONS {
                        put(&mut producer, &side, partition, time)?;
                        put(&mut producer, &input, partition, time + 1)?;
                    }
                    time += 2;
                }
                producer.flush()?;
                thread::sleep(Duration::from_millis(20));
            }
            Ok(time)
        });
        let moved = come_and_go(&pair, &app);
        enough.store(true, Ordering::Relaxed);
        let sent = sending.join().ok().context("the sender panicked")??;
        let first = moved?;
        let through = wait_until(PATIENCE, "both topics are done", || pair.is_through());
        through.with_context(|| format!("{:?}", first.handle().metrics()))?;
        pair.stop(first)?;
        Ok(sent)
    })?;
    let found = by_key(&mut pair.case.client, &pair.case.output)?;
    ensure!(found.len() == PARTITIONS as usize, "{:?}", found.keys());
    for (key, mut values) in found {
        // A new owner of a partition does not know every end yet, so the order between the topics is not exact. Each
        // record must be there once.
        values.sort_unstable();
        let wanted: Vec<_> = (0..sent).map(|time| format!("{time:06}")).collect();
        ensure!(values == wanted, "{key}: {} of {sent}", values.len());
    }
    Ok(())
}

fn come_and_go(pair: &Pair, app: &dyn Fn(&Pair) -> App) -> Result<Running> {
    let bootstrap = &pair.case.bootstrap;
    let first = app(pair).start_blocking(bootstrap)?;
    wait_until(PATIENCE, "the first has all", || Ok(tasks(&first)? == 4))?;
    for _ in 0..2 {
        let mut second = app(pair).start_blocking(bootstrap)?;
        wait_until(PATIENCE, "each has two", || {
            Ok((tasks(&first)?, tasks(&second)?) == (2, 2))
        })?;
        let before = second.handle().metrics().totals.records_in;
        wait_until(PATIENCE, "the second one works", || {
            Ok(second.handle().metrics().totals.records_in > before + 100)
        })?;
        second.handle().stop(StopMode::Leave);
        ended(&mut second)??;
        wait_until(PATIENCE, "the first has all again", || {
            Ok(tasks(&first)? == 4)
        })?;
    }
    Ok(first)
}

fn unequal(bootstrap: &str) -> Result<()> {
    let mut pair = Pair::new(bootstrap, "unequal", 2)?;
    let narrow = format!("{}-narrow", pair.case.app);
    pair.case.client.create_topic(&narrow, 1, 1, &KEEP)?;
    let side = std::mem::replace(&mut pair.side, narrow.clone());
    let error = pair.case.failure_of(pair.app())?;
    ensure!(
        matches!(error, Error::Preflight(PreflightError::Widths { .. })),
        "{error:?}"
    );
    let (two, one) = (
        format!("{} has 2", pair.case.input),
        format!("{narrow} has 1"),
    );
    says(&error, &[&two, &one, "kafka-topics.sh --alter"])?;
    pair.side = side;
    let running = pair.app().start_blocking(bootstrap)?;
    pair.stop(running)
}

fn a_topic_more(bootstrap: &str) -> Result<()> {
    let mut pair = Pair::new(bootstrap, "topic-more", 1)?;
    let mut producer = Producer::new(bootstrap)?;
    for time in 0..10 {
        put(&mut producer, &pair.case.input, 0, time * 2)?;
    }
    producer.flush()?;
    let copy = pair.case.copy();
    pair.case.run_to(copy, 10)?;
    put(&mut producer, &pair.case.input, 0, 101)?;
    for time in [100, 102] {
        put(&mut producer, &pair.side, 0, time)?;
    }
    producer.flush()?;

    let app = |pair: &Pair| {
        let mut app = pair.case.app();
        let main = app.source(&Topic::<String, String>::plain(&pair.case.input));
        let side = app.source(&Topic::<String, String>::plain(&pair.side));
        main.merge(side).to(&Topic::plain(&pair.case.output));
        app
    };
    let error = pair.case.failure_of(app(&pair))?;
    let Error::Worker(WorkerError::Start(StartError::LayoutChanged { found, .. })) = &error else {
        bail!("{error:?}");
    };
    let found = found.to_string();
    let fix = format!("EOS_ACCEPT_LAYOUT={found} ");
    says(&error, &["its sources changed", &fix, &pair.case.input])?;
    ensure!(pair.case.output()?.len() == 10, "something was processed");

    // The fix that the error names. Later starts do not need it.
    pair.case
        .run_to(app(&pair).with("accept.layout", &found), 13)?;
    let output = pair.case.output()?;
    ensure!(output[10..] == ["000100", "000101", "000102"], "{output:?}");
    put(&mut producer, &pair.side, 0, 103)?;
    producer.flush()?;
    pair.case.run_to(app(&pair), 14)?;
    ensure!(pair.case.output()?[13..] == ["000103"]);
    Ok(())
}

/// The empty topic gets one old record in each partition while the app processes the full topic. The benchmark
/// `siblings` does the same with millions of records.
fn many_partitions(bootstrap: &str) -> Result<()> {
    const PARTITIONS: i32 = 64;
    const EACH: i64 = 500;
    let mut pair = Pair::new(bootstrap, "many", PARTITIONS)?;
    let mut producer = Producer::new(bootstrap)?;
    for time in 1..=EACH {
        for partition in 0..PARTITIONS {
            put(&mut producer, &pair.case.input, partition, time)?;
        }
    }
    producer.flush()?;
    let running = pair
        .app()
        .with("num.stream.threads", 2)
        .start_blocking(bootstrap)?;
    let handle = running.handle();
    wait_until(PATIENCE, "it works", || {
        Ok(handle.metrics().totals.records_in > 0)
    })?;
    let (since, already) = (Instant::now(), handle.metrics().totals.records_in);
    for partition in 0..PARTITIONS {
        put(&mut producer, &pair.side, partition, 0)?;
    }
    producer.flush()?;
    let all = (PARTITIONS as u64) * (EACH as u64 + 1);
    wait_until(PATIENCE, "nothing starves", || {
        Ok(handle.metrics().totals.records_in >= all)
    })?;
    let rate = (all - already) as f64 / since.elapsed().as_secs_f64();
    eprintln!("64 partitions of two topics: {rate:.0} records/s");
    let found = pair.outputs(all as usize)?;
    for (key, values) in &found {
        ensure!(values.len() as i64 == EACH + 1, "{key}: {}", values.len());
        let others: Vec<_> = values.iter().filter(|value| *value != "000000").collect();
        ensure!(others.is_sorted(), "{key}: {others:?}");
    }
    ensure!(found.len() == PARTITIONS as usize, "{:?}", found.keys());
    ensure!(handle.metrics().totals.aborts == 0);
    pair.stop(running)
}

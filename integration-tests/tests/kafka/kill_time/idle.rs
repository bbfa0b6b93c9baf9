//! `close_when_idle` on a real Kafka: windows close by the clock, not too early, in time, and once.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use integration_tests::faults::is_full;
use integration_tests::kill::Random;
use integration_tests::partitioner::partition;
use integration_tests::wait::{is_through, wait_until};
use kafka_launcher::os::{self, Signal};
use kafka_launcher::{ClusterOptions, for_tests, own_for_tests};
use kafka_wire::{Client, End, Isolation, Producer, TransactionalProducer};

use super::results::{Reader, window};
use super::scene::{Input, PROCESSES, Scene, fate, now, seed};
use super::windows::Windows;
use crate::common::PATIENCE;

const PARTITIONS: i32 = 4;
const KEYS: u64 = 60;
const GRACE: i64 = 500;
/// The time without records after which stream time advances with the clock, in milliseconds.
const IDLE: i64 = 2_000;
const READER: Reader = window;

/// A pipeline with windows, and the records that were sent to it.
struct Idle {
    scene: Scene,
    windows: Windows,
    random: Random,
    sent: Vec<Input>,
}

impl Idle {
    fn new(bootstrap: &str, size: i64, settings: &[(&str, String)]) -> Result<Idle> {
        let mut all = vec![
            ("SIZE_MS", size.to_string()),
            ("GRACE_MS", GRACE.to_string()),
            ("IDLE_MS", IDLE.to_string()),
        ];
        all.extend(settings.iter().cloned());
        Ok(Idle {
            scene: Scene::new(bootstrap, "idle", PARTITIONS, &all)?,
            windows: Windows::tumbling(size, GRACE),
            random: Random::new(seed()),
            sent: Vec::new(),
        })
    }

    /// Returns a record of a random key with this time.
    fn record(&mut self, time: i64) -> Input {
        let key = format!("k{}", self.random.roll() % KEYS);
        Input {
            partition: partition(key.as_bytes(), PARTITIONS),
            key,
            value: String::from("x"),
            time,
        }
    }

    /// Sends this number of records with the time of the clock.
    fn send(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            let input = self.record(now()?);
            self.scene.send(&input)?;
            self.sent.push(input);
        }
        self.scene.producer.flush()
    }

    /// Waits until all records that were sent are taken and committed.
    fn await_taken(&mut self) -> Result<()> {
        let (app, input) = (self.scene.app.clone(), self.scene.topic("in"));
        wait_until(PATIENCE, "all records are taken", || {
            self.scene.fleet.check()?;
            is_through(&mut self.scene.client, &app, &input)
        })
    }

    /// Sends records until all processes have taken some. A process that joins later would move tasks during the fault.
    fn warm_up(&mut self) -> Result<()> {
        self.send(200)?;
        self.await_taken()?;
        wait_until(PATIENCE, "all processes have partitions", || {
            let fleet = &self.scene.fleet;
            let has_some = |nth| {
                let text = fleet.text(nth);
                let mut lines = text.lines();
                let assigned = |line: &str| {
                    line.contains("partitions assigned") && !line.contains("partitions=[]")
                };
                lines.any(assigned)
            };
            Ok((0..PROCESSES).all(has_some))
        })?;
        self.send(200)?;
        self.await_taken()
    }

    /// Waits until a window has just begun.
    fn await_begin(&self) -> Result<i64> {
        loop {
            let into = now()?.rem_euclid(self.windows.size);
            if into < 300 {
                return Ok(now()? - into);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn judge(&mut self) -> Result<()> {
        let expected = self.windows.all(&self.sent);
        let judged = self.scene.judge(&expected, READER);
        self.scene.told(judged)
    }

    /// Returns the number of committed results of each partition, for windows with this start or a later one.
    fn results_since(&mut self, start: i64) -> Result<BTreeMap<i32, usize>> {
        let (mut found, output) = (BTreeMap::new(), self.scene.topic("out"));
        let client = &mut self.scene.client;
        client.read_all(&output, Isolation::ReadCommitted, |at, record| {
            let is_later = READER(record).is_some_and(|row| row.start >= start);
            *found.entry(at).or_default() += usize::from(is_later);
        })?;
        found.retain(|_, count| *count > 0);
        Ok(found)
    }
}

/// Returns the longest time, in milliseconds, from the end and the grace of a window until its result is visible. This
/// is the idle time and a second for the interval of the queries, a query and a commit. A small run has a larger limit,
/// because it shares the machine with other tests.
fn latest() -> i64 {
    IDLE + if is_full() { 1_000 } else { 4_000 }
}

#[test]
fn windows_close_in_time_after_the_input_stops() -> Result<()> {
    let _alone = super::alone();
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let mut idle = Idle::new(kafka.bootstrap(), 2_000, &[])?;
    idle.warm_up()?;
    let (mut slowest, mut soonest, mut measured) = (0, i64::MAX, 0);
    for _ in 0..if is_full() { 10 } else { 2 } {
        // Windows that end while records are sent, and windows that end afterwards.
        for _ in 0..25 {
            idle.send(8)?;
            thread::sleep(Duration::from_millis(100));
        }
        let expected = idle.windows.all(&idle.sent);
        let stopped = idle.sent.last().map_or(0, |input| input.time);
        let output = idle.scene.topic("out");
        let (mut seen, mut before) = (BTreeMap::<i32, usize>::new(), now()?);
        wait_until(PATIENCE, "all windows are closed", || {
            idle.scene.fleet.check()?;
            let mut found = BTreeMap::<i32, Vec<i64>>::new();
            let client = &mut idle.scene.client;
            client.read_all(&output, Isolation::ReadCommitted, |at, record| {
                let start = READER(record).map_or(0, |row| row.start);
                found.entry(at).or_default().push(start);
            })?;
            let after = now()?;
            for (at, starts) in &found {
                let known = seen.entry(*at).or_default();
                for start in &starts[*known..] {
                    let closes_at = idle.windows.closes_at(*start);
                    if closes_at > stopped {
                        measured += 1;
                        slowest = slowest.max(before - closes_at);
                        soonest = soonest.min(after - closes_at);
                    }
                }
                *known = starts.len();
            }
            before = after;
            Ok(seen.values().sum::<usize>() as u64 >= expected.len())
        })?;
    }
    idle.judge()?;
    eprintln!(
        "{measured} results of windows that the clock closed: {soonest} to {slowest} ms after the end and the grace"
    );
    ensure!(measured > 40, "only {measured} results");
    ensure!(soonest >= 0, "{} ms too early", -soonest);
    ensure!(slowest <= latest(), "{slowest} ms after the end");
    Ok(())
}

#[test]
fn windows_close_once_when_processes_are_killed_between_stop_and_close() -> Result<()> {
    let _alone = super::alone();
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let kills = if is_full() { 26 } else { 6 };
    let (size, since) = (i64::from(kills) * 500, Instant::now());
    let mut idle = Idle::new(kafka.bootstrap(), size, &[])?;
    idle.warm_up()?;
    let start = idle.await_begin()?;
    idle.send(400)?;
    idle.await_taken()?;
    let mut fate = fate(kills)?;
    // The window ends after about half of the kills.
    let (began, total) = (Instant::now(), Duration::from_millis(1_000) * kills);
    let mut before = 0;
    while began.elapsed() < total {
        let share = began.elapsed().as_secs_f64() / total.as_secs_f64();
        let strike = fate.strike(&mut idle.scene.fleet, (share * 1_000.0) as u64);
        idle.scene.told(strike)?;
        if idle.results_since(start)?.is_empty() {
            before = fate.count();
        }
        thread::sleep(Duration::from_millis(50));
    }
    fate.thaw(&mut idle.scene.fleet)?;
    idle.judge()?;
    fate.check(&idle.scene.fleet, PROCESSES)?;
    ensure!(before >= 3, "only {before} faults between stop and close");
    eprintln!(
        "{} faults, {before} of them between stop and close, {:.1?}",
        fate.count(),
        since.elapsed()
    );
    Ok(())
}

#[test]
fn a_partition_behind_an_open_transaction_does_not_close() -> Result<()> {
    let _alone = super::alone();
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    const HELD: i32 = 0;
    let mut idle = Idle::new(kafka.bootstrap(), 3_000, &[])?;
    idle.warm_up()?;
    let start = idle.await_begin()?;
    idle.send(400)?;
    idle.await_taken()?;
    let input = idle.scene.topic("in");
    let id = format!("other-{}", idle.scene.app);
    let mut other =
        TransactionalProducer::new(idle.scene.bootstrap(), &id, Duration::from_secs(120))?;
    let key = (0..)
        .map(|n| format!("other{n}"))
        .find(|key| partition(key.as_bytes(), PARTITIONS) == HELD)
        .unwrap_or_default();
    let offset = other.send(&input, HELD, &[(&key, "x")])?;
    let others = wait_until(PATIENCE, "the other partitions close", || {
        idle.scene.fleet.check()?;
        let found = idle.results_since(start)?;
        Ok((0..PARTITIONS).all(|at| at == HELD || found.contains_key(&at)))
    });
    idle.scene.told(others)?;
    // Much longer than the idle time.
    let held = Duration::from_secs(if is_full() { 30 } else { 4 });
    let began = Instant::now();
    while began.elapsed() < held {
        let found = idle.results_since(start)?;
        ensure!(
            !found.contains_key(&HELD),
            "the partition with the open transaction has closed {found:?}"
        );
        thread::sleep(Duration::from_millis(100));
    }
    other.end(End::Commit)?;
    // The record of the transaction counts, with the time of its producer's clock.
    let mut time = None;
    idle.scene
        .client
        .read_all(&input, Isolation::ReadCommitted, |at, record| {
            if at == HELD && record.offset == offset {
                time = Some(record.timestamp);
            }
        })?;
    let time = time.unwrap_or_default();
    ensure!(
        (start..start + idle.windows.size).contains(&time),
        "the record of the transaction is not in the window: {time}"
    );
    idle.sent.push(Input {
        partition: HELD,
        key,
        value: String::from("x"),
        time,
    });
    idle.judge()
}

#[test]
fn a_frozen_broker_closes_no_window_early() -> Result<()> {
    frozen(Duration::from_secs(if is_full() { 25 } else { 8 }))
}

/// The outage is short. The response to a query from before the outage arrives after it.
#[test]
fn a_broker_frozen_for_a_short_time_closes_no_window_early() -> Result<()> {
    frozen(Duration::from_millis(4_500))
}

/// Freezes the broker for this long. Records that a producer could not write during the outage still count.
fn frozen(frozen: Duration) -> Result<()> {
    let _alone = super::alone();
    let Some(cluster) = own_for_tests(&ClusterOptions::default())? else {
        return Ok(());
    };
    const SIZE: i64 = 3_000;
    // With these timeouts no worker loses its partitions, so only the missing responses keep the windows open.
    let settings = [
        ("EOS_SESSION_TIMEOUT_MS", String::from("60000")),
        ("EOS_TRANSACTION_TIMEOUT_MS", String::from("60000")),
        // Logs failed queries.
        (
            "RUST_LOG",
            String::from("info,eos_core::worker::chores=debug"),
        ),
    ];
    let mut idle = Idle::new(cluster.bootstrap(), SIZE, &settings)?;
    idle.warm_up()?;
    let start = idle.await_begin()?;
    idle.send(400)?;
    idle.await_taken()?;
    // Waits for the first evidence that the inputs are idle.
    thread::sleep(Duration::from_millis(1_200));
    let open = idle.results_since(start)?;
    ensure!(open.is_empty(), "closed before the outage: {open:?}");
    let freeze = |signal| {
        let mut nodes = cluster.node_pids().into_iter();
        nodes.try_for_each(|pid| os::signal(pid, signal))
    };
    let older: Vec<Input> = (0..400)
        .map(|n| idle.record(start + 1_000 + n % 500))
        .collect();
    // Longer than the rest of the window, its grace and the idle time together.
    freeze(Signal::Stop)?;
    thread::sleep(frozen);
    freeze(Signal::Continue)?;
    // Meanwhile the workers repeat their queries. A producer that was cut off writes its records only after that.
    thread::sleep(Duration::from_millis(2_000));
    // Connections from before the outage may have timed out.
    idle.scene.client = Client::connect(cluster.bootstrap(), PATIENCE)?;
    idle.scene.producer = Producer::with_patience(cluster.bootstrap(), PATIENCE)?;
    for input in &older {
        idle.scene.send(input)?;
    }
    idle.scene.producer.flush()?;
    idle.sent.extend(older);
    idle.judge()
}

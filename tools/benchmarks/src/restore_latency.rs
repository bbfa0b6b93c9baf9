//! Latency of the other tasks of a process during a restore.
//!
//! One process fills a store of six tasks. A second process joins, and restores three of them. Then the first process
//! leaves, and the second one restores the other three while its own three go on.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kafka_wire::Producer;
use rdkafka::Message;
use rdkafka::consumer::BaseConsumer;
use serde_json::{Value, json};

use crate::bench::{Bench, Play, now_ms};
use crate::keyed;
use crate::latency;
use crate::lifecycle;
use crate::options::Options;
use crate::records::{Input, PARTITIONS};
use crate::running::Running;
use crate::side::Side;
use crate::stats::{Latencies, rounded};
use crate::work::{RESTORED, RESTORING, Work};

/// The time limit of a rebalance and a restore.
const PATIENCE: Duration = Duration::from_secs(120);
/// The time of the samples before the first process leaves.
const CALM: Duration = Duration::from_secs(15);
/// The time after the restore, for late results.
const AFTER: Duration = Duration::from_secs(2);
/// The time between two checks of a log.
const LOOK: Duration = Duration::from_millis(2);

/// The latencies of one round, in milliseconds.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) round: u32,
    pub(crate) keys: u64,
    pub(crate) restore_ms: f64,
    /// The latencies of the records of the three tasks that stay, before the restore.
    pub(crate) calm: Latencies,
    pub(crate) restoring: Latencies,
}

/// A record of the output.
#[derive(Debug, Clone, Copy)]
struct Sample {
    partition: i32,
    due: i64,
    read: i64,
}

/// A span of the wall clock, in milliseconds since the epoch.
#[derive(Debug, Clone, Copy)]
struct Span {
    from: i64,
    to: i64,
}

/// Measures each round on a broker of its own.
pub(crate) fn run(options: &Options) -> Result<Vec<Outcome>> {
    let rounds = 1..=options.rounds.unwrap_or(3);
    rounds
        .map(|round| {
            eprintln!("round {round}");
            let outcome = one(round, options).with_context(|| format!("round {round}"))?;
            println!("{}", outcome.json(options));
            Ok(outcome)
        })
        .collect()
}

fn one(round: u32, options: &Options) -> Result<Outcome> {
    let keys = options.records.unwrap_or(3_000_000);
    let mut bench = Bench::open(PARTITIONS)?;
    bench.keys = keys;
    let filled = 2 * keys;
    let input = bench.filled("restoring-in", Work::Count, filled)?;
    let (side, interval) = (Side::EosDefault, options.interval());
    let mut play = bench.play(side, "restoring", &input, Work::Count, filled, interval)?;
    let mut first = bench.start(&play, None)?;
    keyed::wait_for(&mut bench, &play, &mut first, filled)?;

    let own = play.task.state.clone();
    play.task.state = own.with_extension("second");
    let mut second = bench.start(&play, None)?;
    let since = Instant::now();
    while !lifecycle::is_shared(&mut bench, &play)? || tasks(&second, RESTORED).len() < 3 {
        ensure!(
            since.elapsed() < PATIENCE,
            "the second process got no tasks"
        );
        first.check()?;
        second.check()?;
        thread::sleep(LOOK);
    }
    let kept = tasks(&second, RESTORED);
    ensure!(kept.len() == 3, "the second process has the tasks {kept:?}");

    let consumer = latency::consumer(&play, rdkafka::Offset::End)?;
    let stop = AtomicBool::new(false);
    let measured = thread::scope(|scope| {
        let generator = scope.spawn(|| generate(&play, filled, options.rate, &stop));
        let reader = scope.spawn(|| read(&consumer, &stop));
        let spans = spans(first, &mut second);
        stop.store(true, Ordering::Relaxed);
        let sent = generator
            .join()
            .unwrap_or_else(|_| bail!("the generator panicked"));
        let samples = reader
            .join()
            .unwrap_or_else(|_| bail!("the reader panicked"));
        anyhow::Ok((spans?, sent?, samples?))
    })?;
    let ((calm, restore), sent, samples) = measured;
    play.task.records = sent;
    keyed::wait_for(&mut bench, &play, &mut second, sent)?;
    second.stop()?;
    bench.ensure_finished(&play)?;
    bench.ensure_right(&play)?;

    let stays = |sample: &&Sample| kept.contains(&sample.partition);
    let samples: Vec<_> = samples.iter().filter(stays).copied().collect();
    Ok(Outcome {
        round,
        keys,
        restore_ms: (restore.to - restore.from) as f64,
        calm: latencies(&samples, calm)?,
        restoring: latencies(&samples, restore)?,
    })
}

/// Stops the first process. Returns the calm time before, and the time of the restore after.
fn spans(first: Running, second: &mut Running) -> Result<(Span, Span)> {
    // Waits until the generator and the reader have started.
    thread::sleep(AFTER);
    let from = now_ms()?;
    thread::sleep(CALM);
    let calm = Span {
        from,
        to: now_ms()?,
    };
    first.stop()?;
    let restore = Span {
        from: wait_for_tasks(second, RESTORING, 4)?,
        to: wait_for_tasks(second, RESTORED, 6)?,
    };
    thread::sleep(AFTER);
    Ok((calm, restore))
}

/// Waits until the log has lines with this prefix for this number of tasks. Returns the time in milliseconds.
fn wait_for_tasks(running: &mut Running, prefix: &str, wanted: usize) -> Result<i64> {
    let since = Instant::now();
    while tasks(running, prefix).len() < wanted {
        running.check()?;
        ensure!(
            since.elapsed() < PATIENCE,
            "after {} s, the log has {:?} as {prefix}",
            PATIENCE.as_secs(),
            tasks(running, prefix)
        );
        thread::sleep(LOOK);
    }
    now_ms()
}

/// Returns the partitions of the tasks in the lines of the log with this prefix.
fn tasks(running: &Running, prefix: &str) -> BTreeSet<i32> {
    let text = running.text();
    let lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
    let tasks = lines.filter_map(|line| line.rsplit('_').next());
    tasks
        .filter_map(|partition| partition.parse().ok())
        .collect()
}

/// Sends records from this number on, each with its due time as the timestamp. Returns the number after the last one.
fn generate(play: &Play, from: u64, rate: u64, stop: &AtomicBool) -> Result<u64> {
    let mut producer = Producer::new(&play.task.bootstrap)?;
    let mut input = Input::of(play.task.work, play.task.records / 2);
    let (begun, begun_ms) = (Instant::now(), now_ms()?);
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        let due = u64::try_from(begun.elapsed().as_micros())? * rate / 1_000_000;
        while sent < due {
            input.set(from + sent);
            let time = begun_ms + i64::try_from(sent * 1_000 / rate)?;
            let (key, value) = (Some(&input.key[..]), Some(&input.value[..]));
            let to = input.partition(PARTITIONS);
            producer.send(&play.task.input, to, key, value, &[], time)?;
            sent += 1;
        }
        producer.flush()?;
        thread::sleep(Duration::from_millis(1));
    }
    Ok(from + sent)
}

fn read(consumer: &BaseConsumer, stop: &AtomicBool) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let Some(message) = consumer.poll(Duration::from_millis(50)).transpose()? else {
            continue;
        };
        let due = message.timestamp().to_millis();
        samples.push(Sample {
            partition: message.partition(),
            due: due.context("a record without a timestamp in the output")?,
            read: now_ms()?,
        });
    }
    Ok(samples)
}

/// Returns the latencies of the records that were due in this span.
fn latencies(samples: &[Sample], span: Span) -> Result<Latencies> {
    let due = |sample: &&Sample| (span.from..=span.to).contains(&sample.due);
    let times: Vec<_> = samples
        .iter()
        .filter(due)
        .map(|sample| (sample.read - sample.due) as f64)
        .collect();
    ensure!(
        times.len() >= 300,
        "{} records in {} ms are too few for a percentile: use more keys",
        times.len(),
        span.to - span.from
    );
    Ok(Latencies::of(times))
}

fn latencies_json(of: &Latencies) -> Value {
    json!({ "records": of.count, "p50": of.p50, "p99": of.p99, "max": of.max })
}

impl Outcome {
    /// Returns the 99th percentile during the restore, divided by that of the calm time.
    pub(crate) fn ratio(&self) -> f64 {
        self.restoring.p99 / self.calm.p99
    }

    fn json(&self, options: &Options) -> Value {
        json!({
            "benchmark": "restore-latency",
            "round": self.round,
            "keys": self.keys,
            "records_per_second": options.rate,
            "restore_ms": rounded(self.restore_ms),
            "calm_ms": latencies_json(&self.calm),
            "restoring_ms": latencies_json(&self.restoring),
            "p99_ratio": rounded(self.ratio()),
            "verified": true,
        })
    }
}

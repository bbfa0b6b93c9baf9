//! The latency from the due time of a record until a reader of committed records receives it.
//!
//! One generator and one consumer, the same for all sides. The generator follows a schedule, and the number of a record
//! gives its due time. So a generator that falls behind increases the latency, and does not reduce the number of
//! samples (no coordinated omission).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kafka_wire::Producer;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use serde_json::{Value, json};

use crate::bench::{Bench, Play, now_ms};
use crate::options::Options;
use crate::records::{Input, PARTITIONS, is_kept, kept, number};
use crate::running::Running;
use crate::side::Side;
use crate::stats::{percentile, rounded};
use crate::streams::Streams;
use crate::throughput::alternating;
use crate::work::Work;

/// The time limit for the last records.
const PATIENCE: Duration = Duration::from_secs(30);

/// The sides that this benchmark can compare.
pub(crate) const SIDES: [Side; 3] = [Side::Eos, Side::EosDefault, Side::Streams];

/// The result of one run, in milliseconds.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) side: Side,
    pub(crate) round: u32,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    /// The maximum delay of the generator behind its schedule after the warm-up.
    pub(crate) generator_behind: f64,
    /// The CPU time of the side, in percent of one core.
    pub(crate) cpu_percent: f64,
}

/// The due time of each record.
#[derive(Debug, Clone, Copy)]
struct Schedule {
    start: Instant,
    rate: u64,
    warm_up: u64,
    records: u64,
}

/// Measures each side in turn.
pub(crate) fn run(sides: &[Side], options: &Options) -> Result<Vec<Outcome>> {
    // The records of the first seconds warm up the JVM, like the other sides.
    let streams = if sides.contains(&Side::Streams) {
        Some(Streams::build(0, options.heap_mb(None))?)
    } else {
        None
    };
    let mut bench = Bench::open(PARTITIONS)?;
    let mut outcomes = Vec::new();
    if let Some(&first) = sides.first() {
        eprintln!("{}: warms the broker, does not count", first.name());
        let short = Options {
            seconds: options.seconds.min(10),
            ..options.clone()
        };
        one(&mut bench, first, 0, &short, streams.as_ref())
            .with_context(|| format!("{}, warming the broker", first.name()))?;
    }
    for round in 1..=options.rounds.unwrap_or(1) {
        for side in alternating(sides, round - 1) {
            eprintln!("{}: round {round}", side.name());
            let outcome = one(&mut bench, side, round, options, streams.as_ref())
                .with_context(|| format!("{}, round {round}", side.name()))?;
            println!("{}", outcome.json(options));
            outcomes.push(outcome);
        }
    }
    Ok(outcomes)
}

fn one(
    bench: &mut Bench,
    side: Side,
    round: u32,
    options: &Options,
    streams: Option<&Streams>,
) -> Result<Outcome> {
    let name = format!("latency-{}-{round}", side.name());
    let input = bench.topic(&format!("{name}-in"))?;
    let warm_up = options.warm_up_seconds * options.rate;
    let records = warm_up + options.seconds * options.rate;
    let interval = options.interval();
    let play = bench.play(side, &name, &input, Work::Map, records, interval)?;
    let consumer = consumer(&play, Offset::Beginning)?;
    let mut running = bench.start(&play, streams)?;
    let schedule = Schedule {
        start: Instant::now() + Duration::from_millis(100),
        rate: options.rate,
        warm_up,
        records,
    };
    let stop = AtomicBool::new(false);
    let (behind, seen) = std::thread::scope(|scope| {
        let generator = scope.spawn(|| generate(&play, schedule, &stop));
        let seen = consume(&consumer, schedule, &mut running);
        stop.store(true, Ordering::Relaxed);
        let behind = generator
            .join()
            .unwrap_or_else(|_| bail!("the generator panicked"));
        anyhow::Ok((behind?, seen?))
    })?;
    running.stop()?;
    bench.ensure_finished(&play)?;
    bench.check(&play)?.complete(records)?;
    bench.clear(&play)?;
    bench.client.delete_topic(&input)?;

    let Seen { mut samples, cpu } = seen;
    samples.sort_by(f64::total_cmp);
    Ok(Outcome {
        side,
        round,
        p50: percentile(&samples, 50.0),
        p99: percentile(&samples, 99.0),
        max: percentile(&samples, 100.0),
        generator_behind: behind.as_secs_f64() * 1e3,
        cpu_percent: cpu.as_secs_f64() * 100.0 / options.seconds as f64,
    })
}

impl Schedule {
    fn due(&self, seq: u64) -> Instant {
        let whole = Duration::from_secs(seq / self.rate);
        let part = Duration::from_nanos(seq % self.rate * 1_000_000_000 / self.rate);
        self.start + whole + part
    }
}

/// Sends each record at its due time, together with those that became due during the last round trip. Returns the
/// maximum delay.
fn generate(play: &Play, schedule: Schedule, stop: &AtomicBool) -> Result<Duration> {
    let mut producer = Producer::new(&play.task.bootstrap)?;
    let (mut input, mut behind) = (Input::default(), Duration::ZERO);
    let mut seq = 0;
    while seq < schedule.records && !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        let due = schedule.due(seq);
        if due > now {
            std::thread::sleep((due - now).min(Duration::from_millis(1)));
            continue;
        }
        if seq >= schedule.warm_up {
            behind = behind.max(now - due);
        }
        let time = now_ms()?;
        while seq < schedule.records && schedule.due(seq) <= now {
            input.set(seq);
            let (key, value) = (Some(&input.key[..]), Some(&input.value[..]));
            producer.send(
                &play.task.input,
                input.partition(PARTITIONS),
                key,
                value,
                &[],
                time,
            )?;
            seq += 1;
        }
        producer.flush()?;
    }
    Ok(behind)
}

/// The samples of the consumer after the warm-up.
struct Seen {
    /// The latencies, in milliseconds.
    samples: Vec<f64>,
    /// The CPU time of the side in the same period.
    cpu: Duration,
}

fn consume(consumer: &BaseConsumer, schedule: Schedule, running: &mut Running) -> Result<Seen> {
    let last = schedule.due(schedule.records);
    let wanted = kept(schedule.records, Work::Map);
    let (mut samples, mut seen, mut start, mut end) = (Vec::new(), 0, None, None);
    while seen < wanted {
        let message = consumer.poll(Duration::from_millis(50));
        let now = Instant::now();
        if start.is_none() && now >= schedule.due(schedule.warm_up) {
            start = Some(running.cpu()?);
        }
        if end.is_none() && now >= last {
            end = Some(running.cpu()?);
        }
        let Some(message) = message.transpose()? else {
            running.check()?;
            ensure!(
                now < last + PATIENCE,
                "{seen} of {wanted} records arrived, and no more come"
            );
            continue;
        };
        let seq = message.payload().and_then(number);
        let seq = seq.context("a record without a number in the output")?;
        seen += u64::from(is_kept(seq, Work::Map));
        if seq >= schedule.warm_up {
            let late = now.saturating_duration_since(schedule.due(seq));
            samples.push(late.as_secs_f64() * 1e3);
        }
    }
    let end = end.map_or_else(|| running.cpu(), Ok)?;
    Ok(Seen {
        samples,
        cpu: end.saturating_sub(start.unwrap_or(end)),
    })
}

/// Creates a reader of the committed output from this offset.
pub(crate) fn consumer(play: &Play, from: Offset) -> Result<BaseConsumer> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &play.task.bootstrap)
        // Required, and unused: partitions are assigned by hand and nothing is committed.
        .set("group.id", format!("{}-reader", play.task.group))
        .set("isolation.level", "read_committed")
        .set("enable.auto.commit", "false")
        .set("fetch.wait.max.ms", "100")
        .create()?;
    let mut partitions = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        partitions.add_partition_offset(&play.task.output, partition, from)?;
    }
    consumer.assign(&partitions)?;
    Ok(consumer)
}

impl Outcome {
    fn json(&self, options: &Options) -> Value {
        json!({
            "benchmark": "latency",
            "side": self.side.name(),
            "round": self.round,
            "records_per_second": options.rate,
            "seconds": options.seconds,
            "p50_ms": rounded(self.p50),
            "p99_ms": rounded(self.p99),
            "max_ms": rounded(self.max),
            "generator_behind_ms": rounded(self.generator_behind),
            "cpu_percent": rounded(self.cpu_percent),
            "verified": true,
        })
    }
}

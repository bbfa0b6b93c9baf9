//! How fast records pass from one topic to another, each with its offset in one transaction: eos
//! beside the bare librdkafka loop, in one run.
//!
//! `cargo bench -p eos-core --bench pass_through -- --records 6000000 --pairs 3`
//!
//! Preloads the input, lets the two alternate, and after each run checks that a reader of committed
//! records finds each record in the output once and in order. Prints one JSON object per run and
//! the ratios, pair by pair. A first pair that does not count warms the broker: its compiler's threads
//! would compete with whoever runs first. The first and the last tenth of a run do not count: joining the group
//! and running dry are not what is measured.
//!
//! The broker is `KAFKA_BOOTSTRAP_SERVERS`, or one started for this.

mod bare;
mod eos;
mod meter;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use eos_protocol::partition_for;
use serde_json::json;
use xtask::kafka::{Cluster, ClusterOptions, Compiler, external};
use xtask::wire;

use meter::Measured;

const PARTITIONS: i32 = 6;
const KEY_BYTES: usize = 16;
const PATIENCE: Duration = Duration::from_secs(60);

/// What each way of passing records on is given.
pub(crate) struct Work {
    pub(crate) bootstrap: String,
    pub(crate) input: String,
    pub(crate) output: String,
    /// Different for each run, so that each starts at the beginning.
    pub(crate) group: String,
    pub(crate) records: u64,
    pub(crate) commit_interval: Duration,
}

struct Options {
    records: u64,
    pairs: u32,
    interval_ms: u64,
    /// One side alone, for a profiler.
    only: Option<String>,
}

fn main() -> Result<()> {
    let options = Options::parse()?;
    let mut started = None;
    let bootstrap = match external() {
        Some(bootstrap) => bootstrap,
        None => {
            let cluster = ClusterOptions::default()
                .compiler(Compiler::Full)
                .heap_mb(1024);
            let cluster = started.insert(Cluster::start(&cluster)?);
            cluster.bootstrap().to_owned()
        }
    };
    let mut client = wire::Client::connect(&bootstrap, PATIENCE)?;
    let run = std::process::id();
    let input = format!("pass-through-{run}-in");
    client.create_topic(&input, PARTITIONS, 1, &[])?;
    preload(&bootstrap, &input, options.records)?;

    let mut ratios = Vec::new();
    for pair in 0..=options.pairs {
        let warm_up = pair == 0;
        let mut run = |side: &str, pass: fn(&Work) -> Result<Measured>| {
            let work = Work {
                bootstrap: bootstrap.clone(),
                input: input.clone(),
                output: format!("pass-through-{run}-{side}-{pair}"),
                group: format!("pass-through-{run}-{side}-{pair}"),
                records: options.records,
                commit_interval: Duration::from_millis(options.interval_ms),
            };
            client.create_topic(&work.output, PARTITIONS, 1, &[])?;
            let measured = pass(&work).with_context(|| side.to_owned())?;
            verify(&mut client, &work)?;
            report(side, pair, &work, &measured);
            client.delete_topic(&work.output)?;
            anyhow::Ok(measured)
        };
        match options.only.as_deref() {
            Some("bare") => {
                run("bare", bare::run)?;
                continue;
            }
            Some(_) => {
                run("eos", eos::run)?;
                continue;
            }
            None => {}
        }
        // Alternating who goes first, so that a machine that slows down favours nobody.
        let (eos, bare) = if pair % 2 == 0 {
            let bare = run("bare", bare::run)?;
            (run("eos", eos::run)?, bare)
        } else {
            (run("eos", eos::run)?, run("bare", bare::run)?)
        };
        if !warm_up {
            ratios.push((
                eos.records_per_second() / bare.records_per_second(),
                eos.cpu_us_per_record() / bare.cpu_us_per_record(),
            ));
        }
    }
    client.delete_topic(&input)?;
    if ratios.is_empty() {
        return Ok(());
    }
    summary(&ratios);
    Ok(())
}

/// eos / bare, pair by pair and in the middle.
fn summary(ratios: &[(f64, f64)]) {
    let middle = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
    };
    for (pair, (rate, cpu)) in ratios.iter().enumerate() {
        println!(
            "pair {}: eos / bare: records/s {rate:.3}, CPU per record {cpu:.3}",
            pair + 1
        );
    }
    let rate = middle(ratios.iter().map(|r| r.0).collect());
    let cpu = middle(ratios.iter().map(|r| r.1).collect());
    println!("median: eos / bare: records/s {rate:.3}, CPU per record {cpu:.3}");
}

/// 100 to 120 bytes each, key included.
fn preload(bootstrap: &str, topic: &str, records: u64) -> Result<()> {
    let mut producer = wire::Producer::new(bootstrap)?;
    let filler = [b'x'; 128];
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let time = i64::try_from(time.as_millis())?;
    for n in 0..records {
        let key = format!("{n:0KEY_BYTES$}");
        let length = 100 - KEY_BYTES + usize::try_from(n % 21)?;
        // Where both sides put it too: the bare loop keeps the partition, eos hashes the key.
        let partition = partition_for(key.as_bytes(), PARTITIONS.unsigned_abs()).get();
        producer.send(
            topic,
            partition,
            Some(key.as_bytes()),
            Some(&filler[..length]),
            &[],
            time,
        )?;
    }
    producer.flush()
}

/// Each record once, and every partition in order.
fn verify(client: &mut wire::Client, work: &Work) -> Result<()> {
    let mut seen = vec![false; usize::try_from(work.records)?];
    let mut last = vec![None; PARTITIONS.unsigned_abs() as usize];
    let mut wrong = None;
    let each = |partition: i32, record: &wire::Record| {
        let key = record
            .key
            .as_deref()
            .and_then(|key| std::str::from_utf8(key).ok());
        let number = key.and_then(|key| key.parse::<usize>().ok());
        let last = &mut last[partition.unsigned_abs() as usize];
        let new = number
            .and_then(|n| seen.get_mut(n))
            .is_some_and(|seen| !std::mem::replace(seen, true));
        if !new || *last >= number {
            wrong
                .get_or_insert_with(|| format!("{key:?} in partition {partition}, after {last:?}"));
        }
        *last = number;
    };
    client.read_all(&work.output, wire::Isolation::ReadCommitted, each)?;
    if let Some(wrong) = wrong {
        bail!("the output is not the input: {wrong}");
    }
    let missing = seen.iter().filter(|seen| !**seen).count();
    ensure!(missing == 0, "{missing} records are not in the output");
    Ok(())
}

fn report(side: &str, pair: u32, work: &Work, measured: &Measured) {
    let line = json!({
        "side": side,
        "pair": pair,
        "records": work.records,
        "commit_interval_ms": u64::try_from(work.commit_interval.as_millis()).unwrap_or(0),
        "records_per_second": measured.records_per_second().round(),
        "cpu_us_per_record": (measured.cpu_us_per_record() * 1000.0).round() / 1000.0,
        "verified": true,
    });
    println!("{line}");
    if measured.commits > 0 {
        println!(
            "  {} commits, {:.1} ms each",
            measured.commits,
            measured.commit_ms_mean()
        );
    }
}

impl Options {
    fn parse() -> Result<Self> {
        let mut options = Self {
            records: 6_000_000,
            pairs: 3,
            interval_ms: 100,
            only: None,
        };
        // `cargo bench` adds `--bench`.
        let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
        while let Some(word) = words.next() {
            let value = words
                .next()
                .with_context(|| format!("{word} needs a number"))?;
            match word.as_str() {
                "--records" => options.records = value.parse()?,
                "--pairs" => options.pairs = value.parse()?,
                "--interval-ms" => options.interval_ms = value.parse()?,
                "--only" => options.only = Some(value),
                _ => bail!("{word}? There are --records, --pairs, --interval-ms and --only"),
            }
        }
        Ok(options)
    }
}

//! How fast records pass from one topic to another, each with its offset in one transaction.
//!
//! `cargo bench -p eos-core --bench pass_through -- --records 6000000 --runs 3`
//!
//! Preloads the input, runs, checks that a reader of committed records finds each record in the
//! output once, and prints one JSON object per run. The first and the last tenth of a run do not
//! count: joining the group and running dry are not what is measured.
//!
//! The broker is `KAFKA_BOOTSTRAP_SERVERS`, or one started for this.

mod bare;
mod meter;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
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
    runs: u32,
    interval_ms: u64,
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

    for n in 0..options.runs {
        let work = Work {
            bootstrap: bootstrap.clone(),
            input: input.clone(),
            output: format!("pass-through-{run}-out-{n}"),
            group: format!("pass-through-{run}-{n}"),
            records: options.records,
            commit_interval: Duration::from_millis(options.interval_ms),
        };
        client.create_topic(&work.output, PARTITIONS, 1, &[])?;
        let measured = bare::run(&work).context("the bare loop")?;
        verify(&mut client, &work)?;
        report("bare", n, &work, &measured);
        client.delete_topic(&work.output)?;
    }
    client.delete_topic(&input)
}

/// 100 to 120 bytes each, key included.
fn preload(bootstrap: &str, topic: &str, records: u64) -> Result<()> {
    let mut producer = wire::Producer::new(bootstrap)?;
    let filler = [b'x'; 128];
    for n in 0..records {
        let key = format!("{n:0KEY_BYTES$}");
        let length = 100 - KEY_BYTES + usize::try_from(n % 21)?;
        let partition = i32::try_from(n % u64::try_from(PARTITIONS)?)?;
        let time = 1_700_000_000_000 + i64::try_from(n)?;
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

/// Each record once: every partition holds its keys in order, without gap or double.
fn verify(client: &mut wire::Client, work: &Work) -> Result<()> {
    let partitions = u64::try_from(PARTITIONS)?;
    let mut next: Vec<u64> = (0..partitions).collect();
    let mut wrong = None;
    client.read_all(
        &work.output,
        wire::Isolation::ReadCommitted,
        |partition, record| {
            let key = record
                .key
                .as_deref()
                .and_then(|key| std::str::from_utf8(key).ok());
            let expected = &mut next[partition as usize];
            if key.and_then(|key| key.parse().ok()) != Some(*expected) && wrong.is_none() {
                wrong = Some(format!(
                    "partition {partition}: {key:?} instead of {expected}"
                ));
            }
            *expected += partitions;
        },
    )?;
    if let Some(wrong) = wrong {
        bail!("the output is not the input: {wrong}");
    }
    let found: u64 = (0..partitions)
        .zip(&next)
        .map(|(p, n)| (n - p) / partitions)
        .sum();
    ensure!(
        found == work.records,
        "{found} records in the output, not {}",
        work.records
    );
    Ok(())
}

fn report(side: &str, run: u32, work: &Work, measured: &Measured) {
    let line = json!({
        "side": side,
        "run": run,
        "records": work.records,
        "commit_interval_ms": u64::try_from(work.commit_interval.as_millis()).unwrap_or(0),
        "records_per_second": measured.records_per_second().round(),
        "cpu_us_per_record": (measured.cpu_us_per_record() * 1000.0).round() / 1000.0,
        "commits": measured.commits,
        "commit_ms_mean": (measured.commit_ms_mean() * 100.0).round() / 100.0,
        "verified": true,
    });
    println!("{line}");
}

impl Options {
    fn parse() -> Result<Self> {
        let mut options = Self {
            records: 6_000_000,
            runs: 3,
            interval_ms: 100,
        };
        // `cargo bench` adds `--bench`.
        let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
        while let Some(word) = words.next() {
            let value = words
                .next()
                .with_context(|| format!("{word} needs a number"))?;
            match word.as_str() {
                "--records" => options.records = value.parse()?,
                "--runs" => options.runs = value.parse()?,
                "--interval-ms" => options.interval_ms = value.parse()?,
                _ => bail!("{word}? There are --records, --runs and --interval-ms"),
            }
        }
        Ok(options)
    }
}

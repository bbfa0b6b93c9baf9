//! The memory of a backlog: a closure that sleeps for every record, and far more waiting records than it can process.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::options::Options;
use crate::records::{Input, PARTITIONS, is_kept};
use crate::side::Side;
use crate::stats::rounded;
use crate::work::Work;

/// The sleep for each record.
const PAUSE: Duration = Duration::from_millis(1);

/// The result of the run.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) waiting: u64,
    pub(crate) seconds: u64,
    pub(crate) passed: u64,
    pub(crate) peak_mib: f64,
}

/// Runs for the given time with a slow closure.
pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let waiting = options.records.unwrap_or(2_000_000);
    let mut bench = Bench::open(PARTITIONS)?;
    let input = bench.filled("in", Work::Map, waiting)?;
    let interval = options.interval();
    let mut play = bench.play(Side::Eos, "memory", &input, Work::Map, waiting, interval)?;
    play.task.pause = PAUSE;
    let mut running = bench.start(&play, None)?;
    let end = Instant::now() + Duration::from_secs(options.seconds);
    while Instant::now() < end {
        running.check()?;
        std::thread::sleep(Duration::from_millis(100));
    }
    let peak_mib = running.peak_mib()?;
    running.stop()?;

    let committed = bench.client.committed(&play.task.group, &input)?;
    let offsets: Vec<u64> = committed
        .into_iter()
        .map(|c| c.map_or(0, |(offset, _)| offset.unsigned_abs()))
        .collect();
    let check = bench.check(&play)?;
    check.so_far()?;
    let expected = kept_below(&offsets, waiting);
    ensure!(
        check.count() == expected,
        "{} records are in the output, and by the committed offsets {expected} should be",
        check.count()
    );
    let outcome = Outcome {
        waiting,
        seconds: options.seconds,
        passed: offsets.iter().sum(),
        peak_mib,
    };
    ensure!(
        outcome.passed > 0,
        "it did nothing in {} s",
        options.seconds
    );
    println!("{}", outcome.json());
    Ok(outcome)
}

/// Returns the number of records below these offsets that the work does not drop.
fn kept_below(offsets: &[u64], records: u64) -> u64 {
    let mut next = [0_u64; PARTITIONS as usize];
    let (mut input, mut kept) = (Input::default(), 0);
    for seq in 0..records {
        input.set(seq);
        let partition = input.partition(PARTITIONS).unsigned_abs() as usize;
        let (Some(next), Some(end)) = (next.get_mut(partition), offsets.get(partition)) else {
            continue;
        };
        kept += u64::from(*next < *end && is_kept(seq, Work::Map));
        *next += 1;
    }
    kept
}

impl Outcome {
    fn json(&self) -> Value {
        json!({
            "benchmark": "memory",
            "side": Side::Eos.name(),
            "waiting": self.waiting,
            "seconds": self.seconds,
            "pause_us": u64::try_from(PAUSE.as_micros()).unwrap_or(0),
            "passed": self.passed,
            "peak_mib": rounded(self.peak_mib),
            "verified": true,
        })
    }
}

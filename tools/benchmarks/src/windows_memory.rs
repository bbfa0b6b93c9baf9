//! The memory of windows and sessions, by the number of keys.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::keyed;
use crate::options::Options;
use crate::records::PARTITIONS;
use crate::side::Side;
use crate::state_memory::mib_below;
use crate::stats::rounded;
use crate::work::{WINDOWS, Work};

/// The numbers of keys.
const KEYS: [u64; 3] = [100_000, 1_000_000, 4_000_000];

/// The figures of one run.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) work: Work,
    pub(crate) keys: u64,
    pub(crate) outputs: u64,
    pub(crate) peak_mib: f64,
    pub(crate) disk_mib: f64,
}

/// Runs each work of eos with each number of keys, and checks the output.
pub(crate) fn run(options: &Options) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for work in options.works(&WINDOWS) {
        for keys in options.keys(&KEYS) {
            eprintln!("{}: {keys} keys", work.name());
            let outcome = one(work, keys, options)
                .with_context(|| format!("{}, {keys} keys", work.name()))?;
            println!("{}", outcome.json());
            outcomes.push(outcome);
        }
    }
    Ok(outcomes)
}

fn one(work: Work, keys: u64, options: &Options) -> Result<Outcome> {
    let records = options.records.unwrap_or(8_000_000);
    let mut bench = Bench::open(PARTITIONS)?;
    bench.keys = keys;
    let input = bench.filled(&format!("{}-{keys}-in", work.name()), work, records)?;
    let name = format!("{}-{keys}", work.name());
    let play = bench.play(Side::Eos, &name, &input, work, records, options.interval())?;
    let mut running = bench.start(&play, None)?;
    keyed::wait_for(&mut bench, &play, &mut running, records)?;
    let peak_mib = running.peak_mib()?;
    let disk_mib = mib_below(&play.task.state)?;
    running.stop()?;
    let outputs = bench.ensure_right(&play)?;
    bench.clear(&play)?;
    Ok(Outcome {
        work,
        keys,
        outputs,
        peak_mib,
        disk_mib,
    })
}

impl Outcome {
    fn json(&self) -> Value {
        json!({
            "benchmark": "windows-memory",
            "work": self.work.name(),
            "keys": self.keys,
            "outputs": self.outputs,
            "peak_mib": rounded(self.peak_mib),
            "disk_mib": rounded(self.disk_mib),
            "verified": true,
        })
    }
}

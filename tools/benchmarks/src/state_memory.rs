//! The memory of state: far more keys than fit into memory, and many tasks with few keys.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::keyed;
use crate::options::Options;
use crate::side::Side;
use crate::stats::rounded;
use crate::work::{MEMORY, Work};

/// The result of one run.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) tasks: i32,
    pub(crate) keys: u64,
    pub(crate) peak_mib: f64,
    pub(crate) disk_mib: f64,
    /// The value of `state.memory.bytes`, in MiB.
    pub(crate) budget_mib: f64,
}

/// Fills three stores of few tasks with many keys, and of many tasks with few.
pub(crate) fn run(options: &Options) -> Result<Vec<Outcome>> {
    let keys = options.records.unwrap_or(5_000_000);
    [(12, keys), (200, 20_000)]
        .into_iter()
        .map(|(tasks, keys)| one(tasks, keys, options))
        .collect()
}

fn one(tasks: i32, keys: u64, options: &Options) -> Result<Outcome> {
    eprintln!("{tasks} tasks, {keys} keys in each of three stores");
    let mut bench = Bench::open(tasks)?;
    let input = keyed::filled(&mut bench, &format!("stores-{tasks}"), keys)?;
    let name = format!("state-{tasks}");
    let interval = options.interval();
    let play = bench.play(Side::Eos, &name, &input, Work::Stores, keys, interval)?;
    let mut running = bench.start(&play, None)?;
    keyed::wait_for(&mut bench, &play, &mut running, keys)?;
    // Waits for writes after the last commit.
    std::thread::sleep(Duration::from_secs(2));
    let peak_mib = running.peak_mib()?;
    let disk_mib = mib_below(&play.task.state)?;
    running.stop()?;
    bench.clear(&play)?;
    let outcome = Outcome {
        tasks,
        keys,
        peak_mib,
        disk_mib,
        budget_mib: MEMORY as f64 / f64::from(1 << 20),
    };
    println!("{}", outcome.json());
    Ok(outcome)
}

/// Returns the size of all files below a directory, in MiB.
pub(crate) fn mib_below(path: &Path) -> Result<f64> {
    Ok(bytes_below(path)? as f64 / f64::from(1 << 20))
}

/// Returns the disk space of the files below a directory, in bytes.
fn bytes_below(root: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let (mut bytes, mut open) = (0, vec![root.to_owned()]);
    while let Some(dir) = open.pop() {
        let entries = std::fs::read_dir(&dir);
        for entry in entries.with_context(|| format!("list {}", dir.display()))? {
            let entry = entry?;
            // The database may remove files during the scan.
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                open.push(entry.path());
            } else {
                bytes += meta.blocks() * 512;
            }
        }
    }
    Ok(bytes)
}

impl Outcome {
    fn json(&self) -> Value {
        json!({
            "benchmark": "state-memory",
            "tasks": self.tasks,
            "stores": 3,
            "keys": self.keys,
            "peak_mib": rounded(self.peak_mib),
            "disk_mib": rounded(self.disk_mib),
            "budget_mib": rounded(self.budget_mib),
        })
    }
}

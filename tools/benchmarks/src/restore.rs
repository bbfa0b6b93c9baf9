//! The restore rate from a changelog, compared with a bare reader.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::bare;
use crate::bench::{Bench, Play};
use crate::keyed::{self, Sample};
use crate::options::Options;
use crate::records::PARTITIONS;
use crate::side::Side;
use crate::stats::rounded;
use crate::streams::Streams;
use crate::work::{COUNTS, RESTORED, Work};

/// The time limit of a restore.
const PATIENCE: Duration = Duration::from_secs(180);

/// The result of one round, in records/s.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) round: u32,
    pub(crate) keys: u64,
    pub(crate) bare: f64,
    pub(crate) eos: f64,
    pub(crate) streams: f64,
}

/// Fills a store on each side, deletes it, and measures its restore. After each restore, some keys are sent again and
/// must be counted exactly.
pub(crate) fn run(options: &Options) -> Result<Vec<Outcome>> {
    let keys = options.records.unwrap_or(3_000_000);
    let streams = Streams::build(0, options.heap_mb(None))?;
    let mut bench = Bench::open(PARTITIONS)?;
    let interval = options.interval();
    let mut plays = Vec::new();
    for side in [Side::Eos, Side::Streams] {
        eprintln!("{}: fills its store", side.name());
        let name = format!("restore-{}", side.name());
        let input = keyed::filled(&mut bench, &format!("restore-in-{}", side.name()), keys)?;
        let play = bench.play(side, &name, &input, Work::Count, keys, interval)?;
        let mut running = bench.start(&play, Some(&streams))?;
        keyed::wait_for(&mut bench, &play, &mut running, keys)?;
        running.stop()?;
        plays.push(play);
    }
    let [ref eos, ref peer] = plays[..] else {
        return Ok(Vec::new());
    };
    let changelog = format!("{}-{}-changelog", eos.task.group, eos.task.input);
    let mut outcomes = Vec::new();
    for round in 1..=options.rounds.unwrap_or(3) {
        eprintln!("round {round}");
        let (read, took) = bare::read(&bench.bootstrap, &changelog, PARTITIONS)?;
        ensure!(
            read >= keys,
            "the bare reader found {read} records in {changelog}, and there are {keys} keys"
        );
        let outcome = Outcome {
            round,
            keys,
            bare: read as f64 / took.as_secs_f64(),
            eos: restored(&mut bench, eos, None, round)?,
            streams: restored(&mut bench, peer, Some(&streams), round)?,
        };
        println!("{}", outcome.json());
        outcomes.push(outcome);
    }
    for play in &plays {
        bench.clear(play)?;
    }
    Ok(outcomes)
}

/// Deletes the local state of a side and restarts it. Returns the restored records/s.
fn restored(bench: &mut Bench, play: &Play, streams: Option<&Streams>, round: u32) -> Result<f64> {
    let keys = play.task.records;
    std::fs::remove_dir_all(&play.task.state)?;
    let mut running = bench.start(play, streams)?;
    let patience = Instant::now() + PATIENCE;
    let (records, ms) = loop {
        running.check()?;
        match last_restore(&running.text()) {
            Some((records, ms)) if records >= keys => break (records, ms),
            found => ensure!(
                Instant::now() < patience,
                "{} restored {found:?} (records, ms) in {} s",
                play.side.name(),
                PATIENCE.as_secs()
            ),
        }
        thread::sleep(Duration::from_millis(50));
    };
    let sample = Sample::send(bench, play, keys)?;
    let all = keys + u64::from(round) * sample.len();
    keyed::wait_for(bench, play, &mut running, all)?;
    sample.check(bench, play, u64::from(round) + 1)?;
    running.stop()?;
    Ok(records as f64 / Duration::from_secs_f64(ms / 1e3).as_secs_f64())
}

/// Returns the last reported restore: records, and milliseconds since its first task began.
pub(crate) fn last_restore(text: &str) -> Option<(u64, f64)> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(RESTORED));
    let mut words = lines.next_back()?.split(' ');
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

impl Outcome {
    fn json(&self) -> Value {
        json!({
            "benchmark": "restore",
            "round": self.round,
            "keys": self.keys,
            "store": COUNTS,
            "bare": rounded(self.bare),
            "eos": rounded(self.eos),
            "streams": rounded(self.streams),
        })
    }
}

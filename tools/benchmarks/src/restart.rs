//! The time from SIGKILL until new results, by the size of the state.
//!
//! A side counts by key with a store of a given number of keys, and records of a few of them continue to arrive. The
//! benchmark kills the process and restarts it at once, in the same directory, as a static member. It measures the time
//! until every partition of the output has new committed records.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kafka_wire::Isolation;
use serde_json::{Value, json};

use crate::bench::{Bench, Play};
use crate::keyed;
use crate::options::Options;
use crate::pending;
use crate::records::PARTITIONS;
use crate::restore;
use crate::running::Running;
use crate::side::Side;
use crate::stats::{median, rounded};
use crate::streams::Streams;
use crate::work::{RESTORED, Work};

/// The sides that are compared.
pub(crate) const SIDES: [Side; 2] = [Side::Eos, Side::Streams];

/// The numbers of keys.
const KEYS: [u64; 3] = [10_000, 1_000_000, 10_000_000];

/// The number of kills of each side and size.
const KILLS: u32 = 5;

/// The time before each kill: much longer than a commit.
const CALM: Duration = Duration::from_secs(3);

/// The time after a kill in which a new commit does not count: the broker may still complete a commit of the killed
/// process. No process starts, joins and commits in so short a time.
const AFTERSHOCK: Duration = Duration::from_millis(200);

/// The time limit of a recovery.
const PATIENCE: Duration = Duration::from_secs(300);

/// The results of the kills of one side and size.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) side: Side,
    pub(crate) keys: u64,
    /// By kill, in milliseconds: from SIGKILL to the first new commit, and to new commits in every partition.
    pub(crate) first_ms: Vec<f64>,
    pub(crate) everywhere_ms: Vec<f64>,
}

impl Outcome {
    pub(crate) fn first(&self) -> f64 {
        median(self.first_ms.clone())
    }

    pub(crate) fn everywhere(&self) -> f64 {
        median(self.everywhere_ms.clone())
    }

    fn json(&self) -> Value {
        let all = |times: &[f64]| times.iter().map(|ms| rounded(*ms)).collect::<Vec<_>>();
        json!({
            "benchmark": "restart",
            "side": self.side.name(),
            "keys": self.keys,
            "first_ms": all(&self.first_ms),
            "everywhere_ms": all(&self.everywhere_ms),
        })
    }
}

/// Kills each side at each size.
pub(crate) fn run(sides: &[Side], options: &Options) -> Result<Vec<Outcome>> {
    let streams = match sides.contains(&Side::Streams) {
        true => Some(Streams::build(0, options.heap_mb(None))?),
        false => None,
    };
    let mut outcomes = Vec::new();
    for keys in options.keys(&KEYS) {
        let mut bench = Bench::open(PARTITIONS)?;
        let input = keyed::filled(&mut bench, &format!("restart-{keys}"), keys)?;
        for &side in sides {
            eprintln!("{}: {keys} keys", side.name());
            let name = format!("restart-{keys}-{}", side.name());
            let interval = options.interval();
            let mut play = bench.play(side, &name, &input, Work::Count, keys, interval)?;
            play.task.stays = true;
            let (outcome, running) =
                kill_repeatedly(&mut bench, &play, &input, keys, streams.as_ref())?;
            running.stop()?;
            bench.clear(&play)?;
            println!("{}", outcome.json());
            outcomes.push(outcome);
        }
    }
    Ok(outcomes)
}

/// The figures of eos with pending timers or sessions.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    pub(crate) work: Work,
    pub(crate) kills: Outcome,
    /// The number of records that the start without a local database read.
    pub(crate) restored: u64,
    /// The duration of that restore, in milliseconds.
    pub(crate) restore_ms: f64,
    /// From the first record that makes them due to the last result, in milliseconds.
    pub(crate) due_ms: f64,
}

/// Measures eos with pending timers, and with open sessions. Kills it, restores it without a database, and makes all of
/// them due.
pub(crate) fn pending(options: &Options) -> Result<Vec<Pending>> {
    let mut outcomes = Vec::new();
    for work in options.works(&[Work::Timers, Work::OpenSessions]) {
        for keys in options.keys(&[1_000_000]) {
            eprintln!("{}: {keys}", work.name());
            let outcome = measure_pending(work, keys, options)?;
            println!("{}", outcome.json());
            outcomes.push(outcome);
        }
    }
    Ok(outcomes)
}

fn measure_pending(work: Work, keys: u64, options: &Options) -> Result<Pending> {
    let mut bench = Bench::open(PARTITIONS)?;
    let name = format!("{}-{keys}", work.name());
    let input = keyed::filled(&mut bench, &format!("{name}-in"), keys)?;
    let interval = options.interval();
    let mut play = bench.play(Side::Eos, &name, &input, work, keys, interval)?;
    play.task.stays = true;
    let (outcome, running) = kill_repeatedly(&mut bench, &play, &input, keys, None)?;
    running.stop()?;

    std::fs::remove_dir_all(&play.task.state)?;
    let stream = keyed::Stream::start(&bench, &input, keys)?;
    let began = Instant::now();
    let mut running = bench.start(&play, None)?;
    recovery(&mut bench, &play, &mut running, began)?;
    stream.stop()?;
    let restored = restore::last_restore(&running.text());
    let (restored, restore_ms) =
        restored.context("without a database, the start did not read the changelog")?;
    ensure!(restored >= keys, "only {restored} records were read");
    let due = pending::ensure_all_due(&mut bench, &play, &mut running, keys)?;
    running.stop()?;
    bench.clear(&play)?;
    Ok(Pending {
        work,
        kills: outcome,
        restored,
        restore_ms,
        due_ms: due.as_secs_f64() * 1e3,
    })
}

impl Pending {
    fn json(&self) -> Value {
        let mut json = self.kills.json();
        json["benchmark"] = "pending".into();
        json["work"] = self.work.name().into();
        json["restored"] = self.restored.into();
        json["restore_ms"] = rounded(self.restore_ms).into();
        json["due_ms"] = rounded(self.due_ms).into();
        json["verified"] = true.into();
        json
    }
}

/// Fills the store and kills the side several times. Returns the last process, which still runs.
fn kill_repeatedly(
    bench: &mut Bench,
    play: &Play,
    input: &str,
    keys: u64,
    streams: Option<&Streams>,
) -> Result<(Outcome, Running)> {
    let mut running = bench.start(play, streams)?;
    keyed::wait_for(bench, play, &mut running, keys)?;
    let stream = keyed::Stream::start(bench, input, keys)?;
    let (mut first_ms, mut everywhere_ms) = (Vec::new(), Vec::new());
    for _ in 0..KILLS {
        thread::sleep(CALM);
        running.check()?;
        running.kill()?;
        let killed = Instant::now();
        running = bench.start(play, streams)?;
        let (first, everywhere) = recovery(bench, play, &mut running, killed)?;
        let read = play.side == Side::Eos && running.text().contains(RESTORED);
        ensure!(!read, "a restart read the changelog");
        first_ms.push(first.as_secs_f64() * 1e3);
        everywhere_ms.push(everywhere.as_secs_f64() * 1e3);
    }
    stream.stop()?;
    let outcome = Outcome {
        side: play.side,
        keys,
        first_ms,
        everywhere_ms,
    };
    Ok((outcome, running))
}

fn recovery(
    bench: &mut Bench,
    play: &Play,
    running: &mut Running,
    killed: Instant,
) -> Result<(Duration, Duration)> {
    thread::sleep(AFTERSHOCK.saturating_sub(killed.elapsed()));
    let output = &play.task.output;
    let then = bench.client.end_offsets(output, Isolation::ReadCommitted)?;
    let mut first = None;
    loop {
        let now = bench.client.end_offsets(output, Isolation::ReadCommitted)?;
        let grown = now.iter().zip(&then).filter(|(now, then)| now > then);
        let grown = grown.count();
        let took = killed.elapsed();
        if grown > 0 {
            first.get_or_insert(took);
        }
        if let Some(first) = first.filter(|_| grown == then.len()) {
            return Ok((first, took));
        }
        running.check()?;
        ensure!(
            took < PATIENCE,
            "{}: {grown} of {} partitions have new results {} s after the kill",
            play.side.name(),
            then.len(),
            took.as_secs()
        );
        thread::sleep(Duration::from_millis(3));
    }
}

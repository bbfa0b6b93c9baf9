//! One run: start, hurt, let finish, stop, judge.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use xtask::os::Signal;
use xtask::wire::{Client, Isolation};

use super::load::Load;
use super::outcome::{Fault, Judged, Kill, Outcome};
use super::plan::{Random, Strike, plan};
use super::watch::{Sample, Watch};
use crate::fleet::Fleet;
use crate::wait::wait_until;

/// What the app under test, `02-enrich`, reads, writes and is called.
const INPUT: &str = "cities";
const OUTPUTS: [&str; 2] = ["cities-enriched", "cities-audit"];
const APP: &str = "enrich-v1";

/// How long the cluster may take for one answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long the stream may stand still: longer than any time-out that a fault can lead to.
const STALL_LIMIT: Duration = Duration::from_secs(60);
/// How long until everything is committed, after the last record and the last fault.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(90);
/// The judge waits less than a transaction times out, so that none ends while it looks.
const JUDGE_PATIENCE: &str = "10";

/// What the app promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// Each record counts once.
    ExactlyOnce,
    /// The control: without transactions the same faults must leave duplicates.
    AtLeastOnce,
}

/// The size of a run and what happens in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scenario {
    /// Nodes of the cluster: 1 or 3.
    pub nodes: u8,
    /// Records of the input; more are sent while faults are still to come.
    pub records: u64,
    /// Records per second.
    pub rate: u64,
    /// Partitions of every topic.
    pub partitions: i32,
    /// Processes of the app.
    pub processes: usize,
    /// Workers of each.
    pub workers: u16,
    /// How many kills there must be while records flow.
    pub kills: usize,
    /// What the app is told to promise.
    pub promise: Promise,
    /// What everything random follows from.
    pub seed: u64,
}

/// The programs that a run needs.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The app under test.
    pub app: PathBuf,
    /// Produces the input.
    pub generator: PathBuf,
    /// Knows nothing of the app but its topics and its group.
    pub judge: PathBuf,
}

impl Scenario {
    /// The size for each change, or with `EOS_FULL=1` the full one; `EOS_SEED` repeats a run.
    pub fn from_environment(nodes: u8, promise: Promise) -> Result<Self> {
        let full = std::env::var("EOS_FULL").is_ok_and(|value| value == "1");
        let (records, kills) = if full { (1_200_000, 30) } else { (150_000, 6) };
        let seed = match std::env::var("EOS_SEED") {
            Ok(seed) => seed.parse().context("EOS_SEED is no number")?,
            Err(_) => 1,
        };
        Ok(Scenario {
            nodes,
            records,
            rate: if full { 25_000 } else { 20_000 },
            partitions: 6,
            processes: 2,
            workers: 2,
            kills,
            promise,
            seed,
        })
    }

    fn replication(&self) -> i16 {
        if self.nodes == 3 { 3 } else { 1 }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Promise::ExactlyOnce => "exactly-once",
            Promise::AtLeastOnce => "at-least-once",
        })
    }
}

/// Runs it on a fresh cluster.
///
/// # Errors
/// When a process of the app ends by itself, does not go on, or does not stop; when the faults
/// were too few. The error holds the ends of the logs. What the judge says is no error.
pub fn run(scenario: &Scenario, bootstrap: &str, programs: &Programs) -> Result<Outcome> {
    let mut dir = tempfile::tempdir()?;
    if std::env::var_os("EOS_KEEP_LOGS").is_some() {
        dir.disable_cleanup(true);
        eprintln!("logs and state stay in {}", dir.path().display());
    }
    let environment = [
        ("KAFKA_BOOTSTRAP_SERVERS", bootstrap.to_owned()),
        (
            "EOS_STATE_DIR",
            dir.path().join("state").display().to_string(),
        ),
        ("WORKERS", scenario.workers.to_string()),
        ("GUARANTEE", scenario.promise.to_string()),
    ];
    let environment = environment.map(|(key, value)| (key.to_owned(), value));
    let mut fleet = Fleet::new(&programs.app, environment.into(), &dir.path().join("logs"))?;
    let outcome = hurt_and_judge(scenario, bootstrap, programs, &mut fleet);
    outcome.with_context(|| format!("{scenario:?} failed. Logs:\n{}", fleet.tails(25)))
}

fn hurt_and_judge(
    scenario: &Scenario,
    bootstrap: &str,
    programs: &Programs,
    fleet: &mut Fleet,
) -> Result<Outcome> {
    let mut client = Client::connect(bootstrap, TIMEOUT)?;
    for topic in OUTPUTS.iter().chain([&INPUT]) {
        client.create_topic(topic, scenario.partitions, scenario.replication(), &[])?;
    }
    let watch = Watch::start(bootstrap, INPUT, OUTPUTS[0])?;
    for _ in 0..scenario.processes {
        fleet.start()?;
    }
    let (records, rate) = (scenario.records, scenario.rate);
    let load = Load::start(&programs.generator, bootstrap, INPUT, records, rate)?;
    let mut run = Run {
        scenario,
        fleet,
        load,
        watch,
        random: Random::new(scenario.seed),
        kills: Vec::new(),
        faults: Fault::default(),
    };
    let start = run.first_record()?;
    run.hurt(start)?;
    run.load.finish()?;
    let flowed = start.elapsed();
    run.catch_up(&mut client)?;
    let caught_up = start.elapsed() - flowed;
    run.enough()?;
    let Run {
        fleet,
        load,
        watch,
        kills,
        faults,
        ..
    } = run;
    let kills = kills.into_iter().map(|(moment, kill)| Kill {
        recovery: watch.recovery(moment),
        ..kill
    });
    let (kills, records) = (kills.collect(), load.planned());
    drop(watch);
    fleet.stop_all(Signal::Term)?;
    Ok(Outcome {
        records,
        kills,
        faults,
        started: fleet.started(),
        flowed,
        caught_up,
        judged: judge(&programs.judge, bootstrap)?,
    })
}

/// A run in progress.
struct Run<'a> {
    scenario: &'a Scenario,
    fleet: &'a mut Fleet,
    load: Load,
    watch: Watch,
    random: Random,
    kills: Vec<(Instant, Kill)>,
    faults: Fault,
}

impl Run<'_> {
    /// Waits until the first record is there.
    fn first_record(&mut self) -> Result<Instant> {
        wait_until(TIMEOUT, "the first record is in the input", || {
            self.fleet.check()?;
            let latest = self.watch.latest()?;
            Ok(latest.is_some_and(|sample| sample.input > 0))
        })?;
        Ok(Instant::now())
    }

    fn hurt(&mut self, start: Instant) -> Result<()> {
        let Scenario {
            kills,
            records,
            rate,
            ..
        } = *self.scenario;
        let span = Duration::from_secs_f64(records as f64 / rate as f64);
        for step in plan(kills, span, &mut self.random) {
            wait_until(span + STALL_LIMIT, "the next fault is due", || {
                self.fleet.check()?;
                self.load.keep_going()?;
                Ok(start.elapsed() >= step.at)
            })?;
            self.strike(step.strike)?;
        }
        Ok(())
    }

    fn strike(&mut self, strike: Strike) -> Result<()> {
        match strike {
            Strike::Kill => self.kill(),
            Strike::KillInStart { after } => {
                let victim = self.random.index(self.fleet.len());
                self.fleet.kill_and_restart(victim)?;
                std::thread::sleep(after);
                self.faults.killed_in_start += 1;
                self.fleet.kill_and_restart(self.fleet.len() - 1)
            }
            Strike::Roll => {
                let victim = self.random.index(self.fleet.len());
                self.fleet.stop(victim, Signal::Term)?;
                self.faults.rolled += 1;
                self.fleet.start()
            }
            Strike::Join => {
                self.faults.joined += 1;
                self.fleet.start()
            }
            Strike::Leave => {
                self.faults.left += 1;
                self.fleet.stop(self.fleet.len() - 1, Signal::Interrupt)
            }
        }
    }

    /// Kills a process, but not before something was committed since the kill before.
    fn kill(&mut self) -> Result<()> {
        let committed = self.kills.last().map_or(-1, |(_, kill)| kill.committed);
        let mut latest: Option<Sample> = None;
        let since = Instant::now();
        wait_until(STALL_LIMIT, "something is committed after a kill", || {
            self.fleet.check()?;
            self.load.keep_going()?;
            latest = self.watch.latest()?;
            Ok(latest
                .as_ref()
                .is_some_and(|now| now.committed() > committed))
        })?;
        let Some(now) = latest else {
            bail!("nothing was seen of the topics");
        };
        let victim = self.random.index(self.fleet.len());
        let kill = Kill {
            input: now.input,
            committed: now.committed(),
            flowing: self.load.flows()?,
            recovery: None,
        };
        eprintln!(
            "kill {}: {} records in, {} committed offsets out, waited {:.1?}",
            self.kills.len() + 1,
            kill.input,
            kill.committed,
            since.elapsed()
        );
        self.kills.push((Instant::now(), kill));
        self.fleet.kill_and_restart(victim)
    }

    /// Waits until the group's offsets are at the end of the input.
    fn catch_up(&mut self, client: &mut Client) -> Result<()> {
        let ends = client.end_offsets(INPUT, Isolation::ReadUncommitted)?;
        let mut last = Vec::new();
        let reached = wait_until(CATCH_UP_LIMIT, "all of the input is committed", || {
            self.fleet.check()?;
            let committed = client.committed(APP, INPUT)?;
            let offsets = committed.into_iter().map(|known| known.map(|(at, _)| at));
            last = offsets.collect();
            Ok(last
                .iter()
                .eq(ends.iter().map(|end| Some(*end)).collect::<Vec<_>>().iter()))
        });
        reached.with_context(|| format!("ends {ends:?}, committed {last:?}"))
    }

    /// Fails if the run did not hurt as much as it was to.
    fn enough(&self) -> Result<()> {
        let wanted = self.scenario.kills;
        let flowing = self.kills.iter().filter(|(_, kill)| kill.flowing).count();
        ensure!(
            flowing >= wanted,
            "{flowing} kills while records flowed, not {wanted}"
        );
        let grew = self.kills.windows(2);
        let grew = grew.filter(|pair| pair[0].1.committed < pair[1].1.committed);
        ensure!(
            grew.count() + 1 == self.kills.len(),
            "nothing was committed between two kills"
        );
        let share = |kill: Option<&(Instant, Kill)>| {
            kill.map_or(0.5, |(_, kill)| {
                kill.input as f64 / self.load.planned() as f64
            })
        };
        let (first, last) = (share(self.kills.first()), share(self.kills.last()));
        ensure!(
            first < 0.2,
            "the first kill came after {first:.2} of the records"
        );
        ensure!(
            last > 0.7,
            "the last kill came after {last:.2} of the records"
        );
        let Fault {
            killed_in_start,
            rolled,
            joined,
            left,
        } = self.faults;
        let fewest = killed_in_start.min(rolled).min(joined).min(left);
        ensure!(fewest >= wanted / 6, "too few faults: {:?}", self.faults);
        Ok(())
    }
}

fn judge(program: &Path, bootstrap: &str) -> Result<Judged> {
    let mut command = Command::new(program);
    command.args(["--json", "--bootstrap", bootstrap, "--input", INPUT]);
    for output in OUTPUTS {
        command.args(["--output", output]);
    }
    command.args(["--group", APP, "--wait", JUDGE_PATIENCE]);
    command.args(["--transactional-prefix", &format!("{APP}-")]);
    let output = command.output()?;
    let verdict = serde_json::from_slice(&output.stdout);
    Ok(Judged {
        code: output.status.code(),
        verdict: verdict.with_context(|| format!("the judge said {output:?}"))?,
    })
}

//! The execution of one run: start, faults, catch-up, stop, verdict.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kafka_launcher::os::Signal;
use kafka_wire::{Client, Isolation};

use super::load::Load;
use super::outcome::{Fault, Judged, Kill, Outcome, Rebalances};
use super::plan::{Parting, Random, Strike};
use super::scenario::{Course, Programs, Promise, Scenario};
use super::watch::{Sample, Watch};
use crate::fleet::Fleet;
use crate::wait::wait_until;

/// The input, the outputs and the name of the app under test, `02-enrich`.
const INPUT: &str = "cities";
const OUTPUTS: [&str; 2] = ["cities-enriched", "cities-audit"];
const APP: &str = "enrich-v1";

/// The time limit of a request to the cluster.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time without new committed output. It is longer than any timeout that a fault can cause.
const STALL_LIMIT: Duration = Duration::from_secs(60);
/// The time limit from the last record and the last fault until everything is committed.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(90);
/// The time, in seconds, for which the judge waits for open transactions. It is shorter than the transaction timeout,
/// so that no transaction ends while the judge reads.
const JUDGE_PATIENCE: &str = "10";

/// Runs the scenario on a fresh cluster.
///
/// # Errors
/// When a process of the app ends by itself, does not continue, or does not stop. When there were too few faults. The
/// error contains the ends of the logs. The verdict of the judge is no error.
pub fn run(scenario: &Scenario, bootstrap: &str, programs: &Programs) -> Result<Outcome> {
    let mut dir = tempfile::tempdir()?;
    if std::env::var_os("EOS_KEEP_LOGS").is_some() {
        dir.disable_cleanup(true);
        eprintln!("logs and state stay in {}", dir.path().display());
    }
    let environment = [
        ("EOS_BOOTSTRAP_SERVERS", bootstrap.to_owned()),
        (
            "EOS_STATE_DIR",
            dir.path().join("state").display().to_string(),
        ),
        ("WORKERS", scenario.workers.to_string()),
        ("GUARANTEE", scenario.promise.to_string()),
    ];
    let members = scenario.members.environment();
    let members = members
        .iter()
        .map(|(key, value)| (*key, (*value).to_owned()));
    // With this interval, each kill can repeat a second of outputs. So the control shows duplicates on a slow machine.
    let rare = match scenario.promise {
        Promise::AtLeastOnce => &[
            ("EOS_COMMIT_PACE", "fixed"),
            ("EOS_COMMIT_INTERVAL_MS", "1000"),
        ][..],
        Promise::ExactlyOnce => &[],
    };
    let rare = rare.iter().map(|(key, value)| (*key, (*value).to_owned()));
    let environment = environment.into_iter().chain(members).chain(rare);
    let logs = dir.path().join("logs");
    let mut fleet = Fleet::new(&programs.app, environment, &logs)?;
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
    run.catch_up(bootstrap)?;
    let caught_up = start.elapsed() - flowed;
    let rebalances = run.rebalances()?;
    run.enough(rebalances)?;
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
        rebalances,
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
    /// Waits until the input has its first record.
    fn first_record(&mut self) -> Result<Instant> {
        wait_until(TIMEOUT, "the first record is in the input", || {
            self.fleet.check()?;
            let latest = self.watch.latest()?;
            Ok(latest.is_some_and(|sample| sample.input > 0))
        })?;
        Ok(Instant::now())
    }

    fn hurt(&mut self, start: Instant) -> Result<()> {
        let span = self.scenario.span();
        for step in self.scenario.plan(&mut self.random) {
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
            Strike::Part(parting) => {
                let victim = self.random.index(self.fleet.len());
                self.part(victim, parting)
            }
        }
    }

    /// Ends a process without a successor.
    fn part(&mut self, victim: usize, parting: Parting) -> Result<()> {
        ensure!(self.load.flows()?, "a member parts while nothing flows");
        let since = Instant::now();
        match parting {
            Parting::Leave => {
                self.fleet.stop(victim, Signal::Interrupt)?;
                self.faults.left += 1;
            }
            Parting::Retire => {
                self.fleet.stop(victim, Signal::Term)?;
                self.faults.retired += 1;
            }
            Parting::Vanish => {
                self.fleet.kill(victim)?;
                self.faults.vanished += 1;
            }
        }
        self.faults.slowest_parting = self.faults.slowest_parting.max(since.elapsed());
        Ok(())
    }

    /// Kills a process. Waits before until there is new committed output since the previous kill.
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
            "kill {}: {} records in, {} committed records out, waited {:.1?}",
            self.kills.len() + 1,
            kill.input,
            kill.committed,
            since.elapsed()
        );
        self.kills.push((Instant::now(), kill));
        self.fleet.kill_and_restart(victim)
    }

    /// Waits until the group's offsets are at the end of the input.
    ///
    /// A process that is stopped during its start has not taken over the membership and the open transactions of its
    /// killed predecessor. These end only by their timeouts. Offsets are pending until then, so a single request may
    /// take as long as the whole wait.
    fn catch_up(&mut self, bootstrap: &str) -> Result<()> {
        let mut client = Client::connect(bootstrap, CATCH_UP_LIMIT)?;
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

    /// Counts the assignments and revocations in the logs so far.
    fn rebalances(&self) -> Result<Rebalances> {
        let moved = |word: &str| {
            self.fleet
                .count_lines(|line| line.contains(word) && !line.contains("partitions=[]"))
        };
        Ok(Rebalances {
            assigned: moved("partitions assigned")?,
            revoked: moved("partitions revoked")?,
        })
    }

    /// Fails if the run had too few faults.
    fn enough(&self, rebalances: Rebalances) -> Result<()> {
        match self.scenario.course {
            Course::Kills(wanted) => self.enough_kills(wanted),
            Course::Churn { .. } => self.enough_churn(rebalances),
        }
    }

    fn enough_kills(&self, wanted: usize) -> Result<()> {
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
        let Fault {
            killed_in_start,
            rolled,
            joined,
            left,
            ..
        } = self.faults;
        let fewest = killed_in_start.min(rolled).min(joined).min(left);
        ensure!(fewest >= wanted / 6, "too few faults: {:?}", self.faults);
        Ok(())
    }

    /// Fails unless each kind of parting happened, and there was at least one assignment for each member and one
    /// revocation for each member that left.
    fn enough_churn(&self, rebalances: Rebalances) -> Result<()> {
        let Fault {
            joined,
            left,
            retired,
            vanished,
            ..
        } = self.faults;
        let fewest = left.min(retired).min(vanished);
        ensure!(
            fewest > 0,
            "a kind of parting is missing: {:?}",
            self.faults
        );
        let Rebalances { assigned, revoked } = rebalances;
        // The first members got an assignment, too.
        let wanted = joined + self.scenario.processes;
        ensure!(
            assigned >= wanted && revoked >= left,
            "{joined} joined, {left} left, but {rebalances:?}"
        );
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

//! What is done to a process, and what must hold afterwards.

use std::fmt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::member::{STARTING, TASKS_START};
use super::scene::{Scene, Settings, is_kip_848};
use crate::judge::Verdict;
use crate::wait::wait_until;

/// Every failpoint of an app without state.
pub const POINTS: [&str; 11] = [
    "poll",
    "begin",
    "first_send",
    "kth_send",
    "pre_offsets",
    "post_offsets",
    "pre_commit",
    "in_commit",
    "post_commit",
    "pre_abort",
    "in_revoke",
];

/// The last of them, but the client's threads run for a while before the worker does, once thawed.
pub const IN_REVOKE_LONG: &str = "in_revoke_long";

/// How many records a case has up to its fault and behind it.
const RECORDS: u64 = 200;
/// How many more are sent once it is over.
const AFTER: u64 = 40;
/// How long anything may take that takes seconds: longer than every time-out of the settings.
const PATIENCE: Duration = Duration::from_secs(60);
/// The heartbeats of [`IN_REVOKE_LONG`].
const LATE_HEARTBEAT: Duration = Duration::from_secs(2);
/// By when a fault fires.
const FIRE_LIMIT: Duration = Duration::from_secs(20);
/// How often a case is begun.
const TRIES: u32 = 3;
/// How often the coordinator looks for transactions that are too old (as the launcher sets it),
/// and what a machine under load may add.
const SWEEP: Duration = Duration::from_millis(1_500);
/// By when a thawed process works again.
const REJOIN_LIMIT: Duration = PATIENCE;

/// What happens at the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// SIGKILL; a successor is started in the same slot.
    Crash,
    /// SIGSTOP, and SIGCONT once every time-out has passed.
    Freeze,
    /// The step fails.
    Error,
}

/// Which record it happens at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The first of all.
    First,
    /// One with many before it and behind it.
    Middle,
    /// The last of all.
    Last,
}

/// One fault.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Where.
    pub point: &'static str,
    /// What.
    pub act: Act,
    /// When.
    pub at: At,
    /// Which defences the process lacks, separated by commas: a control.
    pub undefended: &'static str,
}

/// What came of it.
#[derive(Debug)]
pub struct Report {
    /// How often the fault happened: once, or it is an error.
    pub fired: usize,
    /// What the judge says.
    pub verdict: Verdict,
    /// The same in words, with the ends of the logs if it is not clean.
    pub told: String,
    /// A zombie's: from its SIGCONT to the first committed output of a record that was sent after.
    pub rejoined: Option<Duration>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (act, at) = (self.act.name(), format!("{:?}", self.at).to_lowercase());
        write!(f, "{} {act}, {at} record", self.point)?;
        match self.undefended {
            "" => Ok(()),
            lacking => write!(f, ", without {lacking}"),
        }
    }
}

impl Act {
    fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Freeze => "freeze",
            Self::Error => "error",
        }
    }
}

impl At {
    /// The number of the record, from 1 on.
    fn record(self) -> u64 {
        match self {
            Self::First => 1,
            Self::Middle => RECORDS / 2,
            Self::Last => RECORDS,
        }
    }
}

impl Case {
    fn in_revoke(&self) -> bool {
        matches!(self.point, "in_revoke" | IN_REVOKE_LONG)
    }

    /// An abort needs a reason.
    fn failpoints(&self) -> (String, usize) {
        let (act, n) = (self.act.name(), self.at.record());
        match self.point {
            "pre_abort" => {
                let reason = format!("post_offsets=error@record:{n}");
                (format!("{reason};pre_abort={act}@record:{n}"), 2)
            }
            // It is still at it when its client hears that it is no member any more.
            IN_REVOKE_LONG => {
                let freeze = format!("in_revoke={act}@record:{n}");
                (format!("{freeze};in_revoke=stall@record:{n}"), 2)
            }
            point => (format!("{point}={act}@record:{n}"), 1),
        }
    }

    /// How often the fault happened that the case is about.
    fn fired(&self, scene: &Scene) -> usize {
        let point = if self.in_revoke() {
            "in_revoke"
        } else {
            self.point
        };
        let about = format!(" {point} {} ", self.act.name());
        let fired = scene.fired();
        fired.iter().filter(|line| line.contains(&about)).count()
    }

    fn settings(&self) -> Settings {
        let (session, transaction) = match self.act {
            _ if is_kip_848() => (6_000, 3_000),
            _ if self.point == IN_REVOKE_LONG => (6_000, 3_000),
            Act::Freeze => (3_000, 3_000),
            Act::Crash | Act::Error => (6_000, 6_000),
        };
        // A revocation must find something open.
        let interval = if self.in_revoke() { 1_000 } else { 50 };
        Settings {
            session: Duration::from_millis(session),
            transaction: Duration::from_millis(transaction),
            interval: Duration::from_millis(interval),
            // A member that hears late of the next rebalance works for longer in this one.
            heartbeat: match self.point {
                IN_REVOKE_LONG => LATE_HEARTBEAT,
                _ => Duration::from_millis(session / 10),
            },
        }
    }

    /// On a machine that stands still for longer than a session, a process may lose its partitions
    /// before the fault is due: then it is done once more.
    fn run(
        &self,
        program: &Path,
        bootstrap: &str,
        body: impl Fn(&Case, &mut Scene) -> Result<Option<Report>>,
    ) -> Result<Report> {
        let name = format!("{}-{}", self.point, self.act.name());
        for _ in 0..TRIES {
            let mut scene = Scene::new(program, bootstrap, &name, 2, self.settings())?;
            let report = body(self, &mut scene);
            let report = report.with_context(|| format!("{self}:\n{}", scene.tails(40)))?;
            match report {
                Some(report) => return Ok(report),
                None => eprintln!("{self}: the fault did not fire:\n{}", scene.tails(20)),
            }
        }
        bail!("{self}: the fault did not fire {TRIES} times")
    }

    /// Brings the first process to its fault; whether a second one was started for it. Nothing if the
    /// fault did not fire.
    fn strike(&self, scene: &mut Scene) -> Result<Option<bool>> {
        let (failpoints, times) = self.failpoints();
        scene.start(&failpoints, self.undefended)?;
        scene.await_committed(PATIENCE).context("the start")?;
        let target = self.at.record();
        scene.send(target - 1)?;
        match scene.await_committed(PATIENCE).context("up to the fault") {
            // It fired too early: what is taken and not merged when a transaction is aborted counts
            // twice.
            Err(_) if !scene.fired().is_empty() => return Ok(None),
            reached => reached?,
        }
        let joined = self.in_revoke();
        if joined {
            let second = scene.start("", "")?;
            wait_until(PATIENCE, "the second process starts", || {
                Ok(scene.members[second].log().contains(STARTING))
            })?;
        }
        // The target begins a transaction of its own.
        scene.send(1)?;
        while scene.total() < RECORDS {
            scene.send((RECORDS - scene.total()).min(10))?;
            thread::sleep(Duration::from_millis(if joined { 100 } else { 10 }));
        }
        // What is due behind a freeze is told once it goes on.
        let times = if self.act == Act::Freeze {
            1 + usize::from(self.point == "pre_abort")
        } else {
            times
        };
        if scene.await_fired(times, FIRE_LIMIT).is_err() {
            return Ok(None);
        }
        ensure!(scene.fired().len() == times, "{:?}", scene.fired());
        Ok(Some(joined))
    }
}

/// Crashes it, freezes it past every time-out, or has the step fail; then everything must be there
/// once.
///
/// # Errors
/// When the fault did not fire, or the app does not go on. What the judge says is no error.
pub fn sweep(case: &Case, program: &Path, bootstrap: &str) -> Result<Report> {
    case.run(program, bootstrap, |case, scene| {
        if case.strike(scene)?.is_none() {
            return Ok(None);
        }
        let mut living = 0;
        match case.act {
            Act::Crash => {
                scene.members[0].await_killed(PATIENCE)?;
                living = 1;
                scene.start("", "")?;
            }
            Act::Freeze => {
                let frozen = &scene.members[0];
                frozen.await_frozen(PATIENCE)?;
                let Settings {
                    session,
                    transaction,
                    ..
                } = case.settings();
                thread::sleep(session.max(transaction) + SWEEP);
                frozen.thaw()?;
            }
            Act::Error => {}
        }
        scene.await_committed(PATIENCE).context("after the fault")?;
        scene.send(AFTER)?;
        scene.await_committed(PATIENCE).context("going on")?;
        let fired = case.fired(scene);
        let (verdict, text) = scene.stop_and_judge(living)?;
        Ok(Some(Report {
            fired,
            told: told(scene, &verdict, text),
            verdict,
            rejoined: None,
        }))
    })
}

/// Freezes it until a successor has done everything, then lets it go on: it works again by itself,
/// and nothing is visible of what it had under way.
///
/// # Errors
/// When the fault did not fire, the successor does not take over, the zombie does not work again
/// within 30 s, or something of it shows. What the judge says is no error.
pub fn zombie(case: &Case, program: &Path, bootstrap: &str) -> Result<Report> {
    case.run(program, bootstrap, |case, scene| {
        match case.strike(scene)? {
            None => return Ok(None),
            Some(true) => {}
            Some(false) => {
                scene.start("", "")?;
            }
        }
        scene.members[0].await_frozen(PATIENCE)?;
        let frozen = Instant::now();
        let successor = scene.members.len() - 1;
        wait_until(PATIENCE, "the successor is given something", || {
            Ok(scene.members[successor].log().contains(TASKS_START))
        })?;
        let given = Instant::now();
        scene
            .await_committed(PATIENCE)
            .context("the successor takes over")?;
        // One that froze behind its last EndTxn left the successor nothing to wait for.
        let Settings {
            session,
            transaction,
            ..
        } = case.settings();
        let past = session.max(transaction) + SWEEP;
        thread::sleep(past.saturating_sub(frozen.elapsed()));
        if case.point == IN_REVOKE_LONG {
            // Between two heartbeats of the successor: it learns late that a member joins. (A stall is
            // as long as a heartbeat's interval.)
            let interval = LATE_HEARTBEAT.as_millis();
            while given.elapsed().as_millis() % interval < 200
                || given.elapsed().as_millis() % interval > 400
            {
                thread::sleep(Duration::from_millis(20));
            }
        }
        let zombie = scene.members[0].id();
        let of_zombie = |scene: &mut Scene| -> Result<Vec<u64>> {
            let makers = scene.makers()?.into_iter();
            let its = makers.filter(|(_, by)| by.contains(&zombie));
            Ok(its.map(|(seq, _)| seq).collect())
        };
        let before = of_zombie(scene)?;
        scene.members[0].thaw()?;
        let (thawed, after) = (Instant::now(), scene.total());
        let mut last = Vec::new();
        wait_until(REJOIN_LIMIT, "the zombie works again", || {
            scene.members[0].check()?;
            scene.send(4)?;
            last = of_zombie(scene)?;
            Ok(last.iter().any(|seq| *seq >= after))
        })?;
        let rejoined = thawed.elapsed();
        scene.send(AFTER)?;
        scene.await_committed(PATIENCE).context("going on")?;
        last = of_zombie(scene)?;
        last.retain(|seq| *seq < after);
        // A control's is what the judge finds.
        ensure!(
            last == before || !case.undefended.is_empty(),
            "what the zombie had under way is visible: {last:?} where {before:?} was"
        );
        let fired = case.fired(scene);
        let (verdict, text) = scene.stop_and_judge(0)?;
        Ok(Some(Report {
            fired,
            told: told(scene, &verdict, text),
            verdict,
            rejoined: Some(rejoined),
        }))
    })
}

fn told(scene: &Scene, verdict: &Verdict, text: String) -> String {
    match verdict.is_clean() {
        true => text,
        false => format!("{text}{}", scene.tails(200)),
    }
}

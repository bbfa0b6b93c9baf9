//! Cases of the sweep: the fault of a process, and the checks after it.

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

/// `in_revoke`, with a stall of the worker after the thaw. The client's threads run for a while before the worker does.
pub const IN_REVOKE_LONG: &str = "in_revoke_long";

/// The number of records of a case before its fault and after it, together.
const RECORDS: u64 = 200;
/// The number of records that are sent once the fault is over.
const AFTER: u64 = 40;
/// The time limit of each wait. It is longer than every timeout of the settings.
const PATIENCE: Duration = Duration::from_secs(60);
/// The heartbeat interval of [`IN_REVOKE_LONG`].
const LATE_HEARTBEAT: Duration = Duration::from_secs(2);
/// The deadline of a fault.
const FIRE_LIMIT: Duration = Duration::from_secs(20);
/// The number of tries of a case.
const TRIES: u32 = 3;
/// The interval at which the coordinator checks for expired transactions (set by the launcher), and a margin for a
/// machine under load.
const SWEEP: Duration = Duration::from_millis(1_500);
/// The deadline for the first new output of a thawed process.
const REJOIN_LIMIT: Duration = PATIENCE;

/// The action at the failpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// SIGKILL; a successor is started in the same slot.
    Crash,
    /// SIGSTOP, and SIGCONT once every timeout has passed.
    Freeze,
    /// The step fails.
    Error,
}

/// The record at which the fault happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The first record.
    First,
    /// A record with many records before and after it.
    Middle,
    /// The last record.
    Last,
}

/// One fault.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The failpoint.
    pub point: &'static str,
    /// The action.
    pub act: Act,
    /// The record.
    pub at: At,
    /// The disabled defences of the process, separated by commas. Not empty in a control.
    pub undefended: &'static str,
}

/// The outcome of a case.
#[derive(Debug)]
pub struct Report {
    /// The number of times that the fault happened. Any number but 1 is an error.
    pub fired: usize,
    /// The verdict of the judge.
    pub verdict: Verdict,
    /// The verdict as text, with the ends of the logs if it is not clean.
    pub told: String,
    /// For a zombie: the time from its SIGCONT to its first committed output of a later record.
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
    /// Returns the number of the record, from 1.
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

    /// Returns the setting of the failpoints, and their number. `pre_abort` needs an error before it that causes the
    /// abort.
    fn failpoints(&self) -> (String, usize) {
        let (act, n) = (self.act.name(), self.at.record());
        match self.point {
            "pre_abort" => {
                let reason = format!("post_offsets=error@record:{n}");
                (format!("{reason};pre_abort={act}@record:{n}"), 2)
            }
            // The process is still in the revocation when its client learns that it is no longer a member.
            IN_REVOKE_LONG => {
                let freeze = format!("in_revoke={act}@record:{n}");
                (format!("{freeze};in_revoke=stall@record:{n}"), 2)
            }
            point => (format!("{point}={act}@record:{n}"), 1),
        }
    }

    /// Returns the number of times that the fault of the case happened, without other failpoints.
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
        // A revocation must find an open transaction.
        let interval = if self.in_revoke() { 1_000 } else { 50 };
        Settings {
            session: Duration::from_millis(session),
            transaction: Duration::from_millis(transaction),
            interval: Duration::from_millis(interval),
            // A member that learns late of the next rebalance works for longer in this generation.
            heartbeat: match self.point {
                IN_REVOKE_LONG => LATE_HEARTBEAT,
                _ => Duration::from_millis(session / 10),
            },
        }
    }

    /// Runs the case, and tries it again if the fault does not fire. On a machine that stalls for longer than a
    /// session, a process may lose its partitions before the fault is due.
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

    /// Runs the first process up to its fault. Returns whether a second process was started for this, or `None` if the
    /// fault did not fire.
    fn strike(&self, scene: &mut Scene) -> Result<Option<bool>> {
        let (failpoints, times) = self.failpoints();
        scene.start(&failpoints, self.undefended)?;
        scene.await_committed(PATIENCE).context("the start")?;
        let target = self.at.record();
        scene.send(target - 1)?;
        match scene.await_committed(PATIENCE).context("up to the fault") {
            // The fault fired too early. Records that were taken but not merged when a transaction aborted count twice.
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
        // The target record is sent alone, so that it begins a transaction.
        scene.send(1)?;
        while scene.total() < RECORDS {
            scene.send((RECORDS - scene.total()).min(10))?;
            thread::sleep(Duration::from_millis(if joined { 100 } else { 10 }));
        }
        // A failpoint that follows a freeze is logged only after the thaw.
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

/// Crashes the process, freezes it past every timeout, or makes the step fail. Then judges the output, which must
/// contain each record once.
///
/// # Errors
/// When the fault did not fire, or the app does not continue. The verdict of the judge is no error.
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

/// Freezes the process until a successor has processed everything, and then thaws it. The zombie must work again by
/// itself, and its unfinished transaction must stay invisible.
///
/// # Errors
/// When the fault did not fire, the successor does not take over, the zombie does not work again within 60 s, or
/// output of its unfinished transaction is visible. The verdict of the judge is no error.
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
        // If the zombie froze after its last EndTxn, the successor did not wait for a timeout.
        let Settings {
            session,
            transaction,
            ..
        } = case.settings();
        let past = session.max(transaction) + SWEEP;
        thread::sleep(past.saturating_sub(frozen.elapsed()));
        if case.point == IN_REVOKE_LONG {
            // Thaws the zombie between two heartbeats of the successor, so that the successor learns late that a member
            // joins. (A stall is as long as the heartbeat interval.)
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
        // In a control, the output of the zombie may be visible. Then the judge reports it.
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

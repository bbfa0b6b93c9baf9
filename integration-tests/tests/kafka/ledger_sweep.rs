//! The crash sweep with a ledger. A process that writes to PostgreSQL is killed, freezes past every timeout, or gets an
//! error. This happens at every step of a transaction: around the take-over, after the lock of its positions, after
//! rows, and before, in and after COMMIT. A successor books all orders while a frozen process still has its
//! transaction. Each order is booked once.
//!
//! `EOS_FULL=1 cargo test -p integration-tests --test kafka ledger_sweep::` runs every step with every fault. Without
//! it, each step runs with a kill, and with one other fault. `EOS_CASE=pre_commit` runs the cases whose name contains
//! `pre_commit`.

use std::fmt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use eos_postgres::testing::Cluster;
use integration_tests::faults::is_full;
use integration_tests::shop::Verdict;
use integration_tests::sweep::{Act, Done, at_once, each};
use integration_tests::wait::wait_until;
use kafka_launcher::for_tests;

use crate::bookings::{SLICE, Scene, Start, program};
use crate::common::PATIENCE;

/// Every step of an app with a ledger.
const POINTS: [&str; 14] = [
    "pre_take_over",
    "taken_over",
    "poll",
    "begin",
    "first_send",
    "held",
    "kth_send",
    "pre_offsets",
    "post_offsets",
    "pre_commit",
    "in_commit",
    "post_commit",
    "pre_abort",
    "in_revoke",
];
/// The steps at which a transaction certainly has locked its positions.
const HOLDING: [&str; 5] = [
    "held",
    "kth_send",
    "post_offsets",
    "pre_commit",
    "pre_abort",
];
/// The numbers of orders before the fault may fire, around the fault, and once it is over.
const BEFORE: u64 = 60;
const AROUND: u64 = 80;
const AFTER: u64 = 40;
/// The deadline of a fault.
const FIRE_LIMIT: Duration = Duration::from_secs(20);
/// The number of tries of a case. On a busy machine, a process may lose its partitions before the fault is due.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy)]
struct Case {
    point: &'static str,
    act: Act,
}

struct Report {
    verdict: Verdict,
    /// The sessions that a successor ended, because they held a position.
    ended: usize,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.point, self.act_name())
    }
}

impl Case {
    fn act_name(&self) -> &'static str {
        match self.act {
            Act::Crash => "crash",
            Act::Freeze => "freeze",
            Act::Error => "error",
        }
    }

    fn failpoints(&self) -> String {
        let (point, act) = (self.point, self.act_name());
        match point {
            // These points are hit by a process that finds the positions of another process.
            "pre_take_over" | "taken_over" => format!("{point}={act}@hit:1"),
            // The abort needs an error that causes it.
            "pre_abort" => {
                format!("post_offsets=error@record:{BEFORE};pre_abort={act}@record:{BEFORE}")
            }
            // The session has its own thread, which sends its buffered rows during the stall.
            "held" | "kth_send" => {
                format!("{point}=stall@record:{BEFORE};{point}={act}@record:{BEFORE}")
            }
            point => format!("{point}={act}@record:{BEFORE}"),
        }
    }

    fn is_take_over(&self) -> bool {
        ["pre_take_over", "taken_over"].contains(&self.point)
    }

    fn is_revocation(&self) -> bool {
        self.point == "in_revoke"
    }

    /// Returns the settings of a process of this case.
    fn start(&self) -> Start<'static> {
        Start {
            // A revocation must find an open transaction.
            interval_ms: if self.is_revocation() { 1_000 } else { 50 },
            ..Start::new(self.time_out())
        }
    }

    /// Returns the fault as it is in the log of faults.
    fn fault(&self) -> String {
        format!(" {} {} ", self.point, self.act_name())
    }

    /// Returns the timeouts. The session of a frozen process must end soon, and that of any other process must not end.
    fn time_out(&self) -> Duration {
        match self.act {
            Act::Freeze => Duration::from_secs(4),
            Act::Crash | Act::Error => Duration::from_secs(6),
        }
    }
}

/// Runs a process up to its fault. Returns its index, or `None` if the fault did not fire.
fn strike(case: Case, scene: &mut Scene<'_>) -> Result<Option<usize>> {
    let start = case.start();
    if case.is_take_over() {
        scene.start(&start)?;
        scene.send(BEFORE)?;
        scene.await_taken().context("before the fault")?;
        scene.stop(&[0])?;
    }
    let victim = scene.start(&start.clone().failing(&case.failpoints()))?;
    if !case.is_take_over() {
        scene.await_owner()?;
        scene.send(BEFORE - 1)?;
        scene.await_taken().context("before the fault")?;
    }
    if case.is_revocation() {
        scene.start(&start)?;
    }
    let around = scene.sent + AROUND;
    let fault = case.fault();
    let since = Instant::now();
    while scene.sent < around || (case.is_revocation() && scene.fired(&fault) == 0) {
        scene.send(SLICE)?;
        thread::sleep(PAUSE / if case.is_revocation() { 1 } else { 5 });
        if since.elapsed() > FIRE_LIMIT {
            return Ok(None);
        }
    }
    let fired = wait_until(
        FIRE_LIMIT,
        "the fault fires",
        || Ok(scene.fired(&fault) > 0),
    );
    Ok(fired.is_ok().then_some(victim))
}

fn play(case: Case, scene: &mut Scene<'_>) -> Result<Option<Report>> {
    let Some(victim) = strike(case, scene)? else {
        return Ok(None);
    };
    let mut living: Vec<usize> = (victim..scene.members.len()).collect();
    match case.act {
        Act::Crash => {
            scene.members[victim].await_killed(PATIENCE)?;
            living.retain(|nth| *nth != victim);
            living.push(scene.start(&case.start())?);
        }
        Act::Freeze => {
            scene.members[victim].await_frozen(PATIENCE)?;
            if !case.is_revocation() {
                living.push(scene.start(&case.start())?);
            }
            scene.await_taken().context("beside the frozen process")?;
            thaw(case, scene, victim)?;
        }
        Act::Error => {}
    }
    scene.await_taken().context("after the fault")?;
    scene.send(AFTER)?;
    scene.await_taken().context("going on")?;
    scene.stop(&living)?;
    let fired = scene.fired(&case.fault());
    ensure!(fired == 1, "it fired {fired} times");
    let ended = scene.logged(": ended the session eos/");
    let verdict = scene.must_be_clean()?;
    // The transaction of the frozen process had locked its positions.
    let held = case.act == Act::Freeze && HOLDING.contains(&case.point);
    ensure!(ended > 0 || !held, "no successor ended the frozen session");
    let topic = scene.topic();
    scene.client.delete_topic(&topic)?;
    Ok(Some(Report { verdict, ended }))
}

/// Thaws a frozen process. If it froze before its take-over, it now raises the epochs over the rightful owner, whose
/// next transaction must fail.
fn thaw(case: Case, scene: &mut Scene<'_>, victim: usize) -> Result<()> {
    const OVERTAKEN: &str = "are not as expected: another worker took them over";
    scene.members[victim].thaw()?;
    if case.point != "pre_take_over" {
        return Ok(());
    }
    wait_until(PATIENCE, "the owner is overtaken", || {
        scene.send(SLICE)?;
        Ok(scene.logged(OVERTAKEN) > 0)
    })
}

fn sweep(case: &Case, program: &Path, bootstrap: &str, server: &Cluster) -> Result<Report> {
    for _ in 0..TRIES {
        let name = format!("ledger-{case}");
        let mut scene = Scene::new(&name, program, bootstrap, server)?;
        let report = play(*case, &mut scene);
        match report.with_context(|| format!("{case}:\n{}", scene.tails()))? {
            Some(report) => return Ok(report),
            None => eprintln!("{case}: the fault did not fire:\n{}", scene.tails()),
        }
    }
    bail!("{case}: the fault did not fire {TRIES} times")
}

/// Returns the cases: a kill at each step, and a freeze or an error. A full run has all combinations.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (nth, point) in POINTS.into_iter().enumerate() {
        // A process that freezes before its take-over later raises the epochs over the rightful owner.
        let other = if nth % 2 == 1 || point == "pre_take_over" {
            Act::Freeze
        } else {
            Act::Error
        };
        let acts = match is_full() {
            true => vec![Act::Crash, Act::Freeze, Act::Error],
            false => vec![Act::Crash, other],
        };
        cases.extend(acts.into_iter().map(|act| Case { point, act }));
    }
    if let Ok(part) = std::env::var("EOS_CASE") {
        cases.retain(|case| case.to_string().contains(&part));
    }
    cases
}

#[test]
fn at_every_step_each_order_is_booked_once() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let program = program()?;
    let server = Cluster::temporary(&[("max_connections", "200")])?;
    let (cases, since) = (cases(), Instant::now());
    let done = each(&cases, at_once(), |case| {
        sweep(case, &program, kafka.bootstrap(), &server)
    });
    let failed = report(&cases, &done);
    eprintln!(
        "{} cases at {} steps, {} failed, {:.1?}",
        cases.len(),
        POINTS.len(),
        failed.len(),
        since.elapsed()
    );
    ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
    Ok(())
}

/// Prints a line for each case. Returns the failures.
fn report(cases: &[Case], done: &[Done<Report>]) -> Vec<String> {
    let mut failed = Vec::new();
    for (case, one) in cases.iter().zip(done) {
        let word = match &one.answer {
            Ok(Report { verdict, ended }) => format!("{verdict}; {ended} sessions ended"),
            Err(error) => {
                failed.push(format!("{error:?}"));
                "FAILED".to_owned()
            }
        };
        eprintln!("{case} ... {word} ({:.1?})", one.took);
    }
    failed
}

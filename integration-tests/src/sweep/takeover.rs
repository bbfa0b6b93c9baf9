//! Tests whether a successor can commit while the transaction of a zombie is still open.
//!
//! The zombie owns partitions A and B. It took records of A only, sent the offsets of its transaction while it was a
//! member, and froze before EndTxn. Its session times out long before its transaction, so both partitions are
//! assigned to the successor. If the transaction contains A's offset, the successor waits until the transaction has
//! ended. If it contains B's offset instead, A's offset is stable and the successor processes A's records. Then the
//! zombie's EndTxn, which is not fenced, commits the zombie's outputs of the same records.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::member::{ASSIGNED, CLAIMED, COMMITTED};
use super::scene::{Scene, Settings};
use crate::judge::Verdict;
use crate::wait::wait_until;

const A: usize = 0;
const RECORDS: u64 = 20;
const PATIENCE: Duration = Duration::from_secs(60);
/// The time for which the successor may not commit while the zombie is frozen, from its assignment on. The app queries
/// stable offsets separately from unstable ones after at most two seconds.
const WATCH: Duration = Duration::from_secs(12);
const SETTINGS: Settings = Settings {
    session: Duration::from_millis(1_500),
    heartbeat: Duration::from_millis(150),
    // Longer than the test, because the coordinator must not end the transaction.
    transaction: Duration::from_secs(60),
    interval: Duration::from_millis(50),
};

/// The outcome of the test.
#[derive(Debug)]
pub struct Takeover {
    /// The number of times that the fault happened. The test expects 1.
    pub fired: usize,
    /// The number of transactions that the successor committed while the zombie was frozen.
    pub beside: usize,
    /// The verdict of the judge.
    pub verdict: Verdict,
    /// The verdict as text.
    pub text: String,
}

/// Freezes the first process, starts a successor that takes over, and thaws the first process.
///
/// # Errors
/// When the fault does not fire, the successor does not get both partitions, or the processes do not continue.
pub fn takeover(undefended: &str, program: &Path, bootstrap: &str) -> Result<Takeover> {
    let name = match undefended {
        "" => "takeover",
        _ => "takeover-undefended",
    };
    let mut scene = Scene::new(program, bootstrap, name, 2, SETTINGS)?;
    run(undefended, &mut scene).with_context(|| format!("{undefended:?}:\n{}", scene.tails(60)))
}

fn run(undefended: &str, scene: &mut Scene) -> Result<Takeover> {
    scene.start("pre_commit=freeze@record:1", undefended)?;
    // Each partition must have a committed offset with metadata. Otherwise the zombie has no offset of B to send.
    wait_until(PATIENCE, "the first offsets are committed", || {
        Ok(scene.members[0].log().contains(CLAIMED))
    })?;
    scene.send_to(A, RECORDS)?;
    scene.await_fired(1, PATIENCE)?;
    scene.members[0].await_frozen(PATIENCE)?;

    let successor = scene.start("", "")?;
    wait_until(PATIENCE, "the successor is given both partitions", || {
        let log = scene.members[successor].log();
        let mut given = log.lines().filter(|l| l.contains(ASSIGNED));
        Ok(given.any(|line| line.contains("-in-0") && line.contains("-in-1")))
    })?;
    let (since, mut beside) = (Instant::now(), 0);
    // A control must show a commit of the successor, so it waits for one. The real test watches for longer than a
    // successor without the defence would need.
    let watch = if undefended.is_empty() {
        WATCH
    } else {
        PATIENCE
    };
    while since.elapsed() < watch && beside == 0 {
        // Reads the log, because the zombie's open transaction hides later commits from `read_committed` readers.
        let log = scene.members[successor].log();
        beside = log.matches(COMMITTED).count();
        thread::sleep(Duration::from_millis(100));
    }
    let waited = since.elapsed();
    eprintln!("without {undefended:?}: {beside} commits beside the zombie in {waited:.1?}");
    scene.members[0].thaw()?;
    scene.await_committed(PATIENCE).context("after the thaw")?;
    let zombie = scene.members[0].id();
    let makers = scene.makers()?;
    let of_zombie = makers.values().filter(|by| by.contains(&zombie)).count();
    ensure!(of_zombie > 0, "the zombie's EndTxn was not accepted");
    let fired = scene.fired().len();
    let (verdict, text) = scene.stop_and_judge(0)?;
    Ok(Takeover {
        fired,
        beside,
        verdict,
        text,
    })
}

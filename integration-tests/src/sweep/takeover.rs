//! Whether a successor can work beside a zombie whose transaction is still to end.
//!
//! The zombie owns partitions A and B. It took records of A only, sent the offsets of its
//! transaction while it was a member, and froze before EndTxn. Its session ends long before its
//! transaction does: the successor is given both partitions. With A's offset in the transaction
//! the successor waits until that has ended, one way or the other. With B's in its place A's offset
//! is stable: the successor does A's records, and then the zombie's EndTxn, which nothing fences,
//! commits what it made of the same records.

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
/// How long the successor is watched while the zombie is frozen, once it owns A; a control ends
/// sooner. Stable offsets are asked for apart from those that are not after two seconds at most.
const WATCH: Duration = Duration::from_secs(12);
const SETTINGS: Settings = Settings {
    session: Duration::from_millis(1_500),
    heartbeat: Duration::from_millis(150),
    // Longer than everything here takes: the coordinator must not end the transaction.
    transaction: Duration::from_secs(60),
    interval: Duration::from_millis(50),
};

/// What came of it.
#[derive(Debug)]
pub struct Takeover {
    /// How often the fault happened: once.
    pub fired: usize,
    /// How many transactions the successor committed while the zombie was frozen.
    pub beside: usize,
    /// What the judge says.
    pub verdict: Verdict,
    /// The same in words.
    pub text: String,
}

/// Freezes the one, has the other take over, lets the one go on.
///
/// # Errors
/// When the fault does not fire, the successor is not given A, or the two do not go on.
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
    // Both partitions have a name beside their offset, or there is none of B's to send.
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
    // A control is to show what it can do, however long that takes; the other one waits for as long as a
    // successor that does not wait would need.
    let watch = if undefended.is_empty() {
        WATCH
    } else {
        PATIENCE
    };
    while since.elapsed() < watch && beside == 0 {
        // By its log: the zombie's open transaction hides from readers what others commit behind it.
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

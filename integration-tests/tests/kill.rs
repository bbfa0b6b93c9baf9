//! SIGKILL, rolling restarts, members that join and leave, under load on a real Kafka: each record
//! is processed exactly once, in order, in both outputs or none.
//!
//! `cargo test -p integration-tests --test kill` takes a minute or two. The full size (over a
//! million records and 30 kills, on one node and on three):
//! `EOS_FULL=1 cargo test -p integration-tests --test kill -- --nocapture`.
//! `EOS_SEED=n` repeats a run or makes another; with `EOS_KEEP_LOGS=1` the app's logs stay.

use std::sync::{Mutex, PoisonError};

use anyhow::{Result, ensure};
use integration_tests::kill::{Outcome, Programs, Promise, Scenario, run};
use integration_tests::process::{Program, build};
use xtask::kafka::{ClusterOptions, own_for_tests};

/// One run at a time: several clusters at once would only slow each other down.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn on_one_node_nothing_is_lost_or_doubled() -> Result<()> {
    exactly_once(1)
}

#[test]
fn on_three_nodes_nothing_is_lost_or_doubled() -> Result<()> {
    exactly_once(3)
}

/// Otherwise the tests above prove nothing: their faults might be harmless.
#[test]
fn the_control_without_transactions_shows_duplicates() -> Result<()> {
    let Some(outcome) = outcome(1, Promise::AtLeastOnce)? else {
        return Ok(());
    };
    let judged = &outcome.judged;
    ensure!(judged.code == Some(1), "{outcome}");
    ensure!(
        judged.count("doubled") > Some(0),
        "no duplicates: {outcome}"
    );
    ensure!(judged.count("lost") == Some(0), "{outcome}");
    Ok(())
}

fn exactly_once(nodes: u8) -> Result<()> {
    let Some(outcome) = outcome(nodes, Promise::ExactlyOnce)? else {
        return Ok(());
    };
    let verdict = &outcome.judged.verdict;
    ensure!(outcome.judged.code == Some(0), "{outcome}\n{verdict:#}");
    Ok(())
}

fn outcome(nodes: u8, promise: Promise) -> Result<Option<Outcome>> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let scenario = Scenario::kills(nodes, promise)?;
    let Some(cluster) = own_for_tests(&ClusterOptions::default().nodes(nodes))? else {
        return Ok(None);
    };
    let programs = Programs {
        app: build("eos-examples", Program::Bin("02-enrich"), &[])?,
        generator: env!("CARGO_BIN_EXE_generator").into(),
        judge: env!("CARGO_BIN_EXE_judge").into(),
    };
    eprintln!("{scenario:?}; EOS_SEED={} repeats it", scenario.seed);
    let outcome = run(&scenario, cluster.bootstrap(), &programs)?;
    eprintln!("{outcome}");
    Ok(Some(outcome))
}

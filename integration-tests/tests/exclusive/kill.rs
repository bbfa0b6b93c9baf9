//! SIGKILL, rolling restarts, and members that join and leave, under load. Each record is processed exactly once, in
//! order, in both outputs or none. Runs on a real Kafka and on the embedded broker.
//!
//! `cargo test -p integration-tests --test exclusive kill::` takes a minute or two. The full size (over a
//! million records and 30 kills, on one node and on three):
//! `EOS_FULL=1 cargo test -p integration-tests --test exclusive kill:: -- --nocapture`.
//! `EOS_SEED=n` repeats a run or selects another one. `EOS_KEEP_LOGS=1` keeps the app's logs.

use anyhow::{Result, ensure};
use eos_broker::EmbeddedKafka;
use integration_tests::kill::{Outcome, Programs, Promise, Scenario, run};
use integration_tests::process::{Program, build};
use kafka_launcher::{ClusterOptions, own_for_tests};

/// The brokers of a run.
#[derive(Debug, Clone, Copy)]
enum On {
    /// Apache Kafka with this number of nodes.
    Kafka(u8),
    /// The embedded broker.
    Embedded,
}

#[test]
fn on_one_node_nothing_is_lost_or_doubled() -> Result<()> {
    let _alone = crate::alone();
    exactly_once(On::Kafka(1))
}

#[test]
fn on_three_nodes_nothing_is_lost_or_doubled() -> Result<()> {
    let _alone = crate::alone();
    exactly_once(On::Kafka(3))
}

#[test]
fn on_the_embedded_broker_nothing_is_lost_or_doubled() -> Result<()> {
    let _alone = crate::alone();
    exactly_once(On::Embedded)
}

/// The control of the tests above. Without it they would prove nothing, because their faults might be harmless.
#[test]
fn the_control_without_transactions_shows_duplicates() -> Result<()> {
    let _alone = crate::alone();
    shows_duplicates(On::Kafka(1))
}

#[test]
fn the_control_shows_them_on_the_embedded_broker() -> Result<()> {
    let _alone = crate::alone();
    shows_duplicates(On::Embedded)
}

fn shows_duplicates(on: On) -> Result<()> {
    let Some(outcome) = outcome(on, Promise::AtLeastOnce)? else {
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

fn exactly_once(on: On) -> Result<()> {
    let Some(outcome) = outcome(on, Promise::ExactlyOnce)? else {
        return Ok(());
    };
    let verdict = &outcome.judged.verdict;
    ensure!(outcome.judged.code == Some(0), "{outcome}\n{verdict:#}");
    Ok(())
}

fn outcome(on: On, promise: Promise) -> Result<Option<Outcome>> {
    match on {
        On::Kafka(nodes) => {
            let options = ClusterOptions::default().nodes(nodes);
            let Some(cluster) = own_for_tests(&options)? else {
                return Ok(None);
            };
            judged(&Scenario::kills(nodes, promise)?, cluster.bootstrap())
        }
        On::Embedded => {
            let kafka = EmbeddedKafka::start()?;
            judged(&Scenario::kills(1, promise)?, &kafka.bootstrap())
        }
    }
    .map(Some)
}

fn judged(scenario: &Scenario, bootstrap: &str) -> Result<Outcome> {
    let programs = Programs {
        app: build("eos-examples", Program::Bin("02-enrich"), &[])?,
        generator: env!("CARGO_BIN_EXE_generator").into(),
        judge: env!("CARGO_BIN_EXE_judge").into(),
    };
    eprintln!("{scenario:?}; EOS_SEED={} repeats it", scenario.seed);
    let outcome = run(scenario, bootstrap, &programs)?;
    eprintln!("{outcome}");
    Ok(outcome)
}

//! Members that join and leave every three seconds under load, by a stop or by SIGKILL. With each group protocol, each
//! record is processed exactly once, in order, in both outputs or none.
//!
//! `cargo test -p integration-tests --test exclusive churn::` takes some minutes. For five minutes of churn with each
//! kind of member, run `EOS_FULL=1 cargo test -p integration-tests --test exclusive churn:: -- --nocapture`.
//! `EOS_SEED=n` repeats a run or selects another one. `EOS_KEEP_LOGS=1` keeps the app's logs.

use anyhow::{Result, ensure};
use integration_tests::kill::{Members, Programs, Scenario, run};
use integration_tests::process::{Program, build};
use kafka_launcher::{ClusterOptions, own_for_tests};

#[test]
fn static_members_come_and_go() -> Result<()> {
    let _alone = crate::alone();
    nothing_is_lost_or_doubled(Members::Static)
}

#[test]
fn dynamic_members_come_and_go() -> Result<()> {
    let _alone = crate::alone();
    nothing_is_lost_or_doubled(Members::Dynamic)
}

#[test]
fn members_of_the_consumer_protocol_come_and_go() -> Result<()> {
    let _alone = crate::alone();
    nothing_is_lost_or_doubled(Members::Consumer)
}

fn nothing_is_lost_or_doubled(members: Members) -> Result<()> {
    let scenario = Scenario::churn(members)?;
    let Some(cluster) = own_for_tests(&ClusterOptions::default())? else {
        return Ok(());
    };
    let programs = Programs {
        app: build("eos-examples", Program::Bin("02-enrich"), &[])?,
        generator: env!("CARGO_BIN_EXE_generator").into(),
        judge: env!("CARGO_BIN_EXE_judge").into(),
    };
    eprintln!("{scenario:?}; EOS_SEED={} repeats it", scenario.seed);
    let outcome = run(&scenario, cluster.bootstrap(), &programs)?;
    eprintln!("{outcome}");
    let verdict = &outcome.judged.verdict;
    ensure!(outcome.judged.code == Some(0), "{outcome}\n{verdict:#}");
    Ok(())
}

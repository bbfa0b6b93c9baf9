//! A member completes a revocation within its deadline, even if a request of its transaction hangs. All members of the
//! group wait for it.

use std::time::{Duration, Instant};

use kafka_launcher::ClusterOptions;

use crate::common::{PATIENCE, ended};
use crate::proxied::{Settings, Subject, in_parallel};
use anyhow::{Context, Result, ensure};
use eos_core::Topic;
use eos_core::run::StopMode;
use integration_tests::faults::{Row, record};
use integration_tests::proxy::{Act, ApiKey, Proxy, Rule, behind};
use integration_tests::wait::wait_until;

/// The transaction timeout. A commit may take a third of it. In a revocation, the abort may take another third.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(9);
const REVOKE_DEADLINE: Duration = Duration::from_secs(6);

/// The requests that no longer reach the broker, one kind per test. A second member joins meanwhile.
const HANGING: [ApiKey; 4] = [
    ApiKey::EndTxn,
    ApiKey::TxnOffsetCommit,
    ApiKey::AddOffsetsToTxn,
    ApiKey::Produce,
];

#[test]
fn a_revocation_is_answered_in_time_when_a_request_hangs() -> Result<()> {
    let _alone = crate::alone();
    let Some((proxy, cluster)) = behind(&ClusterOptions::default())? else {
        return Ok(());
    };
    let start = Instant::now();
    let done = in_parallel(HANGING.len(), &HANGING, |api| {
        let name = format!("revoked-{}", *api as i16);
        let settings = Settings {
            transaction_timeout: Some(TRANSACTION_TIMEOUT),
            ..Settings::default()
        };
        let subject = Subject::start(&proxy, cluster.bootstrap(), &name, settings)?;
        answered(&proxy, subject, *api).with_context(|| format!("{api:?} hangs"))
    });
    for (api, (outcome, _)) in HANGING.iter().zip(done) {
        let (took, fired, verdict) = outcome?;
        record(&Row {
            point: "7 permanent errors".into(),
            case: format!("a revocation while {api:?} hangs"),
            cases: 1,
            fired,
            verdict: format!("answered after {:.1} s; {verdict}", took.as_secs_f64()),
            seconds: start.elapsed().as_secs_f64(),
            command: "cargo test -p integration-tests --test exclusive revocations::".into(),
        })?;
        ensure!(took < REVOKE_DEADLINE * 2, "{api:?}: {took:?}");
    }
    Ok(())
}

/// Returns the duration of the revocation, the number of requests that hung, and the verdict of the judge.
fn answered(
    proxy: &Proxy,
    mut subject: Subject<'_>,
    api: ApiKey,
) -> Result<(Duration, u64, String)> {
    let group = subject.case.app.clone();
    let members = subject.case.client.group_members(&group)?.members;
    let consumer = &members
        .first()
        .context("the app is in its group")?
        .client_id;
    let producer = consumer.replace("-consumer", "-producer");
    // The first JoinGroup from now on is at the start of the rebalance, and the second one at the end of the revocation
    // (KIP-429).
    let before = proxy.requests(ApiKey::JoinGroup, consumer);
    let joins = || proxy.requests(ApiKey::JoinGroup, consumer) - before;
    let hang = Rule::on(api).of(&producer).until(ApiKey::InitProducerId);
    let hang = proxy.add(hang.then(Act::Drop));
    subject.lot()?;
    wait_until(PATIENCE, "a request hangs", || Ok(proxy.fired(hang) > 0))?;

    let mut app = subject.case.app();
    app.source(&Topic::<String, serde_json::Value>::json(
        &subject.case.input,
    ))
    .to(&Topic::json(&subject.case.output));
    app.source(&Topic::<String, serde_json::Value>::json(
        &subject.case.input,
    ))
    .to(&Topic::json(&format!("{group}-out-2")));
    let mut second = app.start_blocking(&subject.case.bootstrap)?;
    wait_until(PATIENCE, "the first member hears of the second", || {
        Ok(joins() >= 1)
    })?;
    let asked = Instant::now();
    wait_until(
        PATIENCE,
        "the first member has given up its partition",
        || Ok(joins() >= 2),
    )?;
    let took = asked.elapsed();
    let fired = proxy.fired(hang);

    subject.lot()?;
    subject.await_outputs(PATIENCE)?;
    subject.await_offsets(PATIENCE)?;
    second.handle().stop(StopMode::Leave);
    ended(&mut second)??;
    subject.stop()?;
    let found = subject.judge()?;
    ensure!(found.is_clean(), "{found}\n{}", found.said);
    Ok((took, fired, found.to_string()))
}

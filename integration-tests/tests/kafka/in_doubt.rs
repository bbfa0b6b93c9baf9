//! The response to EndTxn is lost for good. The same process finds out whether the transaction committed, and both
//! outcomes occur.
//!
//! `EOS_FULL=1 cargo test -p integration-tests --test kafka in_doubt:: -- --nocapture` runs at least 100 cases of each
//! kind. Without `EOS_FULL=1`, it runs 10.

use std::time::Duration;

use kafka_launcher::ClusterOptions;

use crate::common::PATIENCE;
use crate::proxied::{Found, LOT, Settings, Subject, in_parallel};
use anyhow::{Context, Result, bail, ensure};
use integration_tests::faults::{Row, is_full, record};
use integration_tests::proxy::{Act, ApiKey, Cut, Proxy, Rule, behind};
use integration_tests::wait::wait_until;

/// The transaction timeout. The commit's deadline is a third of it. Until then, the commit is only retried.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(6);

/// The act on every EndTxn until a new producer sends InitProducerId, and the outcome of the transaction.
const KINDS: [(&str, Act, Truth); 4] = [
    (
        "connection cut before the broker has it",
        Act::Cut(Cut::Before),
        Truth::Aborted,
    ),
    (
        "the coordinator receives nothing",
        Act::Drop,
        Truth::Aborted,
    ),
    (
        "connection cut after the broker applied it",
        Act::LoseAnswer { cut: true },
        Truth::Committed,
    ),
    (
        "applied, the answer withheld",
        Act::LoseAnswer { cut: false },
        Truth::Committed,
    ),
];

/// The outcome of a transaction, which only the brokers know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Truth {
    Committed,
    Aborted,
}

/// The outcome of one app.
#[derive(Debug, Default)]
struct Outcome {
    found: Found,
    /// Lost responses or requests.
    faults: u64,
    committed: u64,
    aborted: u64,
}

#[test]
fn an_unknown_commit_is_resolved_without_a_restart() -> Result<()> {
    let (apps, rounds) = if is_full() { (20, 5) } else { (5, 2) };
    crate::common::log::init();
    let Some((proxy, cluster)) = behind(&ClusterOptions::default())? else {
        return Ok(());
    };
    let jobs: Vec<_> = (0..apps)
        .flat_map(|n| (0..KINDS.len()).map(move |kind| (n, kind)))
        .collect();
    // Many at a time, because they mostly wait for the deadline.
    let done = in_parallel(40, &jobs, |(n, kind)| {
        let (name, act, truth) = &KINDS[*kind];
        let settings = Settings {
            transaction_timeout: Some(TRANSACTION_TIMEOUT),
            ..Settings::default()
        };
        let subject = format!("doubt-{kind}-{n}");
        let subject = Subject::start(&proxy, cluster.bootstrap(), &subject, settings)?;
        let id = subject.case.app.clone();
        one(&proxy, subject, act, *truth, rounds).with_context(|| format!("{id}: {name}"))
    });
    let mut all: Vec<(Outcome, f64)> = KINDS.iter().map(|_| Default::default()).collect();
    for ((_, kind), (outcome, after)) in jobs.iter().zip(done) {
        let (sum, seconds) = &mut all[*kind];
        let outcome = outcome?;
        sum.found.add(outcome.found);
        sum.faults += outcome.faults;
        sum.committed += outcome.committed;
        sum.aborted += outcome.aborted;
        *seconds = after.as_secs_f64().max(*seconds);
    }
    let cases = apps * rounds;
    for ((name, _, truth), (outcome, seconds)) in KINDS.iter().zip(&all) {
        let Outcome {
            found,
            faults,
            committed,
            aborted,
        } = outcome;
        record(&Row {
            point: "2 in doubt".into(),
            case: format!("EndTxn: {name}"),
            cases,
            fired: *faults,
            verdict: format!("{found}; found committed {committed}, aborted {aborted}"),
            seconds: *seconds,
            command: "cargo test -p integration-tests --test kafka in_doubt::".into(),
        })?;
        ensure!(found.is_clean(), "{name}: {found}\n{}", found.said);
        let seen = match truth {
            Truth::Committed => *committed,
            Truth::Aborted => *aborted,
        };
        ensure!(seen == cases, "{name}: {truth:?} {seen} of {cases}");
    }
    Ok(())
}

/// Runs one app with `rounds` commits in doubt. After each of them, one commit succeeds.
fn one(
    proxy: &Proxy,
    mut subject: Subject<'_>,
    act: &Act,
    truth: Truth,
    rounds: u64,
) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for _ in 0..rounds {
        let before = subject.totals();
        let rule = Rule::on(ApiKey::EndTxn).of(&subject.clients());
        let rule = rule.until(ApiKey::InitProducerId).then(act.clone());
        let rule = proxy.add(rule);
        subject.lot()?;
        wait_until(PATIENCE, "the producer is replaced", || {
            Ok(subject.totals().rebuilds > before.rebuilds)
        })?;
        wait_until(PATIENCE, "the lot is committed", || {
            Ok(subject.totals().commits.total() > before.commits.total())
        })?;
        subject.await_outputs(PATIENCE)?;
        subject.await_offsets(PATIENCE)?;
        let after = subject.totals();
        let fired = proxy.fired(rule);
        ensure!(fired > 0, "no EndTxn was lost");
        outcome.faults += fired;
        // If the lot was processed again, the app decided that the transaction was aborted.
        let records = after.records_in - before.records_in;
        match after.aborts - before.aborts {
            0 if records == LOT => outcome.committed += 1,
            // On a slow machine, the transaction that processes the lot again may time out, too.
            1.. if records > LOT && truth == Truth::Aborted => outcome.aborted += 1,
            aborts => bail!("{truth:?}: {records} records, {aborts} aborts"),
        }
        subject.lot()?;
        subject.await_outputs(PATIENCE)?;
    }
    subject.stop()?;
    outcome.found = subject.judge()?;
    Ok(outcome)
}

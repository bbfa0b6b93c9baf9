//! Permanent errors under a running app.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use eos_core::Error;
use eos_core::errors::WorkerError;
use integration_tests::faults::{Row, is_full, record};
use integration_tests::judge::Expectation;
use integration_tests::wait::wait_until;
use kafka_wire::{Isolation, Operation};

use super::{COMMAND, Feeder, POINT, Place, copy};
use crate::common::{Case, PATIENCE, commits_go_on, ended, says};

/// The time limit of an app to stop: a commit, an abort, and the departure from the group.
const DEADLINE: Duration = Duration::from_secs(40);
/// The time for which librdkafka waits for a missing topic before its consumer reports an error
/// (`topic.metadata.propagation.max.ms`).
const PROPAGATION: Duration = Duration::from_secs(30);

/// A fault under a running app.
struct Fault {
    case: &'static str,
    strike: fn(&mut Case) -> Result<()>,
    /// Undoes the fault, so that the judge can read the topics.
    mend: fn(&mut Case) -> Result<()>,
    /// Parts of the error's text.
    says: &'static [&'static str],
    /// Whether the input and the output are still complete, so that the judge can check them.
    judged: bool,
}

const FAULTS: [Fault; 6] = [
    Fault {
        case: "write to the output denied",
        strike: |case| Place::Output.deny(case, Operation::Write),
        mend: |case| Place::Output.allow(case),
        says: &["kafka-acls.sh --add --operation Read|Write --topic"],
        judged: true,
    },
    Fault {
        case: "read of the input denied",
        strike: |case| Place::Input.deny(case, Operation::Read),
        mend: |case| Place::Input.allow(case),
        says: &["kafka-acls.sh --add --operation Read|Write --topic"],
        judged: true,
    },
    Fault {
        case: "the group denied",
        strike: |case| Place::Group.deny(case, Operation::Read),
        mend: |case| Place::Group.allow(case),
        says: &["kafka-acls.sh --add --operation Read --group"],
        judged: true,
    },
    Fault {
        case: "the transactional id denied",
        strike: |case| Place::TransactionalIds.deny(case, Operation::Write),
        mend: |case| Place::TransactionalIds.allow(case),
        says: &["--transactional-id .. --resource-pattern-type prefixed"],
        judged: true,
    },
    Fault {
        case: "the input deleted",
        strike: |case| case.client.delete_topic(&case.input),
        mend: |_| Ok(()),
        says: &["A topic was deleted"],
        judged: false,
    },
    Fault {
        case: "the output deleted",
        strike: |case| case.client.delete_topic(&case.output),
        mend: |_| Ok(()),
        says: &["A topic was deleted"],
        judged: false,
    },
];

/// Runs all kinds of faults, one after the other.
pub(crate) fn all(bootstrap: &str) -> Result<()> {
    let mut wrong = Vec::new();
    for fault in &FAULTS {
        if let Err(error) = each(fault, bootstrap) {
            wrong.push(format!("{}: {error:?}", fault.case));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    Ok(())
}

/// Runs one kind of fault in several apps at the same time.
fn each(fault: &Fault, bootstrap: &str) -> Result<()> {
    let cases = if is_full() { 30 } else { 10 };
    let begun = Instant::now();
    let longest = thread::scope(|scope| {
        let running = (0..cases).map(|nth| scope.spawn(move || once(fault, bootstrap, nth)));
        let running: Vec<_> = running.collect();
        let ends = running.into_iter().map(|thread| {
            let end = thread.join();
            end.map_err(|_| anyhow::anyhow!("it panicked"))?
        });
        let ends: Result<Vec<Duration>> = ends.collect();
        anyhow::Ok(ends?.into_iter().max().unwrap_or_default())
    })?;
    record(&Row {
        point: POINT.to_owned(),
        case: fault.case.to_owned(),
        cases,
        fired: cases,
        verdict: format!("stopped with the fix named, at most {longest:.1?} later; 0 left open"),
        seconds: begun.elapsed().as_secs_f64(),
        command: COMMAND.to_owned(),
    })
}

/// Runs one app with a fault. Returns the time from the fault to the end of the app.
fn once(fault: &Fault, bootstrap: &str, nth: u64) -> Result<Duration> {
    let name = format!("{}-{nth}", fault.case.replace(' ', "-"));
    let mut case = Case::with_partitions(bootstrap, &name, 2)?;
    let feeder = Feeder::start(&case);
    let mut running = copy(&case).start_blocking(bootstrap)?;
    commits_go_on(&running)?;

    (fault.strike)(&mut case)?;
    let since = Instant::now();
    let end = ended(&mut running);
    let took = since.elapsed();
    let _its_topic_may_be_gone = feeder.stop();
    (fault.mend)(&mut case)?;
    let input = case.input.clone();
    if fault.judged {
        wait_until(PATIENCE, "the right is back", || {
            let read = case.client.fetch(&input, 0, 0, Isolation::ReadCommitted);
            Ok(read.is_ok())
        })?;
    }
    let error = end?.err().context("it ended without an error")?;
    eprintln!("{name}: after {took:.1?}: {error}");
    let expected = match &error {
        Error::Worker(WorkerError::Client(_)) => true,
        // The periodic query of the topics detects a deletion, too.
        Error::Worker(WorkerError::TopicChanged(_)) => !fault.judged,
        _ => false,
    };
    ensure!(expected, "{error:?}");
    says(&error, fault.says)?;
    ensure!(took < DEADLINE + PROPAGATION, "it took {took:?}");
    case.nothing_is_open()?;
    if fault.judged {
        case.must_be_clean(Expectation::Behind)?;
    }
    Ok(took)
}

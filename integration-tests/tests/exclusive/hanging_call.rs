//! A call of the client library does not return. Another thread takes over the work, and the late return of the call
//! changes nothing.

use std::time::{Duration, Instant};

use kafka_launcher::ClusterOptions;

use crate::common::PATIENCE;
use crate::proxied::{Settings, Subject};
use anyhow::{Result, ensure};
use integration_tests::faults::{Row, record};
use integration_tests::proxy::behind;
use integration_tests::wait::wait_until;

/// The transaction timeout. A call may take two thirds of it. The failpoint hangs for 20 s.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(9);
const HANG: Duration = Duration::from_secs(20);
/// The number of the commit that hangs.
const HANGS_AT: u64 = 4;

#[test]
fn a_worker_whose_commit_hangs_is_replaced_in_the_same_process() -> Result<()> {
    let _alone = crate::alone();
    let Some((proxy, cluster)) = behind(&ClusterOptions::default())? else {
        return Ok(());
    };
    let start = Instant::now();
    let settings = Settings {
        transaction_timeout: Some(TRANSACTION_TIMEOUT),
        failpoints: "client_commit=hang@hit:4",
        ..Settings::default()
    };
    let mut subject = Subject::start(&proxy, cluster.bootstrap(), "hanging", settings)?;
    // The earliest time at which the call may have begun. The loop sets it until the commit before the hanging one.
    let mut hung = Instant::now();
    while subject.totals().abandoned_threads == 0 {
        ensure!(start.elapsed() < PATIENCE, "no call hung");
        if subject.totals().commits.total() < HANGS_AT - 1 {
            hung = Instant::now();
        }
        subject.lot()?;
        std::thread::sleep(Duration::from_millis(200));
    }
    subject.await_outputs(PATIENCE)?;
    let recovered = hung.elapsed();
    ensure!(recovered < HANG, "it waited for the call: {recovered:?}");
    // The call returns while the other thread works.
    while hung.elapsed() < HANG + Duration::from_secs(4) {
        subject.lot()?;
        std::thread::sleep(Duration::from_millis(500));
    }
    wait_until(PATIENCE, "all is committed", || {
        subject.await_offsets(PATIENCE).map(|()| true)
    })?;
    let totals = subject.totals();
    subject.stop()?;
    let found = subject.judge()?;
    record(&Row {
        point: "7 permanent errors".into(),
        case: "a client call that hangs".into(),
        cases: 1,
        fired: totals.abandoned_threads,
        verdict: format!("{found}; went on after {:.1} s", recovered.as_secs_f64()),
        seconds: start.elapsed().as_secs_f64(),
        command: "cargo test -p integration-tests --test exclusive hanging_call::".into(),
    })?;
    ensure!(totals.abandoned_threads == 1, "{totals:?}");
    ensure!(found.is_clean(), "{found}\n{}", found.said);
    Ok(())
}

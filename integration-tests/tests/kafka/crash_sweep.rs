//! Point 5: at every step of a transaction and a rebalance, the process is killed, freezes past every timeout, or gets
//! an error. This happens at the first, a middle and the last record. No record is lost, doubled or torn.
//!
//! `EOS_FULL=1 cargo test -p integration-tests --test kafka crash_sweep::` runs every combination. Without it, each
//! step runs once with each fault, and the records take turns. `EOS_CASE=pre_commit` runs the cases whose name contains
//! `pre_commit`.

use std::path::Path;
use std::time::Instant;

use kafka_launcher::for_tests;

use crate::common::sweeps::{build_app, cases, print};
use anyhow::{Result, ensure};
use integration_tests::faults::{Row, record};
use integration_tests::sweep::{Act, At, Case, POINTS, Report, at_once, each, sweep};

const COMMAND: &str = "EOS_FULL=1 cargo test -p integration-tests --test kafka crash_sweep::";
const ACTS: [Act; 3] = [Act::Crash, Act::Freeze, Act::Error];

#[test]
fn at_every_step_nothing_is_lost_or_doubled() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let program = build_app()?;
    let cases = cases(&ACTS);
    for act in ACTS {
        let cases: Vec<Case> = cases.iter().copied().filter(|c| c.act == act).collect();
        if !cases.is_empty() {
            rows(act, &cases, &program, kafka.bootstrap())?;
        }
    }
    Ok(())
}

fn rows(act: Act, cases: &[Case], program: &Path, bootstrap: &str) -> Result<()> {
    let since = Instant::now();
    let done = each(cases, at_once(), |case| sweep(case, program, bootstrap));
    let sum = print(cases, &done);
    record(&Row {
        point: "5 crash sweep".into(),
        case: format!("{act:?} at {} steps", POINTS.len()),
        cases: cases.len() as u64,
        fired: sum.fired,
        verdict: sum.verdict(),
        seconds: since.elapsed().as_secs_f64(),
        command: COMMAND.into(),
    })?;
    sum.ensure_clean()
}

/// The control of the test of the steps, whose faults might be harmless.
#[test]
fn without_their_defences_they_are_not_harmless() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let program = build_app()?;
    let control = |point, undefended| Case {
        point,
        act: Act::Error,
        at: At::Middle,
        undefended,
    };
    let cases = [
        control("pre_offsets", "rewind"),
        control("post_commit", "in_doubt"),
    ];
    let since = Instant::now();
    let done = each(&cases, at_once(), |case| {
        sweep(case, &program, kafka.bootstrap())
    });
    let sum = print(&cases, &done);
    for (case, one) in cases.iter().zip(done) {
        let Report { fired, verdict, .. } = one.answer?;
        let (lost, doubled) = (verdict.lost.count, verdict.doubled.count);
        record(&Row {
            point: "5 crash sweep".into(),
            case: format!("control: {case}"),
            cases: 1,
            fired: fired as u64,
            verdict: format!("lost {lost}, doubled {doubled}: violated, as expected"),
            seconds: since.elapsed().as_secs_f64(),
            command: COMMAND.into(),
        })?;
        let red = match case.undefended {
            "rewind" => lost > 0,
            _ => doubled > 0,
        };
        ensure!(red, "{case}: {verdict:?}");
    }
    ensure!(sum.fired == 2, "{sum:?}");
    Ok(())
}

//! Point 3: a process freezes at any step of a transaction or a rebalance. It is thawed when its session and its
//! transaction have timed out, and a successor has done its work. Its unfinished transaction stays invisible, and it
//! works again by itself within 60 s.
//!
//! `EOS_FULL=1 cargo test -p integration-tests --test kafka zombies::` runs each step at the first, a middle and the
//! last record. Without it, the records take turns. `EOS_CASE=pre_commit` runs the cases whose name contains
//! `pre_commit`.

use std::time::Instant;

use kafka_launcher::for_tests;

use crate::common::sweeps::{build_app, cases, print};
use anyhow::{Result, ensure};
use integration_tests::faults::{Row, is_full, record};
use integration_tests::sweep::{
    Act, At, Case, IN_REVOKE_LONG, POINTS, at_once, each, takeover, zombie,
};

const COMMAND: &str = "EOS_FULL=1 cargo test -p integration-tests --test kafka zombies::";

#[test]
fn a_zombie_shows_nothing_and_works_again() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let (program, cases) = (build_app()?, cases(&[Act::Freeze]));
    let since = Instant::now();
    let done = each(&cases, at_once(), |case| {
        zombie(case, &program, kafka.bootstrap())
    });
    let sum = print(&cases, &done);
    let rejoined = done
        .iter()
        .filter_map(|one| one.answer.as_ref().ok()?.rejoined);
    let slowest = rejoined.max().unwrap_or_default();
    record(&Row {
        point: "3 zombies".into(),
        case: format!(
            "frozen at {} steps, successor working, thawed",
            POINTS.len()
        ),
        cases: cases.len() as u64,
        fired: sum.fired,
        verdict: format!("{}; works again after {slowest:.1?} at most", sum.verdict()),
        seconds: since.elapsed().as_secs_f64(),
        command: COMMAND.into(),
    })?;
    sum.ensure_clean()
}

/// Rule 2: if the transaction of a zombie contains only the offset of another task, the zombie can commit although its
/// successor has committed the same records.
#[test]
fn rule_2_the_offsets_of_every_touched_task_hold_the_successor_back() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let program = build_app()?;
    let since = Instant::now();
    let done = each(&["", "every_touched_task"], 2, |undefended| {
        takeover(undefended, &program, kafka.bootstrap())
    });
    for (one, undefended) in done.into_iter().zip(["", "every_touched_task"]) {
        let found = one.answer?;
        let (lost, doubled) = (found.verdict.lost.count, found.verdict.doubled.count);
        let (case, word) = match undefended {
            "" => ("take-over of a touched task", ""),
            _ => (
                "control: the same with any owned partition's offset",
                ": violated, as expected",
            ),
        };
        record(&Row {
            point: "3 zombies".into(),
            case: case.into(),
            cases: 1,
            fired: found.fired as u64,
            verdict: format!(
                "{} commits beside the zombie, lost {lost}, doubled {doubled}{word}",
                found.beside
            ),
            seconds: since.elapsed().as_secs_f64(),
            command: COMMAND.into(),
        })?;
        ensure!(found.fired == 1, "{found:?}");
        if undefended.is_empty() {
            ensure!(found.beside == 0, "the successor did not wait: {found:?}");
            ensure!(found.verdict.is_clean(), "{}", found.text);
        } else {
            ensure!(found.beside > 0, "nothing was done beside it: {found:?}");
            ensure!(doubled > 0, "not red: {}", found.text);
        }
    }
    Ok(())
}

/// While librdkafka waits for the app to complete a rebalance, it does not report the loss of partitions. It rejoins
/// and claims them.
#[test]
fn a_zombie_that_comes_back_in_a_rebalance_goes_on_with_nothing_of_its_own() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let program = build_app()?;
    // The progress of the zombie varies, so the control runs several times. One of the runs must show a violation.
    let times = if is_full() { 12 } else { 6 };
    // With KIP-848, the brokers decide about the ownership of partitions, so the control is clean.
    let controls = match std::env::var("EOS_GROUP_PROTOCOL").as_deref() {
        Ok("consumer") => &[""][..],
        _ => &["", "membership"],
    };
    for &undefended in controls {
        let case = Case {
            point: IN_REVOKE_LONG,
            act: Act::Freeze,
            at: At::Middle,
            undefended,
        };
        let cases = vec![case; times];
        let since = Instant::now();
        let done = each(&cases, at_once(), |case| {
            zombie(case, &program, kafka.bootstrap())
        });
        let sum = print(&cases, &done);
        let (name, word) = match undefended {
            "" => ("", ""),
            _ => ("control: ", ": violated, as expected"),
        };
        record(&Row {
            point: "3 zombies".into(),
            case: format!("{name}{case}"),
            cases: times as u64,
            fired: sum.fired,
            verdict: format!("{}{word}", sum.verdict()),
            seconds: since.elapsed().as_secs_f64(),
            command: COMMAND.into(),
        })?;
        if undefended.is_empty() {
            sum.ensure_clean()?;
        } else {
            ensure!(sum.doubled() > 0, "not red: {sum:?}");
        }
    }
    Ok(())
}

//! Broken state. A power loss removes the end of the log, the directory is deleted or replaced by an older copy while
//! the app is stopped or runs, bytes flip, the disk is full, the state belongs to another app, or a value is
//! unreadable. The app detects each case and reports what is wrong. The counts become exact again, either by themselves
//! or after the fix in the error.
//!
//! `cargo test -p integration-tests --test kafka broken_state:: -- --nocapture` runs the cases. `EOS_CASE=flipped` runs
//! the cases whose name contains `flipped`. `EOS_FULL=1` cuts and flips at more places.

mod disk;
mod power;
mod swapped;

use std::time::Instant;

use kafka_launcher::for_tests;

use crate::common::log;
use crate::restart_table::scene::{self, Scene};
use anyhow::{Context, Result, ensure};
use integration_tests::counted;
use integration_tests::faults::{Row, record};
use integration_tests::sweep::each;

/// The outcome as text, and the number of times.
type Told = (String, u64);
type One = (&'static str, fn(&mut Scene) -> Result<Told>);

const CASES: [One; 10] = [
    ("power: an earlier point", power::earlier_point),
    ("power: the log cut short", power::log_cut_short),
    ("flipped bytes", power::flipped),
    ("deleted while it runs", swapped::deleted_running),
    ("an older copy while it runs", swapped::older_copy_running),
    ("another cluster's", swapped::of_another_cluster),
    ("another task's", swapped::of_another_task),
    ("another app's", swapped::of_another_app),
    ("a value that does not read", swapped::unreadable_value),
    ("the disk is full", disk::full),
];
const AT_ONCE: usize = 3;

#[test]
fn whatever_happens_to_it_counts_come_out_exact() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    log::init();
    // Compiles the programs before the cases start, because that takes long.
    counted::program()?;
    scene::program()?;
    let wanted = |name: &str| std::env::var("EOS_CASE").map_or(true, |part| name.contains(&part));
    let cases: Vec<One> = CASES.into_iter().filter(|(name, _)| wanted(name)).collect();
    let done = each(&cases, AT_ONCE, |(name, scenario)| {
        let since = Instant::now();
        let short: String = name.chars().filter(char::is_ascii_alphabetic).collect();
        let mut scene = Scene::new(kafka.bootstrap(), &short)?;
        let outcome = scenario(&mut scene);
        let (verdict, times) =
            outcome.with_context(|| format!("its log:\n{}", scene.log().concat()))?;
        record(&Row {
            point: "8 state".into(),
            case: (*name).into(),
            cases: times,
            fired: times,
            verdict,
            seconds: since.elapsed().as_secs_f64(),
            command: "EOS_FULL=1 cargo test -p integration-tests --test kafka broken_state::"
                .into(),
        })
    });
    let failed = cases.iter().zip(done).filter_map(|((name, _), one)| {
        let error = one.answer.err()?;
        Some(format!("{name}: {error:?}"))
    });
    let failed: Vec<String> = failed.collect();
    ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
    Ok(())
}

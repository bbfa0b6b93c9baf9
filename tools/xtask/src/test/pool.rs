//! Runs tests in parallel, a few at a time, or alone.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use super::case::{Case, Done};

/// Tests that measure time or need the whole machine: no other test runs beside them. Each row has the package, the
/// target, and a prefix of the test's name.
const ALONE: [(&str, &str, &str); 4] = [
    ("integration-tests", "exclusive", ""),
    ("integration-tests", "kafka", "kill_time::"),
    ("conformance", "all", "throughput::"),
    // These tests kill a broker and restart it on the same port.
    ("eos-cli", "all", "local::"),
];

/// Tests in [`ALONE`] that kill processes at fixed times and judge the outputs, or wait for most of their time.
///
/// On a busy machine, the app would process no record between two kills. [`FEW_WIDTH`] parallel tests leave enough
/// capacity.
const FEW: [(&str, &str, &str); 12] = [
    ("integration-tests", "exclusive", "readme::"),
    ("integration-tests", "exclusive", "brokers::"),
    ("integration-tests", "exclusive", "churn::"),
    ("integration-tests", "exclusive", "kill::"),
    ("integration-tests", "kafka", "kill_time::"),
    ("integration-tests", "exclusive", "counts::"),
    ("integration-tests", "exclusive", "windowed_counts::"),
    (
        "integration-tests",
        "exclusive",
        "wire_producer_delivers_once::",
    ),
    // These tests mostly wait for commands and hanging calls.
    ("integration-tests", "exclusive", "examples::"),
    ("integration-tests", "exclusive", "hanging_call::"),
    ("integration-tests", "exclusive", "revocations::"),
    ("integration-tests", "exclusive", "kip890_gap::"),
];

/// The number of parallel tests of [`FEW`]. With two, the processors would be idle for three quarters of the time.
const FEW_WIDTH: usize = 3;

/// Long tests, which start first and in this order, so that the run does not end with one of them.
const LONG: [(&str, &str, &str); 4] = [
    ("integration-tests", "kafka", "permanent_errors::"),
    ("integration-tests", "simulation", ""),
    ("eos-sim", "all", "simulation::"),
    ("integration-tests", "kafka", ""),
];

/// Returns the number of parallel tests. It exceeds the processors, because most tests wait for a session or a group.
fn width() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get() * 2)
}

/// Returns the index of the test's row in the table, or the table's length if it has none.
fn row(case: &Case<'_>, table: &[(&str, &str, &str)]) -> usize {
    let found = table.iter().position(|(package, target, prefix)| {
        case.target.package == *package
            && case.target.name == *target
            && case.name.starts_with(prefix)
    });
    found.unwrap_or(table.len())
}

/// Runs all tests, and calls `see` when one ends.
pub(crate) fn run<'a>(
    cases: Vec<Case<'a>>,
    environment: &[(String, String)],
    see: impl Fn(&Done<'a>) + Sync,
) -> Vec<Done<'a>> {
    let is_shared = |it: &Case<'_>| row(it, &ALONE) == ALONE.len();
    let (mut shared, exclusive): (Vec<_>, Vec<_>) = cases.into_iter().partition(is_shared);
    let is_of_few = |it: &Case<'_>| row(it, &FEW) < FEW.len();
    let (mut few, alone): (Vec<_>, Vec<_>) = exclusive.into_iter().partition(is_of_few);
    // A stable sort keeps the order within a row.
    shared.sort_by_key(|it| row(it, &LONG));
    let mut done = at_once(shared.into(), width(), environment, &see);
    few.sort_by_key(|it| row(it, &FEW));
    done.extend(at_once(few.into(), FEW_WIDTH, environment, &see));
    done.extend(at_once(alone.into(), 1, environment, &see));
    done
}

fn at_once<'a>(
    cases: VecDeque<Case<'a>>,
    width: usize,
    environment: &[(String, String)],
    see: &(impl Fn(&Done<'a>) + Sync),
) -> Vec<Done<'a>> {
    let (waiting, done) = (Mutex::new(cases), Mutex::new(Vec::new()));
    let next = || {
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.pop_front()
    };
    std::thread::scope(|scope| {
        for _ in 0..width {
            scope.spawn(|| {
                while let Some(case) = next() {
                    let ended = case.run(environment);
                    see(&ended);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push(ended);
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

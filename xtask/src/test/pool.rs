//! Runs tests beside each other, some in pairs, and those alone that need that.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use super::case::{Case, Done};

/// Tests that measure time or need the whole machine: nothing runs beside them. Package, target, and how the
/// name begins.
const ALONE: [(&str, &str, &str); 3] = [
    ("integration-tests", "exclusive", ""),
    ("conformance", "all", "throughput::"),
    // A broker that is killed there comes back on its port.
    ("eos-cli", "all", "local::"),
];

/// Tests of the targets in [`ALONE`] that kill processes by the clock and judge the outputs: a full machine would
/// leave them no records between two kills, and one other of them beside does not.
const PAIRED: [(&str, &str, &str); 6] = [
    ("integration-tests", "exclusive", "brokers::"),
    ("integration-tests", "exclusive", "churn::"),
    ("integration-tests", "exclusive", "kill::"),
    ("integration-tests", "exclusive", "counts::"),
    ("integration-tests", "exclusive", "windowed_counts::"),
    (
        "integration-tests",
        "exclusive",
        "wire_producer_delivers_once::",
    ),
];

/// Tests that take long begin first, in this order, so that the end does not wait for one of them.
const LONG: [(&str, &str, &str); 4] = [
    ("integration-tests", "kafka", "permanent_errors::"),
    ("integration-tests", "simulation", ""),
    ("eos-testkit", "driver", "simulation::"),
    ("integration-tests", "kafka", ""),
];

/// Most tests on a broker wait: for a session to end, a group to settle. So there are more than processors.
fn width() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get() * 2)
}

/// Where in the table the test is; behind the last row if it is not in it.
fn row(case: &Case<'_>, table: &[(&str, &str, &str)]) -> usize {
    let found = table.iter().position(|(package, target, prefix)| {
        case.target.package == *package
            && case.target.name == *target
            && case.name.starts_with(prefix)
    });
    found.unwrap_or(table.len())
}

/// Runs all of them. `see` is called at each end.
pub(crate) fn run<'a>(
    cases: Vec<Case<'a>>,
    environment: &[(String, String)],
    see: impl Fn(&Done<'a>) + Sync,
) -> Vec<Done<'a>> {
    let is_shared = |it: &Case<'_>| row(it, &ALONE) == ALONE.len();
    let (mut shared, exclusive): (Vec<_>, Vec<_>) = cases.into_iter().partition(is_shared);
    let is_paired = |it: &Case<'_>| row(it, &PAIRED) < PAIRED.len();
    let (mut paired, alone): (Vec<_>, Vec<_>) = exclusive.into_iter().partition(is_paired);
    // Stable: within a row the order stays.
    shared.sort_by_key(|it| row(it, &LONG));
    let mut done = at_once(shared.into(), width(), environment, &see);
    paired.sort_by_key(|it| row(it, &PAIRED));
    done.extend(at_once(paired.into(), 2, environment, &see));
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

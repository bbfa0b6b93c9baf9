//! Execution of several cases at the same time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

/// The outcome of one case.
#[derive(Debug)]
pub struct Done<T> {
    /// The index of the case.
    pub nth: usize,
    /// The result of the case.
    pub answer: Result<T>,
    /// The duration of the case.
    pub took: Duration,
}

/// Returns the number of cases to run at the same time. It exceeds the number of cores, because cases mostly wait for
/// timeouts.
#[must_use]
pub fn at_once() -> usize {
    let cores = thread::available_parallelism().map_or(2, usize::from);
    (cores * 4).min(16)
}

/// Runs `run` on each case, `at_once` cases at the same time. A failed case does not stop the others. Returns the
/// outcomes in the order of the cases.
pub fn each<C, T>(cases: &[C], at_once: usize, run: impl Fn(&C) -> Result<T> + Sync) -> Vec<Done<T>>
where
    C: Sync,
    T: Send,
{
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..at_once.clamp(1, cases.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(nth) else {
                        return;
                    };
                    let since = Instant::now();
                    let answer = run(case);
                    let one = Done {
                        nth,
                        answer,
                        took: since.elapsed(),
                    };
                    let mut done = done.lock().unwrap_or_else(|broken| broken.into_inner());
                    done.push(one);
                }
            });
        }
    });
    let mut done = done
        .into_inner()
        .unwrap_or_else(|broken| broken.into_inner());
    done.sort_by_key(|one| one.nth);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_runs_once_and_failures_end_nothing() {
        let cases: Vec<usize> = (0..20).collect();
        let done = each(&cases, 4, |case| {
            anyhow::ensure!(case % 3 > 0, "a third");
            Ok(*case)
        });
        assert_eq!(done.len(), 20);
        let failed = done.iter().filter(|one| one.answer.is_err()).count();
        assert_eq!(failed, 7);
        assert!(done.iter().zip(0..).all(|(one, nth)| one.nth == nth));
    }
}

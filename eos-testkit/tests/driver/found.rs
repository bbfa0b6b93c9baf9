//! A crash everywhere finds violations of exactly once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use eos_core::{App, Guarantee, PlainTopic, Topic};
use eos_testkit::{TestDriver, crash_everywhere};

fn lines() -> PlainTopic<String, String> {
    Topic::plain("lines")
}

fn out() -> PlainTopic<String, String> {
    Topic::plain("out")
}

/// Returns the text with which a crash everywhere panics.
fn found(start: impl Fn() -> TestDriver) -> String {
    let crashing = || {
        crash_everywhere(start, |driver| {
            driver.pipe(&lines(), "k", "a");
            driver.pipe(&lines(), "k", "b");
            driver.committed()
        })
    };
    let panic = catch_unwind(AssertUnwindSafe(crashing)).unwrap_err();
    panic.downcast_ref::<String>().unwrap().clone()
}

#[test]
fn records_that_are_written_twice() {
    let text = found(|| {
        let mut app = App::new("a");
        app.guarantee(Guarantee::AtLeastOnce);
        app.source(&lines()).to(&out());
        TestDriver::new(app)
    });
    assert!(text.starts_with("a crash at effect "), "{text}");
    assert!(text.contains("changes the result"), "{text}");
}

#[test]
fn memory_that_outlives_an_aborted_transaction() {
    let text = found(|| {
        let seen = Arc::new(AtomicU64::new(0));
        let mut app = App::new("a");
        app.source(&lines())
            .map(move |line| format!("{line} {}", seen.fetch_add(1, Ordering::Relaxed)))
            .to(&out());
        TestDriver::new(app)
    });
    assert!(text.contains("changes the result"), "{text}");
}

#[test]
fn a_scenario_that_is_not_the_same_each_time() {
    let runs = AtomicU64::new(0);
    let crashing = || {
        let start = || {
            let mut app = App::new("a");
            app.source(&lines()).to(&out());
            TestDriver::new(app)
        };
        crash_everywhere(start, |driver| {
            if runs.fetch_add(1, Ordering::Relaxed) == 0 {
                driver.pipe(&lines(), "k", "a");
            }
        })
    };
    let panic = catch_unwind(AssertUnwindSafe(crashing)).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("was not reached"), "{text}");
}

//! Programs that follow another one over its ids.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use eos_core::ErrorPolicy;
use eos_core::identity::SeenIds;
use eos_testkit::TestDriver;

use super::{MINUTE, app, app_with, five_minutes, ids, minutes, old, own, pipe, read};

/// Starts version after version of a program over the same state.
fn versions(
    seen: impl Fn(u32) -> SeenIds<String> + Send + 'static,
) -> (TestDriver, Arc<AtomicU32>) {
    let version = Arc::new(AtomicU32::new(0));
    let next = Arc::clone(&version);
    let driver = TestDriver::of(move || app(&seen(next.load(Ordering::Relaxed))));
    (driver, version)
}

#[test]
fn another_kind_window_or_scope_over_known_ids_does_not_start() {
    type Definition = fn() -> SeenIds<String>;
    let others: [(Definition, &str); 4] = [
        (
            || SeenIds::fixed("seen", minutes(6)),
            "the window of its ids is 300s in the existing state and 360s in this program",
        ),
        (
            || SeenIds::sliding("seen", minutes(5)),
            "of another kind or scope",
        ),
        (
            || SeenIds::for_ever("seen"),
            "had windowed stores at the last commit, and this program declares none",
        ),
        (
            || five_minutes().per_partition(),
            "of another kind or scope",
        ),
    ];
    for (other, word) in others {
        let (mut driver, version) = versions(move |version| match version {
            0 => five_minutes(),
            _ => other(),
        });
        pipe(&mut driver, &[("k", "a", 0)]);
        version.store(1, Ordering::Relaxed);
        let restarted = catch_unwind(AssertUnwindSafe(|| driver.crash()));
        assert!(restarted.is_err());
        let error = driver.error().unwrap().to_string();
        assert!(error.contains(word), "{error}");
    }
    let (mut driver, version) =
        versions(|version| five_minutes().lateness(minutes(version.into())));
    pipe(&mut driver, &[("k", "a", 0)]);
    version.store(3, Ordering::Relaxed);
    driver.crash();
    pipe(&mut driver, &[("k", "a", 1)]);
    assert_eq!(ids(&mut driver), ["a"], "the lateness may change");
}

/// A shorter lateness has expired ids that a longer one needs. Nothing is known of records of that time.
#[test]
fn a_longer_lateness_does_not_pass_ids_that_have_expired() {
    let seen = |version| match version {
        0 => five_minutes().trust_times().lateness(minutes(1)),
        _ => five_minutes().trust_times().lateness(minutes(60)),
    };
    let version = Arc::new(AtomicU32::new(0));
    let next = Arc::clone(&version);
    let mut driver = TestDriver::of(move || {
        let seen = seen(next.load(Ordering::Relaxed));
        app_with(&seen, ErrorPolicy::fail(), |dedup| {
            dedup.too_old_to(&old()).by(String::clone)
        })
    });
    pipe(
        &mut driver,
        &[("k", "a", 20 * MINUTE), ("k", "now", 60 * MINUTE)],
    );
    version.store(1, Ordering::Relaxed);
    driver.crash();
    pipe(
        &mut driver,
        &[("k", "a", 20 * MINUTE), ("k", "a", 20 * MINUTE)],
    );
    pipe(
        &mut driver,
        &[("k", "b", 59 * MINUTE), ("k", "b", 59 * MINUTE)],
    );
    assert_eq!(ids(&mut driver), ["a", "now", "b"]);
    assert_eq!(read(&mut driver, &old()), own(&[("k", "a"), ("k", "a")]));
    // Once the window of a record is as new as the program, it is judged.
    pipe(
        &mut driver,
        &[
            ("k", "end", 120 * MINUTE),
            ("k", "c", 61 * MINUTE),
            ("k", "c", 61 * MINUTE),
        ],
    );
    assert_eq!(ids(&mut driver), ["end", "c"]);
}

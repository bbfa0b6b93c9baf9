//! Programs that follow another one over its ids.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use eos_core::identity::SeenIds;
use eos_core::{App, ErrorPolicy};
use eos_testkit::TestDriver;

use super::{
    BEGIN, MINUTE, app, app_with, five_minutes, ids, minutes, old, own, pipe, read, repeated,
};

/// Starts version after version of a program over the same state.
fn versions(
    seen: impl Fn(u32) -> SeenIds<String> + Send + 'static,
) -> (TestDriver, Arc<AtomicU32>) {
    versions_of(move |version| app(&seen(version)))
}

fn versions_of(app: impl Fn(u32) -> App + Send + 'static) -> (TestDriver, Arc<AtomicU32>) {
    let version = Arc::new(AtomicU32::new(0));
    let next = Arc::clone(&version);
    let driver = TestDriver::of(move || app(next.load(Ordering::Relaxed)));
    (driver, version)
}

/// A UUIDv7 of the begin.
fn uuid() -> String {
    let time = format!("{BEGIN:012x}");
    format!("{}-{}-7000-8000-000000000001", &time[..8], &time[8..])
}

fn timed(remember: Duration) -> App {
    let seen = SeenIds::time_embedded("seen", remember);
    app_with(&seen, ErrorPolicy::fail(), |dedup| {
        dedup.by_uuid_v7(String::clone)
    })
}

const fn days(n: u64) -> Duration {
    Duration::from_secs(n * 86_400)
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

#[test]
fn another_sliding_or_embedded_window_and_another_tenant_do_not_start() {
    type Program = fn() -> App;
    let sliding: Program = || app(&SeenIds::sliding("seen", minutes(5)));
    let longer: Program = || app(&SeenIds::sliding("seen", minutes(6)));
    let week: Program = || timed(days(7));
    let more: Program = || timed(days(8));
    let of_keys: Program = || app(&five_minutes());
    let of_tenants: Program = || {
        app_with(&five_minutes(), ErrorPolicy::fail(), |dedup| {
            let dedup = dedup.duplicates_to(&repeated());
            dedup.tenant(String::clone).by(String::clone)
        })
    };
    for (before, after, word) in [
        (
            sliding,
            longer,
            "the window of its ids is 300s in the existing state and 360s in this program",
        ),
        (
            week,
            more,
            "the window of its ids is 604800s in the existing state and 691200s in this program",
        ),
        (of_keys, of_tenants, "of another kind or scope"),
        (of_tenants, of_keys, "of another kind or scope"),
    ] {
        let (mut driver, version) = versions_of(move |version| match version {
            0 => before(),
            _ => after(),
        });
        pipe(&mut driver, &[("k", &uuid(), 0)]);
        version.store(1, Ordering::Relaxed);
        let restarted = catch_unwind(AssertUnwindSafe(|| driver.crash()));
        assert!(restarted.is_err(), "{word}");
        let error = driver.error().unwrap().to_string();
        assert!(error.contains(word), "{error}");
    }
}

/// The limit is no part of the store. It applies to stored ids as well.
#[test]
fn the_limit_of_a_sliding_window_may_change() {
    let (mut driver, version) = versions(|version| {
        let sliding = SeenIds::sliding("seen", minutes(5));
        match version {
            0 => sliding,
            _ => sliding.at_most(minutes(7)),
        }
    });
    pipe(&mut driver, &[("k", "a", 0), ("k", "a", 4 * MINUTE)]);
    version.store(1, Ordering::Relaxed);
    driver.crash();
    pipe(&mut driver, &[("k", "a", 7 * MINUTE - 1)]);
    assert_eq!(ids(&mut driver), ["a"]);
    pipe(&mut driver, &[("k", "a", 7 * MINUTE)]);
    assert_eq!(ids(&mut driver), ["a"], "the limit ends the chain");
}

/// The store has the length of a bucket, and not that of the window. A bucket is half of the window, or with `time_embedded` a
/// sixteenth of it, rounded up to a millisecond. So the app starts with another window of the same bucket length. Stored ids
/// are found, and the new window applies to them.
#[test]
fn a_change_of_the_window_within_one_bucket_is_not_detected() {
    let last = 5 * MINUTE - 1;
    let (mut driver, version) = versions(|version| match version {
        0 => five_minutes(),
        _ => SeenIds::fixed("seen", minutes(5) - Duration::from_millis(1)),
    });
    pipe(&mut driver, &[("k", "a", 0), ("k", "b", 0)]);
    pipe(&mut driver, &[("k", "b", last)]);
    assert_eq!(ids(&mut driver), ["a", "b"], "before the change");
    version.store(1, Ordering::Relaxed);
    driver.crash();
    pipe(&mut driver, &[("k", "a", last - 1)]);
    assert!(ids(&mut driver).is_empty(), "its bucket is found");
    pipe(&mut driver, &[("k", "a", last)]);
    assert_eq!(ids(&mut driver), ["a"], "new a millisecond earlier");

    let (mut driver, version) = versions_of(|version| match version {
        0 => timed(days(7)),
        _ => timed(days(7) - Duration::from_millis(1)),
    });
    pipe(&mut driver, &[("k", &uuid(), 0)]);
    assert_eq!(ids(&mut driver), [uuid()]);
    version.store(1, Ordering::Relaxed);
    driver.crash();
    pipe(&mut driver, &[("k", &uuid(), 1)]);
    assert!(ids(&mut driver).is_empty(), "its bucket is found");
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

//! Programs that follow another one over the store of a join.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use eos_testkit::TestDriver;

use super::*;

fn versions(apps: Vec<(Kind, Within)>) -> (TestDriver, Arc<AtomicUsize>) {
    let version = Arc::new(AtomicUsize::new(0));
    let next = Arc::clone(&version);
    let driver = TestDriver::of(move || {
        let (kind, within) = apps[next.load(Ordering::Relaxed)];
        app(kind, within)
    });
    (driver, version)
}

#[test]
fn another_kind_or_range_does_not_start() {
    for (first, second, words) in [
        (
            (Kind::Left, within()),
            (Kind::Outer, within()),
            ["left_join_within", "outer_join_within"],
        ),
        (
            (Kind::Outer, within()),
            (Kind::Left, within()),
            ["outer_join_within", "left_join_within"],
        ),
        (
            (Kind::Inner, within()),
            (Kind::Left, within()),
            ["`join_within", "left_join_within"],
        ),
        (
            (Kind::Left, within()),
            (Kind::Inner, within()),
            ["plain stores", "orders"],
        ),
        (
            (Kind::Inner, within()),
            (Kind::Inner, within().after(MS(11))),
            ["after 10ms", "after 11ms"],
        ),
        (
            (Kind::Outer, within()),
            (Kind::Outer, within().before(MS(10)).after(MS(3))),
            ["before 3ms", "before 10ms"],
        ),
    ] {
        let (mut driver, version) = versions(vec![first, second]);
        pipe(&mut driver, &[("<a", "k", 100)]);
        version.store(1, Ordering::Relaxed);
        let restarted = catch_unwind(AssertUnwindSafe(|| driver.crash()));
        assert!(restarted.is_err(), "the second program started");
        let error = driver.error().unwrap().to_string();
        for word in words.into_iter().chain(["orders"]) {
            assert!(error.contains(word), "{word}: {error}");
        }
        // The state is unchanged.
        version.store(0, Ordering::Relaxed);
        driver.restart();
        pipe(&mut driver, &[(">b", "k", 101)]);
        assert_eq!(read(&mut driver), ["k a+b @101"]);
    }
}

/// A record that was emitted alone with a short grace gets no pair with a long one.
#[test]
fn a_longer_grace_opens_no_closed_record() {
    let long = within().grace(MS(1_000));
    let (mut driver, version) = versions(vec![(Kind::Outer, within()), (Kind::Outer, long)]);
    pipe(
        &mut driver,
        &[("<a", "k", 100), ("<b", "k", 150), ("<c", "k", 151)],
    );
    assert_eq!(read(&mut driver), ["k a+- @100"]);
    version.store(1, Ordering::Relaxed);
    driver.crash();
    // The shipment is late, the orders of 150 and 151 are open for a second.
    pipe(
        &mut driver,
        &[(">r", "k", 100), ("<x", "end", 500), (">s", "k", 153)],
    );
    assert_eq!(shown(&mut driver, &late_right()), ["k r @100"]);
    assert_eq!(read(&mut driver), ["k b+s @153", "k c+s @153"]);
    pipe(&mut driver, &[("<x", "end", 5_000)]);
    assert_eq!(read(&mut driver), ["end x+- @500"]);
}

/// Results without a pair that wait for the moments of a longer grace are not lost with a short one.
#[test]
fn a_shorter_grace_loses_no_result() {
    let long = within().grace(MS(1_000));
    for lost in [false, true] {
        let (mut driver, version) = versions(vec![(Kind::Left, long), (Kind::Left, within())]);
        pipe(&mut driver, &[("<a", "k", 100), ("<b", "j", 110)]);
        version.store(1, Ordering::Relaxed);
        match lost {
            true => driver.crash_and_lose_state(),
            false => driver.crash(),
        }
        pipe(&mut driver, &[("<x", "end", 900), ("<y", "end", 950)]);
        pipe(&mut driver, &[("<z", "end", 9_000)]);
        let mut found = read(&mut driver);
        found.sort();
        let expected = ["end x+- @900", "end y+- @950", "j b+- @110", "k a+- @100"];
        assert_eq!(found, expected);
    }
}

/// A task that moves, or loses its state, continues with its open records.
#[test]
fn the_state_survives_a_lost_disk() {
    for kind in KINDS {
        let mut driver = TestDriver::new(app(kind, within()));
        pipe(
            &mut driver,
            &[("<a", "k", 100), ("<b", "k", 101), (">r", "k", 112)],
        );
        driver.crash_and_lose_state();
        pipe(&mut driver, &[(">s", "k", 111), ("<x", "end", 500)]);
        let mut found = read(&mut driver);
        found.retain(|it| it.starts_with('k'));
        let alone = match kind {
            Kind::Inner => &[][..],
            Kind::Left => &["k a+- @100"],
            Kind::Outer => &["k a+- @100", "k -+r @112"],
        };
        let mut expected = vec!["k b+s @111".to_owned()];
        expected.extend(alone.iter().map(|it| (*it).to_owned()));
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{kind:?}");
    }
}

/// Returns an app whose left values are numbers, but whose store contains text.
fn with_numbers() -> App {
    let numbers: PlainTopic<String, u64> = Topic::plain("orders");
    let store = JoinStore::<String, u64, String>::json("orders-shipments");
    let mut app = App::new("a");
    app.on_error(ErrorPolicy::skip());
    let (left, right) = (app.source(&numbers), app.source(&shipments()));
    left.left_join_within(right, within(), &store, |left, right| {
        format!("{left}+{right:?}")
    })
    .to(&results());
    app
}

/// A stored value that can't be decoded stops the worker. The policy is for the arriving record, which is fine.
#[test]
fn an_unreadable_stored_value_is_not_the_fault_of_the_record_that_meets_it() {
    for record in [(">r", "k", 101), (">r", "other", 900)] {
        let version = Arc::new(AtomicUsize::new(0));
        let next = Arc::clone(&version);
        let mut driver = TestDriver::of(move || match next.load(Ordering::Relaxed) {
            0 => app_with(Kind::Left, within(), ErrorPolicy::skip()),
            _ => with_numbers(),
        });
        pipe(&mut driver, &[("<a", "k", 100)]);
        version.store(1, Ordering::Relaxed);
        driver.crash();
        let went_on = catch_unwind(AssertUnwindSafe(|| pipe(&mut driver, &[record])));
        assert!(went_on.is_err(), "{record:?} was skipped");
        let error = driver.error().unwrap().to_string();
        assert!(error.contains("orders-shipments"), "{error}");
        // The first program reads the value.
        version.store(0, Ordering::Relaxed);
        driver.restart();
        pipe(&mut driver, &[(">end", "end", 2_000)]);
        assert!(!read(&mut driver).is_empty());
    }
}

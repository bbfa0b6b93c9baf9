//! Sliding windows, with a crash at every effect. The golden cases compare their results with Kafka Streams.

use std::time::Duration;

use eos_core::codec::{Plain, TimeWindowed};
use eos_core::state::SlidingStore;
use eos_core::windows::{Sliding, Windowed};
use eos_core::{App, ErrorPolicy, Failure, PlainTopic, Timestamp, Topic};
use eos_testkit::{TestDriver, crash_everywhere};

const TEN: Duration = Duration::from_millis(10);

fn views() -> PlainTopic<String, String> {
    Topic::plain("views")
}

fn late() -> PlainTopic<String, String> {
    Topic::plain("late")
}

fn counts() -> Topic<Windowed<String>, u64, TimeWindowed, Plain> {
    Topic::with("counts", TimeWindowed::of(TEN), Plain)
}

fn store() -> SlidingStore<String, u64> {
    SlidingStore::plain("counts")
}

fn app(is_final: bool) -> App {
    app_with(is_final, false)
}

fn app_with(is_final: bool, trusts_times: bool) -> App {
    let mut app = App::new("a");
    let source = app.source(&views());
    let source = match trusts_times {
        true => source.trust_times(),
        false => source,
    };
    let table = source
        .group_by_key()
        .windowed_by(Sliding::of(TEN).grace(Duration::from_millis(5)))
        .late_to(&late())
        .count(&store());
    match is_final {
        true => table.emit_on_close().to(&counts()),
        false => table.to(&counts()),
    }
    app
}

fn scenario(driver: &mut TestDriver) -> (Vec<(String, i64, u64)>, usize, usize) {
    for (key, time) in [
        ("a", 100),
        ("a", 104),
        ("b", 104),
        ("a", 120),
        ("a", 111),
        ("a", 112),
        ("b", 300),
        ("a", 284),
        ("a", 285),
    ] {
        driver.pipe_at(&views(), key, "x", Timestamp(time));
    }
    let counts = driver.read_pairs(&counts()).into_iter();
    let counts = counts.map(|(key, count)| (key.key, key.window.start.0, count));
    let late = driver.read_pairs(&late()).len();
    (counts.collect(), late, driver.store(&store()).len())
}

#[test]
fn final_results_come_once_and_windows_leave_the_store() {
    let mut driver = TestDriver::new(app(true));
    let (counts, late, rows) = scenario(&mut driver);
    let expected = [
        ("a", 90, 1),
        ("a", 94, 2),
        ("b", 94, 1),
        // 111 and 112 come after this window has closed.
        ("a", 101, 1),
        ("a", 105, 2),
        ("a", 110, 3),
        ("a", 112, 2),
        ("a", 113, 1),
    ];
    let expected = expected.map(|(key, start, count)| (key.to_owned(), start, count));
    assert_eq!(counts, expected);
    // 284 is late: at 300, the window from 285 to 295 is closed.
    assert_eq!((late, rows), (1, 1));
    for is_final in [false, true] {
        let places = crash_everywhere(|| TestDriver::new(app(is_final)), scenario);
        assert!(places > 30, "{places}");
    }
}

#[test]
fn windows_without_final_results_leave_the_store_too() {
    let mut driver = TestDriver::new(app(false));
    let (counts, late, rows) = scenario(&mut driver);
    let first = counts
        .iter()
        .take(4)
        .map(|(key, start, count)| (&key[..], *start, *count));
    let expected = [("a", 90, 1), ("a", 101, 1), ("a", 94, 2), ("b", 94, 1)];
    assert_eq!(first.collect::<Vec<_>>(), expected);
    // The last update of each window is its final result.
    let last: std::collections::BTreeMap<(&str, i64), u64> = counts
        .iter()
        .map(|(key, start, count)| ((&key[..], *start), *count))
        .collect();
    let expected = [
        (("a", 90), 1),
        (("a", 94), 2),
        (("a", 101), 1),
        (("a", 105), 2),
        (("a", 110), 3),
        (("a", 112), 2),
        (("a", 113), 1),
        (("b", 94), 1),
        (("b", 290), 1),
    ];
    assert_eq!(last.into_iter().collect::<Vec<_>>(), expected);
    assert_eq!((late, rows), (1, 1));
}

/// A producer that writes nanoseconds. Each of its records is late, and counted as such.
#[test]
fn far_future_timestamps_do_not_stop_the_app() {
    for is_final in [false, true] {
        for far in [i64::MAX, 1_700_000_000_000_000_000, 1 << 52] {
            let mut driver = TestDriver::new(app_with(is_final, true));
            for (key, time) in [("a", 100), ("b", far), ("b", far), ("a", 101)] {
                driver.pipe_at(&views(), key, "x", Timestamp(time));
            }
            assert_eq!(driver.read_pairs(&counts()).len(), 1);
            assert_eq!(driver.read_pairs(&late()).len(), 3);
        }
    }
}

/// The other windows of the key stay.
#[test]
fn a_failed_final_window_is_skipped() {
    let mut app = App::new("a");
    app.source(&views())
        .on_error(ErrorPolicy::skip())
        .group_by_key()
        .windowed_by(Sliding::of(TEN))
        .count(&store())
        .emit_on_close()
        .process(|ctx, record| {
            if record.value == 2 {
                return Err(Failure::from("two"));
            }
            ctx.forward(record.key.key, record.value)
        })
        .to(&Topic::<String, u64>::plain("sums"));
    let mut driver = TestDriver::new(app);
    for time in [100, 103, 106, 500] {
        driver.pipe_at(&views(), "a", "x", Timestamp(time));
    }
    let sums = driver.read_pairs(&Topic::<String, u64>::plain("sums"));
    let sums: Vec<_> = sums.into_iter().map(|(_, count)| count).collect();
    // The windows from 90, 96 and 104, but not those from 93 and 101.
    assert_eq!(sums, [1, 3, 1]);
}

/// Records of the time between may still arrive.
#[test]
fn a_time_that_a_step_sets_ahead_of_stream_time_removes_no_window() {
    let mut app = App::new("a");
    app.source(&views())
        .process_values(|ctx, record| {
            let ahead = if record.value == "f" { 1_000_000 } else { 0 };
            let time = record.timestamp.map_or(0, |time| time.0) + ahead;
            ctx.forward_record(record.at(Timestamp(time)))
        })
        .group_by_key()
        .windowed_by(Sliding::of(TEN).grace(Duration::from_millis(5)))
        .count(&store())
        .to(&counts());
    let mut driver = TestDriver::new(app);
    for (value, time) in [("x", 100), ("f", 100), ("y", 105)] {
        driver.pipe_at(&views(), "a", value, Timestamp(time));
    }
    let counts = driver.read_pairs(&counts()).into_iter();
    let of_both: Vec<u64> = counts
        .filter(|(key, _)| key.window.start.0 == 95)
        .map(|(_, count)| count)
        .collect();
    assert_eq!(of_both, [2]);
}

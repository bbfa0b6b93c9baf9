//! Final results of windows, with a crash at every effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use eos_core::codec::{Plain, TimeWindowed};
use eos_core::state::WindowStore;
use eos_core::windows::{Hopping, Tumbling, Windowed};
use eos_core::{App, Backoff, ErrorPolicy, Failure, PlainTopic, Timer, Timestamp, Topic};
use eos_testkit::{Input, TestDriver, crash_everywhere};

const SIZE: Duration = ms(100);
const GRACE: Duration = ms(20);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn views() -> PlainTopic<String, String> {
    Topic::plain("views")
}

fn late() -> PlainTopic<String, String> {
    Topic::plain("late")
}

fn counts() -> Topic<Windowed<String>, u64, TimeWindowed, Plain> {
    Topic::with("counts", TimeWindowed::of(SIZE), Plain)
}

fn store() -> WindowStore<String, u64> {
    WindowStore::plain("windows")
}

/// Counts the views of each key and window, on close.
fn counting(windows: impl Into<Hopping>) -> App {
    let mut app = App::new("a");
    app.source(&views())
        .group_by_key()
        .windowed_by(windows.into())
        .late_to(&late())
        .count(&store())
        .emit_on_close()
        .to(&counts());
    app
}

fn tumbling() -> Tumbling {
    Tumbling::of(SIZE).grace(GRACE)
}

fn pipe(driver: &mut TestDriver, records: &[(&str, i64)]) {
    for (key, time) in records {
        driver.pipe_at(&views(), *key, "x", Timestamp(*time));
    }
}

/// The new results: key, start, count, time.
fn read(driver: &mut TestDriver) -> Vec<(String, i64, u64, i64)> {
    let records = driver.read(&counts()).into_iter();
    records
        .map(|it| {
            (
                it.key.key.clone(),
                it.key.window.start.0,
                it.value,
                it.timestamp.0,
            )
        })
        .collect()
}

fn own(results: &[(&str, i64, u64, i64)]) -> Vec<(String, i64, u64, i64)> {
    let own = |(key, start, count, time): &(&str, i64, u64, i64)| {
        ((*key).to_owned(), *start, *count, *time)
    };
    results.iter().map(own).collect()
}

#[track_caller]
fn check(
    windows: impl Into<Hopping> + Copy,
    records: &[(&str, i64)],
    out: &[(&str, i64, u64, i64)],
) {
    let mut driver = TestDriver::new(counting(windows));
    pipe(&mut driver, records);
    assert_eq!(read(&mut driver), own(out));
    let places = crash_everywhere(
        || TestDriver::new(counting(windows)),
        |driver| {
            pipe(driver, records);
            (driver.committed(), driver.read_pairs(&late()))
        },
    );
    assert!(places > 20, "{places}");
}

#[test]
fn a_result_is_emitted_once_when_its_window_closes() {
    check(
        tumbling(),
        // The window of 0 to 100 closes at 120.
        &[
            ("b", 10),
            ("a", 90),
            ("a", 119),
            ("b", 50),
            ("c", 120),
            ("a", 60),
            ("a", 130),
            ("d", 400),
        ],
        &[
            ("a", 0, 1, 90),
            ("b", 0, 2, 50),
            ("a", 100, 2, 130),
            ("c", 100, 1, 120),
        ],
    );
}

#[test]
fn windows_of_a_jump_close_in_order() {
    check(
        tumbling(),
        &[
            ("b", 10),
            ("a", 110),
            ("b", 115),
            ("c", 1_000),
            ("a", 1_250),
        ],
        &[
            ("b", 0, 1, 10),
            ("a", 100, 1, 110),
            ("b", 100, 1, 115),
            ("c", 1_000, 1, 1_000),
        ],
    );
}

#[test]
fn hopping_windows_close_one_after_the_other() {
    check(
        Hopping::of(SIZE).every(ms(40)).grace(GRACE),
        &[("a", 90), ("b", 125), ("a", 165), ("a", 400)],
        &[
            ("a", 0, 1, 90),
            ("a", 40, 1, 90),
            ("b", 40, 1, 125),
            ("a", 80, 2, 165),
            ("b", 80, 1, 125),
            ("a", 120, 1, 165),
            ("b", 120, 1, 125),
            ("a", 160, 1, 165),
        ],
    );
}

#[test]
fn an_aborted_transaction_emits_its_results_again() {
    let mut driver = TestDriver::new(counting(tumbling()));
    pipe(&mut driver, &[("a", 10)]);
    driver.hold();
    pipe(&mut driver, &[("b", 20), ("c", 150), ("c", 160)]);
    driver.abort();
    driver.release();
    pipe(&mut driver, &[("c", 170)]);
    assert_eq!(read(&mut driver), own(&[("a", 0, 1, 10), ("b", 0, 1, 20)]));
    pipe(&mut driver, &[("c", 220)]);
    assert_eq!(read(&mut driver), own(&[("c", 100, 3, 170)]));
}

/// The first transaction of a store holds the record that closes its windows (operators.md, C2).
#[test]
fn the_first_transaction_of_a_store_closes_windows() {
    let mut driver = TestDriver::new(counting(tumbling()));
    driver.hold();
    pipe(&mut driver, &[("a", 10), ("b", 1_000)]);
    driver.release();
    driver.crash_and_lose_state();
    pipe(&mut driver, &[("b", 1_001)]);
    assert_eq!(read(&mut driver), own(&[("a", 0, 1, 10)]));
}

#[test]
fn a_deleted_result_is_not_emitted() {
    let mut app = App::new("a");
    app.source(&views())
        .group_by_key()
        .windowed_by(tumbling())
        .reduce_or_delete(&WindowStore::plain("windows"), |_, new| {
            (new != "-").then_some(new)
        })
        .emit_on_close()
        .rekey(|it| (it.key.key, it.value))
        .to(&late());
    let mut driver = TestDriver::new(app);
    for (key, value, time) in [("a", "x", 1), ("b", "y", 2), ("a", "-", 3), ("c", "z", 200)] {
        driver.pipe_at(&views(), key, value, Timestamp(time));
    }
    assert_eq!(
        driver.read_pairs(&late()),
        [("b".to_owned(), "y".to_owned())]
    );
}

/// Final results of short windows are counted in longer ones. Stream time jumps over several of these at once
/// (operators.md, C4).
#[test]
fn windows_behind_final_results_lose_none_at_a_jump() {
    let start = || {
        let mut app = App::new("a");
        app.source(&views())
            .group_by_key()
            .windowed_by(Tumbling::of(ms(10)))
            .count(&store())
            .emit_on_close()
            .without_windows()
            .group_by_key()
            .windowed_by(tumbling())
            .reduce(&WindowStore::plain("sums"), |a, b| a + b)
            .emit_on_close()
            .to(&counts());
        TestDriver::new(app)
    };
    let scenario = |driver: &mut TestDriver| {
        pipe(
            driver,
            &[
                ("a", 5),
                ("a", 15),
                ("a", 95),
                ("b", 99),
                ("a", 195),
                ("a", 2_000),
                ("a", 2_010),
            ],
        );
        let late = driver.metrics().map(|it| it.totals.late_records);
        (read(driver), late)
    };
    let (results, late) = scenario(&mut start());
    assert_eq!(
        results,
        own(&[("a", 0, 3, 95), ("b", 0, 1, 99), ("a", 100, 1, 195)])
    );
    assert_eq!(late, Some(0));
    crash_everywhere(start, |driver| scenario(driver).0);
}

#[test]
fn windows_behind_final_results_need_a_longer_grace() {
    let of = |grace: Duration, size: Duration| {
        let mut app = App::new("a");
        app.source(&views())
            .group_by_key()
            .windowed_by(Tumbling::of(ms(50)).grace(ms(30)))
            .count(&store())
            .emit_on_close()
            .without_windows()
            .filter(|count| *count > 0)
            .group_by_key()
            .windowed_by(Tumbling::of(size).grace(grace))
            .reduce(&WindowStore::plain("sums"), |a, b| a + b)
            .emit_on_close()
            .to(&counts());
        TestDriver::build(app).err().map(|error| error.to_string())
    };
    // The longer windows end where shorter ones end.
    assert_eq!(of(ms(31), SIZE), None);
    let error = of(ms(30), SIZE).unwrap();
    for part in ["sums", "windows", "31ms"] {
        assert!(error.contains(part), "{error}");
    }
    // The longer windows do not end where the shorter ones end.
    assert_eq!(of(ms(80), ms(70)), None);
    let error = of(ms(79), ms(70)).unwrap();
    assert!(error.contains("80ms"), "{error}");
}

/// All results of a commit see the stream time at its end, so the times of commits would decide which results are late.
#[test]
fn windows_behind_results_of_commits_need_a_topic_between_them() {
    let of = |in_one_stage: bool| {
        let mut app = App::new("a");
        let results = app
            .source(&views())
            .group_by_key()
            .windowed_by(Tumbling::of(ms(50)))
            .count(&store())
            .emit_per_commit()
            .to_stream()
            .without_windows();
        let results = match in_one_stage {
            true => results,
            false => results.repartition(&Topic::plain("minutes")),
        };
        results
            .group_by_key()
            .windowed_by(Tumbling::of(SIZE).grace(ms(1_000)))
            .reduce(&WindowStore::plain("sums"), |a, b| a + b)
            .to_stream()
            .without_windows()
            .to(&Topic::plain("hours"));
        TestDriver::build(app).err().map(|error| error.to_string())
    };
    assert_eq!(of(false), None);
    let error = of(true).unwrap();
    for part in [
        "`emit_per_commit` of the store windows",
        "the store sums",
        "`repartition`",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

/// A moment in the past, set behind a final result, sees no earlier time than the result.
#[test]
fn a_moment_behind_a_final_result_opens_no_window() {
    let start = || {
        let mut app = App::new("a");
        let idle = app.timer(&Timer::<String>::event_time("idle"));
        app.source(&views())
            .group_by_key()
            .windowed_by(tumbling())
            .count(&store())
            .emit_on_close()
            .without_windows()
            .on_timer(&idle, |ctx, due| ctx.forward(due.key, 100))
            .process_values(move |ctx, record| {
                let past = record.timestamp.map_or(0, |time| (time.0 - 50).max(0));
                ctx.timer(&idle).set(record.key, Timestamp(past))?;
                ctx.forward(record.value)
            })
            .group_by_key()
            .windowed_by(Tumbling::of(SIZE).grace(ms(21)))
            .late_to(&Topic::<String, u64>::plain("later"))
            .reduce(&WindowStore::plain("sums"), |a, b| a + b)
            .emit_on_close()
            .to(&counts());
        TestDriver::new(app)
    };
    let scenario = |driver: &mut TestDriver| {
        pipe(driver, &[("a", 10), ("a", 110), ("a", 130), ("a", 5_000)]);
        let later = driver.read_pairs(&Topic::<String, u64>::plain("later"));
        (read(driver), later.len())
    };
    let (results, later) = scenario(&mut start());
    // The moment at 0 counts in the first window. That at 80 comes after the result of the second one, so it is late.
    assert_eq!(results, own(&[("a", 0, 101, 10), ("a", 100, 2, 130)]));
    assert_eq!(later, 1);
    crash_everywhere(start, scenario);
}

#[test]
fn updates_per_commit_of_final_results_are_refused() {
    let mut app = App::new("a");
    app.source(&views())
        .group_by_key()
        .windowed_by(tumbling())
        .count(&store())
        .emit_per_commit()
        .emit_on_close()
        .to(&counts());
    let error = TestDriver::build(app).err().map(|error| error.to_string());
    let error = error.unwrap_or_default();
    assert!(
        error.contains("windows") && error.contains("emit_per_commit"),
        "{error}"
    );
}

/// A producer that writes nanoseconds, or an uninitialised number.
#[test]
fn far_future_timestamps_do_not_stop_the_app() {
    let counting = |trusts_times| {
        let mut app = App::new("a");
        let source = app.source(&views()).on_error(ErrorPolicy::skip());
        let source = match trusts_times {
            true => source.trust_times(),
            false => source,
        };
        source
            .group_by_key()
            .windowed_by(tumbling())
            .count(&store())
            .emit_on_close()
            .to(&counts());
        app
    };
    for far in [i64::MAX, 1_700_000_000_000_000_000, 1 << 52] {
        let records = [("a", 10), ("b", far), ("c", far), ("a", 20), ("d", 1_000)];
        let mut driver = TestDriver::new(counting(false));
        pipe(&mut driver, &records);
        assert_eq!(read(&mut driver), own(&[("a", 0, 2, 20)]));
        let mut driver = TestDriver::new(counting(true));
        pipe(&mut driver, &records);
        assert_eq!(read(&mut driver)[..1], own(&[("a", 0, 1, 10)]));
        assert!(driver.error().is_none());
    }
}

/// A step behind the results fails for the key `bad`, and for `once` at its first call.
fn failing(policy: impl Into<ErrorPolicy>) -> App {
    let mut app = App::new("a");
    let failed = AtomicBool::new(false);
    app.source(&views())
        .on_error(policy)
        .group_by_key()
        .windowed_by(tumbling())
        .count(&store())
        .emit_on_close()
        .process(move |ctx, record| {
            let key = &record.key.key;
            if key == "bad" || key == "once" && !failed.swap(true, Ordering::Relaxed) {
                return Err(Failure::from("no such page"));
            }
            ctx.forward_record(record)
        })
        .to(&counts());
    app
}

const FAILING: [(&str, i64); 4] = [("a", 10), ("bad", 10), ("c", 20), ("d", 150)];

#[test]
fn a_failed_result_stops_the_app_and_is_named() {
    let mut driver = TestDriver::new(failing(ErrorPolicy::fail()));
    pipe(&mut driver, &FAILING[..3]);
    let later = Input::<String, String>::new("d", "").at(Timestamp(150));
    driver.try_pipe(&views(), later).unwrap_err();
    let error = driver.error().unwrap().to_string();
    for part in [
        "the final result of the store windows",
        "\"bad\"",
        "from 0 ms",
        "no such page",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(read(&mut driver), own(&[("a", 0, 1, 10)]));
}

#[test]
fn a_failed_result_is_skipped() {
    let mut driver = TestDriver::new(failing(ErrorPolicy::skip()));
    pipe(&mut driver, &FAILING);
    assert_eq!(read(&mut driver), own(&[("a", 0, 1, 10), ("c", 0, 1, 20)]));
}

#[test]
fn a_failed_result_goes_to_the_dead_letter_topic() {
    let mut driver = TestDriver::new(failing(ErrorPolicy::dead_letter("letters")));
    pipe(&mut driver, &FAILING);
    assert_eq!(read(&mut driver), own(&[("a", 0, 1, 10), ("c", 0, 1, 20)]));
    let letter = driver.read_one(&Topic::<String, u64>::plain("letters"));
    assert_eq!(
        (letter.key.as_str(), letter.value, letter.timestamp),
        ("bad", 1, Timestamp(120))
    );
    let header = |name| {
        let value = letter.headers.get(name).unwrap_or_default();
        String::from_utf8_lossy(value).into_owned()
    };
    assert_eq!(
        (header("eos-due"), header("eos-window")),
        ("windows 120".into(), "0".into())
    );
}

#[test]
fn a_failed_result_is_retried_before_the_next_one() {
    let policy = ErrorPolicy::retry(3, Backoff::fixed(ms(10)));
    let mut driver = TestDriver::new(failing(policy));
    pipe(&mut driver, &[("once", 10), ("z", 20), ("d", 150)]);
    driver.advance_wall_clock(Duration::from_secs(1));
    pipe(&mut driver, &[("d", 151)]);
    assert_eq!(
        read(&mut driver),
        own(&[("once", 0, 1, 10), ("z", 0, 1, 20)])
    );
}

/// Starts version after version of a program over the same state. `version` is the one that starts next.
fn versions(apps: impl Fn(u32) -> App + Send + 'static) -> (TestDriver, Arc<AtomicU32>) {
    let version = Arc::new(AtomicU32::new(0));
    let next = Arc::clone(&version);
    let driver = TestDriver::of(move || apps(next.load(Ordering::Relaxed)));
    (driver, version)
}

fn updating() -> App {
    let mut app = App::new("a");
    app.source(&views())
        .group_by_key()
        .windowed_by(tumbling())
        .late_to(&late())
        .count(&store())
        .to(&counts());
    app
}

#[test]
fn a_store_of_a_program_that_emitted_updates_begins_with_open_windows() {
    let (mut driver, version) = versions(|version| match version % 2 {
        0 => updating(),
        _ => counting(tumbling()),
    });
    pipe(&mut driver, &[("a", 10), ("a", 110), ("b", 150)]);
    assert_eq!(read(&mut driver).len(), 3);
    version.store(1, Ordering::Relaxed);
    driver.crash();
    pipe(&mut driver, &[("a", 160), ("a", 230)]);
    assert_eq!(
        read(&mut driver),
        own(&[("a", 100, 2, 160), ("b", 100, 1, 150)])
    );
    // Updates again, and then final results: those of the windows in between are not emitted afterwards.
    version.store(2, Ordering::Relaxed);
    driver.crash();
    pipe(&mut driver, &[("a", 240), ("a", 340), ("a", 350)]);
    assert_eq!(read(&mut driver).len(), 3);
    version.store(3, Ordering::Relaxed);
    driver.crash();
    pipe(&mut driver, &[("a", 430)]);
    assert_eq!(read(&mut driver), own(&[("a", 300, 2, 350)]));
}

/// With a longer grace, a window whose result is emitted would be open again (operators.md, H10).
#[test]
fn a_longer_grace_does_not_reopen_emitted_windows() {
    let (mut driver, version) = versions(|version| {
        let mut app = App::new("a");
        app.source(&views())
            .group_by_key()
            .windowed_by(Tumbling::of(SIZE).grace(ms(1_000 * u64::from(version))))
            .late_to(&late())
            .count(&store().retention(Duration::from_secs(3_600)))
            .emit_on_close()
            .to(&counts());
        app
    });
    pipe(&mut driver, &[("a", 10), ("a", 110), ("b", 150)]);
    assert_eq!(read(&mut driver), own(&[("a", 0, 1, 10)]));
    version.store(1, Ordering::Relaxed);
    driver.crash();
    pipe(&mut driver, &[("a", 20), ("a", 120), ("c", 1_300)]);
    assert_eq!(driver.read_pairs(&late()).len(), 1);
    assert_eq!(
        read(&mut driver),
        own(&[("a", 100, 2, 120), ("b", 100, 1, 150)])
    );
}

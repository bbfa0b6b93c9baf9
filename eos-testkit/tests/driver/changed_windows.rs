//! Programs that follow another one over its sessions, sliding windows, timers and expiring rows.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use eos_core::state::{SessionStore, SlidingStore, WindowStore};
use eos_core::timers::Clock;
use eos_core::windows::{Hopping, Session, Sliding, Window, Windowed};
use eos_core::{App, KeyValueStore, PlainTopic, Record, Timer, Timestamp, Topic};
use eos_testkit::TestDriver;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn views() -> PlainTopic<String, String> {
    Topic::plain("views")
}

fn late() -> PlainTopic<String, String> {
    Topic::plain("late")
}

/// Keys with the first and the last millisecond of their windows, and counts.
fn results() -> PlainTopic<String, String> {
    Topic::plain("results")
}

type Program = fn() -> App;

/// Starts the first version of a program over an empty state. Returns the choice of the next version.
fn versions(app: impl Fn(usize) -> App + Send + 'static) -> (TestDriver, impl Fn(usize)) {
    let version = Arc::new(AtomicUsize::new(0));
    let next = Arc::clone(&version);
    let driver = TestDriver::of(move || app(next.load(Ordering::Relaxed)));
    (driver, move |to| version.store(to, Ordering::Relaxed))
}

#[track_caller]
fn refuses(first: Program, second: Program, records: &[(&str, i64)], words: &[&str]) {
    let (mut driver, go_to) = versions(move |version| [first, second][version]());
    pipe(&mut driver, records);
    go_to(1);
    let restarted = catch_unwind(AssertUnwindSafe(|| driver.crash()));
    assert!(restarted.is_err(), "the second program started");
    let error = driver.error().unwrap().to_string();
    for word in words {
        assert!(error.contains(word), "{word}: {error}");
    }
    // The state is unchanged.
    go_to(0);
    driver.restart();
    pipe(&mut driver, records);
}

fn pipe(driver: &mut TestDriver, records: &[(&str, i64)]) {
    for (key, time) in records {
        driver.pipe_at(&views(), *key, "x", Timestamp(*time));
    }
}

fn read(driver: &mut TestDriver) -> Vec<String> {
    let results = driver.read_pairs(&results()).into_iter();
    results
        .map(|(key, result)| format!("{key} {result}"))
        .collect()
}

fn late_times(driver: &mut TestDriver) -> Vec<i64> {
    let late = driver.read(&late());
    late.iter().map(|it| it.timestamp.0).collect()
}

/// Shows the first and the last possible millisecond of a window, and its count.
fn shown(record: Record<&Windowed<String>, u64>) -> String {
    let Window { start, end } = record.key.window;
    format!("{}-{} {}", start.0, end.0 - 1, record.value)
}

fn sliding(windows: Sliding, is_final: bool) -> App {
    let mut app = App::new("a");
    let table = app
        .source(&views())
        .group_by_key()
        .windowed_by(windows)
        .late_to(&late())
        .count(&SlidingStore::plain("counts"));
    if is_final {
        let finals = table.emit_on_close();
        finals.map_record(shown).without_windows().to(&results());
    } else {
        let updates = table.to_stream();
        updates.map_record(shown).without_windows().to(&results());
    }
    app
}

fn sessions(windows: Session, is_final: bool) -> App {
    let mut app = App::new("a");
    let table = app
        .source(&views())
        .group_by_key()
        .windowed_by(windows)
        .late_to(&late())
        .count(&SessionStore::plain("counts"));
    if is_final {
        let finals = table.emit_on_close();
        finals.map_record(shown).without_windows().to(&results());
    } else {
        let updates = table.to_stream().filter_map(|count| count);
        updates.map_record(shown).without_windows().to(&results());
    }
    app
}

/// The start of a window does not contain its length, so the app would mix the results of both lengths.
#[test]
fn another_length_of_sliding_windows_does_not_start() {
    let words = ["store counts", "10ms", "20ms", "another app name"];
    refuses(
        || sliding(Sliding::of(MS(10)), false),
        || sliding(Sliding::of(MS(20)), false),
        &[("a", 100)],
        &words,
    );
    refuses(
        || sliding(Sliding::of(MS(10)), true),
        || sliding(Sliding::of(MS(20)), true),
        &[("a", 100), ("a", 500)],
        &words,
    );
}

/// A closed window stays closed, whether its row still exists or not.
#[test]
fn a_longer_grace_opens_no_closed_sliding_window() {
    for is_final in [true, false] {
        // The last stream time of the first program. The row of `a` exists at the first one, and is deleted at the
        // second.
        for time in [115, 500] {
            let grace = |version| MS([0, 1_000][version]);
            let (mut driver, go_to) = versions(move |version| {
                sliding(Sliding::of(MS(10)).grace(grace(version)), is_final)
            });
            pipe(&mut driver, &[("a", 100), ("a", 103), ("b", time)]);
            let first = read(&mut driver);
            go_to(1);
            driver.crash();
            // The windows of these records close at 114 and before.
            pipe(&mut driver, &[("a", 95), ("a", 101), ("a", 102)]);
            assert_eq!(late_times(&mut driver), [95, 101, 102], "{is_final} {time}");
            pipe(&mut driver, &[("b", 3_000)]);
            let mut results = read(&mut driver);
            results.extend(first);
            results.retain(|result| result.starts_with('a'));
            results.sort();
            // The window from 101 closes at 112, that from 104 never began.
            let expected = ["a 101-111 1", "a 90-100 1", "a 93-103 2"];
            assert_eq!(results, expected, "{is_final} {time}");
        }
    }
}

#[test]
fn a_longer_grace_or_gap_opens_no_closed_session() {
    for is_final in [true, false] {
        for longer in [
            Session::gap(MS(10)).grace(MS(1_000)),
            Session::gap(MS(1_000)),
        ] {
            let windows = [Session::gap(MS(10)), longer];
            let (mut driver, go_to) = versions(move |version| sessions(windows[version], is_final));
            pipe(&mut driver, &[("a", 100), ("a", 103), ("b", 500)]);
            go_to(1);
            driver.crash();
            // A session with its last record at 489 is closed.
            pipe(
                &mut driver,
                &[("a", 100), ("a", 112), ("a", 489), ("a", 490)],
            );
            assert_eq!(late_times(&mut driver), [100, 112, 489], "{is_final}");
            pipe(&mut driver, &[("c", 5_000), ("d", 9_000)]);
            let results = read(&mut driver);
            let of_a = results.iter().filter(|result| result.starts_with('a'));
            let of_a: Vec<_> = of_a.map(String::as_str).collect();
            match is_final {
                true => assert_eq!(of_a, ["a 100-103 2", "a 490-490 1"]),
                false => assert_eq!(of_a, ["a 100-100 1", "a 100-103 2", "a 490-490 1"]),
            }
        }
    }
}

/// Sessions with other results, and sliding windows with other results.
#[test]
fn final_results_and_updates_do_not_follow_each_other() {
    let records = [("a", 100), ("b", 500)];
    let words = ["store counts", "emit_on_close", "another app name"];
    refuses(
        || sessions(Session::gap(MS(10)), true),
        || sessions(Session::gap(MS(10)), false),
        &records,
        &words,
    );
    refuses(
        || sessions(Session::gap(MS(10)), false),
        || sessions(Session::gap(MS(10)), true),
        &records,
        &words,
    );
    refuses(
        || sliding(Sliding::of(MS(10)), true),
        || sliding(Sliding::of(MS(10)), false),
        &records,
        &words,
    );
    refuses(
        || sliding(Sliding::of(MS(10)), false),
        || sliding(Sliding::of(MS(10)), true),
        &records,
        &words,
    );
}

fn timed(timer: &Timer<String>) -> App {
    let mut app = App::new("a");
    let timer = app.timer(timer);
    app.source(&views())
        .on_timer(&timer, |_, _| ())
        .process_values(move |ctx, view| ctx.timer(&timer).set(view.key, Timestamp(1 << 50)))
        .to(&results());
    app
}

fn ticking() -> App {
    let mut app = App::new("a");
    app.source(&views())
        .on_tick("counts", Clock::Stream, MS(10), |_, _| ())
        .process(|_, _| ())
        .to(&results());
    app
}

fn expiring() -> App {
    let mut app = App::new("a");
    let store = app.store(&KeyValueStore::<String, u64>::plain("counts").expire_after(MS(50)));
    app.source(&views())
        .with_store(&store)
        .process_values(move |ctx, view| ctx.store(&store).put(view.key, &1))
        .to(&results());
    app
}

fn in_sessions() -> App {
    let mut app = App::new("a");
    app.source(&views())
        .group_by_key()
        .windowed_by(Session::gap(MS(10)))
        .count(&SessionStore::plain("counts"))
        .emit_on_close()
        .map_record(shown)
        .without_windows()
        .to(&results());
    app
}

fn in_sliding_windows() -> App {
    let mut app = App::new("a");
    app.source(&views())
        .group_by_key()
        .windowed_by(Sliding::of(MS(10)))
        .count(&SlidingStore::plain("counts"))
        .emit_on_close()
        .map_record(shown)
        .without_windows()
        .to(&results());
    app
}

/// Timers, ticks, sessions, sliding windows and expiring rows have one name, and other rows.
#[test]
fn stores_with_moments_of_other_kinds_do_not_follow_each_other() {
    let kinds: [(Program, &str); 6] = [
        (|| timed(&Timer::event_time("counts")), "timer"),
        (|| timed(&Timer::wall_clock("counts")), "timer"),
        (ticking, "on_tick"),
        (expiring, "expire_after"),
        (in_sessions, "Session"),
        (in_sliding_windows, "Sliding"),
    ];
    for (n, (first, word)) in kinds.into_iter().enumerate() {
        for (m, (second, _)) in kinds.into_iter().enumerate() {
            if n != m {
                refuses(first, second, &[("a", 100), ("b", 105)], &["counts", word]);
            }
        }
    }
}

/// The next program decides about open sessions. Each final result comes once.
#[test]
fn another_gap_applies_to_open_sessions() {
    let gap = |gap| Session::gap(MS(gap));
    // 100 and 112 are one session only with the longer gap.
    for (before, after, expected) in [
        (10, 20, &["a 100-100 1", "a 112-120 2"][..]),
        (20, 10, &["a 100-120 3"][..]),
    ] {
        let windows = [gap(before), gap(after)];
        let (mut driver, go_to) = versions(move |version| sessions(windows[version], true));
        pipe(&mut driver, &[("a", 100), ("a", 112)]);
        go_to(1);
        driver.crash_and_lose_state();
        pipe(&mut driver, &[("a", 120), ("b", 1_000), ("c", 2_000)]);
        let mut results = read(&mut driver);
        results.retain(|result| result.starts_with('a'));
        assert_eq!(results, expected, "{before} -> {after}");
        assert!(late_times(&mut driver).is_empty());
    }
}

/// The starts of windows are not the same with another distance.
#[test]
fn another_distance_or_kind_of_fixed_windows_does_not_start() {
    fn fixed(size: u64, advance: u64) -> App {
        let mut app = App::new("a");
        app.source(&views())
            .group_by_key()
            .windowed_by(Hopping::of(MS(size)).every(MS(advance)))
            .count(&WindowStore::plain("counts"))
            .to_stream()
            .map_record(shown)
            .without_windows()
            .to(&results());
        app
    }
    let records = [("a", 100)];
    let words = ["store counts", "10ms long, every 5ms"];
    refuses(|| fixed(10, 5), || fixed(10, 2), &records, &words);
    refuses(|| fixed(10, 5), || fixed(10, 10), &records, &words);
    refuses(|| fixed(10, 10), || fixed(10, 5), &records, &words);
}

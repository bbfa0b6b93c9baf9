//! Bad input and bad definitions of windows, sessions, sliding windows and timers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use eos_core::state::{SessionStore, SlidingStore, WindowStore};
use eos_core::windows::{Hopping, Session, Sliding, Tumbling, Window, Windowed};
use eos_core::{App, ErrorPolicy, PlainTopic, Record, Stream, Timer, Timestamp, Topic};
use eos_testkit::{Input, TestDriver};

const MS: fn(u64) -> Duration = Duration::from_millis;

fn views() -> PlainTopic<String, String> {
    Topic::plain("views")
}

fn results() -> PlainTopic<String, String> {
    Topic::plain("results")
}

/// The kinds of windows, of 10 ms without grace.
const KINDS: [&str; 4] = ["tumbling", "hopping", "sessions", "sliding"];

/// Final counts in windows of this kind.
fn counts(views: Stream<String, String>, kind: &str) -> Stream<Windowed<String>, u64> {
    let grouped = views.group_by_key();
    match kind {
        "tumbling" => grouped
            .windowed_by(Tumbling::of(MS(10)))
            .count(&WindowStore::plain("counts"))
            .emit_on_close(),
        "hopping" => grouped
            .windowed_by(Hopping::of(MS(10)).every(MS(5)))
            .count(&WindowStore::plain("counts"))
            .emit_on_close(),
        "sessions" => grouped
            .windowed_by(Session::gap(MS(10)))
            .count(&SessionStore::plain("counts"))
            .emit_on_close(),
        _ => grouped
            .windowed_by(Sliding::of(MS(10)))
            .count(&SlidingStore::plain("counts"))
            .emit_on_close(),
    }
}

fn shown(record: Record<&Windowed<String>, u64>) -> String {
    let Window { start, end } = record.key.window;
    format!("{}-{} {}", start.0, end.0 - 1, record.value)
}

fn counting(kind: &'static str, policy: ErrorPolicy) -> App {
    let mut app = App::new("a");
    let views = app.source(&views()).on_error(policy);
    let counts = counts(views, kind);
    counts.map_record(shown).without_windows().to(&results());
    app
}

fn read(driver: &mut TestDriver) -> Vec<String> {
    let results = driver.read_pairs(&results()).into_iter();
    results.map(|(_, result)| result).collect()
}

fn fails(driver: &mut TestDriver, time: i64, words: &[&str]) {
    let record = Input::<String, String>::new("a", "x").at(Timestamp(time));
    let error = driver.try_pipe(&views(), record).unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[test]
fn a_record_without_a_time_is_in_no_window() {
    for kind in KINDS {
        for time in [-1, i64::MIN] {
            let mut driver = TestDriver::new(counting(kind, ErrorPolicy::fail()));
            fails(
                &mut driver,
                time,
                &["the record has no timestamp", "on_error"],
            );
            let mut driver = TestDriver::new(counting(kind, ErrorPolicy::skip()));
            for time in [100, time, 101, 500] {
                driver.pipe_at(&views(), "a", "x", Timestamp(time));
            }
            assert_eq!(driver.metrics().unwrap().totals.skipped, 1, "{kind}");
            let results = read(&mut driver);
            assert!(results.iter().any(|it| it.ends_with(" 2")), "{results:?}");
            assert!(!results.iter().any(|it| it.ends_with(" 3")), "{results:?}");
        }
    }
}

#[test]
fn a_timer_is_not_set_in_a_time_after_a_record_without_one() {
    let app = |policy| {
        let mut app = App::new("a");
        let timer = app.timer(&Timer::<String>::event_time("idle"));
        app.source(&views())
            .on_error(policy)
            .on_timer(&timer, |ctx, due| {
                ctx.forward(due.key, due.at.0.to_string())
            })
            .process(move |ctx, record| ctx.timer(&timer).set_in(&record.key, MS(10)))
            .to(&results());
        app
    };
    let mut driver = TestDriver::new(app(ErrorPolicy::fail()));
    fails(&mut driver, -1, &["set_in", "idle", "no timestamp"]);
    let mut driver = TestDriver::new(app(ErrorPolicy::skip()));
    for time in [-1, 100, 200] {
        driver.pipe_at(&views(), "a", "x", Timestamp(time));
    }
    assert_eq!(read(&mut driver), ["110"]);
}

/// All records have the same time. No window closes, and no record is late.
#[test]
fn stream_time_may_stand_still() {
    for kind in KINDS {
        let mut driver = TestDriver::new(counting(kind, ErrorPolicy::fail()));
        for _ in 0..20 {
            driver.pipe_at(&views(), "a", "x", Timestamp(100));
        }
        driver.advance_wall_clock(Duration::from_secs(3_600));
        driver.crash();
        assert!(read(&mut driver).is_empty(), "{kind}");
        driver.pipe_at(&views(), "b", "x", Timestamp(1_000));
        let expected: &[&str] = match kind {
            "tumbling" => &["100-109 20"],
            "hopping" => &["95-104 20", "100-109 20"],
            "sessions" => &["100-100 20"],
            _ => &["90-100 20"],
        };
        assert_eq!(read(&mut driver), expected, "{kind}");
    }
}

/// The policy decides, and current records stay in time.
#[test]
fn a_record_of_the_far_future_is_refused_by_every_kind() {
    for kind in KINDS {
        let mut driver = TestDriver::new(counting(kind, ErrorPolicy::fail()));
        let words = [
            "ahead of the machine's clock",
            "store counts",
            "trust_times",
        ];
        fails(&mut driver, 1 << 45, &words);
        let mut driver = TestDriver::new(counting(kind, ErrorPolicy::dead_letter("letters")));
        for time in [100, 1 << 45, 101, 500] {
            driver.pipe_at(&views(), "a", "x", Timestamp(time));
        }
        let letter = driver.read_one(&Topic::<String, String>::plain("letters"));
        assert_eq!(letter.timestamp, Timestamp(1 << 45));
        assert_eq!(driver.stream_time("views", 0), Some(Timestamp(500)));
        let results = read(&mut driver);
        assert!(results.iter().any(|it| it.ends_with(" 2")), "{results:?}");
    }
}

/// Timers and rows that expire depend on stream time as well.
#[test]
fn a_record_of_the_far_future_is_refused_by_timers() {
    let app = |trusts_times: bool| {
        let mut app = App::new("a");
        let timer = app.timer(&Timer::<String>::event_time("idle"));
        let views = app.source(&views()).on_error(ErrorPolicy::skip());
        let views = if trusts_times {
            views.trust_times()
        } else {
            views
        };
        views
            .on_timer(&timer, |ctx, due| {
                ctx.forward(due.key, due.at.0.to_string())
            })
            .process(move |ctx, record| ctx.timer(&timer).set_in(&record.key, MS(10)))
            .to(&results());
        app
    };
    for (trusts_times, fired) in [(false, &[][..]), (true, &["110"][..])] {
        let mut driver = TestDriver::new(app(trusts_times));
        driver.pipe_at(&views(), "a", "x", Timestamp(100));
        driver.pipe_at(&views(), "b", "x", Timestamp(1 << 45));
        assert_eq!(read(&mut driver), fired);
    }
    // A stage without stream time takes any record.
    let mut app = App::new("a");
    app.source(&views()).to(&results());
    let mut driver = TestDriver::new(app);
    driver.pipe_at(&views(), "b", "x", Timestamp(1 << 45));
    assert_eq!(driver.count(&results()), 1);
}

#[test]
fn the_distance_of_windows_is_at_least_a_millisecond_and_at_most_their_length() {
    for (advance, word) in [
        (Duration::ZERO, "0ns"),
        (Duration::from_micros(10), "10µs"),
        (MS(11), "11ms"),
    ] {
        let mut app = App::new("a");
        app.source(&views())
            .group_by_key()
            .windowed_by(Hopping::of(MS(10)).every(advance))
            .count(&WindowStore::plain("counts"))
            .to_stream()
            .map_record(shown)
            .without_windows()
            .to(&results());
        let error = TestDriver::build(app).err().map(|error| error.to_string());
        let error = error.unwrap_or_default();
        for word in ["counts", word, "every"] {
            assert!(error.contains(word), "{error}");
        }
    }
}

/// Windows of 100 ms behind final results of sliding windows of 10 ms, and sliding windows behind others.
#[test]
fn windows_behind_final_results_need_the_grace_of_their_delay() {
    let behind = |kind: &'static str, second: &'static str, grace: u64| {
        let mut app = App::new("a");
        let views = app.source(&views());
        let first = counts(views, kind).without_windows().group_by_key();
        let sum = |a: u64, b: u64| a + b;
        let sums = match second {
            "tumbling" => first
                .windowed_by(Tumbling::of(MS(100)).grace(MS(grace)))
                .reduce(&WindowStore::plain("sums"), sum)
                .emit_on_close(),
            "sessions" => first
                .windowed_by(Session::gap(MS(50)).grace(MS(grace)))
                .reduce(&SessionStore::plain("sums"), sum)
                .emit_on_close(),
            _ => first
                .windowed_by(Sliding::of(MS(50)).grace(MS(grace)))
                .reduce(&SlidingStore::plain("sums"), sum)
                .emit_on_close(),
        };
        sums.map_record(shown).without_windows().to(&results());
        TestDriver::build(app)
    };
    for (kind, least) in [("tumbling", 10), ("sessions", 11), ("sliding", 11)] {
        for second in ["tumbling", "sessions", "sliding"] {
            // Adjacent windows of 10 ms end with those of 100 ms.
            let least = match (kind, second) {
                ("tumbling", "tumbling") => 1,
                _ => least,
            };
            let error = behind(kind, second, least - 1).err();
            let error = error.map(|error| error.to_string()).unwrap_or_default();
            for word in ["sums", "counts", &format!("{least}ms")] {
                assert!(error.contains(word), "{kind} {second}: {error}");
            }
            let mut driver = behind(kind, second, least).unwrap();
            // Each time is the last one of a window of the first kind, and near to the next one.
            for time in [100, 109, 119, 129, 149, 199, 5_000, 9_000] {
                driver.pipe_at(&views(), "a", "x", Timestamp(time));
            }
            let totals = driver.metrics().unwrap().totals;
            assert_eq!(totals.late_records, 0, "{kind} {second}");
            assert_eq!(totals.late_windows, 0, "{kind} {second}");
            if kind != "sliding" && second == "sessions" {
                // One session, and that of 5,000.
                let results = read(&mut driver);
                let counts: Vec<_> = results.iter().map(|it| &it[it.len() - 1..]).collect();
                assert_eq!(counts, ["6", "1"], "{kind}: {results:?}");
            }
        }
    }
}

/// A result that a later step makes too large for its topic.
#[test]
fn a_final_result_that_is_too_large_for_its_topic_is_left_to_the_policy() {
    for kind in ["tumbling", "sessions", "sliding"] {
        let app = |policy| {
            let mut app = App::new("a");
            let views = app.source(&views()).on_error(policy);
            counts(views, kind)
                .without_windows()
                .map(|count| match count {
                    2 => "x".repeat(3_000),
                    _ => count.to_string(),
                })
                .to(&results());
            app
        };
        // Two records of `a`, one of `b`, then everything closes.
        let records = [("a", 100), ("a", 100), ("b", 100), ("c", 900)];
        // After the start, so the app does not know the limit.
        let limit = |driver: &TestDriver| {
            let cluster = driver.cluster();
            let set =
                cluster.broker(|it| it.configure_topic("results", "max.message.bytes", "2000"));
            set.unwrap();
        };
        let mut driver = TestDriver::new(app(ErrorPolicy::dead_letter("letters")));
        limit(&driver);
        for (key, time) in records {
            driver.pipe_at(&views(), key, "x", Timestamp(time));
        }
        // The broker refuses the transaction. The search for the cause waits between its attempts.
        driver.advance_wall_clock(Duration::from_secs(30));
        let letters = driver.count(&Topic::<String, u64>::plain("letters"));
        let found: Vec<_> = read(&mut driver).iter().map(String::len).collect();
        assert_eq!(
            (found, letters),
            (vec![1], 1),
            "{kind} {:?}",
            driver.error()
        );
        let letter = driver.read_one(&Topic::<String, u64>::plain("letters"));
        assert_eq!((letter.key.as_str(), letter.value), ("a", 2), "{kind}");
        let mut driver = TestDriver::new(app(ErrorPolicy::fail()));
        limit(&driver);
        for (key, time) in &records[..3] {
            driver.pipe_at(&views(), *key, "x", Timestamp(*time));
        }
        let _refused = catch_unwind(AssertUnwindSafe(|| {
            driver.pipe_at(&views(), "c", "x", Timestamp(900));
            driver.advance_wall_clock(Duration::from_secs(30));
        }));
        let error = driver.error().unwrap().to_string();
        for word in ["counts", "\"a\"", "MessageTooLarge"] {
            assert!(error.contains(word), "{kind} {word}: {error}");
        }
    }
}

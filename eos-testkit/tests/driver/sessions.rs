//! Sessions, with a crash at every effect.

use std::time::Duration;

use eos_core::codec::{Plain, SessionWindowed};
use eos_core::state::SessionStore;
use eos_core::windows::{Session, Tumbling, Windowed};
use eos_core::{App, ErrorPolicy, Failure, PlainTopic, Timestamp, Topic};
use eos_testkit::{Input, TestDriver, crash_everywhere};

fn views() -> PlainTopic<String, String> {
    Topic::plain("views")
}

fn late() -> PlainTopic<String, String> {
    Topic::plain("late")
}

fn store() -> SessionStore<String, String> {
    SessionStore::plain("sessions")
}

type Key = Windowed<String>;

fn updates() -> Topic<Key, Option<String>, SessionWindowed<Plain>, Plain> {
    Topic::with("sessions-out", SessionWindowed::of(Plain), Plain)
}

fn finals() -> Topic<Key, String, SessionWindowed<Plain>, Plain> {
    Topic::with("sessions-out", SessionWindowed::of(Plain), Plain)
}

/// A gap of 10 ms and a grace of 5: a session whose last record is at t closes at t + 16.
fn windows() -> Session {
    Session::gap(Duration::from_millis(10)).grace(Duration::from_millis(5))
}

fn app(is_final: bool) -> App {
    app_with(is_final, ErrorPolicy::fail(), false)
}

fn app_with(is_final: bool, policy: ErrorPolicy, trusts_times: bool) -> App {
    let mut app = App::new("a");
    let source = app.source(&views()).on_error(policy);
    let source = match trusts_times {
        true => source.trust_times(),
        false => source,
    };
    let table = source
        .group_by_key()
        .windowed_by(windows())
        .late_to(&late())
        .aggregate(
            &store(),
            String::new,
            |_, page, pages| pages + &page,
            |_, earlier, later| format!("{earlier}({later})"),
        );
    match is_final {
        true => table.emit_on_close().to(&finals()),
        false => table.to(&updates()),
    }
    app
}

fn pipe(driver: &mut TestDriver, records: &[(&str, &str, i64)]) {
    for (key, page, time) in records {
        driver.pipe_at(&views(), *key, *page, Timestamp(*time));
    }
}

type Shown = Vec<(String, i64, i64, Option<String>)>;

/// The new results: key, first and last record, pages. The timestamp is that of the last record.
fn read(driver: &mut TestDriver) -> Shown {
    let records = driver.read(&updates()).into_iter();
    records
        .map(|it| {
            let (first, last) = (it.key.window.start.0, it.key.window.end.0 - 1);
            assert_eq!(it.timestamp.0, last);
            (it.key.key.clone(), first, last, it.value.clone())
        })
        .collect()
}

fn own(results: &[(&str, i64, i64, &str)]) -> Shown {
    let own = |(key, first, last, pages): &(&str, i64, i64, &str)| {
        let pages = (*pages != "-").then(|| format!("({pages}"));
        let pages = pages.map(|it| it.replacen('(', "", 1));
        ((*key).to_owned(), *first, *last, pages)
    };
    results.iter().map(own).collect()
}

#[track_caller]
fn check(
    is_final: bool,
    records: &[(&str, &str, i64)],
    out: &[(&str, i64, i64, &str)],
    late_pages: &[&str],
) {
    let start = || TestDriver::new(app(is_final));
    let mut driver = start();
    pipe(&mut driver, records);
    assert_eq!(read(&mut driver), own(out));
    let pages = |driver: &mut TestDriver| -> Vec<String> {
        driver
            .read_pairs(&late())
            .into_iter()
            .map(|it| it.1)
            .collect()
    };
    assert_eq!(pages(&mut driver), late_pages);
    let places = crash_everywhere(start, |driver| {
        pipe(driver, records);
        (driver.committed(), pages(driver))
    });
    assert!(places > 20, "{places}");
}

#[test]
fn records_within_the_gap_are_one_session() {
    check(
        false,
        &[
            ("a", "x", 100),
            ("a", "y", 110),
            ("b", "z", 111),
            ("a", "w", 121),
            ("a", "v", 131),
        ],
        &[
            ("a", 100, 100, "x"),
            ("a", 100, 100, "-"),
            ("a", 100, 110, "(x)y"),
            ("b", 111, 111, "z"),
            ("a", 121, 121, "w"),
            ("a", 121, 121, "-"),
            ("a", 121, 131, "(w)v"),
        ],
        &[],
    );
}

#[test]
fn a_record_between_two_sessions_joins_them() {
    check(
        false,
        &[
            ("a", "x", 100),
            ("a", "y", 111),
            ("a", "z", 105),
            ("a", "w", 107),
        ],
        &[
            ("a", 100, 100, "x"),
            ("a", 111, 111, "y"),
            ("a", 100, 100, "-"),
            ("a", 111, 111, "-"),
            ("a", 100, 111, "(x)(y)z"),
            // The bounds stay, so there is no tombstone.
            ("a", 100, 111, "((x)(y)z)w"),
        ],
        &[],
    );
}

#[test]
fn a_closed_session_takes_no_record_and_a_late_record_opens_none() {
    check(
        false,
        &[
            ("a", "x", 100),
            ("b", "s", 115),
            ("a", "y", 100),
            ("b", "t", 116),
            // The session of `a` is closed. At 116, a session of this record alone is open until 117.
            ("a", "z", 101),
            ("a", "w", 100),
        ],
        &[
            ("a", 100, 100, "x"),
            ("b", 115, 115, "s"),
            ("a", 100, 100, "(x)y"),
            ("b", 115, 115, "-"),
            ("b", 115, 116, "(s)t"),
            ("a", 101, 101, "z"),
            ("a", 101, 101, "-"),
            ("a", 100, 101, "(z)w"),
        ],
        &[],
    );
    check(
        false,
        &[
            ("a", "x", 100),
            ("b", "s", 117),
            ("a", "y", 100),
            ("a", "z", 101),
        ],
        &[("a", 100, 100, "x"), ("b", 117, 117, "s")],
        &["y", "z"],
    );
}

#[test]
fn final_results_come_once_when_sessions_close() {
    check(
        true,
        &[
            ("b", "s", 100),
            ("a", "x", 100),
            ("a", "y", 105),
            ("a", "z", 130),
            ("b", "t", 140),
            ("c", "", 200),
        ],
        &[
            ("b", 100, 100, "s"),
            ("a", 100, 105, "(x)y"),
            ("a", 130, 130, "z"),
            ("b", 140, 140, "t"),
        ],
        &[],
    );
}

#[test]
fn a_session_that_goes_on_is_not_emitted() {
    check(
        true,
        &[
            ("a", "x", 100),
            ("a", "y", 109),
            ("a", "z", 118),
            ("a", "w", 127),
            ("b", "", 142),
            ("b", "", 143),
        ],
        &[("a", 100, 127, "(((x)y)z)w")],
        &[],
    );
}

#[test]
fn closed_sessions_leave_the_store() {
    // Gap and grace are 15 ms together. Without final results a closed session stays for three times as long.
    for is_final in [false, true] {
        let mut driver = TestDriver::new(app(is_final));
        let starts = |driver: &TestDriver| {
            let rows = driver.store(&store());
            let starts = rows.entries().iter().map(|((_, window), _)| window.start.0);
            starts.collect::<Vec<_>>()
        };
        pipe(&mut driver, &[("a", "x", 100), ("b", "y", 100)]);
        pipe(&mut driver, &[("a", "z", 120), ("c", "w", 160)]);
        let open = if is_final {
            vec![160]
        } else {
            vec![100, 120, 100, 160]
        };
        assert_eq!(starts(&driver), open);
        pipe(&mut driver, &[("c", "w", 161)]);
        assert_eq!(starts(&driver), [160]);
        driver.crash_and_lose_state();
        pipe(&mut driver, &[("d", "v", 500)]);
        assert_eq!(driver.store(&store()).len(), 1);
    }
}

#[test]
fn counts_and_reductions_of_sessions() {
    let counts = Topic::<String, u64>::plain("counts");
    let longest = Topic::<String, String>::plain("longest");
    let mut app = App::new("a");
    let views_of = app.source(&views());
    views_of
        .clone()
        .group_by_key()
        .windowed_by(windows())
        .count(&SessionStore::plain("counted"))
        .emit_on_close()
        .without_windows()
        .to(&counts);
    views_of
        .group_by_key()
        .windowed_by(windows())
        .reduce(&SessionStore::plain("longest"), |a, b| {
            if b.len() > a.len() { b } else { a }
        })
        .emit_on_close()
        .without_windows()
        .to(&longest);
    let mut driver = TestDriver::new(app);
    pipe(
        &mut driver,
        &[
            ("a", "x", 100),
            ("a", "long", 111),
            ("a", "yy", 105),
            ("b", "", 200),
        ],
    );
    assert_eq!(driver.read_pairs(&counts), [("a".to_owned(), 3)]);
    assert_eq!(
        driver.read_pairs(&longest),
        [("a".to_owned(), "long".to_owned())]
    );
}

#[test]
fn windows_behind_sessions_need_a_longer_grace() {
    let of = |grace| {
        let mut app = App::new("a");
        app.source(&views())
            .group_by_key()
            .windowed_by(windows())
            .count(&SessionStore::plain("visits"))
            .emit_on_close()
            .without_windows()
            .group_by_key()
            .windowed_by(
                Tumbling::of(Duration::from_millis(100)).grace(Duration::from_millis(grace)),
            )
            .reduce(&eos_core::state::WindowStore::plain("sums"), |a, b| a + b)
            .emit_on_close()
            .without_windows()
            .to(&Topic::<String, u64>::plain("sums"));
        TestDriver::build(app)
    };
    let error = of(15).err().map(|error| error.to_string()).unwrap();
    assert!(error.contains("16ms"), "{error}");
    let mut driver = of(16).unwrap();
    pipe(
        &mut driver,
        &[("a", "x", 99), ("a", "y", 1_000), ("a", "z", 2_000)],
    );
    let sums = driver.read_pairs(&Topic::<String, u64>::plain("sums"));
    assert_eq!(sums, [("a".to_owned(), 1), ("a".to_owned(), 1)]);
}

#[test]
fn a_gap_of_zero_is_refused() {
    let mut app = App::new("a");
    app.source(&views())
        .group_by_key()
        .windowed_by(Session::gap(Duration::from_micros(1)))
        .count(&SessionStore::plain("visits"))
        .emit_on_close()
        .without_windows()
        .to(&Topic::<String, u64>::plain("sums"));
    let error = TestDriver::build(app).err().map(|error| error.to_string());
    let error = error.unwrap_or_default();
    assert!(error.contains("visits") && error.contains("1µs"), "{error}");
}

fn failing(policy: ErrorPolicy) -> App {
    let mut app = App::new("a");
    app.source(&views())
        .on_error(policy)
        .group_by_key()
        .windowed_by(windows())
        .count(&SessionStore::plain("visits"))
        .emit_on_close()
        .process(|ctx, record| {
            if record.key.window.start.0 == 100 {
                return Err(Failure::from("no such page"));
            }
            ctx.forward(record.key.key, record.value)
        })
        .to(&Topic::<String, u64>::plain("sums"));
    app
}

/// The open sessions of the key stay.
#[test]
fn a_failed_final_session_goes_to_the_dead_letter_topic() {
    let mut driver = TestDriver::new(failing(ErrorPolicy::dead_letter("letters")));
    let views = [
        ("a", "x", 100),
        ("a", "y", 114),
        ("a", "z", 114),
        ("b", "", 117),
        ("b", "", 200),
    ];
    pipe(&mut driver, &views);
    let letter = driver.read_one(&Topic::<String, u64>::plain("letters"));
    assert_eq!((letter.key.as_str(), letter.value), ("a", 1));
    assert_eq!(letter.headers.get("eos-window"), Some(&b"100"[..]));
    let sums = driver.read_pairs(&Topic::<String, u64>::plain("sums"));
    assert_eq!(sums, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
}

#[test]
fn a_failed_final_session_is_named() {
    let mut driver = TestDriver::new(failing(ErrorPolicy::fail()));
    pipe(&mut driver, &[("a", "x", 100)]);
    let later = Input::<String, String>::new("d", "").at(Timestamp(200));
    driver.try_pipe(&views(), later).unwrap_err();
    let error = driver.error().unwrap().to_string();
    for part in [
        "the final result of the store visits",
        "\"a\"",
        "116",
        "no such page",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

const FAR: [i64; 3] = [i64::MAX, 1_700_000_000_000_000_000, 1 << 52];

/// A producer that writes nanoseconds.
#[test]
fn a_record_of_the_far_future_closes_no_session() {
    for is_final in [false, true] {
        for far in FAR {
            let mut driver = TestDriver::new(app_with(is_final, ErrorPolicy::skip(), false));
            let records = [
                ("a", "x", 10),
                ("b", "y", far),
                ("a", "w", 20),
                ("c", "", 60),
            ];
            pipe(&mut driver, &records);
            let results = read(&mut driver);
            assert!(
                results.contains(&own(&[("a", 10, 20, "(x)w")])[0]),
                "{results:?}"
            );
            assert_eq!(driver.count(&late()), 0);
            assert_eq!(driver.metrics().unwrap().totals.skipped, 1);
        }
    }
}

#[test]
fn a_trusted_record_of_the_far_future_stops_no_session() {
    for is_final in [false, true] {
        for far in FAR {
            let mut driver = TestDriver::new(app_with(is_final, ErrorPolicy::fail(), true));
            pipe(
                &mut driver,
                &[
                    ("a", "x", 10),
                    ("b", "y", far),
                    ("b", "z", far),
                    ("a", "w", 20),
                ],
            );
            assert_eq!(read(&mut driver)[..1], own(&[("a", 10, 10, "x")]));
            assert!(driver.error().is_none());
            // A session at or after the last possible moment is closed at once.
            let late = driver.read(&late());
            let late: Vec<_> = late.iter().map(|it| it.timestamp.0).collect();
            assert_eq!(late, [far, far, 20]);
        }
    }
}

/// Records of the time between may still arrive.
#[test]
fn a_time_that_a_step_sets_ahead_of_stream_time_closes_no_session() {
    let mut app = App::new("a");
    app.source(&views())
        .process_values(|ctx, record| {
            let ahead = if record.value == "f" { 1_000_000 } else { 0 };
            let time = record.timestamp.map_or(0, |time| time.0) + ahead;
            ctx.forward_record(record.at(Timestamp(time)))
        })
        .group_by_key()
        .windowed_by(windows())
        .aggregate(
            &store(),
            String::new,
            |_, page, pages| pages + &page,
            |_, earlier, later| format!("{earlier}({later})"),
        )
        .to(&updates());
    let mut driver = TestDriver::new(app);
    pipe(
        &mut driver,
        &[("a", "x", 100), ("a", "f", 100), ("a", "y", 105)],
    );
    let expected = [
        ("a", 100, 100, "x"),
        ("a", 1_000_100, 1_000_100, "f"),
        ("a", 100, 100, "-"),
        ("a", 100, 105, "(x)y"),
    ];
    assert_eq!(read(&mut driver), own(&expected));
}

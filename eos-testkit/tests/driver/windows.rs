//! Windows of time, each with a crash at every effect.

use std::time::Duration;

use eos_core::codec::{Json, Plain, TimeWindowed};
use eos_core::state::{JoinStore, ReorderStore, SessionStore, SlidingStore, WindowStore};
use eos_core::windows::{Hopping, Session, Sliding, Tumbling, Windowed, Within};
use eos_core::{App, ErrorPolicy, KeyValueStore, PlainTopic, Stream, Timestamp, Topic};
use eos_testkit::{TestDriver, crash_everywhere};
use serde::{Deserialize, Serialize};

const SIZE: Duration = Duration::from_millis(100);
const GRACE: Duration = Duration::from_millis(20);

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

fn counting() -> TestDriver {
    let mut app = App::new("a");
    app.source(&views())
        .group_by_key()
        .windowed_by(Tumbling::of(SIZE).grace(GRACE))
        .late_to(&late())
        .count(&store())
        .to(&counts());
    TestDriver::new(app)
}

fn scenario(driver: &mut TestDriver) -> (Vec<(i64, u64)>, Vec<String>) {
    // The window of 0 to 100 closes when stream time is 120.
    for (time, page) in [
        (10, "a"),
        (90, "b"),
        (119, "c"),
        (50, "d"),
        (120, "e"),
        (60, "f"),
        (210, "g"),
    ] {
        driver.pipe_at(&views(), "k", page, Timestamp(time));
    }
    let counts = driver.read_pairs(&counts()).into_iter();
    let late = driver.read_pairs(&late()).into_iter();
    (
        counts
            .map(|(key, count)| (key.window.start.0, count))
            .collect(),
        late.map(|(_, page)| page).collect(),
    )
}

#[test]
fn tumbling_windows_close_by_stream_time_and_late_records_go_elsewhere() {
    let mut driver = counting();
    let (counts, late) = scenario(&mut driver);
    assert_eq!(
        counts,
        [(0, 1), (0, 2), (100, 1), (0, 3), (100, 2), (200, 1)]
    );
    assert_eq!(late, ["f"]);
    assert_eq!(driver.metrics().unwrap().totals.late_records, 1);
    assert_eq!(driver.stream_time("views", 0), Some(Timestamp(210)));
    // Rows of closed windows are not returned, whether the database has deleted them or not.
    let rows = driver.store(&store());
    let key = |start| (Timestamp(start), "k".to_owned());
    assert_eq!(rows.entries(), [(key(100), 2), (key(200), 1)]);
    assert_eq!(rows.get(&key(0)), None);
}

#[test]
#[should_panic(
    expected = "the app keeps windows in windows, which this definition can't read. Read it with \
                the `WindowStore` that"
)]
fn windows_are_not_read_as_what_has_none() {
    let mut driver = counting();
    driver.pipe(&views(), "k", "a");
    let _rows = driver.store(&KeyValueStore::<String, u64>::plain("windows"));
}

#[test]
#[should_panic(
    expected = "the app keeps store without windows, which this definition can't read. Read it \
                with the `KeyValueStore` or"
)]
fn what_has_no_windows_is_not_read_as_windows() {
    let mut app = App::new("a");
    let store = KeyValueStore::<String, u64>::plain("store");
    let totals = Topic::<String, u64>::plain("totals");
    app.source(&views())
        .group_by_key()
        .count(&store)
        .to(&totals);
    let mut driver = TestDriver::new(app);
    let windows = WindowStore::<String, u64>::plain("store");
    // An empty store has no rows of any kind.
    assert!(driver.store(&windows).is_empty());
    driver.pipe(&views(), "k", "a");
    let _rows = driver.store(&windows);
}

#[test]
fn a_crash_anywhere_changes_no_window() {
    let places = crash_everywhere(counting, |driver| {
        let answer = scenario(driver);
        (answer, driver.store(&store()), driver.committed())
    });
    assert!(places > 50, "{places}");
}

#[test]
fn a_window_that_is_closed_stays_closed_when_its_state_is_lost() {
    let mut driver = counting();
    driver.pipe_at(&views(), "k", "a", Timestamp(10));
    driver.pipe_at(&views(), "k", "b", Timestamp(130));
    driver.crash_and_lose_state();
    driver.pipe_at(&views(), "k", "c", Timestamp(10));
    assert_eq!(driver.read_one(&late()).value, "c");
    assert_eq!(driver.count(&counts()), 2);
}

#[test]
fn the_wall_clock_closes_no_window() {
    let mut driver = counting();
    driver.pipe_at(&views(), "k", "a", Timestamp(10));
    driver.advance_wall_clock(Duration::from_secs(24 * 3600));
    driver.pipe_at(&views(), "k", "b", Timestamp(20));
    assert!(driver.is_empty(&late()));
    assert_eq!(driver.read_pairs(&counts()).len(), 2);
}

#[test]
fn a_closure_with_a_store_of_windows() {
    let seen = store().retention(Duration::from_millis(300));
    let out = Topic::<String, u64>::plain("out");
    let start = || {
        let mut app = App::new("a");
        let (store, out) = (app.store(&seen), app.output(&out));
        let windows = Tumbling::of(SIZE);
        app.source(&views())
            .with_store(&store)
            .for_each(move |ctx, view| {
                let Some(window) = view.timestamp.and_then(|time| windows.window(time)) else {
                    return Ok(());
                };
                let store = ctx.store(&store);
                let count = store.get(&view.key, window.start)?.unwrap_or(0) + 1;
                if store.put(&view.key, window.start, &count)? {
                    ctx.emit(&out, view.key, count)?;
                }
                Ok(())
            });
        TestDriver::new(app)
    };
    let scenario = |driver: &mut TestDriver| {
        for time in [10, 20, 150, 399, 30, 110] {
            driver.pipe_at(&views(), "k", "x", Timestamp(time));
        }
        let counts = driver.read_pairs(&out).into_iter();
        let rows = driver.store(&seen);
        let rows = rows
            .entries()
            .iter()
            .map(|((start, _), count)| (start.0, *count));
        (
            counts.map(|(_, count)| count).collect::<Vec<_>>(),
            rows.collect::<Vec<_>>(),
        )
    };
    let (counts, rows) = scenario(&mut start());
    assert_eq!(counts, [1, 2, 1, 1, 2]);
    assert_eq!(rows, [(100, 2), (300, 1)]);
    crash_everywhere(start, scenario);
}

/// Windows of 100 ms every 40 ms, with a grace of 20 ms.
fn hopping() -> TestDriver {
    let mut app = App::new("a");
    app.source(&views())
        .group_by_key()
        .windowed_by(
            Hopping::of(SIZE)
                .every(Duration::from_millis(40))
                .grace(GRACE),
        )
        .late_to(&late())
        .count(&store())
        .to(&counts());
    TestDriver::new(app)
}

#[test]
fn a_record_counts_in_each_open_window_around_it_and_is_late_if_there_is_none() {
    let scenario = |driver: &mut TestDriver| {
        for (time, page) in [(90, "a"), (125, "b"), (95, "c"), (250, "d"), (99, "e")] {
            driver.pipe_at(&views(), "k", page, Timestamp(time));
        }
        let counts = driver.read_pairs(&counts()).into_iter();
        let counts: Vec<_> = counts
            .map(|(key, count)| (key.window.start.0, count))
            .collect();
        let late = driver.read_pairs(&late()).into_iter();
        (counts, late.map(|(_, page)| page).collect::<Vec<_>>())
    };
    let mut driver = hopping();
    let (counts, late) = scenario(&mut driver);
    let totals = driver.metrics().unwrap().totals;
    // One window at 95 and three at 99.
    assert_eq!((totals.late_records, totals.late_windows), (1, 4));
    let expected = [
        // 90 is in three windows.
        (0, 1),
        (40, 1),
        (80, 1),
        // At 125, the window from 0 to 100 is closed.
        (40, 2),
        (80, 2),
        (120, 1),
        (40, 3),
        (80, 3),
        (160, 1),
        (200, 1),
        (240, 1),
    ];
    assert_eq!(counts, expected);
    assert_eq!(late, ["e"]);
    let places = crash_everywhere(hopping, |driver| {
        (scenario(driver), driver.store(&store()).into_map())
    });
    assert!(places > 20, "{places}");
}

/// A value that can't be cloned.
#[derive(Serialize, Deserialize)]
struct Upload {
    bytes: u64,
}

#[test]
fn values_need_no_copies_to_be_counted_in_windows_that_overlap() {
    let uploads = Topic::<String, Upload, Plain, Json>::with("uploads", Plain, Json);
    let mut app = App::new("a");
    app.source(&uploads)
        .group_by_key()
        .windowed_by(Hopping::of(SIZE).every(SIZE / 2))
        .count(&store())
        .to(&counts());
    let mut driver = TestDriver::new(app);
    driver.pipe_at(&uploads, "k", Upload { bytes: 7 }, Timestamp(120));
    let starts = driver.read_pairs(&counts()).into_iter();
    let starts: Vec<_> = starts.map(|(key, n)| (key.window.start.0, n)).collect();
    assert_eq!(starts, [(50, 1), (100, 1)]);
}

#[test]
fn windows_that_overlap_too_much_are_refused_with_the_numbers() {
    let mut app = App::new("a");
    app.source(&views())
        .group_by_key()
        .windowed_by(Hopping::of(Duration::from_secs(3_600)).every(Duration::from_secs(1)))
        .count(&store())
        .to(&counts());
    let error = TestDriver::build(app).err().map(|error| error.to_string());
    let error = error.unwrap_or_default();
    assert!(error.contains("each record is in 3600 windows"), "{error}");
}

#[test]
fn windows_of_a_new_key() {
    let minute = Duration::from_secs(60);
    let per_value = Topic::plain("by-value");
    let visits: PlainTopic<String, u64> = Topic::plain("visits");
    let mut app = App::new("a");
    let views_of = app.source(&views());
    let grouped = |topic| {
        views_of
            .clone()
            .group_by(|value: &String| value.clone(), topic)
    };
    grouped(&per_value)
        .windowed_by(Tumbling::of(minute))
        .count(&WindowStore::plain("per-minute"))
        .emit_on_close()
        .without_windows()
        .to(&Topic::<String, u64>::plain("final"));
    grouped(&Topic::plain("sessions-by-value"))
        .windowed_by(Session::gap(minute))
        .count(&SessionStore::plain("visits"))
        .emit_on_close()
        .without_windows()
        .to(&visits);
    let mut driver = TestDriver::new(app);
    let records = [
        ("a", "x", 0),
        ("b", "x", 30_000),
        ("c", "x", 61_000),
        ("c", "x", 200_000),
    ];
    for (key, page, time) in records {
        driver.pipe_at(&views(), key, page, Timestamp(time));
    }
    let x = |count| ("x".to_owned(), count);
    let minutes = driver.read_pairs(&Topic::<String, u64>::plain("final"));
    assert_eq!(minutes, [x(2), x(1)]);
    assert_eq!(driver.read_pairs(&visits), [x(3)]);
}

/// The changelog would be kept until that time.
#[test]
fn a_step_cannot_give_a_window_a_time_far_ahead_of_the_clock() {
    let mut app = App::new("a");
    app.source(&views())
        .on_error(ErrorPolicy::dead_letter("letters"))
        .process_values(|ctx, record| {
            let time = Timestamp(record.value.parse()?);
            ctx.forward_record(record.at(time))
        })
        .group_by_key()
        .windowed_by(Tumbling::of(SIZE))
        .count(&store())
        .to(&counts());
    let mut driver = TestDriver::new(app);
    // Nanoseconds instead of milliseconds.
    for value in ["10", "1700000000000000000", "20"] {
        driver.pipe_at(&views(), "k", value, Timestamp(50));
    }
    let counted = driver.read_pairs(&counts()).into_iter();
    assert_eq!(counted.map(|(_, count)| count).collect::<Vec<_>>(), [1, 2]);
    let letters = driver.read_pairs(&Topic::<String, String>::plain("letters"));
    assert_eq!(
        letters,
        [("k".to_owned(), "1700000000000000000".to_owned())]
    );
}

/// As for windows. Rows of a join would delay the trimming of the changelog, and other rows would stay forever.
#[test]
fn no_store_of_times_takes_one_far_ahead_of_the_clock() {
    type Declare = fn(Stream<String, String>) -> Stream<String, String>;
    let all: [Declare; 4] = [
        |stream| {
            let stream = stream.group_by_key();
            let sessions = stream.windowed_by(Session::gap(SIZE));
            let counts = sessions
                .count(&SessionStore::plain("counts"))
                .emit_on_close();
            counts.without_windows().map(|count| count.to_string())
        },
        |stream| {
            let stream = stream.group_by_key();
            let windows = stream.windowed_by(Sliding::of(SIZE));
            let counts = windows
                .count(&SlidingStore::plain("counts"))
                .emit_on_close();
            counts.without_windows().map(|count| count.to_string())
        },
        |stream| {
            let within = Within::of(SIZE);
            let store = JoinStore::plain("join");
            let (left, right) = stream.branch(|text| text.len() > 1);
            let pairs = left.join_within(right, within, &store, |l, r| format!("{l}{r}"));
            pairs.to_stream()
        },
        |stream| {
            stream
                .reorder_by_time(SIZE, &ReorderStore::plain("order"))
                .drop_late()
                .ordered()
        },
    ];
    for declare in all {
        let mut app = App::new("a");
        let stream = app
            .source(&views())
            .on_error(ErrorPolicy::dead_letter("letters"))
            .process_values(|ctx, record| {
                let time = Timestamp(record.value.parse()?);
                ctx.forward_record(record.at(time))
            });
        declare(stream).to(&Topic::plain("out"));
        let mut driver = TestDriver::new(app);
        for value in ["10", "1700000000000000000", "20"] {
            driver.pipe_at(&views(), "k", value, Timestamp(50));
        }
        let letters = driver.read_pairs(&Topic::<String, String>::plain("letters"));
        let wrong = ("k".to_owned(), "1700000000000000000".to_owned());
        assert_eq!(letters, [wrong]);
    }
}

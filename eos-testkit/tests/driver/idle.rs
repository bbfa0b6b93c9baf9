//! Windows that close while no records arrive.

use std::time::Duration;

use eos_client::Producer;
use eos_core::codec::{Plain, SessionWindowed, TimeWindowed};
use eos_core::state::{SessionStore, WindowStore};
use eos_core::windows::{Session, Tumbling, Windowed};
use eos_core::{App, PlainTopic, Timer, Timestamp, Topic};
use eos_testkit::{TestDriver, crash_everywhere};

use crate::metrics::{foreign, ready};

const SECOND: Duration = Duration::from_secs(1);

fn views() -> PlainTopic<String, String> {
    Topic::plain("views")
}

fn counts() -> Topic<Windowed<String>, u64, TimeWindowed, Plain> {
    Topic::with("counts", TimeWindowed::of(10 * SECOND), Plain)
}

/// Windows of ten seconds with a grace of two. Inputs are idle after three.
fn app() -> App {
    let mut app = App::new("a");
    app.source(&views())
        .close_when_idle(3 * SECOND)
        .group_by_key()
        .windowed_by(Tumbling::of(10 * SECOND).grace(2 * SECOND))
        .late_to(&Topic::plain("late"))
        .count(&WindowStore::plain("windows"))
        .emit_on_close()
        .to(&counts());
    app
}

fn pipe(driver: &mut TestDriver, key: &str, time: i64) {
    driver.pipe_at(&views(), key, "x", Timestamp(time));
}

fn results(driver: &mut TestDriver) -> Vec<(String, i64, u64)> {
    let pairs = driver.read_pairs(&counts()).into_iter();
    pairs
        .map(|(key, count)| (key.key, key.window.start.0, count))
        .collect()
}

fn own(results: &[(&str, i64, u64)]) -> Vec<(String, i64, u64)> {
    let own = |(key, start, count): &(&str, i64, u64)| ((*key).to_owned(), *start, *count);
    results.iter().map(own).collect()
}

/// Stream time 4 s. The window closes at 12 s: eight seconds after the three of idleness, and a second for the query.
#[test]
fn windows_close_while_nothing_arrives() {
    let mut driver = TestDriver::new(app());
    pipe(&mut driver, "a", 4_000);
    driver.advance_wall_clock(11 * SECOND);
    assert_eq!(results(&mut driver), []);
    driver.advance_wall_clock(SECOND + SECOND / 2);
    assert_eq!(results(&mut driver), own(&[("a", 0, 1)]));
    assert!(driver.stream_time("views", 0) >= Some(Timestamp(12_000)));
    // A later record of the window is late, and time continues from the record or from the clock.
    pipe(&mut driver, "a", 9_000);
    assert_eq!(
        driver
            .read_pairs(&Topic::<String, String>::plain("late"))
            .len(),
        1
    );
    pipe(&mut driver, "b", 13_000);
    driver.advance_wall_clock(14 * SECOND);
    assert_eq!(results(&mut driver), own(&[("b", 10_000, 1)]));
}

/// A large step is as good as many small ones.
#[test]
fn a_window_of_hours_closes_while_nothing_arrives() {
    let hour = 3_600 * SECOND;
    let mut app = App::new("a");
    app.source(&views())
        .close_when_idle(3 * SECOND)
        .group_by_key()
        .windowed_by(Tumbling::of(6 * hour))
        .count(&WindowStore::plain("windows"))
        .emit_on_close()
        .to(&Topic::with("counts", TimeWindowed::of(6 * hour), Plain));
    let mut driver = TestDriver::new(app);
    pipe(&mut driver, "a", 4_000);
    driver.advance_wall_clock(5 * hour);
    assert_eq!(results(&mut driver), []);
    driver.advance_wall_clock(hour);
    assert_eq!(results(&mut driver), own(&[("a", 0, 1)]));
}

/// A session closes at 110,001 ms of idle time. Then a record behind it is late, and a record of its key begins another
/// session.
#[test]
fn sessions_without_final_results_close_while_nothing_arrives() {
    let updates = Topic::<Windowed<String>, Option<u64>, _, _>::with(
        "visits",
        SessionWindowed::of(Plain),
        Plain,
    );
    let late = Topic::<String, String>::plain("late");
    let mut app = App::new("a");
    app.source(&views())
        .close_when_idle(3 * SECOND)
        .group_by_key()
        .windowed_by(Session::gap(10 * SECOND))
        .late_to(&late)
        .count(&SessionStore::plain("visits"))
        .to(&updates);
    let mut driver = TestDriver::new(app);
    pipe(&mut driver, "a", 100_000);
    driver.advance_wall_clock(16 * SECOND);
    pipe(&mut driver, "b", 99_999);
    pipe(&mut driver, "a", 105_000);
    let found: Vec<_> = (driver.read_pairs(&updates).into_iter())
        .map(|(key, count)| (key.key, key.window.start.0, count))
        .collect();
    let own = |key: &str, start| (key.to_owned(), start, Some(1));
    assert_eq!(found, [own("a", 100_000), own("a", 105_000)]);
    assert_eq!(driver.read_pairs(&late).len(), 1);
}

#[test]
fn the_clock_closes_no_window_without_the_setting() {
    let mut app = App::new("a");
    app.source(&views())
        .group_by_key()
        .windowed_by(Tumbling::of(10 * SECOND))
        .count(&WindowStore::plain("windows"))
        .emit_on_close()
        .to(&counts());
    let mut driver = TestDriver::new(app);
    pipe(&mut driver, "a", 4_000);
    driver.advance_wall_clock(3_600 * SECOND);
    assert_eq!(results(&mut driver), []);
}

#[test]
fn a_crash_between_stop_and_close_changes_no_result() {
    let scenario = |driver: &mut TestDriver| {
        pipe(driver, "a", 4_000);
        pipe(driver, "b", 5_000);
        driver.advance_wall_clock(5 * SECOND);
        pipe(driver, "a", 9_000);
        // A process that is down starts again after each of these.
        for _ in 0..30 {
            driver.advance_wall_clock(SECOND);
        }
        results(driver)
    };
    let mut driver = TestDriver::new(app());
    assert_eq!(scenario(&mut driver), own(&[("a", 0, 2), ("b", 0, 1)]));
    crash_everywhere(|| TestDriver::new(app()), scenario);
}

/// Time has run on far beyond the records that arrive after it. Nothing was due, so it is not part of the position.
#[test]
fn records_behind_the_time_of_idle_inputs_lose_no_result() {
    let scenario = |driver: &mut TestDriver| {
        pipe(driver, "a", 4_000);
        for _ in 0..70 {
            driver.advance_wall_clock(SECOND);
        }
        pipe(driver, "b", 13_000);
        pipe(driver, "c", 30_000);
        pipe(driver, "d", 31_000);
        results(driver)
    };
    let mut driver = TestDriver::new(app());
    assert_eq!(scenario(&mut driver), own(&[("a", 0, 1), ("b", 10_000, 1)]));
}

/// The records of the transaction are older than the end of the window.
#[test]
fn a_partition_behind_an_open_transaction_is_not_idle() {
    let mut driver = TestDriver::new(app());
    pipe(&mut driver, "a", 4_000);
    let cluster = driver.cluster().clone();
    let mut producer = foreign(&cluster, "views", 1);
    driver.advance_wall_clock(60 * SECOND);
    assert_eq!(results(&mut driver), []);
    ready(&cluster, || producer.abort(Duration::ZERO));
    driver.advance_wall_clock(13 * SECOND);
    assert_eq!(results(&mut driver), own(&[("a", 0, 1)]));
}

#[test]
fn sessions_close_and_timers_fire_while_nothing_arrives() {
    let out = Topic::<String, u64>::plain("out");
    let mut app = App::new("a");
    let idle = app.timer(&Timer::<String>::event_time("idle"));
    let source = app.source(&views()).close_when_idle(SECOND);
    source
        .clone()
        .group_by_key()
        .windowed_by(Session::gap(5 * SECOND))
        .count(&SessionStore::plain("visits"))
        .emit_on_close()
        .without_windows()
        .to(&out);
    source
        .on_timer(&idle, |ctx, due| ctx.forward(due.key, 100))
        .process(move |ctx, record| ctx.timer(&idle).set_in(&record.key, 3 * SECOND))
        .to(&out);
    let mut driver = TestDriver::new(app);
    pipe(&mut driver, "a", 4_000);
    pipe(&mut driver, "a", 4_100);
    driver.advance_wall_clock(10 * SECOND);
    let pairs = [("a".to_owned(), 100), ("a".to_owned(), 2)];
    assert_eq!(driver.read_pairs(&out), pairs);
}

#[test]
fn invalid_idle_settings_are_refused() {
    let build = |declare: &dyn Fn(&mut App)| {
        let mut app = App::new("a");
        declare(&mut app);
        TestDriver::build(app)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    let error = build(&|app| {
        app.source(&views())
            .close_when_idle(SECOND / 2)
            .for_each(|_, _| ());
    });
    assert!(
        error.contains("500ms") && error.contains("at least 1s"),
        "{error}"
    );
    let error = build(&|app| {
        let source = app.source(&views()).close_when_idle(SECOND);
        source.close_when_idle(2 * SECOND).for_each(|_, _| ());
    });
    assert!(
        error.contains("close_when_idle(1s)") && error.contains("2s"),
        "{error}"
    );
    let error = build(&|app| {
        app.source(&views())
            .repartition(&Topic::plain("again"))
            .close_when_idle(SECOND)
            .for_each(|_, _| ());
    });
    assert!(
        error.contains("a-again-repartition") && error.contains("itself writes"),
        "{error}"
    );
    let error = build(&|app| {
        app.source(&views())
            .close_when_idle(SECOND)
            .repartition(&Topic::plain("again"))
            .group_by_key()
            .windowed_by(Session::gap(SECOND))
            .count(&SessionStore::plain("visits"))
            .to(&Topic::with("out", SessionWindowed::of(Plain), Plain));
    });
    assert!(
        error.contains("has no effect") && error.contains("ends at `repartition`"),
        "{error}"
    );
}

//! Timers, with a crash at every effect.

mod failures;
mod ticks;

use std::time::Duration;

use eos_core::state::WindowStore;
use eos_core::timers::{Clock, Due, TimerHandle};
use eos_core::windows::Tumbling;
use eos_core::{
    App, Backoff, ErrorPolicy, Failure, KeyValueStore, PlainTopic, ProcessCtx, Processor, Record,
    Store, Timer, Timestamp, Topic,
};
use eos_testkit::{Input, TestDriver, crash_everywhere};

const MINUTE: i64 = 60_000;

fn input() -> PlainTopic<String, String> {
    Topic::plain("in")
}

fn output() -> PlainTopic<String, String> {
    Topic::plain("out")
}

fn timer() -> Timer<String> {
    Timer::event_time("idle")
}

/// Simulated time of the machine's clock passes in short naps, so tests of it take seconds for minutes.
const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn minutes(n: u64) -> Duration {
    Duration::from_secs(60 * n)
}

/// Sets the moment of the record's key. The value is the number of minutes after the record, or `-` to cancel the
/// moment.
fn set(
    timer: TimerHandle<String>,
    ctx: &eos_core::Ctx<'_>,
    key: &String,
    value: &str,
) -> Result<(), Failure> {
    let view = ctx.timer(&timer);
    match value.parse::<i64>() {
        Ok(after) => {
            let now = ctx.timestamp().ok_or("no time")?;
            view.set(key, Timestamp(now.0 + after * MINUTE))
        }
        Err(_) if value == "-" => view.cancel(key),
        Err(_) => Ok(()),
    }
}

/// Writes each record and each moment.
fn app() -> App {
    let mut app = App::new("a");
    let idle = app.timer(&timer());
    app.source(&input())
        .on_timer(&idle, |ctx, due| ctx.forward(due.key, "due".to_owned()))
        .process(move |ctx, record| {
            set(idle, ctx, &record.key, &record.value)?;
            ctx.forward(record.key, record.value)
        })
        .to(&output());
    app
}

/// Pipes key, value and time in minutes.
fn pipe(driver: &mut TestDriver, records: &[(&str, &str, i64)]) {
    for (key, value, at) in records {
        driver.pipe_at(&input(), *key, *value, Timestamp(at * MINUTE));
    }
}

/// The output: key, value and time in minutes.
fn read(driver: &mut TestDriver) -> Vec<(String, String, i64)> {
    let records = driver.read(&output()).into_iter();
    records
        .map(|it| (it.key.clone(), it.value.clone(), it.timestamp.0 / MINUTE))
        .collect()
}

fn expected(records: &[(&str, &str, i64)]) -> Vec<(String, String, i64)> {
    let own = |(key, value, at): &(&str, &str, i64)| ((*key).to_owned(), (*value).to_owned(), *at);
    records.iter().map(own).collect()
}

#[track_caller]
fn check(records: &[(&str, &str, i64)], out: &[(&str, &str, i64)], pending: &[(&str, i64)]) {
    let mut driver = TestDriver::new(app());
    pipe(&mut driver, records);
    assert_eq!(read(&mut driver), expected(out));
    let pending = pending
        .iter()
        .map(|(key, at)| ((*key).to_owned(), Timestamp(at * MINUTE)));
    assert_eq!(
        driver.timers(&timer()).entries(),
        pending.collect::<Vec<_>>()
    );
    let places = crash_everywhere(
        || TestDriver::new(app()),
        |driver| {
            pipe(driver, records);
            driver.committed()
        },
    );
    assert!(places > 20, "{places}");
}

#[test]
fn a_moment_comes_when_stream_time_reaches_it() {
    check(
        &[("a", "30", 0), ("b", "", 29), ("b", "", 30), ("b", "", 31)],
        &[
            ("a", "30", 0),
            ("b", "", 29),
            ("b", "", 30),
            ("a", "due", 30),
            ("b", "", 31),
        ],
        &[],
    );
}

#[test]
fn a_key_has_one_moment_which_can_be_moved_and_cancelled() {
    check(
        &[
            ("a", "30", 0),
            ("a", "30", 10),
            ("b", "5", 10),
            ("b", "-", 11),
            ("c", "", 35),
            ("c", "20", 36),
        ],
        &[
            ("a", "30", 0),
            ("a", "30", 10),
            ("b", "5", 10),
            ("b", "-", 11),
            ("c", "", 35),
            ("c", "20", 36),
        ],
        &[("a", 40), ("c", 56)],
    );
}

#[test]
fn a_moment_comes_before_a_later_record_of_its_key() {
    check(
        &[("a", "10", 0), ("a", "10", 60)],
        &[("a", "10", 0), ("a", "due", 10), ("a", "10", 60)],
        &[("a", 70)],
    );
}

#[test]
fn moments_come_in_order_and_before_the_next_record() {
    check(
        &[
            ("c", "10", 0),
            ("b", "10", 0),
            ("a", "11", 0),
            ("d", "", 100),
            ("e", "", 101),
        ],
        &[
            ("c", "10", 0),
            ("b", "10", 0),
            ("a", "11", 0),
            ("d", "", 100),
            ("b", "due", 10),
            ("c", "due", 10),
            ("a", "due", 11),
            ("e", "", 101),
        ],
        &[],
    );
}

#[test]
fn a_moment_in_the_past_comes_at_once() {
    check(
        &[("a", "1", 0), ("b", "", 45), ("c", "-5", 20), ("d", "", 46)],
        &[
            ("a", "1", 0),
            ("b", "", 45),
            ("a", "due", 1),
            ("c", "-5", 20),
            ("c", "due", 15),
            ("d", "", 46),
        ],
        &[],
    );
}

/// The last handled moment is the stream time itself, and the key is the same. The new moment is placed after it, and
/// not later than stream time.
#[test]
fn a_moment_in_the_past_comes_at_once_behind_a_handled_one() {
    check(
        &[
            ("a", "45", 0),
            ("b", "", 45),
            ("a", "-5", 40),
            ("c", "", 45),
        ],
        &[
            ("a", "45", 0),
            ("b", "", 45),
            ("a", "due", 45),
            ("a", "-5", 40),
            ("a", "due", 35),
            ("c", "", 45),
        ],
        &[],
    );
}

#[test]
fn an_aborted_transaction_gives_its_moments_back() {
    let mut driver = TestDriver::new(app());
    driver.hold();
    pipe(&mut driver, &[("a", "10", 0), ("b", "", 20)]);
    driver.abort();
    driver.release();
    pipe(&mut driver, &[("b", "", 21)]);
    let out = [
        ("a", "10", 0),
        ("b", "", 20),
        ("a", "due", 10),
        ("b", "", 21),
    ];
    assert_eq!(read(&mut driver), expected(&out));
    assert!(driver.timers(&timer()).is_empty());
}

fn beats() -> App {
    let mut app = App::new("a");
    let silent = app.timer(&Timer::<String>::wall_clock("silent"));
    app.source(&input())
        .on_timer(&silent, |ctx, due| {
            ctx.forward(due.key, "silent".to_owned())
        })
        .process_values(move |ctx, beat| ctx.timer(&silent).set_in(beat.key, seconds(5)))
        .to(&output());
    app
}

#[test]
fn a_wall_clock_moment_comes_when_the_clock_reaches_it() {
    let scenario = |driver: &mut TestDriver| {
        driver.pipe(&input(), "a", "");
        driver.advance_wall_clock(seconds(3));
        driver.pipe(&input(), "b", "");
        driver.advance_wall_clock(seconds(1));
        let mut seen = vec![driver.read_pairs(&output()).len()];
        driver.advance_wall_clock(seconds(2));
        seen.push(driver.read_pairs(&output()).len());
        driver.rebalance();
        driver.advance_wall_clock(seconds(10));
        driver.pipe(&input(), "a", "");
        driver.advance_wall_clock(seconds(4));
        let pairs = driver.read_pairs(&output());
        seen.push(pairs.len());
        seen
    };
    let mut driver = TestDriver::new(beats());
    assert_eq!(scenario(&mut driver), [0, 1, 1]);
    let places = crash_everywhere(|| TestDriver::new(beats()), scenario);
    assert!(places > 20, "{places}");
}

/// Handles moments in a struct with a store.
struct Carts {
    open: Store<KeyValueStore<String, u64>>,
    idle: TimerHandle<String>,
}

impl Processor<String, String> for Carts {
    type Key = String;
    type Value = String;

    fn process(
        &mut self,
        ctx: &ProcessCtx<'_, String, String>,
        record: Record<String, String>,
    ) -> Result<(), Failure> {
        ctx.store(&self.open)
            .update(&record.key, |n| n.unwrap_or(0) + 1)?;
        ctx.timer(&self.idle).set_in(&record.key, minutes(30))
    }

    fn on_timer(
        &mut self,
        ctx: &ProcessCtx<'_, String, String>,
        due: Due<String>,
    ) -> Result<(), Failure> {
        assert!(due.is_of(&self.idle));
        let n = ctx.store(&self.open).get(&due.key)?.unwrap_or(0);
        ctx.store(&self.open).delete(&due.key)?;
        ctx.forward(due.key, n.to_string())
    }
}

#[test]
fn a_processor_handles_its_moments() {
    let start = || {
        let mut app = App::new("a");
        let open = app.store(&KeyValueStore::<String, u64>::plain("open"));
        let idle = app.timer(&timer());
        app.source(&input())
            .with_store(&open)
            .with_timer(&idle)
            .process_with(move || Carts { open, idle })
            .to(&output());
        TestDriver::new(app)
    };
    let scenario = |driver: &mut TestDriver| {
        pipe(
            driver,
            &[("a", "", 0), ("a", "", 10), ("b", "", 20), ("a", "", 100)],
        );
        driver.committed()
    };
    let mut driver = start();
    scenario(&mut driver);
    assert_eq!(
        read(&mut driver),
        expected(&[("a", "2", 40), ("b", "1", 50)])
    );
    crash_everywhere(start, scenario);
}

/// Stream time jumps over the windows of the forwarded records. Each counts in its window, whether a record of its key
/// or of another one moves the time.
#[test]
fn windows_behind_a_timer_see_its_moments_as_stream_time() {
    let start = || {
        let mut app = App::new("a");
        let idle = app.timer(&timer());
        app.source(&input())
            .on_timer(&idle, |ctx, due| ctx.forward(due.key, "due".to_owned()))
            .process_values(move |ctx, record| set(idle, ctx, record.key, &record.value))
            .group_by_key()
            .windowed_by(Tumbling::of(minutes(10)))
            .count(&WindowStore::plain("windows"))
            .to_stream()
            .rekey(|record| (record.key.key, record.value.to_string()))
            .to(&output());
        TestDriver::new(app)
    };
    let (a, b, c) = (("a", "1", 1), ("b", "1", 25), ("c", "1", 58));
    for (last, out) in [("d", [a, b, c]), ("c", [c, a, b])] {
        let records = [
            ("a", "1", 0),
            ("b", "25", 0),
            ("c", "58", 0),
            (last, "", 1_000),
        ];
        let scenario = |driver: &mut TestDriver| {
            pipe(driver, &records);
            read(driver)
        };
        let mut driver = start();
        assert_eq!(scenario(&mut driver), expected(&out));
        assert_eq!(driver.metrics().map(|it| it.totals.late_records), Some(0));
        crash_everywhere(start, scenario);
    }
}

/// The jump of stream time commits, and its moments come after a restart: their windows are still open for them.
#[test]
fn windows_stay_for_the_moments_that_come_after_a_restart() {
    let start = || {
        let mut app = App::new("a");
        let idle = app.timer(&timer());
        let failed = std::sync::atomic::AtomicBool::new(false);
        app.source(&input())
            .on_error(ErrorPolicy::retry(
                3,
                Backoff::fixed(Duration::from_millis(10)),
            ))
            .on_timer(&idle, move |ctx, due: Due<String>| {
                if due.key == "b" && !failed.swap(true, std::sync::atomic::Ordering::Relaxed) {
                    return Err(Failure::from("the transaction before it commits"));
                }
                ctx.forward(due.key, "due".to_owned())
            })
            .process_values(move |ctx, record| set(idle, ctx, record.key, &record.value))
            .group_by_key()
            .windowed_by(Tumbling::of(minutes(10)))
            .count(&WindowStore::plain("windows"))
            .to_stream()
            .rekey(|record| (record.key.key, record.value.to_string()))
            .to(&output());
        TestDriver::new(app)
    };
    let scenario = |driver: &mut TestDriver| {
        // The first result writes the terms of the windows.
        pipe(
            driver,
            &[
                ("a", "1", 0),
                ("z", "", 2),
                ("b", "22", 3),
                ("d", "", 1_000),
                // Until the retry.
                ("e", "", 1_001),
            ],
        );
        read(driver)
    };
    let out = expected(&[("a", "1", 1), ("b", "1", 25)]);
    assert_eq!(scenario(&mut start()), out);
    crash_everywhere(start, scenario);
}

#[test]
fn a_handler_before_process_values_keeps_its_key() {
    let mut app = App::new("a");
    let idle = app.timer(&timer());
    app.source(&input())
        .on_error(ErrorPolicy::skip())
        .on_timer(&idle, |ctx, due| {
            let other = if due.key == "b" {
                "other".to_owned()
            } else {
                due.key
            };
            ctx.forward(other, "due".to_owned())
        })
        .process_values(move |ctx, record| set(idle, ctx, record.key, &record.value))
        .to(&output());
    let mut driver = TestDriver::new(app);
    pipe(&mut driver, &[("a", "1", 0), ("b", "1", 0), ("c", "", 10)]);
    assert_eq!(read(&mut driver), expected(&[("a", "due", 1)]));
}

#[test]
fn a_timer_needs_exactly_one_handler() {
    let mut app = App::new("a");
    let (one, two) = (
        app.timer(&timer()),
        app.timer(&Timer::<String>::event_time("two")),
    );
    let _ = one;
    let stream = app.source(&input());
    for stream in [stream.clone(), stream] {
        stream
            .on_timer(&two, |ctx, due| ctx.forward(due.key, "due".to_owned()))
            .process(|_, _| ())
            .to(&output());
    }
    let error = TestDriver::build(app).err().map(|error| error.to_string());
    let error = error.unwrap_or_default();
    for part in [
        "no step handles the timer idle",
        "the timer two has several handlers",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

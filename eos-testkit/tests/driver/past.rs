//! Timers that are set into the past, many timers at one moment, and handlers that never end.

use std::time::Duration;

use eos_core::timers::{Due, TimerHandle};
use eos_core::{App, Ctx, ErrorPolicy, Failure, PlainTopic, Timer, Timestamp, Topic};
use eos_testkit::{Input, TestDriver, crash_everywhere};

/// More than the times that a handler may set moments into the past.
const MANY: i64 = 1_500;

fn input() -> PlainTopic<String, i64> {
    Topic::plain("in")
}

fn output() -> PlainTopic<String, String> {
    Topic::plain("out")
}

fn by_record() -> Timer<String> {
    Timer::event_time("timer")
}

fn by_clock() -> Timer<String> {
    Timer::wall_clock("timer")
}

type OnRecord = fn(&Ctx<'_>, TimerHandle<String>, String, i64) -> Result<(), Failure>;
type OnMoment = fn(&Ctx<'_>, TimerHandle<String>, &Due<String>) -> Result<(), Failure>;

/// An app whose records set moments with the first function, and whose moments set others with the second one. It
/// writes the key of each moment.
fn app(
    timer: &Timer<String>,
    policy: impl Into<ErrorPolicy>,
    record: OnRecord,
    moment: OnMoment,
) -> App {
    let mut app = App::new("a");
    let handle = app.timer(timer);
    app.source(&input())
        .on_error(policy)
        .on_timer(&handle, move |ctx, due: Due<String>| {
            moment(ctx, handle, &due)?;
            ctx.forward(due.key, due.at.0.to_string())
        })
        .process(move |ctx, it| record(ctx, handle, it.key, it.value))
        .to(&output());
    app
}

fn nothing(_: &Ctx<'_>, _: TimerHandle<String>, _: &Due<String>) -> Result<(), Failure> {
    Ok(())
}

/// Sets the moment of the record's key.
fn at(ctx: &Ctx<'_>, timer: TimerHandle<String>, key: String, at: i64) -> Result<(), Failure> {
    ctx.timer(&timer).set(&key, Timestamp(at))
}

fn keys(driver: &mut TestDriver) -> Vec<String> {
    let pairs = driver.read_pairs(&output()).into_iter();
    pairs.map(|(key, _)| key).collect()
}

fn record(key: &str, value: i64, time: i64) -> Input<String, i64> {
    Input::<String, i64>::new(key, value).at(Timestamp(time))
}

fn numbered(n: i64) -> String {
    format!("{n:05}")
}

/// The moments of greater keys are earlier, so the order of the items is not that of their moments.
#[test]
fn one_record_may_set_thousands_of_moments_into_the_past() {
    let mut driver = TestDriver::new(app(
        &by_record(),
        ErrorPolicy::fail(),
        |ctx, timer, _, many| {
            for n in 0..many {
                ctx.timer(&timer)
                    .set(&numbered(n), Timestamp(100_000 - n))?;
            }
            Ok(())
        },
        nothing,
    ));
    driver.pipe_input(&input(), record("k", MANY, 1_000_000));
    driver.pipe_input(&input(), record("k", 0, 1_000_001));
    assert_eq!(
        keys(&mut driver),
        (0..MANY).map(numbered).collect::<Vec<_>>()
    );
}

/// A replay of old records, whose deadlines have passed. Each moment comes between two records.
#[test]
fn a_replay_may_set_thousands_of_moments_before_the_clock() {
    for key in [numbered, |_| "k".to_owned()] {
        let fails = ErrorPolicy::fail();
        let mut driver = TestDriver::new(app(&by_clock(), fails, at, nothing));
        let record = |n| record(&key(n), 1_000_000 - n, 0);
        driver.pipe_all(&input(), (0..2 * MANY).map(record));
        let expected: Vec<String> = (0..2 * MANY).map(key).collect();
        assert_eq!(keys(&mut driver), expected);
    }
}

/// An app was down for hours. Its handlers set the moments that have passed meanwhile, one by one.
#[test]
fn a_handler_may_catch_up_in_thousands_of_steps() {
    for timer in [by_record(), by_clock()] {
        let mut driver = TestDriver::new(app(
            &timer,
            ErrorPolicy::fail(),
            at,
            |ctx, timer, due| match due.at.0 < 5_000 {
                true => ctx.timer(&timer).set(&due.key, Timestamp(due.at.0 + 1)),
                false => Ok(()),
            },
        ));
        driver.pipe_input(&input(), record("k", 1_000, 0));
        driver.pipe_input(&input(), record("z", 1_000_000_000_000_000, 1_000_000));
        driver.pipe_input(&input(), record("z", 1_000_000_000_000_000, 1_000_001));
        assert_eq!(keys(&mut driver).len(), 4_001);
        // All of them come before a record of their own key.
        let records = [
            ("k", 1_000, 1_000_002),
            ("k", 1_000_000_000_000_000, 1_000_003),
        ];
        let records = records.map(|(key, value, time)| record(key, value, time));
        driver.pipe_all(&input(), records);
        assert_eq!(keys(&mut driver).len(), 4_001);
    }
}

/// The record sets its timer, too, and would replace the moments that are still to come.
#[test]
fn all_moments_of_a_key_come_before_its_next_record() {
    let start = || {
        TestDriver::new(app(
            &by_record(),
            ErrorPolicy::fail(),
            at,
            |ctx, timer, due| ctx.timer(&timer).set(&due.key, Timestamp(due.at.0 + 60)),
        ))
    };
    let scenario = |driver: &mut TestDriver| {
        driver.pipe_input(&input(), record("a", 60, 0));
        driver.pipe_input(&input(), record("a", 1_000, 330));
        let moments = driver.read_pairs(&output()).into_iter();
        let moments: Vec<String> = moments.map(|(_, moment)| moment).collect();
        (moments, driver.timers(&by_record()).entries().to_vec())
    };
    let (moments, pending) = scenario(&mut start());
    assert_eq!(moments, ["60", "120", "180", "240", "300"]);
    assert_eq!(pending, [("a".to_owned(), Timestamp(1_000))]);
    crash_everywhere(start, scenario);
}

/// The first timer of the step has the later moment.
#[test]
fn moments_of_two_timers_come_before_a_record_in_their_order() {
    let mut app = App::new("a");
    let first = app.timer(&Timer::<String>::event_time("first"));
    let second = app.timer(&Timer::<String>::event_time("second"));
    app.source(&input())
        .on_timer(&first, |ctx, due: Due<String>| {
            ctx.forward(due.key, format!("first {}", due.at.0))
        })
        .on_timer(&second, |ctx, due: Due<String>| {
            ctx.forward(due.key, format!("second {}", due.at.0))
        })
        .process(move |ctx, it| {
            ctx.timer(&first).set(&it.key, Timestamp(it.value + 2))?;
            ctx.timer(&second).set(&it.key, Timestamp(it.value))
        })
        .to(&output());
    let mut driver = TestDriver::new(app);
    driver.pipe_input(&input(), record("a", 1, 0));
    driver.pipe_input(&input(), record("a", 1_000, 5));
    let moments = driver.read_pairs(&output()).into_iter();
    let moments: Vec<String> = moments.map(|(_, moment)| moment).collect();
    assert_eq!(moments, ["second 1", "first 3"]);
}

/// The record of the key is processed after the endless moment is left out.
#[test]
fn a_handler_without_end_fails_before_a_record_of_its_key() {
    let mut driver = TestDriver::new(app(
        &by_record(),
        ErrorPolicy::skip(),
        at,
        |ctx, timer, due| ctx.timer(&timer).set(&due.key, due.at),
    ));
    driver.pipe_input(&input(), record("a", 60, 0));
    driver.pipe_input(&input(), record("a", 1_000, 330));
    let pending: Vec<_> = driver.timers(&by_record()).entries().to_vec();
    assert_eq!(pending, [("a".to_owned(), Timestamp(1_000))]);
    let found = keys(&mut driver).len();
    assert!((1_000..1_005).contains(&found), "{found}");
    assert_eq!(driver.metrics().unwrap().totals.skipped, 1);
}

/// Two keys that set each other, while records wait: the handler fails after 1,000 rounds.
#[test]
fn handlers_without_end_fail_although_records_wait() {
    for timer in [by_record(), by_clock()] {
        let mut driver =
            TestDriver::new(app(&timer, ErrorPolicy::skip(), at, |ctx, timer, due| {
                let other = if due.key == "a" { "b" } else { "a" };
                ctx.timer(&timer)
                    .set(&other.to_owned(), Timestamp(due.at.0 - 1))
            }));
        let first = record("a", 0, 1_000);
        // These set no moment that comes in this test.
        let others = (0..4_000).map(|n| record("z", 1_000_000_000_000_000, 1_001 + n));
        driver.pipe_all(&input(), std::iter::once(first).chain(others));
        driver.advance_wall_clock(Duration::from_secs(1));
        let found = keys(&mut driver).len();
        assert!((1_000..1_005).contains(&found), "{found}");
        let pending: Vec<_> = driver.timers(&timer).entries().to_vec();
        assert_eq!(pending.len(), 1, "{pending:?}");
    }
}

/// C3c of the design: the handler of a key sets another key to the moment that is being fired.
#[test]
fn c3c_a_key_that_is_set_to_the_moment_being_fired_comes_in_this_moment() {
    let start = || {
        TestDriver::new(app(
            &by_record(),
            ErrorPolicy::fail(),
            at,
            |ctx, timer, due| match &*due.key {
                "m" => {
                    ctx.timer(&timer).set(&"b".to_owned(), due.at)?;
                    ctx.timer(&timer).set(&"y".to_owned(), due.at)
                }
                _ => Ok(()),
            },
        ))
    };
    let scenario = |driver: &mut TestDriver| {
        for key in ["a", "m", "z"] {
            driver.pipe_input(&input(), record(key, 1_000, 0));
        }
        driver.pipe_input(&input(), record("n", 2_000, 1_000));
        driver.pipe_input(&input(), record("n", 3_000, 1_001));
        driver.read_pairs(&output())
    };
    let found = scenario(&mut TestDriver::new(app(
        &by_record(),
        ErrorPolicy::fail(),
        at,
        nothing,
    )));
    assert_eq!(found.len(), 3);
    let expected = ["a", "m", "y", "z", "b"].map(|key| (key.to_owned(), "1000".to_owned()));
    assert_eq!(scenario(&mut start()), expected);
    crash_everywhere(start, scenario);
}

/// The search for the next moment must not start at the beginning of the current moment again.
#[test]
fn a_million_moments_at_one_time_come_once_each_in_order() {
    let mut driver = TestDriver::new(app(
        &by_record(),
        ErrorPolicy::fail(),
        |ctx, timer, key, many| {
            for n in 0..many {
                ctx.timer(&timer)
                    .set(&format!("{key}{n:04}"), Timestamp(5_000))?;
            }
            Ok(())
        },
        nothing,
    ));
    let blocks = (0..1_000).map(|n| record(&format!("{n:03}"), 1_000, n));
    driver.pipe_all(&input(), blocks);
    driver.pipe_input(&input(), record("z", 0, 5_000));
    driver.pipe_input(&input(), record("z", 0, 5_001));
    let found = keys(&mut driver);
    assert_eq!(found.len(), 1_000_000);
    assert!(found.is_sorted() && found.windows(2).all(|pair| pair[0] != pair[1]));
    assert!(driver.timers(&by_record()).is_empty());
}

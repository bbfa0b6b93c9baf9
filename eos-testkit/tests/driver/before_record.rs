//! Moments of a record's key that come before the record.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use eos_core::run::Resume;
use eos_core::state::WindowStore;
use eos_core::timers::Due;
use eos_core::windows::Tumbling;
use eos_core::{App, Backoff, ErrorPolicy, Failure, PlainTopic, Timer, Timestamp, Topic};
use eos_testkit::{Input, TestDriver, crash_everywhere};

fn input() -> PlainTopic<String, i64> {
    Topic::plain("in")
}

fn output() -> PlainTopic<String, String> {
    Topic::plain("out")
}

fn letters() -> PlainTopic<String, Option<String>> {
    Topic::plain("letters")
}

fn late() -> PlainTopic<String, String> {
    Topic::plain("late")
}

fn by_record() -> Timer<String> {
    Timer::event_time("timer")
}

fn record(key: &str, value: i64, time: i64) -> Input<String, i64> {
    Input::<String, i64>::new(key, value).at(Timestamp(time))
}

/// Each moment writes its time, sets the next one and fails at 180. Records set the moment of their key.
fn chain(distance: i64, policy: impl Into<ErrorPolicy>) -> App {
    let mut app = App::new("a");
    let handle = app.timer(&by_record());
    app.source(&input())
        .on_error(policy)
        .on_timer(&handle, move |ctx, due: Due<String>| {
            let next = Timestamp(due.at.0 + distance);
            ctx.timer(&handle).set(&due.key, next)?;
            ctx.forward(due.key, due.at.0.to_string())?;
            match due.at.0 {
                180 => Err("not at 180".into()),
                _ => Ok(()),
            }
        })
        .process(move |ctx, it| ctx.timer(&handle).set(&it.key, Timestamp(it.value)))
        .to(&output());
    app
}

fn moments(driver: &mut TestDriver) -> Vec<String> {
    let pairs = driver.read_pairs(&output()).into_iter();
    pairs.map(|(_, moment)| moment).collect()
}

/// Two records of a key: the first one sets the moment 60, and the moments up to 330 come before the second one.
fn pipe(driver: &mut TestDriver) {
    driver.pipe_input(&input(), record("a", 60, 0));
    driver.pipe_input(&input(), record("a", 1_000, 330));
}

fn pending(driver: &TestDriver) -> Vec<(String, Timestamp)> {
    driver.timers(&by_record()).entries().to_vec()
}

#[test]
fn a_moment_that_fails_takes_no_earlier_moment_with_it() {
    let start = || TestDriver::new(chain(60, ErrorPolicy::skip()));
    let scenario = |driver: &mut TestDriver| {
        pipe(driver);
        (moments(driver), pending(driver))
    };
    let mut driver = start();
    let (moments, pending) = scenario(&mut driver);
    assert_eq!(moments, ["60", "120"]);
    assert_eq!(pending, [("a".to_owned(), Timestamp(1_000))]);
    assert_eq!(driver.metrics().unwrap().totals.skipped, 1);
    crash_everywhere(start, scenario);
}

#[test]
fn a_moment_that_fails_between_others_leaves_its_own_dead_letter() {
    let start = || TestDriver::new(chain(60, ErrorPolicy::dead_letter("letters")));
    let scenario = |driver: &mut TestDriver| {
        pipe(driver);
        let letters = driver.read(&letters()).into_iter();
        let due = |headers: &eos_core::Headers| headers.get("eos-due").map(<[u8]>::to_vec);
        let letters: Vec<_> = letters.map(|letter| due(&letter.headers)).collect();
        (moments(driver), letters)
    };
    let (moments, letters) = scenario(&mut start());
    assert_eq!(moments, ["60", "120"]);
    assert_eq!(letters, [Some(b"timer 180".to_vec())]);
    crash_everywhere(start, scenario);
}

#[test]
fn a_task_pauses_at_the_moment_that_fails_behind_others() {
    let mut driver = TestDriver::new(chain(60, ErrorPolicy::pause()));
    pipe(&mut driver);
    assert_eq!(moments(&mut driver), ["60", "120"]);
    let paused = driver.paused();
    assert_eq!(paused.len(), 1);
    assert!(paused[0].at.to_string().contains("180"), "{}", paused[0].at);
    driver.resume(paused[0].id, Resume::Skip).unwrap();
    assert!(driver.paused().is_empty());
    assert!(moments(&mut driver).is_empty());
    assert_eq!(pending(&driver), [("a".to_owned(), Timestamp(1_000))]);
}

/// Two steps with a timer each. The handler of the first one forwards two records of its key. The second step sets its
/// timer into the past at the first of them. Records with the value 7 have an output that aborts their transactions.
fn nested() -> App {
    let mut app = App::new("a");
    let first = app.timer(&by_record());
    let second = app.timer(&Timer::<String>::event_time("second"));
    app.source(&input())
        .on_error(ErrorPolicy::skip())
        .on_timer(&first, |ctx, due: Due<String>| {
            ctx.forward(due.key.clone(), -1)?;
            ctx.forward(due.key, -2)
        })
        .process_values(move |ctx, it| {
            if it.value == 60 {
                ctx.timer(&first).set(it.key, Timestamp(60))?;
            }
            ctx.forward(it.value)
        })
        .on_timer(&second, |ctx, due: Due<String>| {
            ctx.forward(due.key, format!("second {}", due.at.0))
        })
        .process(move |ctx, it| {
            if it.value == -1 {
                ctx.timer(&second).set(&it.key, Timestamp(10))?;
            }
            let text = match it.value {
                7 => "x".repeat(3_000),
                value => value.to_string(),
            };
            ctx.forward(it.key, text)
        })
        .to(&output());
    app
}

/// A moment that a unit sets comes after this unit.
#[test]
fn a_moment_that_is_set_in_the_unit_of_another_comes_before_the_record() {
    let start = || TestDriver::new(nested());
    let scenario = |driver: &mut TestDriver| {
        driver.pipe_input(&input(), record("a", 60, 0));
        driver.pipe_input(&input(), record("a", 1, 100));
        moments(driver)
    };
    let expected = ["60", "-1", "-2", "second 10", "1"];
    assert_eq!(scenario(&mut start()), expected);
    crash_everywhere(start, scenario);
}

/// The record is processed repeatedly during the search for the culprit. The moments come once.
#[test]
fn moments_come_once_before_a_record_that_aborts_its_transactions() {
    let mut driver = TestDriver::new(nested());
    let set = driver
        .cluster()
        .broker(|broker| broker.configure_topic("out", "max.message.bytes", "2000"));
    set.unwrap();
    driver.pipe_input(&input(), record("a", 60, 0));
    driver.pipe_input(&input(), record("a", 7, 100));
    driver.pipe_input(&input(), record("a", 1, 101));
    assert_eq!(moments(&mut driver), ["60", "-1", "-2", "second 10", "1"]);
    assert_eq!(driver.metrics().unwrap().totals.skipped, 1);
}

/// The moments are units of their own, so no limit of a unit applies to all of them.
#[test]
fn any_number_of_moments_comes_before_a_record() {
    let mut driver = TestDriver::new(chain(1, ErrorPolicy::fail()));
    driver.pipe_input(&input(), record("a", 1_000, 0));
    driver.pipe_input(&input(), record("a", 1_000_000, 6_000));
    let expected: Vec<String> = (1_000..=6_000).map(|n| n.to_string()).collect();
    assert_eq!(moments(&mut driver), expected);
    assert_eq!(pending(&driver), [("a".to_owned(), Timestamp(1_000_000))]);
}

/// Two steps with timers of these names. Each record sets both timers 60 ms after its time, and their handlers set them
/// again twice. The handler of the first step forwards its moment to the second step. The results go into windows of 50
/// ms.
fn two_steps(first: &str, second: &str) -> App {
    let mut app = App::new("a");
    let first = app.timer(&Timer::<String>::event_time(first));
    let second = app.timer(&Timer::<String>::event_time(second));
    let again = |at: i64| (at < 180).then_some(Timestamp(at + 60));
    app.source(&input())
        .on_timer(&first, move |ctx, due: Due<String>| {
            if let Some(next) = again(due.at.0) {
                ctx.timer(&first).set(&due.key, next)?;
            }
            ctx.forward(due.key, format!("first {}", due.at.0))
        })
        .process_values(move |ctx, it| {
            if it.value < 100 {
                ctx.timer(&first).set(it.key, Timestamp(it.value + 60))?;
            }
            ctx.forward(it.value.to_string())
        })
        .on_timer(&second, move |ctx, due: Due<String>| {
            if let Some(next) = again(due.at.0) {
                ctx.timer(&second).set(&due.key, next)?;
            }
            let seen = ctx.stream_time().map_or(-1, |time| time.0);
            ctx.forward(due.key, format!("second {} {seen}", due.at.0))
        })
        .process_values(move |ctx, it| {
            if let Ok(at) = it.value.parse::<i64>().map(|at| at + 60)
                && at < 160
            {
                ctx.timer(&second).set(it.key, Timestamp(at))?;
            }
            ctx.forward(it.value)
        })
        .group_by_key()
        .windowed_by(Tumbling::of(Duration::from_millis(50)))
        .late_to(&late())
        .reduce(&WindowStore::plain("windows"), |_, last| last)
        .to_stream()
        .without_windows()
        .to(&output());
    app
}

/// A moment of the second step comes before a moment of the first one, far behind stream time. The names decide which
/// of the timers comes first.
#[test]
fn a_moment_before_another_moment_sees_its_own_time() {
    for (first, second) in [("a", "b"), ("b", "a"), ("timer", "second"), ("x", "y")] {
        let start = || TestDriver::new(two_steps(first, second));
        let scenario = |driver: &mut TestDriver| {
            driver.pipe_input(&input(), record("a", 0, 0));
            driver.pipe_input(&input(), record("b", 40, 40));
            driver.pipe_input(&input(), record("z", 1_000_000, 1_000_000));
            let late = driver.read(&late()).len();
            (driver.read_pairs(&output()), late)
        };
        let (found, late) = scenario(&mut start());
        assert_eq!(late, 0, "{found:?}");
        let moments = found.iter().filter(|(_, text)| text.starts_with("second"));
        let moments: Vec<_> = moments.map(|(key, text)| format!("{key} {text}")).collect();
        let expected = [
            "a second 60 60",
            "b second 100 100",
            "a second 120 120",
            "b second 160 160",
            "a second 180 180",
            "b second 220 220",
        ];
        assert_eq!(moments, expected, "{first} {second}");
        crash_everywhere(start, scenario);
    }
}

/// A closure unwraps the failure of `forward`, or ignores it.
#[test]
fn closures_that_unwrap_or_ignore_the_failure_of_forward_lose_nothing() {
    for unwraps in [true, false] {
        let start = move || {
            let mut app = App::new("a");
            let (first, second) = (
                app.timer(&by_record()),
                app.timer(&Timer::<String>::event_time("second")),
            );
            let pass = move |sent: Result<(), Failure>| match unwraps {
                true => sent.unwrap(),
                false => drop(sent),
            };
            app.source(&input())
                .on_error(ErrorPolicy::skip())
                .on_timer(&first, move |ctx, due: Due<String>| {
                    pass(ctx.forward(due.key, due.at.0));
                    Ok(())
                })
                .process_values(move |ctx, it| {
                    ctx.timer(&first).set(it.key, Timestamp(it.value + 50))?;
                    pass(ctx.forward(it.value));
                    Ok(())
                })
                .on_timer(&second, |ctx, due: Due<String>| {
                    ctx.forward(due.key, format!("second {}", due.at.0))
                })
                .process_values(move |ctx, it| {
                    ctx.timer(&second).set(it.key, Timestamp(it.value + 10))?;
                    ctx.forward(it.value.to_string())
                })
                .to(&output());
            TestDriver::new(app)
        };
        let scenario = |driver: &mut TestDriver| {
            for at in [0, 100, 200] {
                driver.pipe_input(&input(), record("a", at, at));
            }
            moments(driver)
        };
        let mut driver = start();
        let found = scenario(&mut driver);
        let expected = "0 second 10 50 second 60 100 second 110 150 second 160 200";
        assert_eq!(found.join(" "), expected);
        assert_eq!(driver.metrics().unwrap().totals.skipped, 0);
        crash_everywhere(start, scenario);
    }
}

/// Two sources read the topic, and the record is retried after its moments.
#[test]
fn moments_come_once_before_a_record_that_is_retried_and_read_twice() {
    let start = || {
        let mut app = App::new("a");
        let timer = app.timer(&by_record());
        let fails = AtomicU32::new(0);
        let policy = || ErrorPolicy::retry(5, Backoff::fixed(Duration::from_secs(1)));
        app.source(&input())
            .on_error(policy())
            .on_timer(&timer, |ctx, due: Due<String>| {
                ctx.forward(due.key, format!("due {}", due.at.0))
            })
            .process_values(move |ctx, it| {
                if it.value == 2 && fails.fetch_add(1, Ordering::Relaxed) < 2 {
                    return Err("not yet".into());
                }
                ctx.timer(&timer).set(it.key, Timestamp(it.value * 100))?;
                ctx.forward(it.value.to_string())
            })
            .to(&output());
        app.source(&input())
            .on_error(policy())
            .map(|value| format!("copy {value}"))
            .to(&output());
        TestDriver::new(app)
    };
    let scenario = |driver: &mut TestDriver| {
        driver.pipe_input(&input(), record("a", 1, 0));
        driver.pipe_input(&input(), record("a", 2, 150));
        moments(driver)
    };
    let expected = ["1", "copy 1", "due 100", "2", "copy 2"];
    assert_eq!(scenario(&mut start()), expected);
    crash_everywhere(start, scenario);
}

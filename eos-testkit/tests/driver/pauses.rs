//! Paused tasks, with a crash at every effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use eos_core::errors::PolicyError;
use eos_core::run::{PausedAt, Resume, ResumeError};
use eos_core::{App, Backoff, ErrorPolicy, Failure, PlainTopic, Timer, Timestamp, Topic};
use eos_testkit::{Input, TestDriver, crash_everywhere};

fn texts() -> PlainTopic<String, String> {
    Topic::plain("texts")
}

fn others() -> PlainTopic<String, String> {
    Topic::plain("others")
}

fn numbers() -> PlainTopic<String, u64> {
    Topic::plain("numbers")
}

fn letters() -> PlainTopic<String, String> {
    Topic::plain("letters")
}

fn app(policy: impl Into<ErrorPolicy>) -> App {
    let mut app = App::new("a");
    app.source(&texts())
        .on_error(policy)
        .try_map(|text| Ok(text.parse::<u64>()?))
        .to(&numbers());
    app
}

fn pausing() -> App {
    app(ErrorPolicy::pause().dead_letters_to("letters"))
}

fn pipe(driver: &mut TestDriver, records: &[&str]) {
    for text in records {
        driver.pipe_at(&texts(), "k", *text, Timestamp(7));
    }
}

fn read(driver: &mut TestDriver) -> Vec<u64> {
    let pairs = driver.read_pairs(&numbers()).into_iter();
    pairs.map(|(_, number)| number).collect()
}

/// Decides about each paused task until none is paused.
fn resume_all(driver: &mut TestDriver, how: Resume) {
    while let Some(paused) = driver.paused().first() {
        // A crash may have ended the pause.
        match driver.resume(paused.id, how) {
            Ok(()) | Err(ResumeError::NotPaused { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn the_record_waits_and_earlier_records_are_committed() {
    let mut driver = TestDriver::new(pausing());
    pipe(&mut driver, &["1", "two", "3"]);
    assert_eq!(read(&mut driver), [1]);
    let paused = driver.paused();
    assert_eq!(paused.len(), 1);
    assert_eq!(paused[0].at.to_string(), "record 1 of texts-0");
    assert!(matches!(&paused[0].at, PausedAt::Record { offset, .. } if offset.get() == 1));
    assert_eq!(paused[0].error, "invalid digit found in string");
    assert_eq!(paused[0].dead_letters.as_ref().unwrap().as_str(), "letters");
    driver.advance_wall_clock(Duration::from_secs(10));
    let task = &driver.metrics().unwrap().workers[0].tasks[0];
    assert!(task.paused);
    assert!(read(&mut driver).is_empty());
    assert_eq!(driver.paused(), paused, "it is the same pause");
}

#[test]
fn each_decision() {
    for (how, skipped, dead) in [(Resume::Skip, 1, 0), (Resume::DeadLetter, 0, 1)] {
        let mut driver = TestDriver::new(pausing());
        pipe(&mut driver, &["1", "two", "3"]);
        resume_all(&mut driver, how);
        assert_eq!(read(&mut driver), [1, 3]);
        let totals = driver.metrics().unwrap().totals;
        assert_eq!((totals.skipped, totals.dead_letters), (skipped, dead));
        let letters = driver.read_pairs(&letters());
        assert_eq!(letters.len() as u64, dead);
        assert!(letters.iter().all(|(_, value)| value == "two"));
        assert!(driver.paused().is_empty());
        driver.advance_wall_clock(Duration::from_secs(1));
        assert!(!driver.metrics().unwrap().workers[0].tasks[0].paused);
    }
}

#[test]
fn a_retry_processes_the_record_again_under_a_new_pause() {
    let broken = Arc::new(AtomicBool::new(true));
    let is_broken = Arc::clone(&broken);
    let mut app = App::new("a");
    app.source(&texts())
        .on_error(ErrorPolicy::pause())
        .try_map(
            move |text: String| match is_broken.load(Ordering::Relaxed) {
                true => Err("the service is down".into()),
                false => Ok::<_, Failure>(text.parse::<u64>()?),
            },
        )
        .to(&numbers());
    let mut driver = TestDriver::new(app);
    pipe(&mut driver, &["1", "2"]);
    let first = driver.paused()[0].id;
    driver.resume(first, Resume::Retry).unwrap();
    let second = driver.paused()[0].id;
    assert_ne!(first, second);
    let late = driver.resume(first, Resume::Skip).unwrap_err();
    assert_eq!(late, ResumeError::NotPaused { id: first });
    let text = late.to_string();
    assert!(
        text.contains("failed again") && text.contains("`Handle::paused()`"),
        "{text}"
    );
    broken.store(false, Ordering::Relaxed);
    driver.resume(second, Resume::Retry).unwrap();
    assert_eq!(read(&mut driver), [1, 2]);
}

#[test]
fn a_dead_letter_without_a_topic_is_refused_and_the_task_stays_paused() {
    let mut driver = TestDriver::new(app(ErrorPolicy::pause()));
    pipe(&mut driver, &["two"]);
    let id = driver.paused()[0].id;
    let error = driver.resume(id, Resume::DeadLetter).unwrap_err();
    assert!(error.to_string().contains("dead_letters_to"), "{error}");
    assert_eq!(driver.paused()[0].id, id);
    driver.resume(id, Resume::Skip).unwrap();
    assert!(driver.paused().is_empty());
}

#[test]
fn a_restart_fails_and_pauses_again() {
    let mut driver = TestDriver::new(pausing());
    pipe(&mut driver, &["1", "two", "3"]);
    let before = driver.paused()[0].id;
    driver.kill();
    driver.restart();
    assert_eq!(driver.paused().len(), 1);
    assert_eq!(driver.paused()[0].at.to_string(), "record 1 of texts-0");
    let late = driver.resume(before, Resume::Skip).unwrap_err();
    assert_eq!(late, ResumeError::NotPaused { id: before });
    driver.crash();
    assert_eq!(driver.paused().len(), 1);
    assert_eq!(read(&mut driver), [1]);
    resume_all(&mut driver, Resume::Skip);
    assert_eq!(read(&mut driver), [3]);
}

#[test]
fn all_else_goes_on_and_a_pause_on_every_partition_stops_nothing_else() {
    let builder = TestDriver::builder().partitions("texts", 4);
    let mut app = pausing();
    app.source(&others())
        .try_map(|text| Ok(text.parse::<u64>()?))
        .to(&numbers());
    let mut driver = builder.start(app);
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for key in keys {
        driver.pipe(&texts(), key, "bad");
        driver.pipe(&texts(), key, "1");
    }
    assert_eq!(driver.paused().len(), 4, "each partition has a key");
    assert!(read(&mut driver).is_empty());
    for key in keys {
        driver.pipe(&others(), key, "2");
    }
    assert_eq!(read(&mut driver), [2; 8]);
    resume_all(&mut driver, Resume::DeadLetter);
    assert_eq!(read(&mut driver), [1; 8]);
    assert_eq!(driver.read(&letters()).len(), 8);
}

#[test]
fn a_revoked_task_pauses_at_its_new_owner() {
    let mut driver = TestDriver::builder()
        .partitions("texts", 2)
        .start(pausing());
    for key in ["a", "b", "c", "d"] {
        driver.pipe(&texts(), key, "bad");
    }
    let before = driver.paused();
    assert_eq!(before.len(), 2);
    driver.add_instance();
    let after = driver.paused();
    assert_eq!(after.len(), 2);
    let moved: Vec<_> = before.iter().filter(|it| !after.contains(it)).collect();
    assert_eq!(moved.len(), 1, "one task moved");
    let error = driver.resume(moved[0].id, Resume::Skip).unwrap_err();
    assert_eq!(error, ResumeError::NotPaused { id: moved[0].id });
    assert!(error.to_string().contains("moved to another process"));
    driver.remove_instance();
    resume_all(&mut driver, Resume::Skip);
    let totals = driver.metrics().unwrap().totals;
    assert_eq!(totals.skipped, 4);
}

#[test]
fn retries_come_before_the_pause_and_begin_again_after_a_retry() {
    let tries = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&tries);
    let policy = ErrorPolicy::retry(2, Backoff::fixed(Duration::from_secs(1)))
        .then(ErrorPolicy::pause().dead_letters_to("letters"));
    let mut app = App::new("a");
    app.source(&texts())
        .on_error(policy)
        .try_map(move |text: String| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(text.parse::<u64>()?)
        })
        .to(&numbers());
    let mut driver = TestDriver::new(app);
    pipe(&mut driver, &["bad", "1"]);
    assert_eq!(tries.load(Ordering::Relaxed), 3);
    let id = driver.paused()[0].id;
    driver.resume(id, Resume::Retry).unwrap();
    assert_eq!(tries.load(Ordering::Relaxed), 6);
    resume_all(&mut driver, Resume::DeadLetter);
    assert_eq!(read(&mut driver), [1]);
    let letter = &driver.read(&letters())[0];
    let attempts = letter.headers.get("__eos.errors.attempts");
    assert_eq!(attempts, Some(&b"3"[..]), "of the last round");
}

#[test]
fn a_decision_survives_an_abort() {
    for how in [Resume::Skip, Resume::DeadLetter] {
        let mut driver = TestDriver::new(pausing());
        pipe(&mut driver, &["1", "two"]);
        driver.abort_next();
        let id = driver.paused()[0].id;
        driver.resume(id, how).unwrap();
        assert!(driver.paused().is_empty());
        assert_eq!(driver.metrics().unwrap().totals.aborts, 1);
        pipe(&mut driver, &["3"]);
        assert_eq!(read(&mut driver), [1, 3]);
    }
}

#[test]
fn crashes_everywhere_change_nothing() {
    for how in [Resume::Skip, Resume::DeadLetter] {
        let places = crash_everywhere(
            || TestDriver::new(pausing()),
            |driver| {
                pipe(driver, &["1", "two", "3"]);
                resume_all(driver, how);
                pipe(driver, &["four", "5"]);
                resume_all(driver, how);
                driver.committed()
            },
        );
        assert!(places > 20, "{places}");
    }
}

/// One second after each record, a moment of its key comes. The handler fails for the key `bad`.
fn timed(policy: impl Into<ErrorPolicy>, clock: &Timer<String>) -> App {
    let mut app = App::new("a");
    let timer = app.timer(clock);
    let source = app.source(&texts()).on_error(policy);
    let source = source.on_timer(&timer, |ctx, due| match &due.key[..] {
        "bad" => Err("not this one".into()),
        _ => ctx.forward(due.key, 1),
    });
    let out = source.process(move |ctx, record| {
        let view = ctx.timer(&timer);
        view.set_in(&record.key, Duration::from_secs(1))
    });
    out.to(&numbers());
    app
}

fn stream_timer() -> Timer<String> {
    Timer::event_time("soon")
}

#[test]
fn a_failing_moment_pauses_the_task() {
    let policy = || ErrorPolicy::pause().dead_letters_to("letters");
    for (how, letters_expected) in [(Resume::Skip, 0), (Resume::DeadLetter, 1)] {
        let start = || TestDriver::new(timed(policy(), &stream_timer()));
        let scenario = |driver: &mut TestDriver| {
            for (key, at) in [("bad", 0), ("good", 500), ("good", 5_000), ("late", 9_000)] {
                driver.pipe_at(&texts(), key, "", Timestamp(at));
            }
            let paused = driver.paused();
            let at = paused.first().map(|it| it.at.to_string());
            resume_all(driver, how);
            (at, driver.committed())
        };
        let mut driver = start();
        let (at, _) = scenario(&mut driver);
        assert_eq!(at.as_deref(), Some("the moment 1000 of soon"));
        let pairs = driver.read_pairs(&numbers());
        assert_eq!(pairs, [("good".to_owned(), 1), ("good".to_owned(), 1)]);
        let letters = driver.read(&letters_raw());
        assert_eq!(letters.len(), letters_expected);
        crash_everywhere(start, |driver| scenario(driver).1);
    }
}

fn letters_raw() -> PlainTopic<Option<Vec<u8>>, Option<Vec<u8>>> {
    Topic::plain("letters")
}

/// The moment comes before a record of its key.
#[test]
fn a_failing_moment_before_a_record_of_its_key_pauses_at_the_moment() {
    for how in [Resume::Skip, Resume::DeadLetter] {
        let policy = ErrorPolicy::pause().dead_letters_to("letters");
        let mut driver = TestDriver::new(timed(policy, &stream_timer()));
        driver.pipe_at(&texts(), "bad", "", Timestamp(0));
        driver.pipe_at(&texts(), "bad", "", Timestamp(5_000));
        let paused = driver.paused();
        assert_eq!(paused[0].at.to_string(), "the moment 1000 of soon");
        driver.abort_next();
        driver.resume(paused[0].id, how).unwrap();
        assert!(driver.paused().is_empty());
        let rows = driver.timers(&stream_timer());
        let entries = rows.entries();
        assert_eq!(entries, [("bad".to_owned(), Timestamp(6_000))]);
        driver.pipe_at(&texts(), "x", "", Timestamp(7_000));
        let paused = driver.paused();
        assert_eq!(paused[0].at.to_string(), "the moment 6000 of soon");
    }
}

/// An abort returns the record before the moment. When it runs again, it cancels the moment.
#[test]
fn a_moment_that_a_repeated_record_cancels_ends_its_pause() {
    let clock = stream_timer();
    let mut app = App::new("a");
    let timer = app.timer(&clock);
    let cancels = AtomicBool::new(false);
    app.source(&texts())
        .on_error(ErrorPolicy::pause())
        .on_timer(&timer, |_, _| Err("always".into()))
        .process(move |ctx, record| {
            let timer = ctx.timer(&timer);
            match &*record.value {
                "set" => timer.set_in(&record.key, Duration::from_secs(1))?,
                "cancel" if cancels.swap(true, Ordering::Relaxed) => {
                    timer.cancel(&"k".to_owned())?;
                }
                _ => {}
            }
            ctx.forward(record.key, 1)
        })
        .to(&numbers());
    let mut driver = TestDriver::new(app);
    driver.pipe_at(&texts(), "k", "set", Timestamp(0));
    driver.hold();
    driver.pipe_at(&texts(), "l", "cancel", Timestamp(500));
    driver.abort_next();
    driver.pipe_at(&texts(), "k", "", Timestamp(1_200));
    driver.release();
    assert_eq!(driver.metrics().unwrap().totals.aborts, 1);
    assert_eq!(read(&mut driver), [1, 1, 1]);
    driver.pipe_at(&texts(), "m", "", Timestamp(1_300));
    assert!(driver.paused().is_empty(), "{:?}", driver.paused());
}

/// The moment fails once. After an abort, the task pauses before it again, as before a paused record.
#[test]
fn a_task_stands_still_again_at_its_moment_after_an_abort() {
    let clock = stream_timer();
    let mut app = App::new("a");
    let timer = app.timer(&clock);
    let fails = AtomicBool::new(true);
    app.source(&texts())
        .on_error(ErrorPolicy::pause())
        .on_timer(&timer, move |ctx, due| {
            match fails.swap(false, Ordering::Relaxed) {
                true => Err("once".into()),
                false => ctx.forward(due.key, 1),
            }
        })
        .process(move |ctx, record| {
            ctx.timer(&timer)
                .set_in(&record.key, Duration::from_secs(1))
        })
        .to(&numbers());
    let mut driver = TestDriver::new(app);
    driver.pipe_at(&texts(), "k", "", Timestamp(0));
    driver.hold();
    driver.pipe_at(&texts(), "l", "", Timestamp(500));
    driver.abort_next();
    driver.pipe_at(&texts(), "k", "", Timestamp(1_200));
    driver.release();
    assert_eq!(driver.metrics().unwrap().totals.aborts, 1);
    assert_eq!(driver.paused().len(), 1);
    assert!(read(&mut driver).is_empty());
    resume_all(&mut driver, Resume::Retry);
    assert_eq!(read(&mut driver), [1]);
}

#[test]
fn timers_of_the_machines_clock_stand_still_in_a_paused_task() {
    let clock = Timer::<String>::wall_clock("soon");
    let mut app = App::new("a");
    let timer = app.timer(&clock);
    app.source(&texts())
        .on_error(ErrorPolicy::pause())
        .on_timer(&timer, |ctx, due| ctx.forward(due.key, 1))
        .process(move |ctx, record| {
            if record.value == "bad" {
                return Err("bad".into());
            }
            ctx.timer(&timer)
                .set_in(&record.key, Duration::from_secs(1))
        })
        .to(&numbers());
    let mut driver = TestDriver::new(app);
    let now = driver.now();
    driver.pipe_at(&texts(), "k", "good", now);
    driver.pipe_at(&texts(), "l", "bad", now);
    assert_eq!(driver.paused().len(), 1);
    driver.advance_wall_clock(Duration::from_secs(3));
    assert!(read(&mut driver).is_empty(), "the moment came");
    resume_all(&mut driver, Resume::Skip);
    driver.advance_wall_clock(Duration::from_secs(1));
    assert_eq!(read(&mut driver), [1]);
}

/// Of several policies that meet at a due item, fail comes first, then pause, retry, dead letter and skip.
#[test]
fn the_order_of_policies() {
    let retry = || ErrorPolicy::retry(1, Backoff::fixed(Duration::from_secs(1)));
    let outcome = |one: ErrorPolicy, other: ErrorPolicy| {
        let mut app = App::new("a");
        let timer = app.timer(&stream_timer());
        let one = app.source(&texts()).on_error(one);
        let other = app.source(&others()).on_error(other);
        let tried = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&tried);
        one.merge(other)
            .on_timer(&timer, move |_, _| {
                count.fetch_add(1, Ordering::Relaxed);
                Err("no".into())
            })
            .process(move |ctx, record| {
                let view = ctx.timer(&timer);
                view.set_in(&record.key, Duration::from_secs(1))?;
                ctx.forward(record.key, 1)
            })
            .to(&numbers());
        let mut driver = TestDriver::new(app);
        driver.pipe_at(&texts(), "k", "", Timestamp(0));
        let late = Input::new("l", "").at(Timestamp(1_500));
        let failed = driver.try_pipe(&texts(), late).is_err();
        if !failed {
            driver.advance_wall_clock(Duration::from_secs(2));
        }
        let tried = tried.load(Ordering::Relaxed);
        if failed {
            return ("failed", tried);
        }
        if !driver.paused().is_empty() {
            return ("paused", tried);
        }
        match driver.metrics().unwrap().totals.dead_letters {
            0 => ("skipped", tried),
            _ => ("dead letter", tried),
        }
    };
    let fail = ErrorPolicy::fail;
    let pause = || ErrorPolicy::from(ErrorPolicy::pause());
    let dead = || ErrorPolicy::dead_letter("letters");
    let skip = ErrorPolicy::skip;
    let then_skip = || retry().then(skip());
    assert_eq!(outcome(fail(), pause()), ("failed", 1));
    assert_eq!(outcome(pause(), fail()), ("failed", 1));
    assert_eq!(outcome(fail(), then_skip()), ("failed", 1));
    assert_eq!(outcome(pause(), then_skip()), ("paused", 1));
    assert_eq!(outcome(dead(), pause()), ("paused", 1));
    assert_eq!(outcome(dead(), then_skip()), ("dead letter", 2));
    assert_eq!(outcome(then_skip(), skip()), ("skipped", 2));
    assert_eq!(outcome(dead(), skip()), ("dead letter", 1));
    assert_eq!(outcome(retry().then(pause()), skip()), ("paused", 2));
}

#[test]
fn two_dead_letter_topics_of_a_stage_with_timers_are_refused() {
    let build = |first: &str, second: &str, timed: bool| {
        let mut app = App::new("a");
        let timer = app.timer(&stream_timer());
        let one = app.source(&texts());
        let one = one.on_error(ErrorPolicy::dead_letter(first));
        let other = app.source(&others());
        let other = other.on_error(ErrorPolicy::pause().dead_letters_to(second));
        let both = one.merge(other);
        if timed {
            both.on_timer(&timer, |_, _| Ok(()))
                .process(|ctx, record| ctx.forward(record.key, 1))
                .to(&numbers());
        } else {
            both.map(|_| 1).to(&numbers());
            app.source(&Topic::<String, String>::plain("third"))
                .on_timer(&timer, |_, _| Ok(()))
                .process(|ctx, record| ctx.forward(record.key, 1))
                .to(&numbers());
        }
        app.describe().map(|_| ())
    };
    let error = build("one-dlq", "other-dlq", true).unwrap_err().to_string();
    assert!(
        error.contains("one-dlq") && error.contains("other-dlq") && error.contains("the same"),
        "{error}"
    );
    assert!(build("dlq", "dlq", true).is_ok());
    assert!(build("one-dlq", "other-dlq", false).is_ok());
}

#[test]
fn a_description_names_the_pause() {
    let text = pausing().describe().unwrap().guarantees().to_string();
    assert!(text.contains("pauses its task"), "{text}");
    let nested = ErrorPolicy::retry(1, Backoff::fixed(Duration::from_secs(1)))
        .then(ErrorPolicy::pause().dead_letters_to("letters"));
    assert_eq!(
        nested.to_string(),
        "retry(1, fixed(1s)).then(pause().dead_letters_to(\"letters\"))"
    );
    let own = app(ErrorPolicy::pause().dead_letters_to("texts"));
    let error = own.describe().map(|_| ()).unwrap_err().to_string();
    assert!(
        error.contains(&PolicyError::OwnTopic.to_string()),
        "{error}"
    );
}

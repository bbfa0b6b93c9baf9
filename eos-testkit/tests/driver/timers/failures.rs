//! Handlers of moments that fail.

use super::*;

/// A handler fails for the key `bad`, panics for `panics`, and fails for `once` at its first call.
fn failing(policy: impl Into<ErrorPolicy>) -> App {
    let mut app = App::new("a");
    let idle = app.timer(&timer());
    let calls = std::sync::atomic::AtomicU32::new(0);
    let out = app.output(&output());
    app.source(&input())
        .on_error(policy)
        .on_timer(&idle, move |ctx, due: Due<String>| {
            ctx.emit(&out, due.key.clone(), "due".to_owned())?;
            let first = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
            assert!(due.key != "panics", "no such customer");
            if due.key == "bad" || (due.key == "once" && first) {
                return Err(Failure::from("no such customer"));
            }
            Ok(())
        })
        .for_each(move |ctx, record| {
            set(idle, ctx, &record.key, &record.value)?;
            ctx.emit(&out, record.key, record.value)
        });
    app
}

#[test]
fn a_failed_handler_stops_the_app_and_is_named() {
    let mut driver = TestDriver::new(failing(ErrorPolicy::fail()));
    pipe(&mut driver, &[("bad", "10", 0)]);
    let later = Input::<String, String>::new("b", "").at(Timestamp(20 * MINUTE));
    driver.try_pipe(&input(), later).unwrap_err();
    let error = driver.error().unwrap().to_string();
    for part in ["timer idle", "\"bad\"", "no such customer"] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(
        read(&mut driver).len(),
        2,
        "both records, and no effect of the handler"
    );
}

#[test]
fn a_failed_handler_is_skipped_and_the_record_of_its_key_is_not() {
    for key in ["bad", "panics"] {
        let mut driver = TestDriver::new(failing(ErrorPolicy::skip()));
        let records = [
            (key, "10", 0),
            (key, "x", 20),
            (key, "10", 21),
            ("b", "", 40),
            ("c", "", 41),
        ];
        pipe(&mut driver, &records);
        assert_eq!(read(&mut driver), expected(&records));
        assert!(driver.timers(&timer()).is_empty());
    }
}

#[test]
fn a_failed_handler_is_tried_again() {
    let policy = ErrorPolicy::retry(3, Backoff::fixed(Duration::from_millis(10)));
    let mut driver = TestDriver::new(failing(policy));
    pipe(
        &mut driver,
        &[("once", "10", 0), ("b", "", 40), ("c", "", 41)],
    );
    let out = [
        ("once", "10", 0),
        ("b", "", 40),
        ("once", "due", 10),
        ("c", "", 41),
    ];
    assert_eq!(read(&mut driver), expected(&out));
}

#[test]
fn metrics_show_how_long_the_first_unhandled_moment_is_due() {
    let policy = ErrorPolicy::retry_forever(Backoff::fixed(minutes(1)));
    let mut driver = TestDriver::new(failing(policy));
    let behind = |driver: &mut TestDriver| {
        driver.advance_wall_clock(seconds(1));
        let metrics = driver.metrics().unwrap();
        metrics.workers[0].tasks[0].due_behind
    };
    assert_eq!(behind(&mut driver), Some(Duration::ZERO));
    pipe(&mut driver, &[("bad", "10", 0), ("b", "60", 9)]);
    assert_eq!(behind(&mut driver), Some(Duration::ZERO));
    pipe(&mut driver, &[("c", "", 13)]);
    assert_eq!(behind(&mut driver), Some(minutes(3)));
    let mut none = App::new("none");
    none.source(&input()).to(&output());
    assert_eq!(behind(&mut TestDriver::new(none)), None);
}

#[test]
fn a_failed_handler_leaves_a_dead_letter() {
    let mut driver = TestDriver::new(failing(ErrorPolicy::dead_letter("dlq")));
    pipe(&mut driver, &[("bad", "10", 0), ("b", "", 40)]);
    let letters = driver.read(&Topic::<String, Option<String>>::plain("dlq"));
    assert_eq!(letters.len(), 1);
    let letter = &letters[0];
    assert_eq!((&*letter.key, &letter.value), ("bad", &None));
    let due = letter
        .headers
        .iter()
        .find(|it| it.name() == "eos-due")
        .unwrap();
    assert_eq!(
        due.value(),
        Some(format!("idle {}", 10 * MINUTE).as_bytes())
    );
}

#[test]
fn a_handler_that_sets_its_moment_into_the_past_again_and_again_fails() {
    let mut app = App::new("a");
    let idle = app.timer(&timer());
    app.source(&input())
        .on_error(ErrorPolicy::skip())
        .on_timer(&idle, move |ctx, due: Due<String>| {
            ctx.timer(&idle).set(&due.key, due.at)?;
            ctx.forward(due.key, "due".to_owned())
        })
        .process(move |ctx, record| set(idle, ctx, &record.key, &record.value))
        .to(&output());
    let mut driver = TestDriver::new(app);
    pipe(&mut driver, &[("a", "1", 0), ("b", "", 100)]);
    let out = read(&mut driver).len();
    assert!((1_000..1_010).contains(&out), "{out}");
    assert!(driver.timers(&timer()).is_empty());
    // Two keys in turn.
    pipe(
        &mut driver,
        &[("a", "1", 200), ("b", "1", 200), ("c", "", 300)],
    );
    let out = read(&mut driver).len();
    assert!((2_000..2_010).contains(&out), "{out}");
    assert!(driver.timers(&timer()).is_empty());
}

#[test]
fn a_wall_clock_handler_that_sets_its_moment_into_the_past_fails_too() {
    let mut app = App::new("a");
    let silent = app.timer(&Timer::<String>::wall_clock("silent"));
    app.source(&input())
        .on_error(ErrorPolicy::skip())
        .on_timer(&silent, move |ctx, due: Due<String>| {
            ctx.timer(&silent).set(&due.key, due.at)?;
            ctx.forward(due.key, "due".to_owned())
        })
        .process(move |ctx, record| ctx.timer(&silent).set_in(&record.key, seconds(1)))
        .to(&output());
    let mut driver = TestDriver::new(app);
    driver.pipe(&input(), "a", "");
    driver.advance_wall_clock(seconds(2));
    let out = driver.read_pairs(&output()).len();
    assert!((1_000..1_010).contains(&out), "{out}");
}

/// A handler forwards to a step with a timer of its own, whose moment for the same key fails.
#[test]
fn a_failed_moment_of_a_later_step_costs_no_moment_of_the_first_one() {
    for (first, second) in [("one", "two"), ("two", "one")] {
        let mut app = App::new("a");
        let first = app.timer(&Timer::<String>::event_time(first));
        let second = app.timer(&Timer::<String>::event_time(second));
        app.source(&input())
            .on_error(ErrorPolicy::skip())
            .on_timer(&first, |ctx, due| ctx.forward(due.key, "first".to_owned()))
            .process_values(move |ctx, record| {
                set(first, ctx, record.key, &record.value)?;
                ctx.forward(record.value)
            })
            .on_timer(&second, |ctx, due: Due<String>| {
                ctx.forward(due.key, "second".to_owned())?;
                Err(Failure::from("no such customer"))
            })
            .process_values(move |ctx, record| {
                set(second, ctx, record.key, &record.value)?;
                ctx.forward(record.value)
            })
            .to(&output());
        let mut driver = TestDriver::new(app);
        pipe(&mut driver, &[("a", "10", 0), ("b", "", 100)]);
        let out = [("a", "10", 0), ("b", "", 100), ("a", "first", 10)];
        assert_eq!(read(&mut driver), expected(&out));
    }
}

//! Ticks of both clocks.

use super::*;

/// Writes each tick, with the number of missed ones, and each record.
fn ticking(clock: Clock, period: Duration) -> App {
    let mut app = App::new("a");
    app.source(&input())
        .on_tick("tick", clock, period, |ctx, tick| {
            ctx.forward("tick".to_owned(), tick.missed.to_string())
        })
        .process(|ctx, record| ctx.forward_record(record))
        .to(&output());
    app
}

#[test]
fn a_tick_of_stream_time_comes_once_per_period_and_counts_what_it_stands_for() {
    let records = [
        ("a", "", 5),
        ("a", "", 9),
        ("a", "", 10),
        ("a", "", 12),
        ("a", "", 55),
        ("a", "", 61),
    ];
    let mut driver = TestDriver::new(ticking(Clock::Stream, minutes(10)));
    pipe(&mut driver, &records);
    let out = [
        ("a", "", 5),
        ("a", "", 9),
        ("a", "", 10),
        ("tick", "0", 10),
        ("a", "", 12),
        ("a", "", 55),
        ("tick", "3", 20),
        ("a", "", 61),
        ("tick", "0", 60),
    ];
    assert_eq!(read(&mut driver), expected(&out));
    let places = crash_everywhere(
        || TestDriver::new(ticking(Clock::Stream, minutes(10))),
        |driver| {
            pipe(driver, &records);
            driver.committed()
        },
    );
    assert!(places > 20, "{places}");
}

#[test]
fn a_tick_of_the_machines_clock_comes_without_records() {
    let start = || {
        TestDriver::builder()
            .start_at(Timestamp(0))
            .start(ticking(Clock::Wall, seconds(10)))
    };
    let scenario = |driver: &mut TestDriver| {
        driver.advance_wall_clock(seconds(9));
        let mut seen = vec![driver.read_pairs(&output()).len()];
        driver.advance_wall_clock(seconds(2));
        seen.push(driver.read_pairs(&output()).len());
        driver.advance_wall_clock(seconds(10));
        driver.rebalance();
        driver.advance_wall_clock(seconds(10));
        seen.push(driver.read_pairs(&output()).len());
        seen
    };
    assert_eq!(scenario(&mut start()), [0, 1, 2]);
    crash_everywhere(start, scenario);
}

#[test]
fn a_failed_tick_does_not_end_the_schedule() {
    let mut app = App::new("a");
    let calls = std::sync::atomic::AtomicU32::new(0);
    app.source(&input())
        .on_error(ErrorPolicy::skip())
        .on_tick("tick", Clock::Stream, minutes(10), move |ctx, tick| {
            if calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 {
                return Err(Failure::from("the first one fails"));
            }
            ctx.forward("tick".to_owned(), (tick.at.0 / MINUTE).to_string())
        })
        .process(|_, _| ())
        .to(&output());
    let mut driver = TestDriver::new(app);
    pipe(
        &mut driver,
        &[("a", "", 5), ("a", "", 10), ("a", "", 20), ("a", "", 30)],
    );
    assert_eq!(
        read(&mut driver),
        expected(&[("tick", "20", 20), ("tick", "30", 30)])
    );
}

/// A producer that writes microseconds or nanoseconds.
#[test]
fn a_record_of_the_far_future_does_not_tick_without_end() {
    let mut app = App::new("a");
    app.source(&input())
        .trust_times()
        .on_tick("tick", Clock::Stream, minutes(10), |ctx, tick| {
            ctx.forward("tick".to_owned(), tick.missed.to_string())
        })
        .process(|ctx, record| ctx.forward_record(record))
        .to(&output());
    let mut driver = TestDriver::new(app);
    pipe(&mut driver, &[("a", "", 5), ("a", "", 11)]);
    driver.pipe_at(&input(), "a", "", Timestamp(i64::MAX));
    driver.pipe_at(&input(), "a", "", Timestamp(i64::MAX));
    let out: Vec<_> = driver
        .read_pairs(&output())
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    assert_eq!(out, ["a", "a", "tick", "a", "tick", "a"]);
}

#[test]
fn a_tick_needs_a_period() {
    let mut app = App::new("a");
    app.source(&input())
        .on_tick("tick", Clock::Wall, Duration::from_micros(10), |_, _| ())
        .for_each(|_, _| ());
    let error = TestDriver::build(app).err().map(|error| error.to_string());
    let error = error.unwrap_or_default();
    assert!(error.contains("the period of the tick tick"), "{error}");
}

/// A tick that is due runs first. Then the ticks are at the multiples of the new period.
#[test]
fn a_new_period_takes_effect_at_once() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    for (down, expected) in [(10, "24"), (40, "13 24")] {
        let hours = Arc::new(AtomicU64::new(1));
        let period = Arc::clone(&hours);
        let app = move || {
            let period = minutes(60 * period.load(Ordering::Relaxed));
            let mut app = App::new("a");
            app.source(&input())
                .on_tick("report", Clock::Wall, period, |ctx, tick| {
                    ctx.forward("tick".to_owned(), (tick.at.0 / MINUTE / 60).to_string())
                })
                .process(|_, _| ())
                .to(&output());
            app
        };
        let start = Timestamp((12 * 60 + 20) * MINUTE);
        let mut driver = TestDriver::builder().start_at(start).start_of(app);
        driver.advance_wall_clock(minutes(10));
        driver.kill();
        hours.store(24, Ordering::Relaxed);
        driver.advance_wall_clock(minutes(down));
        driver.restart();
        driver.advance_wall_clock(minutes(20 * 60));
        let ticks = driver.read_pairs(&output()).into_iter();
        let ticks: Vec<String> = ticks.map(|(_, at)| at).collect();
        assert_eq!(ticks.join(" "), expected);
    }
}

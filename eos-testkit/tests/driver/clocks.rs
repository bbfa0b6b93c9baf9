//! The machine's clock is set back or forward, by a second or by an hour.

use std::time::Duration;

use eos_core::state::WindowStore;
use eos_core::timers::Clock;
use eos_core::windows::Tumbling;
use eos_core::{App, Failure, PlainTopic, Timer, Timestamp, Topic};
use eos_testkit::{TestDriver, crash_everywhere};

const SECOND: i64 = 1_000;
const HOUR: i64 = 3_600_000;
/// The start of the clock, a multiple of each period.
const BEGIN: i64 = 100 * HOUR;

fn input() -> PlainTopic<String, String> {
    Topic::plain("in")
}

fn output() -> PlainTopic<String, i64> {
    Topic::plain("out")
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn start(app: App) -> TestDriver {
    TestDriver::builder().start_at(Timestamp(BEGIN)).start(app)
}

/// Sets the clock forward or back by this many seconds.
fn set_by(driver: &mut TestDriver, by: i64) {
    driver.set_wall_clock(Timestamp(driver.now().0 + by * SECOND));
}

/// Writes each tick, in seconds since the start. With `all`, also those that a tick stands for: after a crash the group
/// needs some time to give the task to a process again.
fn ticking(period: u64, all: bool) -> App {
    let mut app = App::new("a");
    app.source(&input())
        .on_tick("tick", Clock::Wall, seconds(period), move |ctx, tick| {
            for n in 0..=if all { tick.missed } else { 0 } {
                let at = (tick.at.0 - BEGIN) / SECOND;
                let later = i64::try_from(n * period)?;
                ctx.forward("tick".to_owned(), at + later)?;
            }
            Ok::<_, Failure>(())
        })
        .process(|_, _| ())
        .to(&output());
    app
}

fn read(driver: &mut TestDriver) -> Vec<i64> {
    let pairs = driver.read_pairs(&output()).into_iter();
    pairs.map(|(_, at)| at).collect()
}

/// A time service sets the clock back, or the task moves to a machine whose clock is behind.
#[test]
fn a_tick_comes_once_if_the_clock_goes_back_behind_it() {
    for back in [1, 5, 9] {
        let scenario = |driver: &mut TestDriver| {
            driver.advance_wall_clock(seconds(11));
            set_by(driver, -back);
            driver.rebalance();
            driver.advance_wall_clock(seconds(27 + back.unsigned_abs()));
            read(driver)
        };
        let first = || start(ticking(10, true));
        assert_eq!(scenario(&mut first()), [10, 20, 30], "{back} s back");
        crash_everywhere(first, scenario);
    }
}

/// More than a period back, the ticks come again: a clock that was an hour ahead must not end the schedule for an hour.
#[test]
fn ticks_follow_a_clock_that_jumps_by_an_hour() {
    let scenario = |driver: &mut TestDriver| {
        driver.advance_wall_clock(seconds(3_600));
        set_by(driver, -3_600);
        driver.advance_wall_clock(seconds(3_601));
        driver.rebalance();
        driver.advance_wall_clock(seconds(3_600));
        read(driver)
    };
    assert_eq!(scenario(&mut start(ticking(3_600, false))), [3_600, 7_200]);
    let scenario = |driver: &mut TestDriver| {
        driver.advance_wall_clock(seconds(11));
        set_by(driver, 3_600);
        driver.rebalance();
        let mut seen = read(driver);
        set_by(driver, -3_600);
        driver.advance_wall_clock(seconds(10));
        seen.extend(read(driver));
        seen
    };
    // The second tick stands for those of the hour. It is due again by the clock that was set back.
    assert_eq!(scenario(&mut start(ticking(10, false))), [10, 20, 20]);
}

/// The transaction that sets the first tick aborts, and so does the one that handles it.
#[test]
fn an_aborted_transaction_does_not_end_the_schedule() {
    let mut app = App::new("a");
    app.source(&input())
        .on_tick("tick", Clock::Stream, seconds(10), |ctx, tick| {
            ctx.forward("tick".to_owned(), tick.at.0 / SECOND)
        })
        .process(|_, _| ())
        .to(&output());
    let mut driver = start(app);
    for (from, out) in [(5, 10), (15, 20)] {
        driver.hold();
        driver.pipe_at(&input(), "k", "", Timestamp(from * SECOND));
        driver.abort();
        driver.release();
        driver.pipe_at(&input(), "k", "", Timestamp((from + 6) * SECOND));
        driver.pipe_at(&input(), "k", "", Timestamp((from + 7) * SECOND));
        assert_eq!(read(&mut driver), [out]);
    }
}

/// Sets the moment of each record's key. The value is the number of seconds from now. Writes the moments.
fn timed() -> App {
    let mut app = App::new("a");
    let timer = app.timer(&Timer::<String>::wall_clock("timer"));
    app.source(&input())
        .on_timer(&timer, |ctx, due| {
            ctx.forward(due.key, (due.at.0 - BEGIN) / SECOND)
        })
        .process(move |ctx, record| {
            let after = record.value.parse::<u64>()?;
            ctx.timer(&timer).set_in(&record.key, seconds(after))
        })
        .to(&output());
    app
}

fn moments(driver: &mut TestDriver) -> Vec<(String, i64)> {
    driver.read_pairs(&output())
}

fn own(moments: &[(&str, i64)]) -> Vec<(String, i64)> {
    let own = |(key, at): &(&str, i64)| ((*key).to_owned(), *at);
    moments.iter().map(own).collect()
}

#[test]
fn a_moment_comes_once_if_the_clock_jumps_by_an_hour() {
    let scenario = |driver: &mut TestDriver| {
        driver.pipe(&input(), "a", "5");
        set_by(driver, -3_600);
        driver.advance_wall_clock(seconds(10));
        let mut seen = vec![moments(driver)];
        driver.advance_wall_clock(seconds(3_600));
        seen.push(moments(driver));
        driver.pipe(&input(), "b", "100");
        set_by(driver, 3_600);
        driver.advance_wall_clock(seconds(1));
        seen.push(moments(driver));
        set_by(driver, -3_600);
        driver.rebalance();
        driver.advance_wall_clock(seconds(3_700));
        seen.push(moments(driver));
        seen
    };
    // The second moment is 100 s after 10 s.
    let expected = [vec![], own(&[("a", 5)]), own(&[("b", 110)]), vec![]];
    assert_eq!(scenario(&mut start(timed())), expected);
}

/// C3b of the design: the new moment is before one that is already handled.
#[test]
fn c3b_a_moment_behind_a_clock_that_steps_back_comes_in_its_time() {
    let scenario = |driver: &mut TestDriver| {
        driver.pipe(&input(), "z", "5");
        driver.advance_wall_clock(seconds(6));
        let mut seen = vec![moments(driver)];
        set_by(driver, -3);
        driver.pipe(&input(), "a", "1");
        seen.push(moments(driver));
        driver.advance_wall_clock(seconds(2));
        seen.push(moments(driver));
        seen
    };
    let first = || start(timed());
    let expected = [own(&[("z", 5)]), vec![], own(&[("a", 4)])];
    assert_eq!(scenario(&mut first()), expected);
    crash_everywhere(first, scenario);
}

/// Idle inputs are measured by the time that passes. A clock that is set neither closes their windows nor delays this.
#[test]
fn a_clock_that_jumps_does_not_change_when_idle_inputs_close_windows() {
    let first = || {
        let mut app = App::new("a");
        app.source(&input())
            .close_when_idle(seconds(3))
            .group_by_key()
            .windowed_by(Tumbling::of(seconds(10)))
            .count(&WindowStore::plain("windows"))
            .emit_on_close()
            .rekey(|record| (record.key.key, i64::try_from(record.value).unwrap_or(0)))
            .to(&output());
        start(app)
    };
    let scenario = |driver: &mut TestDriver| {
        driver.pipe_at(&input(), "a", "x", Timestamp(4_000));
        set_by(driver, 3_600);
        let mut seen = vec![moments(driver)];
        driver.advance_wall_clock(seconds(5));
        set_by(driver, -7_200);
        driver.advance_wall_clock(seconds(3));
        seen.push(moments(driver));
        driver.advance_wall_clock(seconds(3));
        seen.push(moments(driver));
        seen
    };
    // Six seconds after the three of idleness, and a second for the query.
    assert_eq!(scenario(&mut first()), [vec![], vec![], own(&[("a", 1)])]);
}

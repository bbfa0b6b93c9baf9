//! Records in order of the numbers of their keys.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;

use eos_core::run::Resume;

use super::*;

fn good(value: String) -> Result<String, Failure> {
    match value.ends_with("bad") {
        true => Err(Failure::from("bad")),
        false => Ok(value),
    }
}

#[test]
fn numbers_of_a_key_come_out_in_order() {
    let start = || {
        let order = by_number(OnGap::PassOn);
        TestDriver::new(app_with(ErrorPolicy::fail(), order, |it| {
            it.late_to(&topic("late")).ordered()
        }))
    };
    let scenario = |driver: &mut TestDriver| {
        pipe(
            driver,
            &[("2", 0), ("1", 1), ("2 again", 2), ("4", 3), ("0", 4)],
        );
        let first = out(driver);
        driver.rebalance();
        pipe(driver, &[("1 again", 5), ("3", 6), ("5", 7)]);
        driver.pipe_at(&input(), "l", "0", Timestamp(BEGIN + 8));
        (first, out(driver), read(driver, "late"))
    };
    let mut driver = start();
    let (first, rest, late) = scenario(&mut driver);
    assert_eq!(first, ["0", "1", "2"]);
    assert_eq!(rest, ["3", "4", "5", "0"]);
    assert_eq!(late, ["2 again", "1 again"]);
    assert!(driver.store(&waiting()).is_empty());
    let places = crash_everywhere(start, scenario);
    assert!(places > 30, "{places}");
}

#[test]
fn a_gap_is_given_up_when_the_wait_is_over() {
    let start = || {
        let order = by_number(OnGap::PassOn);
        TestDriver::new(app_with(ErrorPolicy::fail(), order, |it| {
            it.drop_late().ordered()
        }))
    };
    let scenario = |driver: &mut TestDriver| {
        // 1 is missing. 4 came before 2, and its wait ends first.
        pipe(driver, &[("0", 0), ("4", 10), ("2", 50), ("tick 0", 109)]);
        let before = out(driver);
        pipe(driver, &[("0 tick", 110)]);
        let after = out(driver);
        pipe(driver, &[("1", 111), ("3", 112), ("5", 113)]);
        (before, after, out(driver))
    };
    let mut driver = start();
    let (before, after, last) = scenario(&mut driver);
    assert_eq!(before, ["0"]);
    assert_eq!(after, ["2", "4"]);
    assert_eq!(last, ["5"], "1 and 3 were given up");
    assert_eq!(driver.metrics().unwrap().totals.reorder_gaps, 2);
    crash_everywhere(start, scenario);
}

#[test]
fn a_long_gap_is_given_up_at_once() {
    let start = || {
        let order = by_number(OnGap::PassOn);
        TestDriver::new(app_with(ErrorPolicy::fail(), order, |it| {
            it.drop_late().ordered()
        }))
    };
    let far = u64::MAX.to_string();
    let scenario = |driver: &mut TestDriver| {
        pipe(driver, &[("5", 0), ("3", 1)]);
        let before = out(driver);
        pipe(driver, &[("6", 2)]);
        let after = out(driver);
        pipe(driver, &[(&far, 3), (&far, 4), ("7", 5)]);
        (before, after, out(driver))
    };
    let (before, after, last) = scenario(&mut start());
    assert_eq!(
        (before, after),
        (vec![], ["3", "5", "6"].map(str::to_owned).to_vec())
    );
    assert_eq!(last, [&far[..]], "once");
    crash_everywhere(start, scenario);
}

#[test]
fn a_gap_fails_or_becomes_a_dead_letter() {
    let failing_order = || app_with(ErrorPolicy::fail(), by_number(OnGap::Fail), Order::ordered);
    let mut driver = TestDriver::new(failing_order());
    let text = failing(&mut driver, "6", 0);
    for part in [
        "the numbers from 0 to 6 (exclusive) are missing (store waiting)",
        "Raise `max_gap`",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let mut driver = TestDriver::new(failing_order());
    pipe(&mut driver, &[("2", 0)]);
    let text = failing(&mut driver, "1", 100);
    assert!(
        text.contains("the numbers from 0 to 1 (exclusive) are missing"),
        "{text}"
    );

    let letters = || {
        let policy = ErrorPolicy::dead_letter("letters");
        let order = by_number(OnGap::DeadLetter);
        TestDriver::new(app_with(policy, order, |it| it.drop_late().ordered()))
    };
    let scenario = |driver: &mut TestDriver| {
        pipe(
            driver,
            &[
                ("2", 0),
                ("1", 1),
                ("9", 2),
                ("3", 3),
                ("2 tick", 250),
                ("0 late", 251),
                ("4", 252),
            ],
        );
        (out(driver), read(driver, "letters"))
    };
    let (passed, lost) = scenario(&mut letters());
    // 9 is too far. 1 has waited too long, so 0 is given up, and 2 and 3 are next.
    assert_eq!(lost, ["9", "1"]);
    assert_eq!(passed, ["2", "3", "4"]);
    crash_everywhere(letters, scenario);
}

/// The distance of two numbers may have 64 bits, and the number after the last one has 65.
#[test]
fn a_gap_of_two_to_the_64_numbers_fails_or_becomes_a_dead_letter() {
    let last = u64::MAX.to_string();
    let order = by_number(OnGap::Fail);
    let mut driver = TestDriver::new(app_with(ErrorPolicy::fail(), order, Order::ordered));
    pipe(&mut driver, &[("0", 0)]);
    let text = failing(&mut driver, &last, 1);
    let expected = format!("the numbers from 1 to {last} (exclusive) are missing (store waiting)");
    assert!(text.contains(&expected), "{text}");

    let letters = || {
        let policy = ErrorPolicy::dead_letter("letters");
        let order = by_number(OnGap::DeadLetter);
        TestDriver::new(app_with(policy, order, Order::ordered))
    };
    let scenario = |driver: &mut TestDriver| {
        pipe(driver, &[("0", 0), (&last, 1), ("1", 2), ("2", 500)]);
        (out(driver), read(driver, "letters"))
    };
    let (passed, lost) = scenario(&mut letters());
    assert_eq!(passed, ["0", "1", "2"]);
    assert_eq!(lost, [&last[..]]);
    crash_everywhere(letters, scenario);

    let order = |it: Stream<String, String>| {
        let settings = settings(OnGap::Fail).starts_at(u64::MAX);
        it.reorder_by(number, settings, &waiting())
    };
    let mut driver = TestDriver::new(app_with(ErrorPolicy::fail(), order, Order::ordered));
    pipe(&mut driver, &[(&last, 0)]);
    let text = failing(&mut driver, &last, 1);
    let next = u128::from(u64::MAX) + 1;
    assert!(
        text.contains(&format!("the next number is {next} (store waiting)")),
        "{text}"
    );
    assert_eq!(out(&mut driver), [&last[..]]);
}

/// A failed record gives up its own number, whether it waited or not. So the outputs do not depend on the order of
/// arrival.
#[test]
fn the_number_of_a_failed_record_is_passed_over() {
    for (policy, letters) in [
        (ErrorPolicy::skip(), 0),
        (ErrorPolicy::dead_letter("letters"), 1),
    ] {
        let start = || {
            let order = by_number(OnGap::PassOn);
            TestDriver::new(app_with(policy.clone(), order, |it| {
                it.drop_late().ordered().try_map(good)
            }))
        };
        for order in [
            ["0", "1 bad", "2", "3"],
            ["2", "1 bad", "3", "0"],
            ["1 bad", "0", "2", "3"],
        ] {
            let scenario = |driver: &mut TestDriver| {
                pipe(driver, &[0, 1, 2, 3].map(|at| (order[at], at as i64)));
                // A record of another key arrives in the same moment.
                driver.pipe_at(&input(), "l", "0", Timestamp(BEGIN + 3));
                let mut passed = out(driver);
                assert_eq!(passed.pop().as_deref(), Some("0"), "{order:?}");
                let letters = match letters {
                    0 => 0,
                    _ => read(driver, "letters").len(),
                };
                (passed, letters)
            };
            let mut driver = start();
            let (passed, found) = scenario(&mut driver);
            assert_eq!(
                (passed.join(" "), found),
                ("0 2 3".into(), letters),
                "{order:?}"
            );
            assert_eq!(
                driver.metrics().unwrap().totals.reorder_gaps,
                0,
                "{order:?}"
            );
            crash_everywhere(start, scenario);
        }
    }
}

/// A jump of stream time does not extend a wait that ended before. The windows after the order still accept the record.
#[test]
fn a_wait_never_ends_later_than_planned() {
    let start = || {
        let mut app = App::new("a");
        let ordered = by_number(OnGap::PassOn)(app.source(&input()))
            .drop_late()
            .ordered();
        counted(ordered, 200);
        TestDriver::new(app)
    };
    let scenario = |driver: &mut TestDriver| {
        pipe(driver, &[("0", 0), ("2", 0), ("1", 1_000)]);
        (out(driver), driver.metrics().unwrap().totals.late_records)
    };
    let (counts, late) = scenario(&mut start());
    assert_eq!((counts.join(" "), late), ("1 1 2".into(), 0));
    crash_everywhere(start, |driver| scenario(driver).0);
}

/// A decision to skip a paused record gives up its number, too.
#[test]
fn the_number_of_a_skipped_pause_is_passed_over() {
    let order = by_number(OnGap::PassOn);
    let app = app_with(ErrorPolicy::pause().into(), order, |it| {
        it.drop_late().ordered().try_map(good)
    });
    let mut driver = TestDriver::new(app);
    pipe(&mut driver, &[("0", 0), ("2", 1), ("1 bad", 2)]);
    let id = driver.paused()[0].id;
    driver.resume(id, Resume::Skip).unwrap();
    pipe(&mut driver, &[("3", 3)]);
    assert_eq!(out(&mut driver), ["0", "2", "3"]);
}

/// The item of 4 first ends the wait of 2, and then fails. The transaction aborts, so 2 waits again. The decision must
/// not remove 2.
#[test]
fn a_decision_about_a_waiting_record_spares_lower_numbers_after_an_abort() {
    for how in [Resume::Skip, Resume::DeadLetter] {
        let policy = ErrorPolicy::pause().dead_letters_to("letters");
        let app = app_with(policy.into(), by_number(OnGap::PassOn), |it| {
            it.drop_late().ordered().try_map(good)
        });
        let mut driver = TestDriver::new(app);
        pipe(&mut driver, &[("4 bad", 10), ("2", 50)]);
        driver.hold();
        driver.abort_next();
        pipe(&mut driver, &[("0 tick", 110)]);
        driver.release();
        assert_eq!(driver.metrics().unwrap().totals.aborts, 1);
        let id = driver.paused()[0].id;
        driver.resume(id, how).unwrap();
        pipe(&mut driver, &[("0 tock", 900)]);
        assert_eq!(out(&mut driver), ["0 tick", "2"], "{how:?}");
        let letters = read(&mut driver, "letters");
        let expected = usize::from(how == Resume::DeadLetter);
        assert_eq!(letters.len(), expected, "{letters:?}");
        assert!(driver.paused().is_empty(), "{:?}", driver.paused());
        assert!(driver.store(&waiting()).is_empty());
    }
}

/// Records that fail do not move stream time. The wait of the others ends nevertheless, with the first record behind
/// it.
#[test]
fn records_that_are_too_far_ahead_do_not_stop_the_wait_of_others() {
    for (policy, on_gap) in [
        (ErrorPolicy::dead_letter("letters"), OnGap::DeadLetter),
        (ErrorPolicy::skip(), OnGap::Fail),
    ] {
        let order = by_number(on_gap);
        let mut driver = TestDriver::new(app_with(policy, order, Order::ordered));
        pipe(
            &mut driver,
            &[
                ("0", 0),
                ("2", 1),
                ("3", 2),
                ("9", 3),
                ("10", 5_000),
                ("11", 9_000),
            ],
        );
        // 1 is given up with 2, which has waited too long, and later 4 to 9 with 10.
        assert_eq!(out(&mut driver), ["0", "3", "11"], "{on_gap:?}");
    }
}

/// A record from another order comes as a due item. It fails without holding stream time back, so `max_gap` holds.
#[test]
fn a_record_behind_an_order_by_time_may_not_be_too_far_ahead() {
    let order = |stream: Stream<String, String>| {
        let by_time = stream.reorder_by_time(ms(10), &ReorderStore::plain("by-time"));
        by_number(OnGap::DeadLetter)(by_time.drop_late().ordered())
    };
    let start = || {
        let policy = ErrorPolicy::dead_letter("letters");
        TestDriver::new(app_with(policy, order, |it| it.drop_late().ordered()))
    };
    let mut driver = start();
    pipe(&mut driver, &[("9", 0), ("0", 50), ("1", 200), ("2", 500)]);
    assert_eq!(read(&mut driver, "letters"), ["9"]);
    assert_eq!(out(&mut driver), ["0", "1"]);
    // 9 leaves the order by time when the wait of 1 ends. Its item comes first, because its store has the lower id.
    // This item does not move stream time, so it makes no room for 9.
    let mut driver = start();
    pipe(&mut driver, &[("1", 10), ("9", 110), ("2", 500)]);
    assert_eq!(read(&mut driver, "letters"), ["9", "1"]);
}

/// A gap that is longer than `max_gap` stops the app. Its error names the fix.
#[test]
fn a_gap_that_was_too_long_is_repaired_with_a_longer_one() {
    let gap = Arc::new(AtomicU64::new(5));
    let declared = Arc::clone(&gap);
    let mut driver = TestDriver::of(move || {
        let settings = Reorder::max_gap(declared.load(Ordering::Relaxed));
        let settings = settings
            .max_wait(ms(5_000), Clock::Stream)
            .on_gap(OnGap::Fail);
        let order = move |it: Stream<_, _>| it.reorder_by(number, settings, &waiting());
        app_with(ErrorPolicy::fail(), order, Order::ordered)
    });
    let text = failing(&mut driver, "9", 0);
    assert!(text.contains("Raise `max_gap`"), "{text}");
    gap.store(20, Ordering::Relaxed);
    driver.restart();
    for number in 0..9 {
        pipe(&mut driver, &[(&number.to_string(), 1)]);
    }
    assert_eq!(out(&mut driver).len(), 10);
}

/// A restart after the stop reads more records, so that the missing record can take its place. If it does not arrive,
/// the app stops again.
#[test]
fn a_gap_that_stopped_the_app_can_be_repaired() {
    for clock in [Clock::Stream, Clock::Wall] {
        let start = || {
            let settings = Reorder::max_gap(5).max_wait(ms(5_000), clock);
            let settings = settings.on_gap(OnGap::Fail);
            let order = move |it: Stream<_, _>| it.reorder_by(number, settings, &waiting());
            TestDriver::new(app_with(ErrorPolicy::fail(), order, Order::ordered))
        };
        let stops = |driver: &mut TestDriver, value: &str, at: i64| {
            let record = Input::<String, String>::new("k", value).at(Timestamp(BEGIN + at));
            let text = match driver.try_pipe(&input(), record) {
                Err(error) => error.to_string(),
                Ok(_) => {
                    let advance = AssertUnwindSafe(|| driver.advance_wall_clock(ms(6_000)));
                    let panic = catch_unwind(advance).unwrap_err();
                    *panic.downcast::<String>().unwrap()
                }
            };
            assert!(
                text.contains("the numbers from 1 to 2 (exclusive)"),
                "{text}"
            );
        };
        let mut driver = start();
        pipe(&mut driver, &[("0", 0), ("2", 1)]);
        stops(&mut driver, "3", 6_000);
        assert_eq!(out(&mut driver), ["0"], "{clock:?}");
        driver.restart();
        pipe(&mut driver, &[("1", 6_001)]);
        assert_eq!(out(&mut driver), ["1", "2", "3"], "{clock:?}");

        let mut driver = start();
        pipe(&mut driver, &[("0", 0), ("2", 1)]);
        stops(&mut driver, "3", 6_000);
        driver.restart();
        pipe(&mut driver, &[("4", 6_001)]);
        stops(&mut driver, "5", 12_000);
    }
}

/// The check of the grace includes one wait. A record behind a repaired gap has waited longer, so its window may be
/// closed. Then the record is late: it is counted, and is written to the topic of late records.
#[test]
fn a_record_behind_a_repaired_gap_is_late_for_a_closed_window() {
    let settings = Reorder::max_gap(5).max_wait(ms(5_000), Clock::Stream);
    let mut app = App::new("a");
    app.source(&input())
        .reorder_by(number, settings.on_gap(OnGap::Fail), &waiting())
        .ordered()
        .group_by_key()
        .windowed_by(Tumbling::of(ms(10)).grace(ms(5_000)))
        .late_to(&topic("late"))
        .count(&WindowStore::plain("counts"))
        .to_stream()
        .without_windows()
        .map(|count| count.to_string())
        .to(&output());
    let mut driver = TestDriver::new(app);
    pipe(&mut driver, &[("0", 0), ("2", 1)]);
    let text = failing(&mut driver, "3", 6_000);
    assert!(
        text.contains("the numbers from 1 to 2 (exclusive)"),
        "{text}"
    );
    driver.restart();
    pipe(&mut driver, &[("1", 6_001)]);
    // 0 is in the first window, 1 and 3 are in the window from 6,000 on. The first window took no records after 5,010.
    assert_eq!(out(&mut driver), ["1", "1", "2"]);
    assert_eq!(read(&mut driver, "late"), ["2"]);
    assert_eq!(driver.metrics().unwrap().totals.late_records, 1);
}

#[test]
fn the_machines_clock_ends_a_wait_without_records() {
    let start = || {
        let settings = Reorder::max_gap(5).max_wait(ms(5_000), Clock::Wall);
        let settings = settings.on_gap(OnGap::PassOn).starts_at(10);
        let order = move |it: Stream<_, _>| it.reorder_by(number, settings, &waiting());
        TestDriver::new(app_with(ErrorPolicy::fail(), order, |it| {
            it.drop_late().ordered()
        }))
    };
    let scenario = |driver: &mut TestDriver| {
        pipe(driver, &[("12", 0), ("13", 0), ("10", 0)]);
        let before = out(driver);
        driver.advance_wall_clock(ms(10_000));
        (before, out(driver))
    };
    let (before, after) = scenario(&mut start());
    assert_eq!(before, ["10"]);
    assert_eq!(after, ["12", "13"]);
}

/// The cost of a record does not depend on how many wait.
#[test]
fn ten_thousand_records_wait_behind_a_gap() {
    let took = |waiting_records: u64| {
        let settings = Reorder::max_gap(waiting_records).max_wait(ms(3_600_000), Clock::Stream);
        let settings = settings.on_gap(OnGap::Fail);
        let order = move |it: Stream<_, _>| it.reorder_by(number, settings, &waiting());
        let policy = ErrorPolicy::fail();
        let mut driver = TestDriver::new(app_with(policy, order, Order::ordered));
        let of = |number: u64| {
            Input::<String, String>::new("k", number.to_string()).at(Timestamp(BEGIN))
        };
        let begun = std::time::Instant::now();
        let records = (1..=waiting_records).rev().map(of);
        driver.pipe_all(&input(), records.collect::<Vec<_>>());
        assert_eq!(driver.store(&waiting()).len() as u64, waiting_records);
        driver.pipe_input(&input(), of(0));
        let took = begun.elapsed();
        let numbers = out(&mut driver);
        assert!(numbers.iter().map(number).eq(0..=waiting_records));
        took
    };
    let (few, many) = (took(1_000), took(10_000));
    eprintln!("1,000 waiting records: {few:?}, 10,000: {many:?}");
    // Ten times as many. If each record read all numbers, it would be a hundred times the work.
    assert!(many < few * 40, "{few:?} {many:?}");
}

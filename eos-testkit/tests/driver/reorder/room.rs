//! The limit of the waiting records of a task.

use super::*;

/// A record of 1 MB with the number `100 - n`, `n` milliseconds after the begin.
fn large(n: i64) -> Input<String, String> {
    let value = format!("{} {}", 100 - n, "x".repeat(1_000_000));
    Input::new("k", value).at(Timestamp(BEGIN + n))
}

#[test]
fn records_that_leave_or_fail_make_room() {
    for fails in [false, true] {
        let order = |it: Stream<String, String>| it.reorder_by_time(ms(100_000), &waiting());
        let behind = move |it: Order| {
            it.ordered().try_map(move |value| match fails {
                true => Err(Failure::from("bad")),
                false => Ok(value),
            })
        };
        let mut driver = TestDriver::new(app_with(ErrorPolicy::skip(), order, behind));
        driver.pipe_all(&input(), (0..60).map(large).collect::<Vec<_>>());
        driver.pipe_input(&input(), large(100_100));
        driver.advance_wall_clock(ms(1_000));
        let left = if fails { 0 } else { 60 };
        assert_eq!(out(&mut driver).len(), left);
        let more = (100_101..100_160).map(large);
        driver.pipe_all(&input(), more.collect::<Vec<_>>());
        assert_eq!(driver.store(&waiting()).len(), 60, "fails: {fails}");
    }
}

#[test]
fn more_than_64_mib_do_not_wait() {
    let order = |it: Stream<String, String>| it.reorder_by_time(ms(100_000), &waiting());
    let mut driver = TestDriver::new(app_with(ErrorPolicy::fail(), order, Order::ordered));
    driver.pipe_all(&input(), (0..67).map(large).collect::<Vec<_>>());
    let text = driver
        .try_pipe(&input(), large(67))
        .unwrap_err()
        .to_string();
    assert!(
        text.contains(
            "bytes of records wait in one task of the store waiting, and the limit is 67108864"
        ),
        "{text}"
    );
    // A record whose time ends the wait of others makes room for itself.
    let mut driver = TestDriver::new(app_with(ErrorPolicy::skip(), order, Order::ordered));
    driver.pipe_all(&input(), (0..67).map(large).collect::<Vec<_>>());
    driver.pipe_input(&input(), large(100_000));
    driver.pipe_input(&input(), large(100_067));
    driver.advance_wall_clock(ms(1_000));
    assert_eq!(out(&mut driver).len(), 67);
    assert_eq!(driver.store(&waiting()).len(), 2);
    let settings = Reorder::max_gap(100).max_wait(ms(100_000), Clock::Stream);
    let settings = settings.on_gap(OnGap::PassOn);
    let order = move |it: Stream<_, _>| it.reorder_by(number, settings, &waiting());
    let mut driver = TestDriver::new(app_with(ErrorPolicy::fail(), order, Order::ordered));
    driver.pipe_all(&input(), (0..67).map(large).collect::<Vec<_>>());
    assert_eq!(driver.store(&waiting()).len(), 67);
    driver.pipe_input(&input(), large(67));
    // The lowest number may not wait: the numbers before it are given up, and the next ones follow it.
    let mut records = out(&mut driver);
    // The release takes several transactions. No later record is needed for the last one.
    driver.advance_wall_clock(ms(1_000));
    records.extend(out(&mut driver));
    let numbers: Vec<u64> = records.iter().map(number).collect();
    assert_eq!(numbers, (33..=100).collect::<Vec<_>>());
}

#[test]
fn records_that_leave_or_fail_make_room_for_other_numbers() {
    let large = |number: u64, at: i64| {
        let value = format!("{number} {}", "x".repeat(1_000_000));
        Input::<String, String>::new("k", value).at(Timestamp(BEGIN + at))
    };
    for fails in [false, true] {
        let settings = Reorder::max_gap(1_000).max_wait(ms(100), Clock::Stream);
        let settings = settings.on_gap(OnGap::PassOn);
        let order = move |it: Stream<_, _>| it.reorder_by(number, settings, &waiting());
        let mut driver = TestDriver::new(app_with(ErrorPolicy::skip(), order, move |it| {
            it.ordered().try_map(move |value| match fails {
                true => Err(Failure::from("bad")),
                false => Ok(value),
            })
        }));
        driver.pipe_all(&input(), (1..61).map(|n| large(n, 0)).collect::<Vec<_>>());
        pipe(&mut driver, &[("61", 500)]);
        driver.advance_wall_clock(ms(1_000));
        assert_eq!(out(&mut driver).len(), if fails { 0 } else { 61 });
        let more = (63..123).map(|n| large(n, 500));
        driver.pipe_all(&input(), more.collect::<Vec<_>>());
        assert_eq!(driver.store(&waiting()).len(), 60, "fails: {fails}");
    }
}

//! Transactions that stay open, abort, or end with their process. Lost state, and tasks that move.

use std::time::Duration;

use eos_core::{App, Guarantee, KeyValueStore, PlainTopic, Topic};
use eos_protocol::CallSite;
use eos_testkit::client::Edge;
use eos_testkit::driver::CrashPoint;
use eos_testkit::{Input, TestDriver, crash_everywhere};

fn clicks() -> PlainTopic<String, String> {
    Topic::plain("clicks")
}

fn totals() -> PlainTopic<String, u64> {
    Topic::plain("totals")
}

fn counts() -> KeyValueStore<String, u64> {
    KeyValueStore::plain("counts")
}

fn counting() -> App {
    let mut app = App::new("clicks-v1");
    app.source(&clicks())
        .group_by_key()
        .count(&counts())
        .to(&totals());
    app
}

fn read(driver: &mut TestDriver) -> Vec<u64> {
    let pairs = driver.read_pairs(&totals()).into_iter();
    pairs.map(|(_, count)| count).collect()
}

fn count_of(driver: &TestDriver, key: &str) -> Option<u64> {
    driver.store(&counts()).get(key).copied()
}

#[test]
fn held_records_are_invisible_before_they_are_committed() {
    let mut driver = TestDriver::new(counting());
    driver.hold();
    driver.pipe(&clicks(), "a", "x");
    driver.pipe(&clicks(), "a", "y");
    assert_eq!(read(&mut driver), [0; 0]);
    assert_eq!(count_of(&driver, "a"), None);
    driver.commit();
    assert_eq!(read(&mut driver), [1, 2]);
    assert_eq!(count_of(&driver, "a"), Some(2));
    driver.pipe(&clicks(), "a", "z");
    assert_eq!(read(&mut driver), [0; 0]);
    driver.release();
    assert_eq!(read(&mut driver), [3]);
    driver.pipe(&clicks(), "a", "z");
    assert_eq!(read(&mut driver), [4]);
}

#[test]
fn an_abort_leaves_nothing_and_its_records_come_again() {
    let mut driver = TestDriver::builder().hold().start(counting());
    driver.pipe_all(&clicks(), [("a", "x"), ("b", "y"), ("a", "z")].map(owned));
    driver.abort();
    let metrics = driver.metrics().unwrap();
    assert_eq!(metrics.totals.aborts, 1);
    assert_eq!(metrics.totals.records_in, 6);
    assert_eq!(read(&mut driver), [0; 0]);
    driver.pipe(&clicks(), "b", "w");
    driver.commit();
    assert_eq!(read(&mut driver), [1, 1, 2, 2]);

    driver.release();
    driver.abort_next();
    driver.pipe(&clicks(), "a", "x");
    assert_eq!(driver.metrics().unwrap().totals.aborts, 2);
    assert_eq!(read(&mut driver), [3]);
}

fn owned((key, value): (&str, &str)) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

#[test]
fn a_crash_leaves_nothing_of_what_was_open() {
    let mut driver = TestDriver::new(counting());
    driver.pipe(&clicks(), "a", "x");
    driver.hold();
    driver.pipe(&clicks(), "a", "y");
    driver.crash();
    assert_eq!(read(&mut driver), [1]);
    assert_eq!(count_of(&driver, "a"), Some(1));
    driver.crash_and_lose_state();
    assert_eq!(read(&mut driver), [0; 0]);
    driver.commit();
    assert_eq!(read(&mut driver), [2]);
    assert_eq!(count_of(&driver, "a"), Some(2));
    assert_eq!(driver.crashes(), 2);
}

#[test]
fn state_that_is_lost_is_restored_from_the_changelog() {
    let mut driver = TestDriver::new(counting());
    for _ in 0..5 {
        driver.pipe(&clicks(), "a", "x");
    }
    driver.crash();
    assert_eq!(driver.metrics().unwrap().totals.restored_records, 0);
    driver.crash_and_lose_state();
    assert!(driver.metrics().unwrap().totals.restored_records > 0);
    assert_eq!(count_of(&driver, "a"), Some(5));
    driver.pipe(&clicks(), "a", "x");
    assert_eq!(read(&mut driver), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn what_comes_while_the_app_is_down_waits() {
    let mut driver = TestDriver::new(counting());
    driver.kill();
    driver.pipe(&clicks(), "a", "x");
    driver.pipe(&clicks(), "a", "y");
    assert!(driver.metrics().is_none());
    driver.advance_wall_clock(Duration::from_secs(3600));
    assert_eq!(read(&mut driver), [0; 0]);
    driver.restart();
    assert_eq!(read(&mut driver), [1, 2]);
    assert_eq!(driver.crashes(), 1);
}

#[test]
fn a_crash_happens_where_it_was_ordered_and_once() {
    let places = [
        (CallSite::Begin.into(), Edge::Before),
        (CallSite::Send.into(), Edge::After),
        (CallSite::SendOffsets.into(), Edge::After),
        (CallSite::Commit.into(), Edge::Before),
        (CallSite::Commit.into(), Edge::After),
        (CrashPoint::StoreWrite, Edge::Before),
        (CrashPoint::StoreWrite, Edge::After),
    ];
    let mut driver = TestDriver::new(counting());
    for (number, (point, edge)) in (1..).zip(places) {
        driver.crash_at(point, edge);
        assert_eq!(driver.crashes(), number - 1);
        driver.pipe(&clicks(), "a", "x");
        assert_eq!(driver.crashes(), number, "{edge:?} {point:?}");
        assert_eq!(read(&mut driver), [u64::from(number)]);
    }
    driver.pipe(&clicks(), "a", "x");
    assert_eq!(driver.crashes(), 7);
}

#[test]
fn a_record_dies_in_its_middle_whether_it_has_outputs_or_not() {
    let mut app = App::new("quiet");
    app.source(&clicks())
        .filter(|click| click != "x")
        .to(&clicks_out());
    let mut driver = TestDriver::new(app);
    driver.crash_during_next_record();
    driver.pipe(&clicks(), "a", "x");
    assert_eq!(driver.crashes(), 1);
    driver.crash_during_next_record();
    driver.pipe(&clicks(), "a", "y");
    assert_eq!(driver.crashes(), 2);
    assert_eq!(driver.read_pairs(&clicks_out()), [owned(("a", "y"))]);
}

fn clicks_out() -> PlainTopic<String, String> {
    Topic::plain("clicks-out")
}

#[test]
fn tasks_move_with_their_state() {
    let mut driver = TestDriver::builder()
        .partitions("clicks", 4)
        .partitions("totals", 4)
        .start(counting());
    let keys = ["a", "b", "c", "d", "e", "f"];
    for key in keys {
        driver.pipe(&clicks(), key, "x");
    }
    driver.add_instance();
    // The first process has returned some tasks, so its count does not include all processed records.
    let before = driver.metrics().unwrap().totals.records_in;
    for key in keys {
        driver.pipe(&clicks(), key, "x");
    }
    let here = driver.metrics().unwrap().totals.records_in - before;
    assert!(
        (1..6).contains(&here),
        "{here} of 6 records were processed here"
    );
    driver.remove_instance();
    driver.rebalance();
    for key in keys {
        driver.pipe(&clicks(), key, "x");
        assert_eq!(count_of(&driver, key), Some(3));
    }
    let mut all = read(&mut driver);
    all.sort_unstable();
    assert_eq!(all, [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3]);
}

#[test]
fn what_is_open_is_committed_before_its_task_moves() {
    let mut driver = TestDriver::builder()
        .partitions("clicks", 2)
        .hold()
        .start(counting());
    driver.pipe_input(&clicks(), Input::new("a", "x").to_partition(0));
    driver.pipe_input(&clicks(), Input::new("b", "x").to_partition(1));
    assert_eq!(read(&mut driver), [0; 0]);
    driver.rebalance();
    assert_eq!(read(&mut driver), [1, 1]);
    driver.pipe_input(&clicks(), Input::new("a", "x").to_partition(0));
    driver.pipe_input(&clicks(), Input::new("b", "x").to_partition(1));
    driver.commit();
    assert_eq!(read(&mut driver), [2, 2]);
}

#[test]
fn several_processes_share_the_work_and_each_may_die() {
    let start = || {
        let mut app = counting();
        app.workers(2);
        TestDriver::builder()
            .partitions("clicks", 3)
            .instances(2)
            .start(app)
    };
    let places = crash_everywhere(start, |driver| {
        for key in ["a", "b", "c", "d"] {
            driver.pipe(&clicks(), key, "x");
            driver.pipe(&clicks(), key, "y");
        }
        driver.store(&counts()).into_map()
    });
    assert!(places > 50, "{places}");
}

#[test]
fn a_crash_in_every_place_of_a_rebalance_changes_nothing() {
    let start = || {
        TestDriver::builder()
            .partitions("clicks", 2)
            .start(counting())
    };
    let pipe_both = |driver: &mut TestDriver| {
        for (key, partition) in [("a", 0), ("b", 1)] {
            driver.pipe_input(&clicks(), Input::new(key, "x").to_partition(partition));
        }
    };
    let places = crash_everywhere(start, |driver| {
        pipe_both(driver);
        driver.add_instance();
        // One process alone would see both.
        let before = driver.metrics().unwrap().totals.records_in;
        let crashes = driver.crashes();
        pipe_both(driver);
        if driver.crashes() == crashes {
            let here = driver.metrics().unwrap().totals.records_in - before;
            assert_eq!(here, 1);
        }
        driver.remove_instance();
        pipe_both(driver);
        (driver.read(&totals()), driver.store(&counts()).into_map())
    });
    assert!(places > 100, "{places}");
}

#[test]
fn a_crash_in_every_place_of_an_abort_changes_nothing() {
    crash_everywhere(
        || TestDriver::new(counting()),
        |driver| {
            driver.pipe(&clicks(), "a", "x");
            driver.abort_next();
            driver.pipe(&clicks(), "a", "y");
            driver.pipe(&clicks(), "a", "z");
            driver.committed()
        },
    );
}

#[test]
fn at_least_once_may_write_twice_and_a_test_sees_it() {
    let app = || {
        let mut app = App::new("copy");
        app.guarantee(Guarantee::AtLeastOnce);
        app.source(&clicks()).to(&clicks_out());
        app
    };
    let mut driver = TestDriver::new(app());
    driver.pipe(&clicks(), "a", "x");
    assert_eq!(driver.read_pairs(&clicks_out()), [owned(("a", "x"))]);
    driver.hold();
    driver.pipe(&clicks(), "a", "y");
    driver.crash();
    driver.commit();
    assert_eq!(
        driver.read_pairs(&clicks_out()),
        [owned(("a", "y")), owned(("a", "y"))]
    );
}

#[test]
fn the_same_scenario_is_the_same_to_the_last_effect() {
    let run = || {
        let mut driver = TestDriver::builder()
            .partitions("clicks", 3)
            .start(counting());
        driver.pipe(&clicks(), "a", "x");
        driver.crash_at_effect(5);
        driver.pipe(&clicks(), "b", "x");
        driver.rebalance();
        driver.advance_wall_clock(Duration::from_secs(60));
        (driver.committed(), driver.effects(), driver.crashes())
    };
    let first = run();
    assert_eq!(first.2, 1);
    assert_eq!(first, run());
}

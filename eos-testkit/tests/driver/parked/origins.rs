//! Topics of origin that are missing, or refuse a letter.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use eos_core::Error;
use eos_core::errors::{PreflightError, TopicChange, TopicRole, WorkerError};
use eos_testkit::{Input, TestDriver};

use super::pairs;
use super::starts::{FIRST, SECOND, Starts, failed, letter, letter_of, program, waiting};

fn start(starts: &mut Starts) -> bool {
    let start = || starts.run(program(|replay| replay.to("clicks").until(SECOND)));
    catch_unwind(AssertUnwindSafe(start)).is_ok()
}

fn add_topic(driver: &TestDriver) {
    driver.cluster().add_topic("orders", 1).unwrap();
}

/// Pipes two letters that the second start writes: one of `orders`, which the tests delete, and one of `clicks`.
fn two_letters(starts: &mut Starts) {
    starts.pipe(letter(Some("k"), "0 1", 1_500));
    starts.pipe(letter_of("clicks", Some("k"), "7 1", 1_500));
}

/// Asserts that the replay writes each letter once.
#[track_caller]
fn assert_written_once(starts: &mut Starts, orders: &[(&str, &str)]) {
    assert_eq!(starts.read(), pairs(orders));
    let clicks = starts.read_from("clicks").into_iter();
    let clicks: Vec<_> = clicks.map(|it| (it.0, it.1)).collect();
    assert_eq!(clicks, pairs(&[("7 1", "1 record 7 1")]));
    assert!(starts.read().is_empty());
    assert!(starts.driver.store(&waiting()).is_empty());
}

#[test]
fn a_start_without_a_topic_of_origin_names_it_and_keeps_all_letters() {
    let mut starts = Starts::new(|replay| replay.to("clicks").until(FIRST));
    two_letters(&mut starts);
    starts.driver.kill();
    starts.driver.cluster().delete_topic("orders").unwrap();
    starts.pipe(letter(Some("k"), "0 2", 1_500));
    for _ in 0..2 {
        assert!(!start(&mut starts));
        assert_missing(&starts.driver);
    }
    add_topic(&starts.driver);
    assert!(start(&mut starts));
    let both = [("0 1", "1 record 0 1"), ("0 2", "1 record 0 2")];
    assert_written_once(&mut starts, &both);
}

#[track_caller]
fn assert_missing(driver: &TestDriver) {
    match driver.error() {
        Some(Error::Preflight(PreflightError::MissingTopics { topics, .. })) => {
            let names: Vec<_> = topics.iter().map(|it| it.name.as_str()).collect();
            assert_eq!(names, ["orders"]);
        }
        other => panic!("expected the error for a missing topic, got {other:?}"),
    }
}

#[track_caller]
fn assert_deleted(driver: &TestDriver) {
    match driver.error() {
        Some(Error::Worker(WorkerError::TopicChanged(it))) => {
            assert_eq!((it.topic.as_str(), it.role), ("orders", TopicRole::Output));
            assert!(matches!(it.change, TopicChange::Deleted { .. }));
        }
        other => panic!("expected the error for a deleted topic, got {other:?}"),
    }
}

/// The first start writes none of these letters. Only the periodic check of the topics finds that `orders` is deleted.
#[test]
fn a_topic_of_origin_that_is_deleted_stops_the_replay_and_keeps_all_letters() {
    let mut starts = Starts::new(|replay| replay.to("clicks").until(FIRST));
    two_letters(&mut starts);
    starts.driver.delete_topic("orders").unwrap_err();
    assert_deleted(&starts.driver);
    assert!(!start(&mut starts));
    assert_missing(&starts.driver);
    add_topic(&starts.driver);
    assert!(start(&mut starts));
    assert_written_once(&mut starts, &[("0 1", "1 record 0 1")]);
}

/// The next round writes to the deleted topic, together with the letter of another topic.
#[test]
fn a_round_that_writes_to_a_deleted_topic_keeps_all_its_letters() {
    let mut starts = Starts::new(|replay| replay.to("clicks").until(SECOND));
    starts.driver.hold();
    two_letters(&mut starts);
    starts.driver.cluster().delete_topic("orders").unwrap();
    let write = || {
        starts.driver.release();
        starts.driver.advance_wall_clock(Duration::from_secs(60));
    };
    assert!(catch_unwind(AssertUnwindSafe(write)).is_err());
    assert_deleted(&starts.driver);
    add_topic(&starts.driver);
    assert!(start(&mut starts));
    assert_written_once(&mut starts, &[("0 1", "1 record 0 1")]);
}

/// Sets the largest record of `orders`, and starts again.
fn start_with_limit(starts: &mut Starts, bytes: &str) {
    let cluster = starts.driver.cluster();
    let set = cluster.broker(|it| it.configure_topic("orders", "max.message.bytes", bytes));
    set.unwrap();
    starts.run(program(|replay| {
        replay.discard("orders", "k", 1).until(SECOND)
    }));
}

/// A round that reads a large letter again must not write the discard of the lost letter again.
#[test]
fn the_discard_before_a_letter_that_is_too_large_is_written_with_it() {
    let mut starts = Starts::new(|replay| replay.until(FIRST));
    start_with_limit(&mut starts, "1000");
    let value = "v".repeat(950);
    let large = Input::raw(Some(b"k"), Some(value.as_bytes()));
    starts.pipe(failed(large, "orders", "0 2", 1_500));
    assert!(starts.read().is_empty());
    starts.pipe(letter(Some("k"), "0 3", 1_500));
    assert!(starts.read().is_empty());
    start_with_limit(&mut starts, "2000");
    let all = [
        (&*value, "1 discard 0 1"),
        (&*value, "1 record 0 2"),
        ("0 3", "1 record 0 3"),
    ];
    assert_eq!(starts.read(), pairs(&all));
}

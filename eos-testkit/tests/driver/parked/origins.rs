//! Topics of origin that are missing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use eos_core::Error;
use eos_core::errors::{PreflightError, TopicChange, TopicRole, WorkerError};
use eos_testkit::TestDriver;

use super::pairs;
use super::starts::{FIRST, SECOND, Starts, letter, letter_of, program, waiting};

fn start(starts: &mut Starts) -> bool {
    let start = || starts.run(program(|replay| replay.to("clicks").until(SECOND)));
    catch_unwind(AssertUnwindSafe(start)).is_ok()
}

fn add_topic(driver: &TestDriver) {
    driver.cluster().add_topic("orders", 1).unwrap();
}

/// Two letters of the later start: of the topic that is deleted, and of another one.
fn two_letters(starts: &mut Starts) {
    starts.pipe(letter(Some("k"), "0 1", 1_500));
    starts.pipe(letter_of("clicks", Some("k"), "7 1", 1_500));
}

/// Whether the letters are written once, after those of `orders`.
#[track_caller]
fn are_written_once(starts: &mut Starts, orders: &[(&str, &str)]) {
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
        match starts.driver.error() {
            Some(Error::Preflight(PreflightError::MissingTopics { topics, .. })) => {
                let names: Vec<_> = topics.iter().map(|it| it.name.as_str()).collect();
                assert_eq!(names, ["orders"]);
            }
            other => panic!("no missing topic: {other:?}"),
        }
    }
    add_topic(&starts.driver);
    assert!(start(&mut starts));
    let both = [("0 1", "1 record 0 1"), ("0 2", "1 record 0 2")];
    are_written_once(&mut starts, &both);
}

#[track_caller]
fn is_deleted(driver: &TestDriver) {
    match driver.error() {
        Some(Error::Worker(WorkerError::TopicChanged(it))) => {
            assert_eq!((it.topic.as_str(), it.role), ("orders", TopicRole::Output));
            assert!(matches!(it.change, TopicChange::Deleted { .. }));
        }
        other => panic!("no topic is the reason: {other:?}"),
    }
}

/// The letters wait for another start, so only the comparison of the topics notices it.
#[test]
fn a_topic_of_origin_that_is_deleted_stops_the_replay_and_keeps_all_letters() {
    let mut starts = Starts::new(|replay| replay.to("clicks").until(FIRST));
    two_letters(&mut starts);
    starts.driver.delete_topic("orders").unwrap_err();
    is_deleted(&starts.driver);
    assert!(!start(&mut starts));
    add_topic(&starts.driver);
    assert!(start(&mut starts));
    are_written_once(&mut starts, &[("0 1", "1 record 0 1")]);
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
    is_deleted(&starts.driver);
    add_topic(&starts.driver);
    assert!(start(&mut starts));
    are_written_once(&mut starts, &[("0 1", "1 record 0 1")]);
}

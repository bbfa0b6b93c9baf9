//! Joins by a foreign key: left rows that keep the value of their right row.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use eos_core::run::Resume;
use eos_core::spi::replay::replayed;
use eos_core::{App, ErrorPolicy, Headers, KeyValueStore, Timestamp, Topic};
use eos_testkit::TestDriver;
use eos_testkit::client::Written;
use eos_testkit::driver::OutputRecord;

use super::foreign::{inner_by, join, key_of, results};
use super::{pipe, rows, table};

/// Returns the numbers of subscriptions and of responses since the last call.
pub(super) fn messages(driver: &mut TestDriver) -> (usize, usize) {
    let mut read = |name: &str| {
        let topic = Topic::<Vec<u8>, Option<Vec<u8>>>::plain(name);
        driver.read_pairs(&topic).len()
    };
    (read("a-join-subscriptions"), read("a-join-answers"))
}

/// An inner join with one result: the left row `k` has the foreign key `a`, and keeps its value `A`.
fn joined_once() -> TestDriver {
    let mut app = App::new("a");
    inner_by(&mut app, &join());
    let mut driver = TestDriver::new(app);
    pipe(&mut driver, ("right", "a", Some("A")));
    pipe(&mut driver, ("left", "k", Some("a=1")));
    driver
}

#[test]
fn an_update_with_the_same_foreign_key_needs_no_answer() {
    for (most, asks) in [(512, 0), (1, 0), (0, 1)] {
        let mut app = App::new("a");
        inner_by(&mut app, &join().keep_right(most));
        let mut driver = TestDriver::new(app);
        pipe(&mut driver, ("right", "a", Some("A")));
        pipe(&mut driver, ("left", "k", Some("a=1")));
        assert_eq!(messages(&mut driver), (1, 1));
        pipe(&mut driver, ("left", "k", Some("a=2")));
        assert_eq!(messages(&mut driver), (asks, asks), "{most}");
        // An update of the right row still reaches the left one, and replaces the value that it keeps.
        pipe(&mut driver, ("right", "a", Some("B")));
        pipe(&mut driver, ("left", "k", Some("a=3")));
        assert_eq!(messages(&mut driver), (asks, 1 + asks), "{most}");
        // A long value is not kept.
        pipe(&mut driver, ("right", "a", Some("CC")));
        pipe(&mut driver, ("left", "k", Some("a=4")));
        let asks = usize::from(most < 2);
        assert_eq!(messages(&mut driver), (asks, 1 + asks), "{most}");
        // The left row also keeps a deletion. Without a result, no response is needed.
        pipe(&mut driver, ("right", "a", None));
        pipe(&mut driver, ("left", "k", Some("a=5")));
        let asks = usize::from(most == 0);
        assert_eq!(messages(&mut driver), (asks, 1), "{most}");
        let expected = ["a=1+A", "a=2+A", "a=2+B", "a=3+B", "a=3+CC", "a=4+CC"];
        let expected = expected.map(|it| Some(it.to_owned()));
        let found = results(&mut driver).remove("k").unwrap();
        assert_eq!(found, [&expected[..], &[None]].concat(), "{most}");
    }
}

/// The result that can't be created.
const REFUSED: &str = "a=1+B";

/// The cause for which the result can't be created.
#[derive(Debug, Clone, Copy)]
enum Cause {
    Panic,
    /// The brokers reject the output, so the response aborts its transactions.
    Abort,
}

fn refusing(policy: ErrorPolicy, cause: Cause) -> TestDriver {
    let mut app = App::new("a");
    let (left, right) = (table(&mut app, "left"), table(&mut app, "right"));
    left.join_by(&right, &join(), key_of, move |left, right| {
        let both = format!("{left}+{right}");
        match cause {
            Cause::Panic => assert_ne!(both, REFUSED),
            Cause::Abort if both == REFUSED => return "x".repeat(3_000),
            Cause::Abort => {}
        }
        both
    })
    .on_error(policy)
    .to(&rows("out"));
    let driver = TestDriver::new(app);
    // The worker knows the limit of its start.
    let limit = ("out", "max.message.bytes", "2000");
    let set = (driver.cluster()).broker(|it| it.configure_topic(limit.0, limit.1, limit.2));
    set.unwrap();
    driver
}

/// The policy drops a response with a new right value, so the value that the left row keeps is outdated.
#[test]
fn a_left_row_subscribes_again_after_its_answer_is_given_up() {
    let letters = || ErrorPolicy::dead_letter("letters");
    let policies: [(ErrorPolicy, Option<Resume>); 4] = [
        (ErrorPolicy::skip(), None),
        (letters(), None),
        (ErrorPolicy::pause().into(), Some(Resume::Skip)),
        (
            ErrorPolicy::pause().dead_letters_to("letters").into(),
            Some(Resume::DeadLetter),
        ),
    ];
    for (policy, resume) in policies {
        for cause in [Cause::Panic, Cause::Abort] {
            let name = format!("{policy:?} {cause:?}");
            let mut driver = refusing(policy.clone(), cause);
            pipe(&mut driver, ("right", "a", Some("A")));
            pipe(&mut driver, ("left", "k", Some("a=1")));
            pipe(&mut driver, ("right", "a", Some("B")));
            if let Some(resume) = resume {
                let paused = driver.paused();
                driver.resume(paused[0].id, resume).unwrap();
            }
            pipe(&mut driver, ("left", "k", Some("a=2")));
            let found = results(&mut driver).remove("k").unwrap();
            let expected = ["a=1+A", "a=2+B"].map(|it| Some(it.to_owned()));
            assert_eq!(found, expected, "{name}");
        }
    }
}

/// The second update arrives before the response to the first one, which refers to another right row than before.
#[test]
fn the_value_of_a_former_right_row_is_not_used() {
    let mut driver = joined_once();
    pipe(&mut driver, ("right", "b", Some("B")));
    driver.hold();
    pipe(&mut driver, ("left", "k", Some("b=2")));
    pipe(&mut driver, ("left", "k", Some("b=3")));
    driver.release();
    let found = results(&mut driver).remove("k").unwrap();
    let expected = ["a=1+A", "b=3+B"].map(|it| Some(it.to_owned()));
    assert_eq!(found, expected);
}

/// The right row is deleted before the join has a result. The left row keeps the deletion, so its next update needs no
/// response.
#[test]
fn a_deleted_right_row_is_known_without_a_result() {
    let mut driver = refusing(ErrorPolicy::skip(), Cause::Panic);
    pipe(&mut driver, ("right", "a", Some("B")));
    pipe(&mut driver, ("left", "k", Some("a=1")));
    pipe(&mut driver, ("right", "a", None));
    assert_eq!(messages(&mut driver), (1, 2));
    pipe(&mut driver, ("left", "k", Some("a=2")));
    assert_eq!(messages(&mut driver), (0, 0));
    pipe(&mut driver, ("right", "a", Some("C")));
    let found = results(&mut driver).remove("k").unwrap();
    assert_eq!(found, [Some("a=2+C".to_owned())]);
}

/// A later response has arrived before the letter.
#[test]
fn a_left_row_does_not_keep_the_value_of_a_replayed_answer() {
    // The letter is replayed by another program with the headers of the letter, and by `App::replay`.
    replay_an_answer(|letter| letter.headers.clone());
    replay_an_answer(|letter| {
        let headers = letter.headers.clone();
        let (partition, headers) =
            replayed(Some(&letter.key), Some(&letter.value), headers).unwrap();
        assert_eq!(partition, 0);
        headers
    });
}

fn replay_an_answer(headers: impl Fn(&OutputRecord<Vec<u8>, Vec<u8>>) -> Headers) {
    let mut driver = refusing(ErrorPolicy::dead_letter("letters"), Cause::Panic);
    pipe(&mut driver, ("right", "a", Some("A")));
    pipe(&mut driver, ("left", "k", Some("a=1")));
    pipe(&mut driver, ("right", "a", Some("B")));
    pipe(&mut driver, ("right", "a", Some("C")));
    pipe(&mut driver, ("left", "k", Some("a=2")));
    let letter = driver.read_one(&Topic::<Vec<u8>, Vec<u8>>::plain("letters"));
    let headers = headers(&letter);
    let headers: Vec<_> = headers
        .iter()
        .map(|header| (header.name(), header.value().unwrap_or_default()))
        .collect();
    let again = Written {
        timestamp: 0,
        key: Some(&letter.key),
        value: Some(&letter.value),
        headers: &headers,
    };
    let written = driver.cluster().produce("a-join-answers", 0, &again);
    written.unwrap();
    // The next record runs the app.
    pipe(&mut driver, ("left", "l", Some("=0")));
    pipe(&mut driver, ("left", "k", Some("a=3")));
    let found = results(&mut driver).remove("k").unwrap();
    let expected = ["a=1+A", "a=1+C", "a=2+C", "a=2+B", "a=3+C"];
    assert_eq!(found, expected.map(|it| Some(it.to_owned())));
}

/// A new program reads other left rows. A response without its left row is kept, too.
#[test]
fn an_answer_is_kept_while_its_left_row_is_filtered_out() {
    let is_out = Arc::new(AtomicBool::new(false));
    let mut app = App::new("a");
    let (left, right) = (table(&mut app, "left"), table(&mut app, "right"));
    let filter = Arc::clone(&is_out);
    left.filter(move |_| !filter.load(Ordering::Relaxed))
        .join_by(&right, &join(), key_of, |left, right| {
            format!("{left}+{right}")
        })
        .to(&rows("out"));
    let mut driver = TestDriver::new(app);
    pipe(&mut driver, ("right", "a", Some("A")));
    pipe(&mut driver, ("left", "k", Some("a=1")));
    is_out.store(true, Ordering::Relaxed);
    pipe(&mut driver, ("right", "a", Some("B")));
    is_out.store(false, Ordering::Relaxed);
    pipe(&mut driver, ("left", "k", Some("a=2")));
    let found = results(&mut driver).remove("k").unwrap();
    let expected = ["a=1+A", "a=2+B"].map(|it| Some(it.to_owned()));
    assert_eq!(found, expected);
}

/// No response would replace a value that closures of an earlier version of the app have computed.
#[test]
fn a_value_of_a_computed_right_table_is_not_kept() {
    for is_stored in [false, true] {
        let is_out = Arc::new(AtomicBool::new(false));
        let mut app = App::new("a");
        let (left, right) = (table(&mut app, "left"), table(&mut app, "right"));
        let filter = Arc::clone(&is_out);
        let right = right.filter(move |_| !filter.load(Ordering::Relaxed));
        let right = match is_stored {
            true => right.stored(&KeyValueStore::plain("filtered")),
            false => right,
        };
        left.join_by(&right, &join(), key_of, |left, right| {
            format!("{left}+{right}")
        })
        .to(&rows("out"));
        let mut driver = TestDriver::new(app);
        pipe(&mut driver, ("right", "a", Some("A")));
        pipe(&mut driver, ("left", "k", Some("a=1")));
        // The new version of the app.
        is_out.store(true, Ordering::Relaxed);
        pipe(&mut driver, ("left", "k", Some("a=2")));
        pipe(&mut driver, ("right", "a", Some("B")));
        pipe(&mut driver, ("left", "k", Some("a=3")));
        let found = results(&mut driver).remove("k").unwrap();
        let expected: &[Option<&str>] = match is_stored {
            false => &[Some("a=1+A"), None],
            // The table still has the stored row.
            true => &[Some("a=1+A"), Some("a=2+A"), Some("a=3+A")],
        };
        let found: Vec<_> = found.iter().map(Option::as_deref).collect();
        assert_eq!(found, expected, "{is_stored}");
    }
}

/// The producer would give a response without a timestamp the current time.
#[test]
fn a_result_has_the_left_time_if_the_right_row_has_none() {
    let mut app = App::new("a");
    inner_by(&mut app, &join());
    let mut driver = TestDriver::new(app);
    let at = |driver: &mut TestDriver, (topic, key, value): (&str, &str, Option<&str>), time| {
        let value = value.map(str::to_owned);
        driver.pipe_at(&rows(topic), key, value, Timestamp(time));
    };
    at(&mut driver, ("right", "a", Some("A")), -1);
    at(&mut driver, ("left", "k", Some("a=1")), 6_000);
    at(&mut driver, ("left", "k", Some("a=2")), 5_000);
    at(&mut driver, ("right", "a", Some("B")), -1);
    at(&mut driver, ("left", "k", Some("a=3")), 7_000);
    at(&mut driver, ("right", "a", None), -1);
    let read = driver.read(&rows("out"));
    let times: Vec<_> = read.iter().map(|record| record.timestamp).collect();
    let expected = [6_000, 5_000, 5_000, 7_000, 7_000];
    assert_eq!(times, expected.map(Timestamp));
}

/// A response about a row that was a dead letter, or the replay of one, is a new record.
#[test]
fn a_replayed_right_row_is_kept() {
    let mut driver = joined_once();
    for header in ["eos-replay", "__streams.errors.exception"] {
        let replayed = Written {
            timestamp: 0,
            key: Some(b"a"),
            value: Some(b"B"),
            headers: &[(header, b"1")],
        };
        let written = driver.cluster().produce("right", 0, &replayed);
        written.unwrap();
        pipe(&mut driver, ("left", "l", Some("=0")));
        messages(&mut driver);
        pipe(&mut driver, ("left", "k", Some("a=2")));
        assert_eq!(messages(&mut driver), (0, 0), "{header}");
    }
    let found = results(&mut driver).remove("k").unwrap();
    assert_eq!(found.last().unwrap().as_deref(), Some("a=2+B"));
}

/// An inner join stores nothing for a left row without a foreign key.
#[test]
fn a_row_without_a_foreign_key_is_one_change() {
    let mut app = App::new("a");
    inner_by(&mut app, &join());
    let mut driver = TestDriver::new(app);
    pipe(&mut driver, ("left", "k", Some("=1")));
    let end = |driver: &TestDriver| driver.cluster().ends("a-join-answers-changelog", 0).1;
    let before = end(&driver);
    pipe(&mut driver, ("left", "k", Some("=2")));
    // The left row, the commit record and the marker of the transaction.
    assert_eq!(end(&driver) - before, 3);
}

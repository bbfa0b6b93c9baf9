//! Joins by a foreign key with rows that can't be read, keys without a partition, and updates of many or large rows.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use eos_core::codec::{CodecError, Decode, Encode, Encoded, Field, Json, Plain};
use eos_core::state::ForeignJoin;
use eos_core::{App, Backoff, ErrorPolicy, KeyValueStore, PlainTopic, Topic};
use eos_testkit::client::Written;
use eos_testkit::{Input, TestDriver};

use super::foreign::{inner, inner_by, join, key_of, results};
use super::foreign_known::messages;
use super::{pipe, rows, table};

/// Plain text that can't be read while it is broken.
#[derive(Clone, Default)]
struct Breaking {
    is_broken: Arc<AtomicBool>,
    /// The next read fails, because the codec is not available.
    is_away: Arc<AtomicBool>,
    /// The number of reads so far.
    reads: Arc<AtomicUsize>,
}

impl Breaking {
    fn set(&self, is_broken: bool) {
        self.is_broken.store(is_broken, Ordering::Relaxed);
    }
}

impl Decode<String> for Breaking {
    fn decode(&self, bytes: Option<&[u8]>, field: &Field<'_>) -> Result<String, CodecError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if self.is_away.swap(false, Ordering::Relaxed) {
            return Err(CodecError::unavailable("the registry is down"));
        }
        if self.is_broken.load(Ordering::Relaxed) {
            return Err(CodecError::invalid("a row", "it is broken"));
        }
        Plain.decode(bytes, field)
    }
}

impl Encode<String> for Breaking {
    fn encode(
        &self,
        value: &String,
        into: &mut Vec<u8>,
        field: &Field<'_>,
    ) -> Result<Encoded, CodecError> {
        Plain.encode(value, into, field)
    }
}

/// The codecs of a join that may break.
#[derive(Clone, Default)]
struct Codecs {
    left: Breaking,
    right: Breaking,
    foreign: Breaking,
    result: Breaking,
}

/// A left row keeps a right value that another codec wrote. Its next update subscribes again.
#[test]
fn a_left_row_with_an_unreadable_right_value_subscribes_again() {
    let right_of_join = Breaking::default();
    let mut app = App::new("a");
    app.on_error(ErrorPolicy::skip());
    let (left, right) = (table(&mut app, "left"), table(&mut app, "right"));
    let join = ForeignJoin::with("join", Plain, Plain, right_of_join.clone(), Plain);
    left.join_by(&right, &join, key_of, |left, right| {
        format!("{left}+{right}")
    })
    .to(&rows("out"));
    let mut driver = TestDriver::new(app);
    pipe(&mut driver, ("right", "a", Some("A")));
    pipe(&mut driver, ("left", "k", Some("a=1")));
    // The response is unreadable, too, and is skipped.
    right_of_join.set(true);
    assert_eq!(messages(&mut driver), (1, 1));
    pipe(&mut driver, ("left", "k", Some("a=2")));
    right_of_join.set(false);
    pipe(&mut driver, ("left", "k", Some("a=3")));
    assert_eq!(messages(&mut driver), (2, 2));
    // The codec is not available for one read, and the policy skips the record.
    right_of_join.is_away.store(true, Ordering::Relaxed);
    pipe(&mut driver, ("left", "k", Some("a=4")));
    pipe(&mut driver, ("left", "k", Some("a=5")));
    let found = results(&mut driver).remove("k").unwrap();
    let expected = ["a=1+A", "a=3+A", "a=5+A"].map(|it| Some(it.to_owned()));
    assert_eq!(found, expected);
}

/// An app that skips each record that fails.
fn skipping(codecs: &Codecs) -> App {
    joining(codecs, ErrorPolicy::skip())
}

fn joining(codecs: &Codecs, policy: ErrorPolicy) -> App {
    let mut app = App::new("a");
    app.on_error(policy);
    let codecs = codecs.clone();
    let left = app.table(
        &rows("left"),
        &KeyValueStore::with("left", Plain, codecs.left),
    );
    let right = app.table(
        &rows("right"),
        &KeyValueStore::with("right", Plain, codecs.right),
    );
    let join = ForeignJoin::with("join", Plain, codecs.foreign, Plain, codecs.result);
    // The filter reads the result before an update.
    left.join_by(&right, &join.at_once(2), key_of, |left, right| {
        format!("{left}+{right}")
    })
    .filter(|_| true)
    .to(&rows("out"));
    app
}

type Part = fn(&Codecs) -> &Breaking;
type Update = (&'static str, &'static str, Option<&'static str>);

/// The store whose codec fails, the codec, an update that needs it, and the last result of its row.
const CASES: [(&str, Part, Update, &str); 6] = [
    // An update that has not reached all rows.
    ("right", |it| &it.right, ("right", "a", Some("B")), "a=9+B"),
    ("join", |it| &it.foreign, ("right", "a", Some("B")), "a=9+B"),
    // A subscription.
    (
        "right",
        |it| &it.right,
        ("left", "k9", Some("b=9")),
        "b=9+b",
    ),
    // The end of a subscription.
    (
        "join",
        |it| &it.foreign,
        ("left", "k9", Some("b=9")),
        "b=9+b",
    ),
    // A response.
    ("left", |it| &it.left, ("right", "b", Some("B")), "b=8+B"),
    ("join", |it| &it.result, ("right", "b", Some("B")), "b=8+B"),
];

/// Ten rows that refer to one of two others.
fn fill(driver: &mut TestDriver) {
    pipe(driver, ("right", "b", Some("b")));
    pipe(driver, ("left", "k8", Some("b=8")));
    for row in 0..10 {
        let (key, value) = (format!("k{row}"), format!("a={row}"));
        if row != 8 {
            pipe(driver, ("left", &key, Some(&value)));
        }
    }
}

/// The last result of the row that a case updates.
fn last_result(driver: &mut TestDriver, expected: &str) -> Option<String> {
    let row = if expected.contains("=8") { "k8" } else { "k9" };
    let found = results(driver);
    found.get(row).and_then(|it| it.last().cloned()).flatten()
}

/// A row that can't be read stops the worker, although the policy skips failed records, because a result would miss an
/// update. When the row can be read again, no update is missing.
#[test]
fn an_unreadable_row_stops_the_worker_whatever_the_policy() {
    for (name, part, update, expected) in CASES {
        let codecs = Codecs::default();
        let app = codecs.clone();
        let mut driver = TestDriver::of(move || skipping(&app));
        fill(&mut driver);
        let broken = part(&codecs);
        broken.set(true);
        let (topic, key, value) = update;
        let input = Input::new(key, value.map(str::to_owned));
        let piped = driver.try_pipe(&rows(topic), input);
        let error = piped.expect_err("the worker went on").to_string();
        for part in [&*format!("a row of the store {name}"), "it is broken"] {
            assert!(error.contains(part), "{name} {update:?}: {error}");
        }
        broken.set(false);
        driver.restart();
        let last = last_result(&mut driver, expected);
        assert_eq!(last.as_deref(), Some(expected), "{name} {update:?}");
    }
}

/// A codec that is not available for a while is not an unreadable row. The record is tried again.
#[test]
fn a_codec_that_is_not_available_is_retried() {
    for (name, part, (topic, key, value), expected) in CASES {
        let codecs = Codecs::default();
        let second = Backoff::fixed(Duration::from_secs(1));
        let policy = ErrorPolicy::retry(3, second).then(ErrorPolicy::fail());
        let mut driver = TestDriver::new(joining(&codecs, policy));
        fill(&mut driver);
        part(&codecs).is_away.store(true, Ordering::Relaxed);
        pipe(&mut driver, (topic, key, value));
        // A retried item of background work runs in a later step.
        driver.advance_wall_clock(Duration::from_secs(2));
        let last = last_result(&mut driver, expected);
        assert_eq!(last.as_deref(), Some(expected), "{name} {key}");
        assert!(!part(&codecs).is_away.load(Ordering::Relaxed));
        assert_eq!(driver.metrics().unwrap().totals.retried, 1, "{name} {key}");
    }
}

/// The rows that an update has not reached yet would keep their old results.
#[test]
fn no_error_policy_skips_an_update_that_has_not_reached_all_rows() {
    for (name, part, (topic, key, value), expected) in &CASES[..2] {
        let codecs = Codecs::default();
        let app = codecs.clone();
        let mut driver = TestDriver::of(move || skipping(&app));
        fill(&mut driver);
        part(&codecs).is_away.store(true, Ordering::Relaxed);
        let input = Input::new(*key, value.map(str::to_owned));
        let piped = driver.try_pipe(&rows(topic), input);
        let error = piped.expect_err("the worker went on").to_string();
        for part in ["the registry is down", "still wait for this update"] {
            assert!(error.contains(part), "{name}: {error}");
        }
        driver.restart();
        let last = last_result(&mut driver, expected);
        assert_eq!(last.as_deref(), Some(*expected), "{name}");
        assert_eq!(driver.metrics().unwrap().totals.skipped, 0, "{name}");
    }
}

fn numbers_with(partitioner: Option<u32>) -> (TestDriver, PlainTopic<u64, Option<String>>) {
    let mut numbers = Topic::<u64, Option<String>>::plain("numbers");
    if let Some(chosen) = partitioner {
        numbers = numbers.partition_by("fixed", move |_, _| chosen);
    }
    let mut app = App::new("a");
    let right = app.table(&numbers, &KeyValueStore::plain("numbers"));
    let join = ForeignJoin::<String, u64, String, String>::with("join", Plain, Json, Plain, Plain);
    table(&mut app, "left")
        .on_error(ErrorPolicy::fail())
        .join_by(&right, &join, |_| Some(7), |left, _| left.clone())
        .to(&rows("out"));
    (TestDriver::new(app), numbers)
}

/// KAFKA-10049: a foreign key in another codec would be in another partition, and its row would never be found.
#[test]
fn a_foreign_key_without_a_partition_is_an_error_with_its_fix() {
    for (partitioner, parts) in [
        (
            None,
            [
                "the foreign key \"7\" of the join join has other bytes",
                "in the topic numbers",
                "Pass the codec of that topic's keys to `ForeignJoin::with`",
            ],
        ),
        (
            Some(3),
            [
                "the partitioner of the topic numbers returned 3",
                "the foreign key \"7\" of the join join, but the topic has 1 partitions",
                "Return a smaller number",
            ],
        ),
    ] {
        let (mut driver, _) = numbers_with(partitioner);
        let piped = driver.try_pipe(&rows("left"), Input::new("k", Some("v".to_owned())));
        let text = format!("{:?} {:?}", piped, driver.error().map(ToString::to_string));
        for part in parts {
            let escaped = part.replace('"', "\\\"");
            assert!(text.contains(part) || text.contains(&escaped), "{text}");
        }
    }
}

/// Ten rows of 300 KiB are more than one unit of work may send, although they are few.
#[test]
fn large_answers_are_background_work_too() {
    let mut app = App::new("a");
    inner(&mut app);
    let mut driver = TestDriver::new(app);
    for row in 0..10 {
        let (key, value) = (format!("k{row}"), format!("a={row}"));
        pipe(&mut driver, ("left", &key, Some(&value)));
    }
    let large = "x".repeat(300 << 10);
    let update = |value: &str| Input::new("a", Some(format!("{value}{large}")));
    driver.pipe_all(&rows("right"), [update("A"), update("B")]);
    let (mut with_both, mut with_one) = (0, 0);
    for results in results(&mut driver).values() {
        let ends = |it: &Option<String>, with: &str| {
            let value = it.as_deref().and_then(|it| it.split('+').nth(1));
            value.is_some_and(|value| value.starts_with(with))
        };
        assert!(results.last().is_some_and(|it| ends(it, "B")));
        match results.iter().any(|it| ends(it, "A")) {
            true => with_both += 1,
            false => with_one += 1,
        }
    }
    assert_eq!(with_both + with_one, 10);
    assert!(with_one > 0, "the second update came in the middle");
}

/// There is one update of the right row for each row that the previous update has reached. Each update continues at the
/// place of the previous one.
#[test]
fn frequent_updates_reach_the_last_rows() {
    let mut app = App::new("a");
    let (left, right) = (table(&mut app, "left"), table(&mut app, "right"));
    left.join_by(
        &right,
        &ForeignJoin::plain("join").at_once(1),
        key_of,
        |left, right| format!("{left}+{right}"),
    )
    .to(&rows("out"));
    let mut driver = TestDriver::new(app);
    for row in 0..10 {
        let (key, value) = (format!("k{row}"), format!("a={row}"));
        pipe(&mut driver, ("left", &key, Some(&value)));
    }
    let update = |n: usize| Input::new("a", Some(n.to_string()));
    driver.pipe_all(&rows("right"), (0..40).map(update).collect::<Vec<_>>());
    let found = results(&mut driver);
    for row in 0..10 {
        let results = &found[&format!("k{row}")];
        let last = Some(format!("a={row}+39"));
        assert_eq!(results.last(), Some(&last));
        assert!(results.len() > 2, "{row}: {results:?}");
    }
}

/// An update of a customer with many orders reaches all of them, in more than one transaction. A row of another
/// customer does not wait for them. `EOS_FULL=1` has a million orders.
#[test]
fn an_update_of_a_customer_reaches_all_orders() {
    let orders = match std::env::var_os("EOS_FULL") {
        Some(_) => 1_000_000,
        None => 20_000,
    };
    let mut app = App::new("a");
    inner(&mut app);
    let mut driver = TestDriver::new(app);
    for part in (0..orders).step_by(10_000) {
        let order = |n: usize| Input::new(format!("order {n}"), Some(format!("a={n}")));
        driver.pipe_all(&rows("left"), (part..part + 10_000).map(order));
    }
    pipe(&mut driver, ("left", "other", Some("b=0")));
    pipe(&mut driver, ("right", "b", Some("B")));
    assert_eq!(driver.read_pairs(&rows("out")).len(), 1);
    for update in ["first", "second"] {
        let records = [("a", update), ("b", update)];
        let records = records.map(|(key, value)| Input::new(key, Some(value.to_owned())));
        let commits = |driver: &TestDriver| driver.metrics().unwrap().totals.commits.total();
        let before = commits(&driver);
        driver.pipe_all(&rows("right"), records);
        let results = driver.read_pairs(&rows("out"));
        let other = results.iter().position(|(key, _)| key == "other").unwrap();
        assert!(other < 15_000, "{update}: {other}");
        let reached: BTreeSet<_> = results.iter().map(|(key, _)| key).collect();
        assert_eq!((results.len(), reached.len()), (orders + 1, orders + 1));
        let is_new = |value: &Option<String>| value.as_ref().is_some_and(|it| it.ends_with(update));
        assert!(results.iter().all(|(_, value)| is_new(value)));
        assert!(
            commits(&driver) > before + 1,
            "one transaction is too large"
        );
    }
}

/// If the join did not read the kept subscriber, the replay would replace it, and the left task would ignore all later
/// responses.
#[test]
fn a_replayed_subscription_does_not_replace_a_later_one() {
    for header in ["eos-replay", "eos-replay-for", "__streams.errors.exception"] {
        let mut app = App::new("a");
        inner_by(&mut app, &join().keep_right(0));
        let mut driver = TestDriver::new(app);
        pipe(&mut driver, ("right", "a", Some("A")));
        pipe(&mut driver, ("left", "k", Some("a=1")));
        let subscriptions = Topic::<Vec<u8>, Vec<u8>>::plain("a-join-subscriptions");
        let first = driver.read_one(&subscriptions);
        pipe(&mut driver, ("left", "k", Some("a=2")));
        let replay = Written {
            timestamp: 0,
            key: Some(&first.key),
            value: Some(&first.value),
            headers: &[(header, b"1")],
        };
        let written = (driver.cluster()).produce("a-join-subscriptions", 0, &replay);
        written.unwrap();
        pipe(&mut driver, ("right", "a", Some("B")));
        let found = results(&mut driver).remove("k").unwrap();
        let expected = ["a=1+A", "a=2+A", "a=2+B"].map(|it| Some(it.to_owned()));
        assert_eq!(found, expected, "{header}");
    }
}

/// A join by a foreign key does not need the rows before updates of either table. Steps that need these rows get them.
#[test]
fn old_rows_are_not_read_if_no_step_needs_them() {
    for is_needed in [false, true] {
        let (left_codec, right_codec) = (Breaking::default(), Breaking::default());
        let mut app = App::new("a");
        let mut table = |name: &str, codec: &Breaking| {
            let store = KeyValueStore::with(name, Plain, codec.clone());
            app.table(&rows(name), &store)
        };
        let (left, right) = (table("left", &left_codec), table("right", &right_codec));
        if is_needed {
            let low = |table: &eos_core::Table<String, String>| {
                let low = table.clone().filter(|value| value.contains('1'));
                low.to(&rows("low"));
            };
            low(&left);
            low(&right);
        }
        left.join_by(&right, &join(), key_of, |left, right| {
            format!("{left}+{right}")
        })
        .to(&rows("out"));
        let mut driver = TestDriver::new(app);
        pipe(&mut driver, ("right", "a", Some("A1")));
        pipe(&mut driver, ("left", "k", Some("a=1")));
        let updates = [
            ("left", Some("a=2"), &left_codec),
            ("left", None, &left_codec),
            ("right", Some("A2"), &right_codec),
            ("right", None, &right_codec),
        ];
        for (topic, value, codec) in updates {
            let before = codec.reads.load(Ordering::Relaxed);
            let key = if topic == "left" { "k" } else { "a" };
            pipe(&mut driver, (topic, key, value));
            let reads = codec.reads.load(Ordering::Relaxed) - before;
            assert_eq!(reads, usize::from(is_needed), "{topic} {value:?}");
        }
        let found = results(&mut driver).remove("k").unwrap();
        let expected = [Some("a=1+A1"), Some("a=2+A1"), None];
        assert_eq!(found, expected.map(|it| it.map(str::to_owned)));
        if is_needed {
            let low = driver.read_pairs(&rows("low"));
            let low: Vec<_> = low.iter().map(|(_, value)| value.as_deref()).collect();
            assert_eq!(low, [Some("A1"), Some("a=1"), None, None]);
        }
    }
}

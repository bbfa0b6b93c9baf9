//! Starts of one replay with different settings. Letters wait in its store in between.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use eos_core::replays::Replay;
use eos_core::state::OrderedStore;
use eos_core::timers::Clock;
use eos_core::{App, ErrorPolicy, Headers, KeyValueStore, PlainTopic, Timestamp};
use eos_protocol::Offset;
use eos_protocol::letter::WaitingLetter;
use eos_protocol::sequence::LetterNumber;
use eos_testkit::driver::Builder;
use eos_testkit::{Input, TestDriver};

use super::{Bytes, letters, text};

/// The end of the first start, and that of the second one.
pub(super) const FIRST: Timestamp = Timestamp(1_000);
pub(super) const SECOND: Timestamp = Timestamp(2_000);

type Settings = Box<dyn Fn(Replay) -> Replay + Send>;
pub(super) type Program = Box<dyn Fn() -> App + Send>;

/// A replay, whose program changes from start to start.
pub(super) struct Starts {
    pub(super) driver: TestDriver,
    program: Arc<Mutex<Program>>,
}

pub(super) fn program(settings: impl Fn(Replay) -> Replay + Send + 'static) -> Program {
    Box::new(move || settings(App::replay("orders-dlq").to("orders")).app())
}

impl Starts {
    pub(super) fn new(settings: impl Fn(Replay) -> Replay + Send + 'static) -> Self {
        Self::on(TestDriver::builder(), settings)
    }

    fn on(builder: Builder, settings: impl Fn(Replay) -> Replay + Send + 'static) -> Self {
        let program = Arc::new(Mutex::new(program(settings)));
        let of = Arc::clone(&program);
        let driver = builder.start_of(move || (of.lock().unwrap())());
        Self { driver, program }
    }

    fn again(&mut self, settings: impl Fn(Replay) -> Replay + Send + 'static) {
        self.run(program(settings));
    }

    pub(super) fn run(&mut self, program: Program) {
        self.driver.kill();
        *self.program.lock().unwrap() = program;
        self.driver.restart();
    }

    pub(super) fn pipe(&mut self, letter: Input<Bytes, Bytes>) {
        self.driver.pipe_input(&letters(), letter);
    }

    /// The records that were replayed into a topic: their values and the action.
    pub(super) fn read_from(&mut self, topic: &str) -> Vec<(String, String, Headers)> {
        self.driver.advance_wall_clock(Duration::from_secs(3));
        let records = self.driver.read(&PlainTopic::<Bytes, Bytes>::named(topic));
        let records = records.into_iter().map(|it| {
            let action = text(it.headers.get("eos-replay"));
            (text(it.value.as_deref()), action, it.headers)
        });
        records.collect()
    }

    pub(super) fn read(&mut self) -> Vec<(String, String)> {
        let records = self.read_from("orders").into_iter();
        records.map(|(value, action, _)| (value, action)).collect()
    }
}

/// A letter of `orders`: its key, its number, and the time of its failure. Its value is its number.
pub(super) fn letter(key: Option<&str>, number: &str, failed_at: i64) -> Input<Bytes, Bytes> {
    letter_of("orders", key, number, failed_at)
}

pub(super) fn letter_of(
    origin: &str,
    key: Option<&str>,
    number: &str,
    failed_at: i64,
) -> Input<Bytes, Bytes> {
    let record = Input::raw(key.map(str::as_bytes), Some(number.as_bytes()));
    failed(record, origin, number, failed_at)
}

/// Makes a record a letter.
pub(super) fn failed(
    record: Input<Bytes, Bytes>,
    origin: &str,
    number: &str,
    failed_at: i64,
) -> Input<Bytes, Bytes> {
    let offset = number.split(' ').next().unwrap();
    let record = record.header("eos-sequence", format!("1 {number}"));
    failed_at_offset(record, origin, offset, failed_at)
}

/// A letter without a number.
fn plain_letter(key: &str, value: &str, failed_at: i64) -> Input<Bytes, Bytes> {
    let record = Input::raw(Some(key.as_bytes()), Some(value.as_bytes()));
    failed_at_offset(record, "orders", "3", failed_at)
}

pub(super) fn failed_at_offset(
    record: Input<Bytes, Bytes>,
    origin: &str,
    offset: &str,
    failed_at: i64,
) -> Input<Bytes, Bytes> {
    record
        .at(Timestamp(7))
        .header("trace", "t")
        .header("__streams.errors.topic", origin)
        .header("__streams.errors.partition", "0")
        .header("__streams.errors.offset", offset)
        .header("__eos.errors.app", "a")
        .header("__eos.errors.time", failed_at.to_string())
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    super::pairs(expected)
}

/// Letters that fail after the end of a start are of the next one, and its settings decide.
#[test]
fn a_decision_does_not_outlive_its_start() {
    for (decide, done) in [
        (
            Box::new(|replay: Replay| replay.release("orders", "k")) as Settings,
            "1 release 0 1",
        ),
        (
            Box::new(|replay| replay.discard("orders", "k", 1)),
            "1 discard 0 1",
        ),
    ] {
        let mut starts = Starts::new(move |replay| decide(replay.until(FIRST)));
        starts.pipe(letter(Some("k"), "0 1", 999));
        starts.pipe(letter(Some("k"), "5 1", 1_000));
        assert_eq!(starts.read(), pairs(&[("0 1", done)]));
        starts.again(|replay| replay.until(SECOND));
        assert_eq!(starts.read(), pairs(&[("5 1", "1 record 5 1")]));
    }
}

#[test]
fn a_decision_applies_to_letters_that_wait_already() {
    for (decide, done) in [
        (
            Box::new(|replay: Replay| replay.release("orders", "k")) as Settings,
            "1 release 5 1",
        ),
        (
            Box::new(|replay| replay.discard("orders", "k", 1)),
            "1 discard 5 1",
        ),
    ] {
        let mut starts = Starts::new(|replay| replay.until(FIRST));
        starts.pipe(letter(Some("k"), "5 1", 1_000));
        assert!(starts.read().is_empty());
        starts.again(move |replay| decide(replay.until(SECOND)));
        assert_eq!(starts.read(), pairs(&[("5 1", done)]));
    }
}

#[test]
fn a_generation_is_that_of_the_start_that_writes_the_letter() {
    let generation = |starts: &mut Starts| -> Vec<String> {
        let records = starts.read_from("orders").into_iter();
        records
            .map(|(.., headers)| text(headers.get("eos-replay-generation")))
            .collect()
    };
    let mut starts = Starts::new(|replay| replay.until(FIRST).as_generation(1));
    starts.pipe(letter(Some("k"), "0 1", 999));
    starts.pipe(letter(Some("k"), "5 1", 1_000));
    assert_eq!(generation(&mut starts), ["1"]);
    starts.again(|replay| replay.until(FIRST));
    starts.pipe(letter(Some("k"), "6 1", 1_000));
    starts.again(|replay| replay.until(SECOND));
    assert_eq!(generation(&mut starts), ["", ""]);
    starts.pipe(letter(Some("k"), "7 1", 2_000));
    starts.again(|replay| replay.until(Timestamp(3_000)).as_generation(2));
    assert_eq!(generation(&mut starts), ["2"]);
}

/// A topic of origin that a start does not name. Its letters wait, and hide no others.
#[test]
fn letters_of_a_topic_that_a_start_does_not_name_wait_for_one_that_does() {
    let mut starts = Starts::new(|replay| replay.to("clicks").until(FIRST));
    // In the order of the store: before the other letters, and behind them.
    starts.pipe(letter_of("clicks", Some("k"), "0 1", 1_500));
    for n in 0..3 {
        starts.pipe(letter(Some("k"), &format!("{n} 1"), 1_500));
    }
    assert!(starts.read().is_empty());
    starts.again(|replay| replay.until(SECOND));
    let three = ["0 1", "1 1", "2 1"].map(|n| (n.to_owned(), format!("1 record {n}")));
    assert_eq!(starts.read(), three);
    starts.pipe(letter(Some("k"), "9 1", 1_500));
    assert_eq!(starts.read(), pairs(&[("9 1", "1 record 9 1")]));
    // The same end: the place behind the letter that waits is that of an earlier start.
    starts.again(|replay| replay.to("clicks").until(SECOND));
    let found = starts.read_from("clicks");
    let [(value, action, _)] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((&**value, &**action), ("0 1", "1 record 0 1"));
    assert!(starts.read().is_empty());
}

/// A letter waits even if no start has named its topic yet. The policy `skip` of the replay does not apply to it.
#[test]
fn a_letter_of_an_unknown_topic_waits() {
    let mut starts = Starts::new(|replay| replay.to("clicks").until(FIRST));
    starts.run(Box::new(|| {
        let mut app = App::replay("orders-dlq").to("orders").until(SECOND).app();
        app.on_error(ErrorPolicy::skip());
        app
    }));
    starts.pipe(letter_of("clicks", Some("k"), "0 1", 1_500));
    starts.pipe(Input::raw(Some(b"k"), Some(b"no letter")));
    starts.pipe(letter(Some("k"), "5 1", 1_500));
    assert_eq!(starts.read(), pairs(&[("5 1", "1 record 5 1")]));
    starts.again(|replay| replay.to("clicks").until(SECOND));
    let found = starts.read_from("clicks");
    let [(value, action, _)] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((&**value, &**action), ("0 1", "1 record 0 1"));
}

/// A replay that skipped it would write the later letters of its key without it.
#[test]
fn no_policy_gives_up_a_letter_of_a_newer_version() {
    let start = |policy| {
        let mut app = App::replay("orders-dlq").to("orders").app();
        app.on_error(policy);
        TestDriver::builder().start(app)
    };
    let numbered = |number: &str| plain_letter("k", "1", 900).header("eos-sequence", number);
    for policy in [ErrorPolicy::skip(), ErrorPolicy::dead_letter("foreign")] {
        let mut driver = start(policy);
        let error = driver.try_pipe(&letters(), numbered("2 0 1")).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("eos-sequence has format 2"), "{error}");
    }
    // The number of another program is skipped.
    start(ErrorPolicy::skip()).pipe_input(&letters(), numbered("x"));
}

/// Kafka deletes the offsets of a replay that does not run for a week. A replay with another name needs no offsets.
#[test]
fn another_name_reads_the_topic_again() {
    let mut starts = Starts::new(|replay| replay.until(SECOND));
    starts.pipe(letter(Some("k"), "5 1", 900));
    starts.pipe(plain_letter("k", "old", 900));
    starts.pipe(plain_letter("k", "new", 1_500));
    assert_eq!(starts.read().len(), 3);
    starts.again(|replay| {
        let replay = replay.named("orders-dlq-replay-2");
        replay.since(FIRST).until(SECOND)
    });
    // A letter in sequence is processed once, so it is never left out.
    let expected = pairs(&[("new", ""), ("5 1", "1 record 5 1")]);
    assert_eq!(starts.read(), expected);
}

/// The retention of the dead-letter topic may remove letters that a decision names.
#[test]
fn lost_letters_are_discarded_and_their_keys_released() {
    let mut starts = Starts::new(|replay| {
        let replay = replay.discard("orders", "k", 1).discard("orders", "k", 3);
        let replay = replay.discard("orders", "k", 4).discard("orders", "k", 9);
        replay.release_lost("a", "orders", 0, "gone").until(FIRST)
    });
    starts.pipe(letter(Some("k"), "0 2", 999));
    starts.pipe(letter(Some("k"), "0 4", 999));
    // Its discard belongs to a later start.
    starts.pipe(letter(Some("k"), "0 3", 1_500));
    starts.pipe(letter(Some("l"), "7 2", 999));
    let found = starts.read_from("orders");
    let shown: Vec<_> = found.iter().map(|it| (&*it.0, &*it.1)).collect();
    let expected = [
        ("", "1 release"),
        ("0 2", "1 discard 0 1"),
        ("0 2", "1 record 0 2"),
        ("0 4", "1 discard 0 4"),
        ("7 2", "1 record 7 2"),
    ];
    assert_eq!(shown, expected);
    for it in &found {
        assert_eq!(text(it.2.get("eos-replay-for")), "a orders");
    }
    // Once in each start.
    assert!(starts.read().is_empty());
    starts.pipe(letter(Some("l"), "7 3", 999));
    assert_eq!(starts.read(), pairs(&[("7 3", "1 record 7 3")]));
    starts.again(|replay| {
        let replay = replay.release_lost("a", "orders", 0, "gone");
        replay.until(FIRST)
    });
    assert_eq!(starts.read(), pairs(&[("", "1 release")]));
}

/// A record is larger than its letter by the headers of the replay.
#[test]
fn a_letter_that_is_too_large_for_its_topic_waits() {
    let mut starts = Starts::new(|replay| replay.until(FIRST));
    let limit = |starts: &mut Starts, bytes: &str| {
        let cluster = starts.driver.cluster();
        let set = cluster.broker(|it| it.configure_topic("orders", "max.message.bytes", bytes));
        set.unwrap();
        starts.again(|replay| replay.until(SECOND));
    };
    limit(&mut starts, "1000");
    let value = "v".repeat(950);
    let large = Input::raw(Some(b"k"), Some(value.as_bytes()));
    starts.pipe(failed(large, "orders", "0 1", 1_500));
    starts.pipe(letter(Some("l"), "5 1", 1_500));
    assert_eq!(starts.read(), pairs(&[("5 1", "1 record 5 1")]));
    assert_eq!(starts.driver.store(&waiting()).len(), 1);
    // The later letters of its key wait for it, in this start and in the next one.
    starts.pipe(letter(Some("k"), "0 2", 1_500));
    assert!(starts.read().is_empty());
    starts.again(|replay| replay.until(SECOND));
    assert!(starts.read().is_empty());
    limit(&mut starts, "2000");
    let both = [(&*value, "1 record 0 1"), ("0 2", "1 record 0 2")];
    assert_eq!(starts.read(), pairs(&both));
    // A decision about such a letter needs no value.
    let large = Input::raw(Some(b"m"), Some(value.as_bytes()));
    starts.pipe(failed(large, "orders", "7 1", 1_500));
    let cluster = starts.driver.cluster();
    let set = cluster.broker(|it| it.configure_topic("orders", "max.message.bytes", "1000"));
    set.unwrap();
    starts.again(|replay| replay.discard("orders", "m", 1).until(SECOND));
    assert_eq!(starts.read(), pairs(&[("", "1 discard 7 1")]));
}

/// Without the wait, a letter whose cause still exists would be replayed without end, with the later ones of its key.
#[test]
fn a_letter_that_fails_during_the_replay_waits_for_five_seconds() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let failed_at = i64::try_from(now.unwrap().as_millis()).unwrap() + 100_000;
    let builder = TestDriver::builder().start_at(Timestamp(failed_at));
    let mut starts = Starts::on(builder, |replay| replay.until(Timestamp(i64::MAX)));
    starts.pipe(letter(Some("k"), "0 1", failed_at));
    starts.pipe(letter(Some("k"), "0 2", 1_500));
    starts.pipe(letter(Some("l"), "5 1", 1_500));
    // More than a round reads.
    let plain = (0..4_100).map(|_| plain_letter("a", "", failed_at));
    starts.driver.pipe_all(&letters(), plain);
    // Each read takes three seconds.
    assert_eq!(starts.read(), pairs(&[("5 1", "1 record 5 1")]));
    let both = [("0 1", "1 record 0 1"), ("0 2", "1 record 0 2")];
    // A round writes a thousand letters.
    let mut found = starts.read();
    found.extend(starts.read());
    found.retain(|(value, _)| !value.is_empty());
    assert_eq!(found, pairs(&both));
}

/// The default limits of the topics: a dead-letter topic takes such a letter, and so must the changelog. A letter that waits for
/// another start is in the row of the place, too.
#[test]
fn a_letter_of_a_million_bytes_is_replayed() {
    for (key, value) in [
        (1, 1_000_000),
        (1, 1_048_300),
        (500_000, 500_000),
        (1_000_000, 0),
    ] {
        let (key, value) = ("k".repeat(key), "v".repeat(value));
        let mut starts = Starts::new(|replay| replay.until(FIRST));
        let large = Input::raw(Some(key.as_bytes()), Some(value.as_bytes()));
        starts.pipe(failed(large, "orders", "0 1", 1_500));
        assert!(starts.read().is_empty());
        let place = KeyValueStore::<u32, Vec<u8>>::plain("passed-letters");
        assert_eq!(starts.driver.store(&place).len(), 1);
        starts.again(|replay| replay.until(SECOND));
        let records = starts.read();
        assert_eq!(records.len(), 1);
        assert!(records[0].0 == value, "another value");
    }
}

pub(super) fn waiting() -> OrderedStore<Vec<u8>, Vec<u8>> {
    OrderedStore::plain("letters")
}

/// Writes rows of another version of eos into the store of the replay: their keys and values are those of the records.
fn other_version() -> App {
    let mut app = App::new("orders-dlq-replay");
    let rows = app.store(&waiting());
    let passed = app.store(&KeyValueStore::<u32, String>::plain("passed-letters"));
    app.source(&letters())
        .with_store(&rows)
        .with_store(&passed)
        .on_tick("rounds", Clock::Wall, Duration::from_millis(500), |_, _| {
            Ok(())
        })
        .for_each(move |ctx, record| {
            let place = r#"{"version":1,"until":2000,"key":[255,255]}"#;
            ctx.store(&passed).put(&0, &place.to_owned())?;
            let (key, row) = (record.key.unwrap(), record.value.unwrap());
            ctx.store(&rows).put(&key, &row)
        });
    app
}

/// The row key of a letter of `orders`.
fn row_key(episode: i64) -> Vec<u8> {
    let episode = Offset::new(episode).unwrap();
    let letter = WaitingLetter {
        topic: "orders",
        partition: 0,
        offset: 0,
        app: "a",
        key: Some(b"k"),
        value: None,
        time: None,
        failed_at: Timestamp(0),
        number: Some(LetterNumber { episode, n: 1 }),
        headers: Vec::new(),
    };
    letter.row_key(Offset::ZERO)
}

/// The row of version 1 of a letter that a replay with `release` has read.
fn first_format(episode: i64) -> String {
    let header = |name: &str, value: &str| format!("[{name:?},{:?}]", value.as_bytes());
    let headers = [
        header("trace", "t"),
        header("eos-origin", "orders 0 3"),
        header("eos-replay", &format!("1 release {episode}")),
        header("eos-replay-for", "a orders"),
    ];
    format!(
        r#"{{"version":1,"topic":"orders","partition":0,"key":[107],"value":[118],"timestamp":7,"headers":[{}],"number":[{episode},1],"failed_at":1500}}"#,
        headers.join(",")
    )
}

#[test]
fn letters_of_the_first_format_are_replayed_as_this_start_decides() {
    let mut starts = Starts::new(|replay| replay.until(FIRST));
    starts.run(Box::new(other_version));
    let row = first_format(5);
    starts.pipe(Input::raw(Some(&row_key(5)), Some(row.as_bytes())));
    assert_eq!(starts.driver.store(&waiting()).len(), 1);
    starts.again(|replay| replay.until(SECOND));
    let records = starts.read_from("orders");
    let [(value, action, headers)] = &records[..] else {
        panic!("{records:?}");
    };
    assert_eq!((&**value, &**action), ("v", "1 record 5 1"));
    let headers = headers.iter();
    let headers: Vec<_> = headers.map(|it| (it.name(), text(it.value()))).collect();
    let header = |name, value: &str| (name, value.to_owned());
    let expected = [
        header("trace", "t"),
        header("eos-origin", "orders 0 3"),
        header("eos-replay", "1 record 5 1"),
        header("eos-replay-for", "a orders"),
    ];
    assert_eq!(headers, expected);
    assert!(starts.driver.store(&waiting()).is_empty());
}

/// Rows of a newer version and damaged rows stay for a version that can read them, and hide no others.
#[test]
fn rows_that_this_version_cannot_read_stay() {
    let mut starts = Starts::new(|replay| replay.until(FIRST));
    starts.run(Box::new(other_version));
    for (episode, row) in [
        (1, "\u{9}newer"),
        (2, &*first_format(2)),
        (3, "{}"),
        (4, "\u{2}"),
    ] {
        starts.pipe(Input::raw(Some(&row_key(episode)), Some(row.as_bytes())));
    }
    for _ in 0..2 {
        starts.again(|replay| replay.until(SECOND));
        starts.pipe(letter(Some("k"), "0 1", 1_500));
        starts.pipe(letter(Some("k"), "9 1", 1_500));
        let written = starts.read();
        let written = written.iter().map(|(_, action)| &**action);
        let written: Vec<_> = written.filter(|it| *it != "1 record 2 1").collect();
        assert_eq!(written, ["1 record 0 1", "1 record 9 1"]);
        assert_eq!(starts.driver.store(&waiting()).len(), 3);
    }
}

/// A topic of origin with fewer partitions than it had.
#[test]
fn letters_of_a_partition_that_does_not_exist_wait_for_it() {
    let mut starts = Starts::new(|replay| replay.until(SECOND));
    let record = Input::raw(Some(b"k"), Some(b"v")).header("trace", "t");
    let lost = failed(record, "orders", "0 1", 1_500);
    starts.pipe(lost.header("__streams.errors.partition", "2"));
    starts.pipe(letter(Some("k"), "1 1", 1_500));
    assert_eq!(starts.read(), pairs(&[("1 1", "1 record 1 1")]));
    starts.driver.kill();
    starts.driver.grow_topic("orders", 3).unwrap();
    starts.driver.restart();
    assert_eq!(starts.read(), pairs(&[("v", "1 record 0 1")]));
}

/// Each letter of a record without a key has number 1, as the first letter of the empty key.
#[test]
fn a_record_without_a_key_is_not_the_empty_key() {
    let mut starts = Starts::new(|replay| {
        let replay = replay.discard("orders", "", 1).release("orders", "l");
        replay.discard_without_key("orders", 0, 5).until(FIRST)
    });
    for (key, number) in [(None, "4 1"), (None, "5 1"), (Some(""), "6 1")] {
        starts.pipe(letter(key, number, 999));
    }
    let expected = [
        ("4 1", "1 record 4 1"),
        ("5 1", "1 discard 5 1"),
        ("6 1", "1 discard 6 1"),
    ];
    assert_eq!(starts.read(), pairs(&expected));
}

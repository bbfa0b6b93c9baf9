//! The presets of sequences, and the order that they need.

use eos_core::identity::presets::{self, LogPosition, SequencePreset};
use eos_core::identity::{BySequence, Gaps, HighWatermarks, Sequence};
use eos_core::{App, ErrorPolicy, PlainTopic, Topic};
use eos_testkit::{Input, TestDriver, crash_everywhere};

type Texts = PlainTopic<String, String>;

fn topic(name: &str) -> Texts {
    Topic::plain(name)
}

fn app(
    preset: SequencePreset<String, String>,
    change: impl FnOnce(BySequence<String, String>) -> BySequence<String, String>,
) -> App {
    let mut app = App::new("a");
    let source = app.source(&topic("in")).on_error(ErrorPolicy::fail());
    let declared = source.dedup_by_sequence_as(preset);
    change(declared.duplicates_to(&topic("repeated")))
        .accepted()
        .to(&topic("out"));
    app
}

fn pipe(driver: &mut TestDriver, values: &[impl AsRef<str>]) {
    let records = values
        .iter()
        .map(|value| Input::<String, String>::new("k", value.as_ref()));
    driver.pipe_all(&topic("in"), records.collect::<Vec<_>>());
}

fn read(driver: &mut TestDriver, name: &str) -> Vec<String> {
    let records = driver.read_pairs(&topic(name)).into_iter();
    records.map(|(_, value)| value).collect()
}

/// Reads `producer number`.
fn pulsar() -> SequencePreset<String, String> {
    presets::pulsar("seen", |message: &String| {
        let (producer, number) = message.split_once(' ').unwrap_or((message, ""));
        (producer.to_owned(), number.parse().unwrap_or(0))
    })
}

/// R41: a number passes if it is higher than all of its producer before it, also after a crash at any place.
#[test]
fn pulsar_keeps_the_highest_sequence_id_of_each_producer() {
    let start = || TestDriver::new(app(pulsar(), |it| it));
    let last = format!("p {}", u64::MAX);
    let scenario = |driver: &mut TestDriver| {
        pipe(driver, &["p 0", "p 0", "p 1", "q 1", "p 9", "p 8"]);
        driver.rebalance();
        pipe(driver, &["p 9", "p 10", &last, &last, "q 2"]);
        (read(driver, "out"), read(driver, "repeated"))
    };
    let (new, repeated) = scenario(&mut start());
    assert_eq!(new, ["p 0", "p 1", "q 1", "p 9", "p 10", &last, "q 2"]);
    assert_eq!(repeated, ["p 0", "p 8", "p 9", &last]);
    assert!(crash_everywhere(start, scenario) > 20);
    // The name decides, and a message without one fails.
    let nameless = Input::<String, String>::new("k", " 1");
    assert!(start().try_pipe(&topic("in"), nameless).is_err());
}

#[test]
fn a_preset_may_fail_gaps() {
    let strict = || pulsar().configure(|marks| marks.gaps(Gaps::Fail));
    let mut driver = TestDriver::new(app(strict(), |it| it));
    pipe(&mut driver, &["p 4", "p 5"]);
    let gap = Input::<String, String>::new("k", "p 7");
    let error = driver.try_pipe(&topic("in"), gap).unwrap_err().to_string();
    assert!(
        error.contains("does not follow 5; missing numbers: 1"),
        "{error}"
    );
}

/// Reads `connector ["commit","change"]`. The connector `-` is none.
fn debezium() -> SequencePreset<String, String> {
    presets::debezium("seen", |change: &String| {
        let (connector, sequence) = change.split_once(' ')?;
        let position = LogPosition::parse(connector.to_owned(), sequence)?;
        (connector != "-").then_some(position)
    })
}

fn change(commit: u64, change: u64) -> String {
    format!("shop [\"{commit}\",\"{change}\"]")
}

/// Two transactions that write at the same time: the first to commit comes first, with the higher positions.
fn concurrent() -> Vec<String> {
    let transactions = [
        (100, [110, 140, 150]),
        (160, [120, 130, 170]),
        (180, [105, 190, 200]),
    ];
    let changes = transactions.map(|(commit, changes)| changes.map(|it| change(commit, it)));
    changes.concat()
}

/// R54: no change is lost with the pair. With the LSN of the change alone, some are.
#[test]
fn debezium_orders_changes_by_commit_and_position() {
    let changes = concurrent();
    let start = || TestDriver::new(app(debezium(), |it| it));
    let scenario = |driver: &mut TestDriver| {
        pipe(driver, &changes);
        // The connector restarts, and sends a part again.
        pipe(driver, &changes[3..]);
        pipe(driver, &[change(200, 201)]);
        (read(driver, "out"), read(driver, "repeated"))
    };
    let (new, repeated) = scenario(&mut start());
    assert_eq!(new, [&changes[..], &[change(200, 201)]].concat());
    assert_eq!(repeated, changes[3..]);
    assert!(crash_everywhere(start, scenario) > 20);

    let alone = presets::pulsar("seen", |change: &String| {
        let position = LogPosition::parse("shop", change.split_once(' ').unwrap().1);
        ("shop".to_owned(), position.unwrap().change)
    });
    let mut driver = TestDriver::new(app(alone, |it| it));
    pipe(&mut driver, &changes);
    assert_eq!(read(&mut driver, "repeated").len(), 3, "wrongly dropped");
}

#[test]
fn debezium_at_its_boundaries() {
    let max = u64::MAX;
    let changes = [
        // The first transactions after a snapshot have no commit before them.
        "shop [null,\"0\"]".to_owned(),
        "shop [null,\"1\"]".to_owned(),
        change(0, max),
        change(1, 0),
        change(max, max - 1),
        change(max, max),
    ];
    let mut driver = TestDriver::new(app(debezium(), |it| it));
    pipe(&mut driver, &changes);
    pipe(&mut driver, &changes);
    assert_eq!(read(&mut driver, "out"), changes);
    assert_eq!(read(&mut driver, "repeated"), changes);
    // Another connector has its own numbers.
    pipe(&mut driver, &["bank [\"7\",\"8\"]"]);
    assert_eq!(read(&mut driver, "out").len(), 1);

    // A snapshot and a tombstone have no position.
    let without = [
        "- [\"7\",\"8\"]",
        "shop",
        "shop 8",
        "shop [\"-1\",\"8\"]",
        "shop [\"7\",\"18446744073709551616\"]",
    ];
    for value in without {
        let mut driver = TestDriver::new(app(debezium(), |it| it));
        let record = Input::<String, String>::new("k", value);
        let error = driver.try_pipe(&topic("in"), record).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("no producer name (store seen)"), "{error}");
    }
    let mut driver = TestDriver::new(app(debezium(), BySequence::pass_without_producer));
    pipe(&mut driver, &without);
    pipe(&mut driver, &without);
    assert_eq!(read(&mut driver, "out").len(), 10);
}

fn behind_a_repartition(is_behind: bool) -> App {
    let mut app = App::new("a");
    let marks = HighWatermarks::new("marks");
    let sequence = |value: &String| Sequence {
        producer: "p".to_owned(),
        epoch: 0,
        number: value.parse().unwrap_or(0),
    };
    let source = app.source(&topic("in"));
    let repartition = |stream: eos_core::Stream<String, String>| {
        let keyed = stream.key_by(String::clone);
        keyed.repartition(&topic("by-value"))
    };
    match is_behind {
        true => repartition(source)
            .dedup_by_sequence(&marks, sequence)
            .accepted(),
        false => repartition(source.dedup_by_sequence(&marks, sequence).accepted()),
    }
    .to(&topic("out"));
    app
}

/// R52: after a repartition, 101 may overtake 100. The description of the app contains a warning.
#[test]
fn a_repartition_before_a_sequence_is_a_warning() {
    let described = behind_a_repartition(true).describe().unwrap();
    let [warning] = &described.warnings()[..] else {
        panic!("{:?}", described.warnings());
    };
    assert!(
        warning.contains(
            "`dedup_by_sequence` with the store marks reads the repartition topic a-by-value-repartition, which mixes"
        ),
        "{warning}"
    );
    let in_front = behind_a_repartition(false).describe().unwrap();
    assert!(in_front.warnings().is_empty(), "{:?}", in_front.warnings());
}

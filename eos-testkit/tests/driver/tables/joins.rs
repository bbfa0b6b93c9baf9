//! Joins of two tables.

use std::collections::BTreeMap;

use eos_core::windows::Sides;
use eos_core::{App, KeyValueStore, Timestamp, Topic};
use eos_testkit::{Input, TestDriver};
use proptest::prelude::*;

use super::{Update, check, mistakes, pipe, rows, store, table};

/// Updates of both sides, with each order of coming and going.
const UPDATES: [Update<'static>; 10] = [
    ("left", "k", None),
    ("left", "k", Some("a")),
    ("right", "k", Some("1")),
    ("left", "k", Some("b")),
    ("right", "k", Some("2")),
    ("left", "k", None),
    ("right", "k", Some("3")),
    ("right", "k", None),
    ("right", "k", Some("4")),
    ("left", "k", Some("c")),
];

fn both(left: Option<&String>, right: Option<&String>) -> String {
    let text = |side: Option<&String>| side.map_or("-", String::as_str).to_owned();
    text(left) + &text(right)
}

fn inner(app: &mut App) {
    let (left, right) = (table(app, "left"), table(app, "right"));
    left.join(&right, |left, right| both(Some(left), Some(right)))
        .to(&rows("out"));
}

fn left(app: &mut App) {
    let (left, right) = (table(app, "left"), table(app, "right"));
    left.left_join(&right, |left, right| both(Some(left), right))
        .to(&rows("out"));
}

fn outer(app: &mut App) {
    let (left, right) = (table(app, "left"), table(app, "right"));
    left.outer_join(&right, |sides| match sides {
        Sides::Left(left) => both(Some(left), None),
        Sides::Right(right) => both(None, Some(right)),
        Sides::Both(left, right) => both(Some(left), Some(right)),
    })
    .to(&rows("out"));
}

#[test]
fn an_inner_join_has_a_row_while_both_sides_have_one() {
    let expected = [
        ("k", Some("a1")),
        ("k", Some("b1")),
        ("k", Some("b2")),
        ("k", None),
        ("k", Some("c4")),
    ];
    check(inner, &UPDATES, &expected);
}

#[test]
fn a_left_join_has_a_row_while_the_left_side_has_one() {
    let expected = [
        ("k", Some("a-")),
        ("k", Some("a1")),
        ("k", Some("b1")),
        ("k", Some("b2")),
        ("k", None),
        ("k", Some("c4")),
    ];
    check(left, &UPDATES, &expected);
}

#[test]
fn an_outer_join_has_a_row_while_one_side_has_one() {
    let expected = [
        ("k", Some("a-")),
        ("k", Some("a1")),
        ("k", Some("b1")),
        ("k", Some("b2")),
        ("k", Some("-2")),
        ("k", Some("-3")),
        ("k", None),
        ("k", Some("-4")),
        ("k", Some("c4")),
    ];
    check(outer, &UPDATES, &expected);
}

#[test]
fn the_time_of_a_result_is_the_later_one() {
    let mut app = App::new("a");
    inner(&mut app);
    let mut driver = TestDriver::new(app);
    let at = |driver: &mut TestDriver, topic: &str, time: i64| {
        driver.pipe_at(&rows(topic), "k", Some("v".to_owned()), Timestamp(time));
    };
    at(&mut driver, "left", 5_000);
    at(&mut driver, "right", 7_000);
    at(&mut driver, "left", 6_000);
    at(&mut driver, "left", 9_000);
    let read = driver.read(&rows("out"));
    let times: Vec<_> = read.iter().map(|record| record.timestamp).collect();
    let expected = [7_000, 7_000, 9_000].map(Timestamp);
    assert_eq!(times, expected);
}

#[test]
fn joins_of_joins_and_of_counts() {
    check(
        |app| {
            let (one, two, three) = (table(app, "one"), table(app, "two"), table(app, "three"));
            let pairs = one
                .join(&two, |one, two| format!("{one}{two}"))
                .filter(|pair| !pair.starts_with('x'));
            three
                .left_join(&pairs, |three, pair| {
                    format!("{three}:{}", pair.map_or("-", String::as_str))
                })
                .to(&rows("out"));
        },
        &[
            ("three", "k", Some("t")),
            ("one", "k", Some("a")),
            ("two", "k", Some("b")),
            ("one", "k", Some("x")),
            ("one", "k", Some("c")),
            ("three", "k", None),
            ("two", "k", None),
        ],
        &[
            ("k", Some("t:-")),
            ("k", Some("t:ab")),
            ("k", Some("t:-")),
            ("k", Some("t:cb")),
            ("k", None),
        ],
    );
}

#[test]
fn a_joined_table_is_stored_and_read_by_streams() {
    check(
        |app| {
            let (left, right) = (table(app, "left"), table(app, "right"));
            let joined = left
                .join(&right, |left, right| format!("{left}{right}"))
                .stored(&store("joined"));
            app.source(&rows("reads"))
                .left_join(&joined, |_, row| row)
                .to(&rows("out"));
        },
        &[
            ("left", "k", Some("a")),
            ("right", "k", Some("1")),
            ("reads", "k", None),
            ("left", "k", None),
            ("reads", "k", None),
        ],
        &[("k", Some("a1")), ("k", None)],
    );
}

#[test]
fn a_table_of_another_app_and_other_partition_counts_are_refused() {
    let text = mistakes(|app| {
        let mut other = App::new("b");
        let right = table(&mut other, "right");
        table(app, "left")
            .join(&right, |left, _| left.clone())
            .to(&rows("out"));
    });
    assert!(
        text.contains("`join` received a table of another app"),
        "{text}"
    );
    let mut app = App::new("a");
    inner(&mut app);
    let built = TestDriver::builder()
        .partitions("left", 2)
        .partitions("right", 3)
        .build(app);
    let text = built.unwrap_err().to_string();
    assert!(text.contains("left") && text.contains("right"), "{text}");
}

type Build = fn(&mut App);
/// A function that decides whether a join has a row for these rows.
type HasRow = fn(Option<u8>, Option<u8>) -> bool;

/// Returns the expected results of a join, computed from both tables as maps.
fn oracle(
    updates: &[(bool, u8, Option<u8>)],
    join: impl Fn(Option<u8>, Option<u8>) -> Option<String>,
) -> Vec<(String, Option<String>)> {
    let (mut left, mut right) = (BTreeMap::new(), BTreeMap::new());
    let mut out = Vec::new();
    for &(is_left, key, value) in updates {
        let before = join(left.get(&key).copied(), right.get(&key).copied());
        let side = if is_left { &mut left } else { &mut right };
        match value {
            Some(value) => side.insert(key, value),
            None => side.remove(&key),
        };
        let had = value.is_some() || before.is_some();
        let after = join(left.get(&key).copied(), right.get(&key).copied());
        if had && (before.is_some() || after.is_some()) {
            out.push((key.to_string(), after));
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn random_updates_give_what_two_maps_give(
        updates in proptest::collection::vec((any::<bool>(), 0..3u8, proptest::option::of(0..9u8)), 0..30),
    ) {
        // A tombstone of a missing row is no update.
        let (mut there, mut real) = (std::collections::BTreeSet::new(), Vec::new());
        for update in updates {
            let (side, key, value) = update;
            let changes = match value {
                Some(_) => { there.insert((side, key)); true }
                None => there.remove(&(side, key)),
            };
            if changes { real.push(update); }
        }
        let text = |value: Option<u8>| value.map_or("-".to_owned(), |value| value.to_string());
        let kinds: [(Build, HasRow); 3] = [
            (inner, |left, right| left.is_some() && right.is_some()),
            (self::left, |left, _| left.is_some()),
            (outer, |left, right| left.is_some() || right.is_some()),
        ];
        for (build, has_row) in kinds {
            let mut app = App::new("a");
            build(&mut app);
            let mut driver = TestDriver::new(app);
            for (is_left, key, value) in &real {
                let topic = if *is_left { "left" } else { "right" };
                let value = value.map(|value| value.to_string());
                pipe(&mut driver, (topic, &key.to_string(), value.as_deref()));
            }
            let expected = oracle(&real, |left, right| {
                has_row(left, right).then(|| text(left) + &text(right))
            });
            prop_assert_eq!(driver.read_pairs(&rows("out")), expected);
        }
    }
}

#[test]
fn key_types_of_both_sides_agree_and_topics_may_differ_in_codecs() {
    let mut app = App::new("a");
    let left = app.table(
        &Topic::<u64, Option<String>>::json("left"),
        &eos_core::KeyValueStore::plain("left"),
    );
    let right = app.table(
        &Topic::<u64, Option<u64>>::plain("right"),
        &eos_core::KeyValueStore::plain("right"),
    );
    left.join(&right, |left, right| format!("{left}{right}"))
        .to(&Topic::plain("out"));
    let mut driver = TestDriver::new(app);
    driver.pipe(
        &Topic::<u64, Option<String>>::json("left"),
        7_u64,
        Some("a".to_owned()),
    );
    driver.pipe(&Topic::<u64, Option<u64>>::plain("right"), 7_u64, Some(1));
    let out = Topic::<u64, Option<String>>::plain("out");
    assert_eq!(driver.read_pairs(&out), [(7, Some("a1".to_owned()))]);
}

#[test]
fn a_record_without_a_key_joins_no_row_and_fails_with_the_fix() {
    let records = Topic::<Option<String>, String>::plain("records");
    let rows = Topic::<Option<String>, Option<String>>::plain("in");
    let mut app = App::new("a");
    let table = app.table(&rows, &KeyValueStore::plain("in"));
    app.source(&records)
        .left_join(&table, |record, _| record)
        .to(&Topic::plain("out"));
    let mut driver = TestDriver::new(app);
    let record = Input::<Option<String>, String>::new(None::<String>, "r");
    let text = driver.try_pipe(&records, record).unwrap_err().to_string();
    assert!(
        text.contains("the record has no key, so the join with the store in finds no partner"),
        "{text}"
    );
    assert!(
        text.contains(".filter_record(|record| record.key.is_some())"),
        "{text}"
    );

    let mut app = App::new("b");
    app.table(&rows, &KeyValueStore::plain("in")).ignore();
    let mut driver = TestDriver::new(app);
    let row = Input::<Option<String>, Option<String>>::new(None::<String>, "v".to_owned());
    let text = driver.try_pipe(&rows, row).unwrap_err().to_string();
    assert!(
        text.contains("null can't be a key in the store in"),
        "{text}"
    );
    assert!(!text.contains("`delete`"), "{text}");
}

//! Joins of two tables by a foreign key.

use std::collections::BTreeMap;

use eos_core::state::ForeignJoin;
use eos_core::{App, Guarantee, KeyValueStore, Timestamp, Topic};
use eos_testkit::{Input, TestDriver, crash_everywhere};
use proptest::prelude::*;

use super::{Update, check, mistakes, pipe, rows, store, table};

pub(super) type Join = ForeignJoin<String, String, String, String>;

pub(super) fn join() -> Join {
    ForeignJoin::plain("join")
}

/// Left values are `<foreign key>=<text>`, or `=<text>` without a foreign key.
fn foreign(value: &str) -> Option<String> {
    let key = value.split('=').next().unwrap_or_default();
    (!key.is_empty()).then(|| key.to_owned())
}

#[expect(clippy::ptr_arg, reason = "`join_by` passes a reference to the value")]
pub(super) fn key_of(value: &String) -> Option<String> {
    foreign(value)
}

pub(super) fn inner_by(app: &mut App, join: &Join) {
    let (left, right) = (table(app, "left"), table(app, "right"));
    left.join_by(&right, join, key_of, |left, right| {
        format!("{left}+{right}")
    })
    .to(&rows("out"));
}

pub(super) fn inner(app: &mut App) {
    inner_by(app, &join());
}

fn left(app: &mut App) {
    left_by(app, &join());
}

fn left_by(app: &mut App, join: &Join) {
    let (left, right) = (table(app, "left"), table(app, "right"));
    left.left_join_by(&right, join, key_of, |left, right| {
        format!("{left}+{}", right.map_or("-", String::as_str))
    })
    .to(&rows("out"));
}

/// Each transition of a left row, with and without right rows.
const TRANSITIONS: [Update<'static>; 18] = [
    // The left row names a missing right row. Then the right row is created, changed, deleted and created again.
    ("left", "k", Some("a=1")),
    ("right", "a", Some("A")),
    ("right", "a", Some("B")),
    ("right", "a", None),
    ("right", "a", Some("C")),
    // The same foreign key, another one with a row, one without, and back.
    ("left", "k", Some("a=2")),
    ("right", "b", Some("D")),
    ("left", "k", Some("b=3")),
    ("left", "k", Some("c=4")),
    ("left", "k", Some("a=5")),
    // An update of a row that is left changes nothing.
    ("right", "b", Some("E")),
    // To null, within null, and from null.
    ("left", "k", Some("=6")),
    ("left", "k", Some("=7")),
    ("right", "a", Some("F")),
    ("left", "k", Some("a=8")),
    // Deleted, and deleted again.
    ("left", "k", None),
    ("left", "k", None),
    ("right", "a", Some("G")),
];

/// Runs all transitions, and some of them with a crash everywhere.
#[track_caller]
fn each_transition(build: fn(&mut App), expected: &[(&str, Option<&str>)]) {
    let start = || {
        let mut app = App::new("a");
        build(&mut app);
        TestDriver::new(app)
    };
    let mut driver = start();
    for update in TRANSITIONS {
        pipe(&mut driver, update);
    }
    let expected: Vec<_> = expected
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned)))
        .collect();
    assert_eq!(driver.read_pairs(&rows("out")), expected);
    let places = crash_everywhere(start, |driver| {
        for (topic, key, value) in [
            ("right", "a", Some("A")),
            ("left", "k", Some("a=1")),
            ("left", "k", Some("b=2")),
            ("right", "b", Some("B")),
            ("left", "k", Some("=3")),
            ("left", "k", None),
        ] {
            pipe(driver, (topic, key, value));
        }
        driver.committed()
    });
    assert!(places > 10, "{places}");
}

#[test]
fn an_inner_join_has_a_row_while_the_named_row_exists() {
    let expected = [
        ("k", Some("a=1+A")),
        ("k", Some("a=1+B")),
        ("k", None),
        ("k", Some("a=1+C")),
        ("k", Some("a=2+C")),
        ("k", Some("b=3+D")),
        ("k", None),
        ("k", Some("a=5+C")),
        ("k", None),
        ("k", Some("a=8+F")),
        ("k", None),
    ];
    each_transition(inner, &expected);
}

#[test]
fn a_left_join_has_a_row_for_each_left_row() {
    let expected = [
        ("k", Some("a=1+-")),
        ("k", Some("a=1+A")),
        ("k", Some("a=1+B")),
        ("k", Some("a=1+-")),
        ("k", Some("a=1+C")),
        ("k", Some("a=2+C")),
        ("k", Some("b=3+D")),
        ("k", Some("c=4+-")),
        ("k", Some("a=5+C")),
        ("k", Some("=6+-")),
        ("k", Some("=7+-")),
        ("k", Some("a=8+F")),
        ("k", None),
    ];
    each_transition(left, &expected);
}

#[test]
fn a_right_row_that_is_there_first_is_found() {
    check(
        inner,
        &[
            ("right", "a", Some("A")),
            ("left", "k", Some("a=1")),
            ("left", "l", Some("a=2")),
            ("left", "m", Some("=3")),
            ("right", "a", Some("B")),
            ("left", "k", None),
            ("right", "a", None),
        ],
        &[
            ("k", Some("a=1+A")),
            ("l", Some("a=2+A")),
            ("k", Some("a=1+B")),
            ("l", Some("a=2+B")),
            ("k", None),
            ("l", None),
        ],
    );
}

#[test]
fn the_time_of_a_result_is_the_later_one() {
    let mut app = App::new("a");
    inner(&mut app);
    let mut driver = TestDriver::new(app);
    let at = |driver: &mut TestDriver, (topic, key, value): Update<'_>, time: i64| {
        let value = value.map(str::to_owned);
        driver.pipe_at(&rows(topic), key, value, Timestamp(time));
    };
    at(&mut driver, ("left", "k", Some("a=1")), 5_000);
    at(&mut driver, ("right", "a", Some("A")), 7_000);
    at(&mut driver, ("left", "k", Some("a=2")), 6_000);
    at(&mut driver, ("left", "k", Some("a=3")), 9_000);
    at(&mut driver, ("right", "a", None), 8_000);
    let read = driver.read(&rows("out"));
    let times: Vec<_> = read.iter().map(|record| record.timestamp).collect();
    assert_eq!(times, [7_000, 7_000, 9_000, 9_000].map(Timestamp));
}

#[test]
fn the_results_are_a_table() {
    check(
        |app| {
            let (left, right) = (table(app, "left"), table(app, "right"));
            left.join_by(&right, &join(), key_of, |_, right| right.clone())
                .filter(|right| !right.starts_with('-'))
                .group_by(&Topic::<String, u64>::plain("by-right"), |_, right| {
                    (right.clone(), 1)
                })
                .count(&KeyValueStore::plain("counts"))
                .to_stream()
                .map(|count| Some(count.to_string()))
                .to(&rows("out"));
        },
        &[
            ("right", "a", Some("x")),
            ("right", "b", Some("y")),
            ("left", "k", Some("a=1")),
            ("left", "l", Some("a=2")),
            ("left", "k", Some("b=3")),
            ("right", "a", Some("y")),
            ("right", "a", Some("-")),
            ("left", "k", None),
        ],
        &[
            ("x", Some("1")),
            ("x", Some("2")),
            ("x", Some("1")),
            ("y", Some("1")),
            ("x", Some("0")),
            ("y", Some("2")),
            ("y", Some("1")),
            ("y", Some("0")),
        ],
    );
}

#[test]
fn the_results_are_joined_again_by_foreign_key_and_by_key() {
    check(
        |app| {
            let (left, right) = (table(app, "left"), table(app, "right"));
            let (third, own) = (table(app, "third"), table(app, "own"));
            left.join_by(&right, &join(), key_of, |_, right| right.clone())
                .join_by(
                    &third,
                    &ForeignJoin::plain("second"),
                    |right: &String| Some(right.clone()),
                    |right, third| format!("{right}+{third}"),
                )
                .left_join(&own, |both, own| {
                    format!("{both}+{}", own.map_or("-", String::as_str))
                })
                .to(&rows("out"));
        },
        &[
            ("left", "k", Some("a=1")),
            ("right", "a", Some("x")),
            ("third", "x", Some("X")),
            ("own", "k", Some("o")),
            ("right", "a", Some("y")),
            ("third", "y", Some("Y")),
            ("left", "k", None),
        ],
        &[
            ("k", Some("x+X+-")),
            ("k", Some("x+X+o")),
            ("k", None),
            ("k", Some("y+Y+o")),
            ("k", None),
        ],
    );
}

#[test]
fn a_table_is_joined_with_itself() {
    check(
        |app| {
            let people = table(app, "people");
            people
                .clone()
                .left_join_by(&people, &join(), key_of, |person, lead| {
                    format!("{person}+{}", lead.map_or("-", String::as_str))
                })
                .to(&rows("out"));
        },
        &[
            ("people", "ada", Some("=A")),
            ("people", "bob", Some("ada=B")),
            ("people", "ada", Some("=C")),
            ("people", "ada", None),
        ],
        &[
            ("ada", Some("=A+-")),
            ("bob", Some("ada=B+=A")),
            ("ada", Some("=C+-")),
            ("bob", Some("ada=B+=C")),
            ("ada", None),
            ("bob", Some("ada=B+-")),
        ],
    );
}

/// Ten left rows name one right row, and an update reaches two of them at once.
fn many_subscribers(driver: &mut TestDriver) {
    for row in 0..10 {
        let (key, value) = (format!("k{row}"), format!("a={row}"));
        pipe(driver, ("left", &key, Some(&value)));
    }
}

pub(super) fn results(driver: &mut TestDriver) -> BTreeMap<String, Vec<Option<String>>> {
    let mut results: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (key, value) in driver.read_pairs(&rows("out")) {
        results.entry(key).or_default().push(value);
    }
    results
}

#[test]
fn an_update_reaches_more_rows_than_at_once() {
    let start = || {
        let mut app = App::new("a");
        inner_by(&mut app, &join().at_once(2));
        TestDriver::new(app)
    };
    let mut driver = start();
    many_subscribers(&mut driver);
    pipe(&mut driver, ("right", "a", Some("A")));
    let found = results(&mut driver);
    assert_eq!(found.len(), 10);
    for (row, (_, results)) in found.iter().enumerate() {
        assert_eq!(*results, [Some(format!("a={row}+A"))]);
    }
    let places = crash_everywhere(start, |driver| {
        many_subscribers(driver);
        pipe(driver, ("right", "a", Some("A")));
        pipe(driver, ("right", "a", None));
        driver.committed()
    });
    assert!(places > 20, "{places}");
}

#[test]
fn a_second_update_in_the_middle_begins_anew_with_the_newer_value() {
    let mut app = App::new("a");
    inner_by(&mut app, &join().at_once(2));
    let mut driver = TestDriver::new(app);
    many_subscribers(&mut driver);
    let update = |value: &str| Input::new("a", Some(value.to_owned()));
    driver.pipe_all(&rows("right"), [update("A"), update("B")]);
    let found = results(&mut driver);
    assert_eq!(found.len(), 10);
    let (mut with_both, mut with_one) = (0, 0);
    for (row, results) in found.values().enumerate() {
        let of = |right: &str| Some(format!("a={row}+{right}"));
        assert_eq!(results.last(), Some(&of("B")), "{found:?}");
        match results.contains(&of("A")) {
            true => with_both += 1,
            false => with_one += 1,
        }
        // Never back to the earlier value.
        let first_new = results
            .iter()
            .position(|result| *result == of("B"))
            .unwrap();
        assert!(results[first_new..].iter().all(|it| *it == of("B")));
    }
    assert!(
        with_both > 0 && with_one > 0,
        "the second update came in the middle: {with_both}, {with_one}"
    );
}

#[test]
fn a_subscriber_that_comes_or_leaves_in_the_middle_has_the_newest_value() {
    let mut app = App::new("a");
    inner_by(&mut app, &join().at_once(1));
    let mut driver = TestDriver::new(app);
    many_subscribers(&mut driver);
    driver.hold();
    pipe(&mut driver, ("right", "a", Some("A")));
    pipe(&mut driver, ("left", "k9", Some("b=9")));
    pipe(&mut driver, ("left", "new", Some("a=new")));
    driver.release();
    let found = results(&mut driver);
    assert_eq!(found["new"].last(), Some(&Some("a=new+A".to_owned())));
    let k9 = found.get("k9").and_then(|results| results.last().cloned());
    assert_eq!(k9.flatten(), None);
    assert_eq!(found["k8"], [Some("a=8+A".to_owned())]);
}

#[test]
fn foreign_keys_that_begin_alike_are_kept_apart() {
    check(
        inner,
        &[
            ("left", "bc", Some("a=1")),
            ("left", "c", Some("ab=2")),
            ("right", "a", Some("A")),
            ("right", "ab", Some("B")),
        ],
        &[("bc", Some("a=1+A")), ("c", Some("ab=2+B"))],
    );
}

#[test]
fn tables_may_have_other_partition_counts_and_partitioners() {
    let right = || rows("right").partition_by("by-length", |key, n| key.len() as u32 % n);
    let mut app = App::new("a");
    let names = app.table(&right(), &store("right"));
    table(&mut app, "left")
        .left_join_by(&names, &join(), key_of, |left, right| {
            format!("{left}+{}", right.map_or("-", String::as_str))
        })
        .to(&rows("out"));
    let mut driver = TestDriver::builder()
        .partitions("left", 2)
        .partitions("right", 5)
        .start(app);
    for row in 0..12 {
        let name = "x".repeat(row % 4 + 1);
        driver.pipe(&right(), name.as_str(), Some(format!("R{row}")));
        pipe(
            &mut driver,
            ("left", &format!("k{row}"), Some(&format!("{name}={row}"))),
        );
    }
    let last = results(&mut driver);
    for row in 0..12 {
        let (name, newest) = ("x".repeat(row % 4 + 1), 8 + row % 4);
        let expected = Some(format!("{name}={row}+R{newest}"));
        assert_eq!(last[&format!("k{row}")].last(), Some(&expected));
    }
}

#[test]
fn what_can_not_be_joined_is_refused() {
    let text = mistakes(|app| {
        let mut other = App::new("b");
        let right = table(&mut other, "right");
        table(app, "left")
            .join_by(&right, &join(), key_of, |left, _| left.clone())
            .to(&rows("out"));
    });
    assert!(
        text.contains("`join_by` received a table of another app"),
        "{text}"
    );
    let text = mistakes(|app| {
        let (left, right) = (table(app, "left"), table(app, "right"));
        let twice = left.join_by(&right, &join(), key_of, |_, right| right.clone());
        twice
            .join_by(&right, &join(), key_of, |left, _| left.clone())
            .to(&rows("out"));
    });
    assert!(text.contains("join"), "{text}");
    let mut app = App::new("a");
    app.guarantee(Guarantee::AtLeastOnce);
    left(&mut app);
    let text = TestDriver::build(app).err().map(|e| e.to_string());
    assert!(
        text.as_deref()
            .is_some_and(|text| text.contains("left_join_by")),
        "{text:?}"
    );
}

#[test]
fn the_description_names_topics_stores_and_the_guarantee() {
    let mut app = App::new("a");
    inner(&mut app);
    let description = app.describe().unwrap();
    let text = description.to_string();
    for part in [
        "KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION",
        "a-join-subscriptions",
        "KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR",
        "a-join-answers",
        "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR",
        "(stores: [join",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let guarantees = description.guarantees().to_string();
    assert!(
        guarantees.contains("no result is older than the one before"),
        "{guarantees}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn the_last_results_are_the_join_of_the_last_rows(
        updates in proptest::collection::vec((any::<bool>(), 0..4u8, proptest::option::of(0..4u8)), 0..40),
        // Most values have three or four bytes.
        most_kept in proptest::sample::select(vec![0, 3, 512]),
    ) {
        let (mut lefts, mut rights) = (BTreeMap::new(), BTreeMap::new());
        let mut app = App::new("a");
        left_by(&mut app, &join().keep_right(most_kept));
        let mut driver = TestDriver::builder().hold().start(app);
        for (number, (is_left, key, value)) in updates.into_iter().enumerate() {
            let topic = if is_left { "left" } else { "right" };
            let (side, key) = match is_left {
                true => (&mut lefts, format!("k{key}")),
                false => (&mut rights, key.to_string()),
            };
            let value = value.map(|value| match (is_left, value) {
                (true, 3) => format!("={number}"),
                (true, _) => format!("{value}={number}"),
                (false, _) => format!("{key}:{number}"),
            });
            pipe(&mut driver, (topic, &key, value.as_deref()));
            // The other updates arrive before the responses to the earlier updates.
            if number % 5 == 4 {
                driver.release();
                driver.hold();
            }
            match value {
                Some(value) => side.insert(key, value),
                None => side.remove(&key),
            };
        }
        driver.release();
        let mut last: BTreeMap<String, Option<String>> = BTreeMap::new();
        let results = driver.read_pairs(&rows("out"));
        for (left, right) in results.iter().filter_map(|(_, result)| result.as_ref()?.split_once('+')) {
            let of_another = right != "-" && right.split(':').next() != foreign(left).as_deref();
            prop_assert!(!of_another, "{left} has {right}");
        }
        last.extend(results);
        last.retain(|_, value| value.is_some());
        let joined = lefts.into_iter().map(|(key, left)| {
            let right = foreign(&left).and_then(|key| rights.get(&key));
            let right = right.map_or("-", String::as_str);
            (key, Some(format!("{left}+{right}")))
        });
        prop_assert_eq!(last, joined.collect());
    }
}

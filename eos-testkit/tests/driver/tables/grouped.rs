//! Groups of tables, with results that subtract.

use std::collections::BTreeMap;

use eos_core::{App, ErrorPolicy, KeyValueStore, PlainTopic, Topic};
use eos_testkit::{Input, OutputRecord, TestDriver};
use proptest::prelude::*;

use super::{check, mistakes, pipe, rows, store, table};

/// Values are `<group>` or `<group>=<number>`.
fn group(value: &str) -> String {
    value.split('=').next().unwrap_or_default().to_owned()
}

fn number(value: &str) -> i64 {
    let number = value.split('=').nth(1);
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn sums() -> PlainTopic<String, i64> {
    Topic::plain("out")
}

fn sum(app: &mut App) {
    table(app, "in")
        .group_by(&Topic::<String, i64>::plain("by-group"), |_, value| {
            (group(value), number(value))
        })
        .reduce(
            &KeyValueStore::plain("sums"),
            |sum, new| sum + new,
            |sum, old| sum - old,
        )
        .to(&sums());
}

#[test]
fn a_count_follows_the_rows() {
    check(
        |app| {
            table(app, "in")
                .group_by(&Topic::<String, u64>::plain("by-group"), |_, value| {
                    (group(value), 1)
                })
                .count(&KeyValueStore::plain("counts"))
                .to_stream()
                .map(|count| Some(count.to_string()))
                .to(&rows("out"));
        },
        &[
            ("in", "k", Some("eu")),
            ("in", "l", Some("eu")),
            ("in", "k", Some("eu")),
            ("in", "k", Some("us")),
            ("in", "l", None),
            ("in", "l", None),
        ],
        &[
            ("eu", Some("1")),
            ("eu", Some("2")),
            ("eu", Some("2")),
            ("eu", Some("1")),
            ("us", Some("1")),
            ("eu", Some("0")),
        ],
    );
}

#[test]
fn an_update_within_a_group_is_one_update_of_its_result() {
    let mut app = App::new("a");
    sum(&mut app);
    let mut driver = TestDriver::new(app);
    for value in ["eu=5", "eu=7", "us=7"] {
        pipe(&mut driver, ("in", "k", Some(value)));
    }
    // KIP-904: never 0 in between.
    let expected = [("eu", 5), ("eu", 7), ("eu", 0), ("us", 7)];
    let expected = expected.map(|(group, sum)| (group.to_owned(), sum));
    assert_eq!(driver.read_pairs(&sums()), expected);
}

#[test]
fn an_aggregate_may_delete_its_group() {
    check(
        |app| {
            table(app, "in")
                .group_by(&Topic::<String, String>::plain("by-group"), |key, value| {
                    (group(value), key.clone())
                })
                .aggregate_or_delete(
                    &store("keys"),
                    String::new,
                    |_, key, keys| Some(keys + &key),
                    |_, key, keys| Some(keys.replacen(&key, "", 1)).filter(|it| !it.is_empty()),
                )
                .to(&rows("out"));
        },
        &[
            ("in", "k", Some("eu")),
            ("in", "l", Some("eu")),
            ("in", "k", None),
            ("in", "l", Some("us")),
        ],
        &[
            ("eu", Some("k")),
            ("eu", Some("kl")),
            ("eu", Some("l")),
            ("eu", None),
            ("us", Some("l")),
        ],
    );
}

#[test]
fn a_row_without_a_result_to_subtract_from_goes_to_the_policy_with_the_fix() {
    let mut app = App::new("a");
    app.on_error(ErrorPolicy::dead_letter("letters"));
    table(&mut app, "in")
        .group_by(&Topic::<String, i64>::plain("by-group"), |_, value| {
            (group(value), number(value))
        })
        .aggregate(
            &KeyValueStore::<String, i64>::plain("sums"),
            || 0,
            |_, new, sum| {
                assert_ne!(new, 13, "unlucky");
                sum + new
            },
            |_, old, sum| sum - old,
        )
        .to(&sums());
    let mut driver = TestDriver::new(app);
    for value in ["eu=13", "us=5"] {
        pipe(&mut driver, ("in", "k", Some(value)));
    }
    // The row never joined its first group.
    let letters = driver.read(&Topic::<String, Vec<u8>>::plain("letters"));
    let [unlucky, left] = &letters[..] else {
        panic!("{letters:?}");
    };
    let reason = |letter: &OutputRecord<String, Vec<u8>>| {
        let message = letter.headers.get("__streams.errors.message");
        String::from_utf8_lossy(message.unwrap()).into_owned()
    };
    assert!(reason(unlucky).contains("unlucky"), "{unlucky:?}");
    let text = reason(left);
    assert!(text.contains("no result in the store sums"), "{text}");
    assert!(text.contains("reset the app's state"), "{text}");
    assert_eq!(driver.read_pairs(&sums()), [("us".to_owned(), 5)]);
}

#[test]
fn a_group_that_is_deleted_too_early_stops_the_app_without_advice_to_skip() {
    let mut app = App::new("a");
    table(&mut app, "in")
        .group_by(&Topic::<String, i64>::plain("by-group"), |_, value| {
            (group(value), number(value))
        })
        .aggregate_or_delete(
            &KeyValueStore::<String, i64>::plain("sums"),
            || 0,
            |_, new, sum| Some(sum + new),
            // Wrong: a sum of 0 may have rows.
            |_, old, sum| Some(sum - old).filter(|sum| *sum != 0),
        )
        .to(&Topic::<String, Option<i64>>::plain("out"));
    let mut driver = TestDriver::new(app);
    for (key, value) in [("k", Some("eu=5")), ("l", Some("eu=0")), ("k", None)] {
        pipe(&mut driver, ("in", key, value));
    }
    let last = Input::<String, Option<String>>::new("l", None::<String>);
    let error = driver.try_pipe(&rows("in"), last).unwrap_err().to_string();
    assert!(
        error.contains("a closure of `aggregate_or_delete`"),
        "{error}"
    );
    assert!(error.contains("under a new name"), "{error}");
    assert!(!error.contains("can skip"), "{error}");
}

#[test]
fn two_groupings_of_one_table_need_two_names() {
    let text = mistakes(|app| {
        let all = table(app, "in");
        for name in ["one", "two"] {
            all.clone()
                .group_by(&Topic::<String, i64>::plain("same"), |_, value| {
                    (group(value), 1)
                })
                .count(&KeyValueStore::plain(name))
                .to(&Topic::plain(name));
        }
    });
    assert!(text.contains("same"), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn sums_are_those_of_the_final_rows(
        updates in proptest::collection::vec((0..4u8, proptest::option::of((0..3u8, 0..9i64))), 0..40),
    ) {
        let mut app = App::new("a");
        sum(&mut app);
        let mut driver = TestDriver::new(app);
        let mut table = BTreeMap::new();
        for (key, value) in updates {
            match value {
                Some(value) => table.insert(key, value),
                None => table.remove(&key),
            };
            let text = value.map(|(group, number)| format!("g{group}={number}"));
            pipe(&mut driver, ("in", &key.to_string(), text.as_deref()));
        }
        let mut expected = BTreeMap::<String, i64>::new();
        for (group, number) in table.values() {
            *expected.entry(format!("g{group}")).or_default() += number;
        }
        let mut found = driver.read_map(&sums());
        found.retain(|group, sum| *sum != 0 || expected.contains_key(group));
        prop_assert_eq!(found, expected);
    }
}

/// As in Kafka Streams (`KTableRepartitionMap`).
#[test]
fn a_row_whose_new_key_is_null_is_in_no_group() {
    let counts = Topic::<Option<String>, u64>::plain("counts");
    let mut app = App::new("a");
    let topic = Topic::<Option<String>, u64>::plain("by-group");
    table(&mut app, "in")
        .group_by(&topic, |_, value| {
            (Some(value.clone()).filter(|it| it != "none"), 1)
        })
        .count(&KeyValueStore::plain("groups"))
        .to(&counts);
    let mut driver = TestDriver::new(app);
    for value in [
        Some("none"),
        Some("eu"),
        Some("none"),
        None,
        Some("none"),
        Some("us"),
        None,
    ] {
        pipe(&mut driver, ("in", "k", value));
    }
    let expected = [("eu", 1), ("eu", 0), ("us", 1), ("us", 0)];
    let expected = expected.map(|(key, n)| (Some(key.to_owned()), n));
    assert_eq!(driver.read_pairs(&counts), expected);
}

/// A later version of an app may group a stream where an earlier one grouped a table.
#[test]
fn its_topic_is_not_that_of_a_stream() {
    let counts = |name: &str| Topic::<String, u64>::plain(name);
    let topic = Topic::<String, String>::plain("by-value");
    let mut app = App::new("a");
    app.source(&Topic::<String, String>::plain("events"))
        .repartition(&topic)
        .group_by_key()
        .count(&KeyValueStore::plain("events"))
        .to(&counts("events-out"));
    table(&mut app, "in")
        .group_by(&topic, |_, value| (value.clone(), value.clone()))
        .count(&KeyValueStore::plain("groups"))
        .to(&counts("rows-out"));
    let mut driver = TestDriver::new(app);
    driver.pipe(&Topic::<String, String>::plain("events"), "eu", "x");
    pipe(&mut driver, ("in", "k", Some("eu")));
    let one = [("eu".to_owned(), 1)];
    assert_eq!(driver.read_pairs(&counts("events-out")), one);
    assert_eq!(driver.read_pairs(&counts("rows-out")), one);
}

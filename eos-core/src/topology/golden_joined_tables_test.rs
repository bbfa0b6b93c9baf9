//! Replays Kafka Streams' results of tables that are made of other tables, or of a stream.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::golden_test::{cases, replayed_as};
use crate::windows::Sides;
use crate::{App, KeyValueStore, PlainTopic, Table, Topic};

type Rows = Table<String, String>;

fn tombstones(name: &str) -> PlainTopic<String, Option<String>> {
    Topic::plain(name)
}

fn table(app: &mut App, topic: &str, store: &str) -> Rows {
    app.table(&tombstones(topic), &KeyValueStore::plain(store))
}

/// The form that Kafka Streams has, too: the new table has no store.
fn declare(operator: &str, app: &mut App) {
    steps(operator, app).to(&tombstones("out"));
}

/// With a store behind the step.
fn declare_stored(operator: &str, app: &mut App) {
    steps(operator, app)
        .stored(&KeyValueStore::plain("results"))
        .to(&tombstones("out"));
}

/// The tables before the step are made of other tables, so reads go through them.
fn declare_behind_steps(operator: &str, app: &mut App) {
    let mut side = |topic| {
        let kept = table(app, topic, topic).map(|value| format!("-{value}"));
        kept.filter(|value| value.starts_with('-'))
            .map(|value| value.replacen('-', "", 1))
    };
    join(operator, side("left"), &side("right")).to(&tombstones("out"));
}

fn steps(operator: &str, app: &mut App) -> Rows {
    match operator {
        "table_filter" => table(app, "table", "store").filter(|value| !value.starts_with('-')),
        "table_map" => table(app, "table", "store").map(|value| value + "!"),
        "to_table" => app
            .source(&tombstones("in"))
            .to_table(&KeyValueStore::plain("store")),
        join_of_tables => {
            let left = table(app, "left", "left");
            join(join_of_tables, left, &table(app, "right", "right"))
        }
    }
}

fn join(operator: &str, left: Rows, right: &Rows) -> Rows {
    match operator {
        "table_join" => left.join(right, |left, right| format!("{left}+{right}")),
        "table_left_join" => left.left_join(right, |left, right| {
            format!("{left}+{}", right.map_or("-", |right| right))
        }),
        "table_outer_join" => left.outer_join(right, |sides| match sides {
            Sides::Left(left) => format!("{left}+-"),
            Sides::Right(right) => format!("-+{right}"),
            Sides::Both(left, right) => format!("{left}+{right}"),
        }),
        other => panic!("{other}"),
    }
}

fn declare_groups(operator: &str, app: &mut App) {
    // A selector that returned null in Java: who has no new key is filtered out.
    let rows = table(app, "table", "rows").filter(|value| !value.is_empty());
    let groups = rows.group_by(&Topic::plain("by-first-letter"), |_, value: &String| {
        (value.chars().take(1).collect::<String>(), value.clone())
    });
    let (store, out) = (KeyValueStore::plain("store"), Topic::plain("out"));
    match operator {
        "table_group_count" => groups
            .count(&KeyValueStore::plain("store"))
            .to(&Topic::plain("out")),
        "table_group_reduce" => groups
            .reduce(
                &store,
                |old, value| format!("{old}|{value}"),
                |old, value| format!("{old}/{value}"),
            )
            .to(&out),
        "table_group_aggregate" => groups
            .aggregate_or_delete(
                &store,
                || "<".to_owned(),
                |_, value, so_far| (!value.ends_with('-')).then(|| format!("{so_far}+{value}")),
                |_, value, so_far| (!value.ends_with('!')).then(|| format!("{so_far}/{value}")),
            )
            .to(&tombstones("out")),
        other => panic!("{other}"),
    }
}

/// The form whose results never delete.
fn declare_aggregate(_: &str, app: &mut App) {
    table(app, "table", "rows")
        .filter(|value| !value.is_empty())
        .group_by(&Topic::plain("by-first-letter"), |_, value: &String| {
            (value.chars().take(1).collect::<String>(), value.clone())
        })
        .aggregate(
            &KeyValueStore::<String, String>::plain("store"),
            || "<".to_owned(),
            |_, value, so_far| format!("{so_far}+{value}"),
            |_, value, so_far| format!("{so_far}/{value}"),
        )
        .to(&Topic::plain("out"));
}

/// The lines of a case, as an app of ours answers: without tombstones of results that never were (`DIFFERENCES.md`).
/// Returns the number of these.
fn without_needless(lines: &mut Vec<Value>) -> usize {
    let mut there = HashSet::new();
    let before = lines.len();
    lines.retain(|line| {
        let Some(out) = line.get("out") else {
            return true;
        };
        let key = out["key"].to_string();
        if out["value"].is_null() {
            there.remove(&key)
        } else {
            there.insert(key);
            true
        }
    });
    before - lines.len()
}

/// The lines of a case without results that follow the tombstone of a row that was missing. Returns the number of these.
fn without_repeated(lines: &mut Vec<Value>) -> usize {
    let (mut there, mut is_repeated) = (HashSet::new(), false);
    let before = lines.len();
    lines.retain(|line| {
        if let Some(row) = line.get("in") {
            let key = (row["topic"].to_string(), row["key"].to_string());
            is_repeated = match row["value"].is_null() {
                true => !there.remove(&key),
                false => {
                    there.insert(key);
                    false
                }
            };
        }
        line.get("out").is_none() || !is_repeated
    });
    before - lines.len()
}

/// Replays all cases. Returns their number.
fn all(
    operators: &[&'static str],
    declare: &dyn Fn(&str, &mut App),
    change: &dyn Fn(&mut Vec<Value>),
) -> BTreeMap<&'static str, (usize, usize)> {
    replayed_as(operators, declare, &|_| None, change)
}

const STEPS: [&str; 3] = ["table_filter", "table_map", "to_table"];
const JOINS: [&str; 3] = ["table_join", "table_left_join", "table_outer_join"];
const GROUPS: [&str; 3] = [
    "table_group_count",
    "table_group_reduce",
    "table_group_aggregate",
];

fn leave_out_needless(lines: &mut Vec<Value>) {
    if lines[0]["case"]["operator"] != "to_table" {
        without_needless(lines);
    }
}

#[test]
fn steps_of_tables_answer_as_kafka_streams_does() {
    let expected = STEPS.map(|operator| (operator, (9, 9)));
    let replayed = all(&STEPS, &declare, &leave_out_needless);
    assert_eq!(replayed, BTreeMap::from(expected));
}

#[test]
fn joins_of_tables_answer_as_kafka_streams_does() {
    let expected = BTreeMap::from(JOINS.map(|operator| (operator, (11, 11))));
    assert_eq!(all(&JOINS, &declare, &leave_out_needless), expected);
    // Behind other steps, left and outer joins do not repeat their result for a tombstone of a missing row, see
    // `DIFFERENCES.md`.
    let differ = RefCell::new(Vec::new());
    let change = |lines: &mut Vec<Value>| {
        leave_out_needless(lines);
        if without_repeated(lines) > 0 {
            let (operator, name) = (&lines[0]["case"]["operator"], &lines[0]["case"]["name"]);
            let name = format!("{}/{}", operator.as_str().unwrap(), name.as_str().unwrap());
            differ.borrow_mut().push(name);
        }
    };
    assert_eq!(all(&JOINS, &declare_behind_steps, &change), expected);
    let listed = [
        "table_left_join/random_52",
        "table_left_join/random_53",
        "table_left_join/transitions_right",
        "table_outer_join/random_52",
        "table_outer_join/random_53",
        "table_outer_join/transitions_left",
        "table_outer_join/transitions_right",
    ];
    assert_eq!(differ.into_inner(), listed);
}

#[test]
fn stored_results_are_the_same_ones() {
    let operators = [&STEPS[..2], &JOINS].concat();
    let replayed = all(&operators, &declare_stored, &leave_out_needless);
    assert_eq!(replayed.values().map(|(done, _)| done).sum::<usize>(), 51);
}

#[test]
fn groups_of_tables_answer_as_kafka_streams_does() {
    let nothing_to_subtract_from = |case: &Value| {
        (case["name"] == "nothing_to_subtract_from_same_group")
            .then_some("the record fails: there is nothing to subtract from")
    };
    let change = |lines: &mut Vec<Value>| {
        // The record that fails has no tombstone.
        if lines[0]["case"]["name"] == "nothing_to_subtract_from" {
            assert_eq!(without_needless(lines), 1);
        }
    };
    let replayed = replayed_as(&GROUPS, &declare_groups, &nothing_to_subtract_from, &change);
    let expected = [
        ("table_group_count", (9, 9)),
        ("table_group_reduce", (9, 9)),
        ("table_group_aggregate", (14, 15)),
    ];
    assert_eq!(replayed, BTreeMap::from(expected));
    let deletes = |case: &Value| {
        let name = case["name"].as_str().unwrap();
        (name.starts_with("null_sum")
            || name.starts_with("null_rest")
            || name.starts_with("delete_at_first")
            || name.starts_with("nothing_to_subtract_from"))
        .then_some("`aggregate` always has a result")
    };
    let replayed = replayed_as(&GROUPS[2..], &declare_aggregate, &deletes, &|_| ());
    assert_eq!(
        replayed,
        BTreeMap::from([("table_group_aggregate", (9, 15))])
    );
}

/// The cases that `DIFFERENCES.md` names have such tombstones, and no others.
#[test]
fn needless_tombstones_are_listed() {
    let text = fs::read_to_string(
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../integration-tests/golden/DIFFERENCES.md"),
    )
    .unwrap();
    let (_, text) = text.split_once("**A result that never was").unwrap();
    let (text, _) = text.split_once("\n\n").unwrap();
    let differ = [&STEPS[..2], &JOINS].concat().into_iter().flat_map(cases);
    let mut missing = Vec::new();
    for file in differ {
        let mut lines = super::golden_test::read(&file);
        let (operator, name) = (&lines[0]["case"]["operator"], &lines[0]["case"]["name"]);
        let case = format!(
            "*{}/{}*",
            operator.as_str().unwrap(),
            name.as_str().unwrap()
        );
        let needless = without_needless(&mut lines);
        if (needless > 0) != text.contains(&case) {
            missing.push((case, needless));
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}

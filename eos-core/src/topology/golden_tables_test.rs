//! Replays Kafka Streams' results of tables, joins and deletions.

use std::collections::BTreeMap;

use serde_json::Value;

use super::golden_test::replayed;
use super::tests::text;
use crate::{App, KeyValueStore, PlainTopic, Table, Topic};

fn tombstones(name: &str) -> PlainTopic<String, Option<String>> {
    Topic::plain(name)
}

fn store() -> KeyValueStore<String, String> {
    KeyValueStore::plain("store")
}

fn table(app: &mut App) -> Table<String, String> {
    app.table(&tombstones("table"), &store())
}

/// Two streams of different types.
fn cogroup_or_delete(app: &mut App) -> Table<String, String> {
    let lengths = app.source(&text("more")).map(|value| value.len());
    app.source(&text("in"))
        .group_by_key()
        .cogroup_or_delete(
            &store(),
            || "<".to_owned(),
            |_, value, so_far| (value != "-").then(|| format!("{so_far}{value};")),
        )
        .and(lengths.group_by_key(), |_, length, so_far| {
            Some(format!("{so_far}#{length};"))
        })
        .into_table()
}

fn declare(operator: &str, app: &mut App) {
    // A joiner that returned null in Java.
    let joined = |left: String, right: &str| (left != "-").then(|| format!("{left}+{right}"));
    match operator {
        "table" => table(app).to(&tombstones("out")),
        "join" => {
            let table = table(app);
            app.source(&text("stream"))
                .join(&table, move |left, right| joined(left, &right))
                .to(&tombstones("out"));
        }
        "left_join" => {
            let table = table(app);
            app.source(&text("stream"))
                .left_join(&table, move |left, right| {
                    joined(left, right.as_deref().unwrap_or("none"))
                })
                .to(&tombstones("out"));
        }
        "reduce_concat" => app
            .source(&text("in"))
            .group_by_key()
            .reduce_or_delete(&store(), |old, new| {
                (new != "-").then(|| format!("{old}|{new}"))
            })
            .to(&tombstones("out")),
        "aggregate" => app
            .source(&text("in"))
            .group_by_key()
            .aggregate_or_delete(
                &store(),
                || "<".to_owned(),
                |_, value, so_far| (value != "-").then(|| format!("{so_far}{value};")),
            )
            .to(&tombstones("out")),
        "cogroup" => cogroup_or_delete(app).to(&tombstones("out")),
        "group_by_count" => app
            .source(&Topic::<Option<String>, String>::plain("in"))
            .filter(|value| !value.is_empty())
            .group_by(
                |value| value.chars().take(1).collect::<String>(),
                &Topic::plain("by-first-letter"),
            )
            .count(&KeyValueStore::plain("store"))
            .to(&Topic::plain("out")),
        other => panic!("{other}"),
    }
}

/// Returns the entry of a case in `DIFFERENCES.md`, if the results differ.
fn beyond(case: &Value) -> Option<&'static str> {
    match (
        case["operator"].as_str().unwrap(),
        case["name"].as_str().unwrap(),
    ) {
        ("left_join", "null_stream_key") => {
            Some("a null key is a type: the record without one fails, and has no result")
        }
        ("cogroup_twice", _) => Some("a stream that is added twice adds twice"),
        _ => case
            .get("negative_timestamps")
            .map(|_| "a negative time is no error here: the record has none"),
    }
}

#[test]
fn tables_and_joins_answer_as_kafka_streams_does() {
    let operators = [
        "table",
        "join",
        "left_join",
        "reduce_concat",
        "aggregate",
        "cogroup",
        "cogroup_twice",
        "group_by_count",
    ];
    let replayed = replayed(&operators, &declare, &beyond);
    let expected = [
        ("aggregate", (11, 11)),
        ("cogroup", (11, 11)),
        ("cogroup_twice", (0, 1)),
        ("group_by_count", (9, 9)),
        ("join", (19, 19)),
        ("left_join", (18, 19)),
        ("reduce_concat", (7, 7)),
        ("table", (13, 13)),
    ];
    assert_eq!(replayed, BTreeMap::from(expected));
}

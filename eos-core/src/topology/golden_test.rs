//! Replays the recorded results of Kafka Streams: `integration-tests/golden`.

pub(super) mod driver;
mod windows;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use self::driver::{Driver, Piece};
use crate::{App, KeyValueStore, Topic};

fn declare(operator: &str, app: &mut App) {
    let text = || Topic::<String, String>::plain("in");
    let numbers = || Topic::<String, i64>::plain("in");
    let (counts, count_out) = (
        KeyValueStore::<String, u64>::plain("store"),
        Topic::<String, u64>::plain("out"),
    );
    let (texts, text_out) = (
        KeyValueStore::<String, String>::plain("store"),
        Topic::<String, String>::plain("out"),
    );
    match operator {
        "count" => app
            .source(&text())
            .group_by_key()
            .count(&counts)
            .to(&count_out),
        "reduce_sum" => app
            .source(&numbers())
            .group_by_key()
            .reduce(&KeyValueStore::plain("store"), i64::wrapping_add)
            .to(&Topic::plain("out")),
        "reduce_concat" => app
            .source(&text())
            .group_by_key()
            .reduce(&texts, |old, new| format!("{old}|{new}"))
            .to(&text_out),
        "aggregate" => app
            .source(&text())
            .group_by_key()
            .aggregate(
                &texts,
                || "<".to_owned(),
                |_, value, so_far| format!("{so_far}{value};"),
            )
            .to(&text_out),
        "cogroup" => {
            let lengths = app.source(&Topic::<String, String>::plain("more"));
            let lengths = lengths.map(|value| value.len()).group_by_key();
            app.source(&text())
                .group_by_key()
                .cogroup(
                    &texts,
                    || "<".to_owned(),
                    |_, value, so_far| format!("{so_far}{value};"),
                )
                .and(lengths, |_, length, so_far| format!("{so_far}#{length};"))
                .into_table()
                .to(&text_out);
        }
        "word_count" => app
            .source(&Topic::<Option<String>, String>::plain("in"))
            .flat_map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>())
            .key_by(String::clone)
            .repartition(&Topic::plain("words"))
            .group_by_key()
            .count(&counts)
            .to(&count_out),
        other => panic!("{other}"),
    }
}

/// Returns the reason why a case can't be replayed, if there is one.
fn beyond(case: &Value) -> Option<&'static str> {
    let name = case["name"].as_str().unwrap();
    if case.get("negative_timestamps").is_some() {
        return Some("a negative time is no error here: the record has none");
    }
    let deletes = case["operator"] == "cogroup" && name.starts_with("random");
    (deletes || name.starts_with("null_result") || name == "delete_at_first")
        .then_some("`reduce` and `aggregate` always have a result: `golden_tables_test`")
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Null => None,
        Value::Number(n) => Some(n.as_i64().unwrap().to_be_bytes().to_vec()),
        text => Some(text.as_str().unwrap().as_bytes().to_vec()),
    }
}

fn piece(record: &Value) -> Piece {
    Piece {
        topic: record["topic"].as_str().unwrap().to_owned(),
        key: bytes(&record["key"]),
        value: bytes(&record["value"]),
        timestamp: record["timestamp"].as_i64().unwrap(),
    }
}

/// The lines of a case.
pub(super) fn read(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// The cases of an operator, in order.
pub(super) fn cases(operator: &str) -> Vec<PathBuf> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../integration-tests/golden/cases");
    let files = fs::read_dir(cases.join(operator)).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

/// Replays a case on the declared app, unless `beyond` returns a reason against it. `change` changes its lines to what is
/// expected of us. Returns whether it replayed the case.
fn replay(
    file: &Path,
    declare: &dyn Fn(&mut App),
    beyond: &dyn Fn(&Value) -> Option<&'static str>,
    change: &dyn Fn(&mut Vec<Value>),
) -> bool {
    let mut lines = read(file);
    if beyond(&lines[0]["case"]).is_some() {
        return false;
    }
    change(&mut lines);
    let mut app = App::new("golden");
    declare(&mut app);
    let mut driver = Driver::new(&app);
    let (mut emitted, mut expected, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    for line in &lines[1..] {
        if let Some(record) = line.get("in") {
            assert_eq!(emitted, expected, "{} before {record}", file.display());
            emitted.extend(driver.pipe(piece(record)));
        } else if let Some(record) = line.get("out") {
            expected.push(piece(record));
        } else if let Some(entry) = line.get("store") {
            kept.push((
                bytes(&entry["key"]).unwrap(),
                bytes(&entry["value"]).unwrap(),
                entry["timestamp"].as_i64().unwrap(),
            ));
        } else {
            assert!(line.get("dropped").is_some(), "{line}");
        }
    }
    assert_eq!(emitted, expected, "{}", file.display());
    assert_eq!(driver.kept(), kept, "{}", file.display());
    true
}

/// The number of replayed cases and of all cases, for each operator.
pub(super) fn replayed<'a>(
    operators: &[&'a str],
    declare: &dyn Fn(&str, &mut App),
    beyond: &dyn Fn(&Value) -> Option<&'static str>,
) -> BTreeMap<&'a str, (usize, usize)> {
    replayed_as(operators, declare, beyond, &|_| ())
}

/// Like [`replayed`], with a change of the cases' lines to what is expected of us.
pub(super) fn replayed_as<'a>(
    operators: &[&'a str],
    declare: &dyn Fn(&str, &mut App),
    beyond: &dyn Fn(&Value) -> Option<&'static str>,
    change: &dyn Fn(&mut Vec<Value>),
) -> BTreeMap<&'a str, (usize, usize)> {
    let replayed = operators.iter().map(|&operator| {
        let files = cases(operator);
        let declare = |app: &mut App| declare(operator, app);
        let done = files
            .iter()
            .filter(|file| replay(file, &declare, beyond, change));
        (operator, (done.count(), files.len()))
    });
    replayed.collect()
}

#[test]
fn what_is_kept_per_key_is_what_kafka_streams_keeps() {
    let least = [
        ("aggregate", 7),
        ("cogroup", 6),
        ("count", 11),
        ("reduce_concat", 3),
        ("reduce_sum", 5),
        ("word_count", 5),
    ];
    let replayed = replayed(&least.map(|(operator, _)| operator), &declare, &beyond);
    for (operator, least) in least {
        assert!(replayed[operator].0 >= least, "{replayed:?}");
    }
}

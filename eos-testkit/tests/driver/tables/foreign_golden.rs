//! Replays the recorded results of Kafka Streams for joins by a foreign key: `integration-tests/golden`.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use eos_core::state::ForeignJoin;
use eos_core::{App, Timestamp};
use eos_testkit::TestDriver;
use serde_json::Value;

use super::{rows, table};

fn declare(operator: &str, app: &mut App) {
    let (left, right) = (table(app, "left"), table(app, "right"));
    let join = ForeignJoin::plain("join");
    let key = |value: &String| {
        let key = value.split('=').next().unwrap_or_default();
        (!key.is_empty()).then(|| key.to_owned())
    };
    let results = match operator {
        "foreign_inner" => {
            left.join_by(&right, &join, key, |left, right| format!("{left}+{right}"))
        }
        _ => left.left_join_by(&right, &join, key, |left, right| {
            format!("{left}+{}", right.map_or("-", String::as_str))
        }),
    };
    results.to(&rows("out"));
}

/// A result: key, value and time.
type Shown = (String, Option<String>, i64);

fn shown(record: &Value) -> Shown {
    (
        record["key"].as_str().unwrap().to_owned(),
        record["value"].as_str().map(str::to_owned),
        record["timestamp"].as_i64().unwrap(),
    )
}

/// Replays a case: each record is processed before the next one. Tombstones of results that never were are left out
/// (`DIFFERENCES.md`). Returns their number.
fn replay(operator: &str, file: &Path) -> usize {
    let text = fs::read_to_string(file).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut app = App::new("golden");
    declare(operator, &mut app);
    let mut driver = TestDriver::new(app);
    let (mut expected, mut found, mut needless) = (Vec::new(), Vec::new(), 0);
    let mut there = HashSet::new();
    for line in lines.skip(1) {
        if let Some(record) = line.get("in") {
            // The order of answers to one update is that of the keys in both.
            assert_eq!(found, expected, "{} before {record}", file.display());
            let (key, value, time) = shown(record);
            let topic = rows(record["topic"].as_str().unwrap());
            driver.pipe_at(&topic, key.as_str(), value, Timestamp(time));
            let read = driver.read(&rows("out")).into_iter();
            found.extend(read.map(|it| (it.key.clone(), it.value.clone(), it.timestamp.0)));
        } else if let Some(record) = line.get("out") {
            let result = shown(record);
            let is_needed = match result.1 {
                Some(_) => {
                    there.insert(result.0.clone());
                    true
                }
                None => there.remove(&result.0),
            };
            match is_needed {
                true => expected.push(result),
                false => needless += 1,
            }
        }
    }
    assert_eq!(found, expected, "{}", file.display());
    needless
}

#[test]
fn joins_by_foreign_key_answer_as_kafka_streams_does() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../integration-tests/golden/cases");
    let mut needless = Vec::new();
    for operator in ["foreign_inner", "foreign_left"] {
        let mut files: Vec<_> = fs::read_dir(cases.join(operator))
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect();
        files.sort();
        assert_eq!(files.len(), 8);
        for file in files {
            if replay(operator, &file) > 0 {
                let name = file.file_stem().unwrap().to_string_lossy().into_owned();
                needless.push(format!("{operator}/{name}"));
            }
        }
    }
    let text = fs::read_to_string(cases.join("../DIFFERENCES.md")).unwrap();
    for case in &needless {
        assert!(
            text.contains(&format!("*{case}*")),
            "{case} is not listed: {needless:?}"
        );
    }
}

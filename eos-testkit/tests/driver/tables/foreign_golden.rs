//! Replays the recorded results of Kafka Streams for joins by a foreign key: `integration-tests/golden`.

use std::collections::{HashMap, HashSet};
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

/// Replays a case: each record is processed before the next one. Tombstones of results that never were are left out,
/// and a result has the later time of its rows (`DIFFERENCES.md`). Returns whether the case has such differences.
fn replay(operator: &str, file: &Path) -> bool {
    let text = fs::read_to_string(file).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut app = App::new("golden");
    declare(operator, &mut app);
    let mut driver = TestDriver::new(app);
    let (mut expected, mut found, mut differs) = (Vec::new(), Vec::new(), false);
    // The times of the left rows, and the topic of the last record.
    let (mut times, mut last) = (HashMap::new(), String::new());
    let mut there = HashSet::new();
    for line in lines.skip(1) {
        if let Some(record) = line.get("in") {
            // In both programs, the responses to one update are in the order of the keys.
            assert_eq!(found, expected, "{} before {record}", file.display());
            let (key, value, time) = shown(record);
            record["topic"].as_str().unwrap().clone_into(&mut last);
            if last == "left" {
                times.insert(key.clone(), time);
            }
            driver.pipe_at(&rows(&last), key.as_str(), value, Timestamp(time));
            let read = driver.read(&rows("out")).into_iter();
            found.extend(read.map(|it| (it.key.clone(), it.value.clone(), it.timestamp.0)));
        } else if let Some(record) = line.get("out") {
            let mut result = shown(record);
            if let Some(time) = times.get(&result.0).filter(|_| last == "right")
                && result.2 < *time
            {
                (result.2, differs) = (*time, true);
            }
            let is_needed = match result.1 {
                Some(_) => {
                    there.insert(result.0.clone());
                    true
                }
                None => there.remove(&result.0),
            };
            match is_needed {
                true => expected.push(result),
                false => differs = true,
            }
        }
    }
    assert_eq!(found, expected, "{}", file.display());
    differs
}

#[test]
fn joins_by_foreign_key_answer_as_kafka_streams_does() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../integration-tests/golden/cases");
    let mut different = Vec::new();
    for operator in ["foreign_inner", "foreign_left"] {
        let mut files: Vec<_> = fs::read_dir(cases.join(operator))
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect();
        files.sort();
        assert_eq!(files.len(), 8);
        for file in files {
            if replay(operator, &file) {
                let name = file.file_stem().unwrap().to_string_lossy().into_owned();
                different.push(format!("{operator}/{name}"));
            }
        }
    }
    let text = fs::read_to_string(cases.join("../DIFFERENCES.md")).unwrap();
    for case in &different {
        assert!(
            text.contains(&format!("*{case}*")),
            "{case} is not listed: {different:?}"
        );
    }
}

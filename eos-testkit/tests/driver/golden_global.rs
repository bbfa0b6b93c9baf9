//! Golden cases of joins with a global table (`integration-tests/golden`).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use eos_core::{App, ErrorPolicy, PlainTopic, Timestamp, Topic};
use eos_testkit::TestDriver;
use serde_json::Value;

/// A topic whose keys and values may be null.
type Nullable = PlainTopic<Option<String>, Option<String>>;

fn nullable(name: &str) -> Nullable {
    Topic::plain(name)
}

/// A topic whose keys may be null.
fn texts(name: &str) -> PlainTopic<Option<String>, String> {
    Topic::plain(name)
}

/// The key of the row that a value selects: the part before the first `=`. `None` selects no row.
fn row_key(value: &str) -> Option<String> {
    let key = value.split('=').next().unwrap_or_default();
    (!key.is_empty()).then(|| key.to_owned())
}

/// Both inputs skip records that they can't decode. Kafka Streams drops the same records.
fn declare(operator: &str) -> App {
    let mut app = App::new("golden");
    let table = app
        .global_table(&nullable("global"), "global")
        .on_error(ErrorPolicy::skip());
    let stream = app.source(&texts("stream")).on_error(ErrorPolicy::skip());
    let results = match operator {
        "global_join" => stream.join_global(
            &table,
            |_, value| row_key(value),
            |value, row| format!("{value}+{row}"),
        ),
        _ => stream.left_join_global(
            &table,
            |_, value| row_key(value),
            |value, row| format!("{value}+{}", row.as_deref().unwrap_or("none")),
        ),
    };
    results.to(&texts("out"));
    app
}

/// A record: key, value and time.
type Shown = (Option<String>, Option<String>, i64);

fn shown(record: &Value) -> Shown {
    let text = |name: &str| record[name].as_str().map(str::to_owned);
    (
        text("key"),
        text("value"),
        record["timestamp"].as_i64().unwrap(),
    )
}

/// Replays a case and compares the results of each record. Returns whether an input skipped a record.
fn replay(operator: &str, file: &Path) -> bool {
    let text = fs::read_to_string(file).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut driver = TestDriver::new(declare(operator));
    let (mut expected, mut found) = (Vec::new(), Vec::new());
    for line in lines.skip(1) {
        if let Some(record) = line.get("in") {
            assert_eq!(found, expected, "{} before {record}", file.display());
            let topic = nullable(record["topic"].as_str().unwrap());
            let (key, value, time) = shown(record);
            driver.pipe_at(&topic, key, value, Timestamp(time));
            let read = driver.read(&nullable("out")).into_iter();
            found.extend(read.map(|it| (it.key, it.value, it.timestamp.0)));
        } else if let Some(record) = line.get("out") {
            expected.push(shown(record));
        }
    }
    assert_eq!(found, expected, "{}", file.display());
    let metrics = driver.metrics().unwrap();
    metrics.totals.skipped + metrics.globals[0].skipped > 0
}

/// `DIFFERENCES.md` lists the cases with skipped records. Under the default policy, such a record stops the app.
#[test]
fn joins_with_a_global_table_match_kafka_streams() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../integration-tests/golden/cases");
    let operators = ["global_join", "global_left_join"];
    let mut different = BTreeSet::new();
    for operator in operators {
        let files = fs::read_dir(cases.join(operator)).unwrap();
        let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        assert_eq!(files.len(), 18, "{operator}");
        for file in files {
            if replay(operator, &file) {
                let name = file.file_stem().unwrap().to_string_lossy();
                different.insert(format!("{operator}/{name}"));
            }
        }
    }
    let text = fs::read_to_string(cases.join("../DIFFERENCES.md")).unwrap();
    // The names of cases are in italics.
    let names = text.split('*').filter(|name| {
        let operator = name.split_once('/').map(|(operator, _)| operator);
        operator.is_some_and(|operator| operators.contains(&operator))
    });
    let listed: BTreeSet<String> = names.map(str::to_owned).collect();
    assert_eq!(different, listed);
}

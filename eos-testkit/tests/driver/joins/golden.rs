//! Replays the recorded results of Kafka Streams: `integration-tests/golden`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use eos_core::windows::Within;
use eos_core::{App, PlainTopic, Timestamp, Topic};
use eos_testkit::{Input, TestDriver};
use serde_json::Value;

use super::{Kind, join, results};

/// The cases in which Kafka Streams sends a record alone before its grace is over, although its partner may still come.
const EARLY: [(&str, &str); 4] = [
    ("left_join_within", "random_43"),
    ("outer_join_within", "after_only"),
    ("outer_join_within", "asymmetric"),
    ("outer_join_within", "random_43"),
];

/// Kafka Streams looks for records alone less often than they close, so the results alone of pseudo-random cases, and of cases
/// in which before and after differ, are compared at the end.
///
/// A result: key, value and time. Kafka Streams sends results alone before the pairs of the record that closes them; here,
/// they come behind it. So the results of an input are sorted.
type Shown = (String, String, i64);

fn replay(kind: Kind, operator: &str, file: &Path) {
    let text = fs::read_to_string(file).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let case = &lines[0]["case"];
    let ms = |name: &str| Duration::from_millis(case[name].as_u64().unwrap());
    let within = Within::of(Duration::ZERO)
        .before(ms("before_ms"))
        .after(ms("after_ms"))
        .grace(ms("grace_ms"));
    let topics: [PlainTopic<String, String>; 2] = ["left", "right"].map(Topic::plain);
    let mut app = App::new("golden");
    let [left, right] = topics.clone().map(|topic| app.source(&topic));
    join(kind, left, right, within).to(&results());
    let mut driver = TestDriver::new(app);
    let is_early = EARLY.contains(&(operator, case["name"].as_str().unwrap()));
    let is_random = case["name"].as_str().unwrap().starts_with("random");
    let at_the_end = is_random || within.before_time() != within.after_time();
    let (mut found, mut expected) = (Vec::new(), Vec::new());
    // Results alone that are compared at the end.
    let (mut alone, mut theirs): (Vec<Shown>, Vec<Shown>) = (Vec::new(), Vec::new());
    let mut pairs: Vec<Shown> = Vec::new();
    let shown = |out: &Value| {
        let text = |name: &str| out[name].as_str().unwrap().to_owned();
        (
            text("key"),
            text("value"),
            out["timestamp"].as_i64().unwrap(),
        )
    };
    let mut compare = |found: &mut Vec<Shown>, expected: &mut Vec<Shown>, place: &Value| {
        if is_early || at_the_end {
            for (results, kept) in [(&mut *found, &mut alone), (&mut *expected, &mut theirs)] {
                kept.extend(results.extract_if(.., |(_, value, _)| value.contains('-')));
            }
        }
        found.sort();
        expected.sort();
        pairs.extend(found.iter().cloned());
        assert_eq!(found, expected, "{file:?} before {place}");
        found.clear();
        expected.clear();
    };
    for line in &lines[1..] {
        if let Some(record) = line.get("in") {
            compare(&mut found, &mut expected, record);
            let mut topics = topics.iter();
            let topic = topics.find(|it| it.name() == record["topic"]).unwrap();
            let (key, value, time) = shown(record);
            driver.pipe_input(topic, Input::new(key, value).at(Timestamp(time)));
            let out = driver.read(&results()).into_iter();
            found.extend(out.map(|it| (it.key.clone(), it.value.clone(), it.timestamp.0)));
        } else if let Some(out) = line.get("out") {
            expected.push(shown(out));
        }
    }
    compare(&mut found, &mut expected, &Value::Null);
    // Each of theirs is one of ours. They come a few inputs later, so the last ones are missing.
    let mut rest = theirs.clone();
    let missing: Vec<usize> = (0..alone.len())
        .filter(|at| match rest.iter().position(|it| *it == alone[*at]) {
            Some(found) => {
                rest.swap_remove(found);
                false
            }
            None => true,
        })
        .collect();
    let are_last = missing.iter().all(|at| at + MOST_MISSING >= alone.len());
    assert!(are_last, "{file:?}: {missing:?} of {alone:?}, {theirs:?}");
    if !is_early {
        assert_eq!(rest, [], "{file:?}: {alone:?}");
    }
    // Those that they send too early: the record has a pair, or is still open at the end.
    let last = theirs.len().saturating_sub(MOST_MISSING);
    for early in rest {
        let record = early.1.replace('-', "");
        let mut of_key = pairs.iter().filter(|(key, _, _)| *key == early.0);
        let is_known = of_key.any(|(_, pair, _)| pair.contains(&record))
            || theirs.iter().skip(last).any(|it| *it == early);
        assert!(is_known, "{file:?}: {early:?} in {pairs:?}, {theirs:?}");
    }
}

/// The number of unpaired results that Kafka Streams has not sent at the end of a case.
const MOST_MISSING: usize = 5;

#[test]
fn joins_are_those_of_kafka_streams() {
    for (kind, operator) in [
        (Kind::Inner, "join_within"),
        (Kind::Left, "left_join_within"),
        (Kind::Outer, "outer_join_within"),
    ] {
        let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../integration-tests/golden/cases");
        let files = fs::read_dir(cases.join(operator)).unwrap();
        let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        assert!(files.len() >= 15, "{operator}: {}", files.len());
        files.iter().for_each(|file| replay(kind, operator, file));
    }
}

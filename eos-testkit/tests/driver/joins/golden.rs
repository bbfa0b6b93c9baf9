//! Replays the recorded results of Kafka Streams: `integration-tests/golden`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use eos_core::windows::Within;
use eos_core::{App, ErrorPolicy, PlainTopic, Timestamp, Topic};
use eos_testkit::{Input, TestDriver};
use serde_json::Value;

use super::{Kind, join, late, late_right, results, shown};

/// The cases in which Kafka Streams sends a record alone before its grace is over, although its partner may still come.
const EARLY: [(&str, &str); 4] = [
    ("left_join_within", "random_43"),
    ("outer_join_within", "after_only"),
    ("outer_join_within", "asymmetric"),
    ("outer_join_within", "random_43"),
];

/// A result: its key, value and time.
///
/// Kafka Streams searches for records without a pair less often than they close. So for pseudo-random cases, and for
/// cases in which before and after differ, the results without a pair are compared at the end.
///
/// Kafka Streams emits a result without a pair before the pairs of the record that closes it, and eos emits it after
/// them. So the results of an input are sorted.
type Shown = (String, String, i64);

fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn within(case: &Value) -> Within {
    let ms = |name: &str| Duration::from_millis(case[name].as_u64().unwrap());
    Within::of(Duration::ZERO)
        .before(ms("before_ms"))
        .after(ms("after_ms"))
        .grace(ms("grace_ms"))
}

fn replay(kind: Kind, operator: &str, file: &Path) {
    let lines = lines(file);
    let case = &lines[0]["case"];
    let within = within(case);
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
    // Each result of Kafka Streams must be a result of eos. They come a few inputs later, so the last ones are missing.
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
    // The results that Kafka Streams sends too early: the record has a pair, or is still open at the end.
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

const OPERATORS: [(Kind, &str); 3] = [
    (Kind::Inner, "join_within"),
    (Kind::Left, "left_join_within"),
    (Kind::Outer, "outer_join_within"),
];

fn folder(operator: &str) -> PathBuf {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../integration-tests/golden/cases");
    cases.join(operator)
}

#[test]
fn joins_are_those_of_kafka_streams() {
    for (kind, operator) in OPERATORS {
        let files = fs::read_dir(folder(operator)).unwrap();
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.retain(|file| OTHERWISE.iter().all(|name| !file.ends_with(name)));
        assert!(files.len() >= 15, "{operator}: {}", files.len());
        files.iter().for_each(|file| replay(kind, operator, file));
    }
}

/// The cases with late records and nulls. The tests below compare their results: `DIFFERENCES.md`.
const OTHERWISE: [&str; 4] = [
    "late.jsonl",
    "late_for_its_partners.jsonl",
    "null_key.jsonl",
    "null_value.jsonl",
];

/// Replays a case with `ErrorPolicy::skip`. Returns the results of Kafka Streams, the results of eos and the late
/// records of eos, each sorted.
fn replay_skipping(kind: Kind, operator: &str, name: &str) -> [Vec<String>; 3] {
    let lines = lines(&folder(operator).join(name));
    let topics: [PlainTopic<String, String>; 2] = ["left", "right"].map(Topic::plain);
    let mut app = App::new("golden");
    app.on_error(ErrorPolicy::skip());
    let [left, right] = topics.clone().map(|topic| app.source(&topic));
    join(kind, left, right, within(&lines[0]["case"]))
        .late_to(&late())
        .late_right_to(&late_right())
        .to(&results());
    let mut driver = TestDriver::new(app);
    let mut theirs = Vec::new();
    for line in &lines[1..] {
        if let Some(record) = line.get("in") {
            let topic = topics.iter().find(|it| it.name() == record["topic"]);
            let bytes = |name: &str| record[name].as_str().map(str::as_bytes);
            let input = Input::raw(bytes("key"), bytes("value"));
            let time = Timestamp(record["timestamp"].as_i64().unwrap());
            driver.pipe_input(topic.unwrap(), input.at(time));
        } else if let Some(out) = line.get("out") {
            let text = |name: &str| out[name].as_str().unwrap_or("null");
            theirs.push(format!(
                "{} {} @{}",
                text("key"),
                text("value"),
                out["timestamp"]
            ));
        }
    }
    let nulls = lines.iter().filter_map(|line| line.get("in"));
    let nulls = nulls.filter(|it| it["key"].is_null() || it["value"].is_null());
    let skipped = driver.metrics().unwrap().totals.skipped;
    assert_eq!(skipped, nulls.count() as u64, "{operator}: {name}");
    let ours = shown(&mut driver, &results());
    let late = [late(), late_right()].map(|topic| shown(&mut driver, &topic));
    let mut all = [theirs, ours, late.concat()];
    all.iter_mut().for_each(|records| records.sort());
    all
}

#[test]
fn late_records_and_closed_partners_have_no_pairs() {
    for (kind, operator) in OPERATORS {
        let [theirs, ours, late] = replay_skipping(kind, operator, "late.jsonl");
        // Kafka Streams emits the record `l1` unpaired, and later in a pair.
        let (expected, own) = match kind {
            Kind::Inner => (&["a l1+r2 @104", "b l3+r1 @121"][..], &["b l3+r1 @121"][..]),
            Kind::Left | Kind::Outer => (
                &["a l1+- @100", "a l1+r2 @104", "b l3+r1 @121", "c l2+- @100"][..],
                &["a l1+- @100", "b l3+r1 @121"][..],
            ),
        };
        assert_eq!(theirs, expected, "{kind:?}");
        assert_eq!(ours, own, "{kind:?}");
        assert_eq!(late, ["a r2 @104", "c l2 @100"], "{kind:?}");

        let [theirs, ours, late] = replay_skipping(kind, operator, "late_for_its_partners.jsonl");
        let (expected, own, behind) = match kind {
            Kind::Inner => (&["a l2+r1 @100"][..], &[][..], &["a l2 @100"][..]),
            Kind::Left => (
                &["a l2+r1 @100", "b l1+- @110"][..],
                &["a l2+- @100", "b l1+- @110"][..],
                &[][..],
            ),
            Kind::Outer => (
                &["a l2+r1 @100", "b l1+- @110"][..],
                &["a -+r1 @100", "a l2+- @100", "b l1+- @110"][..],
                &[][..],
            ),
        };
        assert_eq!(theirs, expected, "{kind:?}");
        assert_eq!(ours, own, "{kind:?}");
        assert_eq!(late, behind, "{kind:?}");
    }
}

#[test]
fn joins_skip_records_with_nulls() {
    for (kind, operator) in OPERATORS {
        let [theirs, ours, _] = replay_skipping(kind, operator, "null_key.jsonl");
        assert_eq!(ours, ["a l2+r2 @103"], "{kind:?}");
        let unpaired = theirs.iter().filter(|it| it.starts_with("null "));
        let unpaired: Vec<_> = unpaired.cloned().collect();
        let expected = ["null -+r1 @101", "null l1+- @100"];
        assert_eq!(
            unpaired,
            match kind {
                Kind::Inner => &expected[2..],
                Kind::Left => &expected[1..],
                Kind::Outer => &expected[..],
            }
        );
        assert_eq!(theirs.len(), ours.len() + unpaired.len(), "{kind:?}");

        let [theirs, ours, _] = replay_skipping(kind, operator, "null_value.jsonl");
        assert_eq!((&ours, ours.len()), (&theirs, 1), "{kind:?}");
    }
}

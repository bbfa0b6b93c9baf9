//! The cases of windows.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::driver::Driver;
use super::{bytes, cases, piece, read};
use crate::codec::{Plain, TimeWindowed};
use crate::state::WindowStore;
use crate::windows::{Hopping, Tumbling, WindowedGroup, Windows, WindowsOf};
use crate::{App, Topic};

/// The value type of Kafka Streams: a record without value counts.
type Text = Option<String>;

fn declare_case(operator: &str, case: &Value, app: &mut App) {
    let ms = |field: &str| case[field].as_u64().map(Duration::from_millis);
    let (size, grace) = (ms("size_ms").unwrap(), ms("grace_ms").unwrap());
    match ms("advance_ms") {
        Some(advance) => {
            let operator = operator.replace("hopping", "window");
            declare(
                &operator,
                Hopping::of(size).every(advance).grace(grace),
                size,
                app,
            );
        }
        None => declare(operator, Tumbling::of(size).grace(grace), size, app),
    }
}

fn declare<W>(operator: &str, windows: W, size: Duration, app: &mut App)
where
    W: WindowsOf<String, Text>
        + WindowsOf<String, ()>
        + Windows<Group<String, Text> = WindowedGroup<String, Text, W>>,
{
    let source = app.source(&Topic::<String, Text>::plain("in"));
    let group = |group: crate::stream::Grouped<String, Text>| -> WindowedGroup<String, Text, W> {
        group.windowed_by(windows).late_to(&Topic::plain("late"))
    };
    let keys = TimeWindowed::of(size);
    match operator {
        "window_count" => group(source.group_by_key())
            .count(&WindowStore::plain("store"))
            .to(&Topic::with("out", keys, Plain)),
        "filter_window_count" => group(
            source
                .filter(|value| value.as_deref() != Some("drop"))
                .group_by_key(),
        )
        .count(&WindowStore::plain("store"))
        .to(&Topic::with("out", keys, Plain)),
        "window_aggregate_or_delete" => group(source.group_by_key())
            .aggregate_or_delete(
                &WindowStore::plain("store"),
                || "<".to_owned(),
                |_, value, so_far| {
                    let value = value.as_deref().unwrap_or("null");
                    (value != "-").then(|| format!("{so_far}{value};"))
                },
            )
            .to(&Topic::with("out", keys, Plain)),
        "window_aggregate" => group(source.group_by_key())
            .aggregate(
                &WindowStore::plain("store"),
                || "<".to_owned(),
                |_, value, so_far| format!("{so_far}{};", value.as_deref().unwrap_or("null")),
            )
            .to(&Topic::with("out", keys, Plain)),
        other => panic!("{other}"),
    }
}

/// Returns a key and its window, in the format of a topic.
fn written(line: &Value) -> Vec<u8> {
    let start = line["window"]["start"].as_i64().unwrap();
    [&bytes(&line["key"]).unwrap()[..], &start.to_be_bytes()].concat()
}

/// Returns a key and its window, in the format of a store.
fn stored(line: &Value) -> Vec<u8> {
    let start = line["window"]["start"].as_i64().unwrap() ^ i64::MIN;
    [&start.to_be_bytes()[..], &bytes(&line["key"]).unwrap()].concat()
}

/// The results of a case here and in Kafka Streams.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    /// Key with window, value and time.
    emitted: Vec<(Vec<u8>, Option<Vec<u8>>, i64)>,
    late: usize,
    kept: Vec<(Vec<u8>, Vec<u8>, i64)>,
}

/// Returns our outcome and that of Kafka Streams, or `None` if this form of the operator can't return the same.
fn replay(operator: &str, file: &Path) -> Option<(Outcome, Outcome)> {
    let lines = read(file);
    let case = &lines[0]["case"];
    if case["name"] == "null_result" && operator.ends_with("_aggregate") {
        // This form always has a result.
        return None;
    }
    let mut app = App::new("golden");
    declare_case(operator, case, &mut app);
    let mut driver = Driver::new(&app);
    let (mut ours, mut theirs) = (Outcome::default(), Outcome::default());
    let mut failed = 0;
    for line in &lines[1..] {
        if let Some(record) = line.get("in") {
            let piece = piece(record);
            let fails = piece.key.is_none() || piece.timestamp < 0;
            let out = driver.pipe(piece.clone());
            failed += usize::from(fails);
            assert!(!fails || out.is_empty(), "{out:?}");
            for out in out {
                if out.topic == "late" {
                    let as_it_came = (&out.key, &out.value, out.timestamp);
                    assert_eq!(as_it_came, (&piece.key, &piece.value, piece.timestamp));
                    ours.late += 1;
                } else {
                    ours.emitted
                        .push((out.key.unwrap(), out.value, out.timestamp));
                }
            }
        } else if let Some(record) = line.get("out") {
            let time = record["timestamp"].as_i64().unwrap();
            theirs
                .emitted
                .push((written(record), bytes(&record["value"]), time));
        } else if let Some(entry) = line.get("store") {
            let time = entry["timestamp"].as_i64().unwrap();
            theirs
                .kept
                .push((stored(entry), bytes(&entry["value"]).unwrap(), time));
        } else if line.get("error").is_some() {
            // Kafka Streams ends there. Here the error policy handles the record.
            assert!(failed > 0, "{line}");
            theirs.kept = driver.kept();
        } else {
            theirs.late += line["dropped"].as_u64().unwrap() as usize;
        }
    }
    // A failed record is not late. Kafka Streams drops and counts both.
    if theirs.late > 0 {
        theirs.late -= failed.min(theirs.late);
    }
    ours.kept = driver.kept();
    theirs.kept.sort();
    Some((ours, theirs))
}

#[test]
fn what_is_kept_per_window_is_what_kafka_streams_keeps() {
    for (operator, form, least) in [
        ("window_count", "window_count", 25),
        ("window_aggregate", "window_aggregate", 9),
        ("window_aggregate", "window_aggregate_or_delete", 10),
    ] {
        let mut replayed = 0;
        for file in cases(operator) {
            if let Some((ours, theirs)) = replay(form, &file) {
                assert_eq!(ours, theirs, "{form}: {}", file.display());
                replayed += 1;
            }
        }
        assert!(replayed >= least, "{replayed} by {form}");
    }
}

/// The numbers of late records differ: `DIFFERENCES.md`.
#[test]
fn windows_that_overlap_keep_what_kafka_streams_keeps() {
    for (operator, form, least) in [
        ("hopping_count", "hopping_count", 11),
        ("hopping_aggregate", "hopping_aggregate", 2),
        ("hopping_aggregate", "hopping_aggregate_or_delete", 3),
    ] {
        let mut replayed = 0;
        for file in cases(operator) {
            if let Some((ours, theirs)) = replay(form, &file) {
                assert_eq!(ours.emitted, theirs.emitted, "{form}: {}", file.display());
                assert_eq!(ours.kept, theirs.kept, "{form}: {}", file.display());
                assert!(ours.late <= theirs.late, "{form}: {}", file.display());
                replayed += 1;
            }
        }
        assert!(replayed >= least, "{replayed} by {form}");
    }
}

/// `DIFFERENCES.md`: in Kafka Streams it does.
#[test]
fn a_filter_does_not_keep_a_record_from_moving_stream_time() {
    let operator = "filter_window_count";
    let [file] = &cases(operator)[..] else {
        panic!("another case: {operator}");
    };
    let (ours, theirs) = replay(operator, file).unwrap();
    assert_eq!(ours.emitted, theirs.emitted[..1], "then 50 s are dropped");
    assert_eq!((ours.late, theirs.late), (3, 1));
}

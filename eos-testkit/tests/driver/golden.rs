//! Replays the recorded results of Kafka Streams for operators with due work: `integration-tests/golden`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use eos_core::codec::{Plain, SessionWindowed, TimeWindowed};
use eos_core::state::{SessionStore, SlidingStore, WindowStore};
use eos_core::windows::{Hopping, Session, Sliding, Tumbling, Windowed};
use eos_core::{App, PlainTopic, Timestamp, Topic};
use eos_testkit::{Input, OutputRecord, TestDriver};
use serde_json::Value;

type Text = Option<String>;

fn input() -> PlainTopic<String, Text> {
    Topic::plain("in")
}

/// A result: key, start, end, value and time.
type Shown = (String, i64, i64, Option<String>, i64);

/// Declares the operator of a case. Returns how its results are read.
fn declare(case: &Value, app: &mut App) -> fn(&mut TestDriver) -> Vec<Shown> {
    let ms = |name: &str| case[name].as_u64().map(Duration::from_millis);
    let grace = ms("grace_ms").unwrap_or_default();
    let size = ms("size_ms").unwrap_or_default();
    // Kafka Streams takes records of the far future.
    let stream = app.source(&input()).trust_times();
    let source = || stream.clone().group_by_key();
    let values = || stream.clone().filter_map(|value| value).group_by_key();
    match case["operator"].as_str().unwrap() {
        "window_count_on_close" => source()
            .windowed_by(Tumbling::of(size).grace(grace))
            .count(&WindowStore::plain("store"))
            .emit_on_close()
            .to(&windowed()),
        "hopping_count_on_close" => source()
            .windowed_by(
                Hopping::of(size)
                    .every(ms("advance_ms").unwrap())
                    .grace(grace),
            )
            .count(&WindowStore::plain("store"))
            .emit_on_close()
            .to(&windowed()),
        "longer_on_close" => source()
            .windowed_by(Tumbling::of(size).grace(grace))
            .count(&WindowStore::plain("first"))
            .emit_on_close()
            .without_windows()
            .group_by_key()
            .windowed_by(Tumbling::of(size * 10).grace(size))
            .reduce(&WindowStore::plain("store"), |a, b| a + b)
            .emit_on_close()
            .to(&windowed()),
        "session_count_on_close" => source()
            .windowed_by(Session::gap(ms("gap_ms").unwrap()).grace(grace))
            .count(&SessionStore::plain("store"))
            .emit_on_close()
            .to(&Topic::with("out", SessionWindowed::of(Plain), Plain)),
        "session_count" => {
            source()
                .windowed_by(Session::gap(ms("gap_ms").unwrap()).grace(grace))
                .count(&SessionStore::plain("store"))
                .to(&sessions());
        }
        operator @ ("session_aggregate" | "session_aggregate_on_close") => {
            let table = source()
                .windowed_by(Session::gap(ms("gap_ms").unwrap()).grace(grace))
                .aggregate(
                    &SessionStore::<String, String>::plain("store"),
                    || "<".to_owned(),
                    |_, value, so_far| format!("{so_far}{};", value.unwrap_or("null".into())),
                    |_, earlier, later| format!("{earlier}({later})"),
                );
            match operator {
                "session_aggregate" => {
                    table.to(&Topic::with("out", SessionWindowed::of(Plain), Plain));
                }
                _ => {
                    let out = Topic::with("out", SessionWindowed::of(Plain), Plain);
                    table.emit_on_close().to(&out);
                }
            }
            return session_texts;
        }
        "session_reduce" => {
            values()
                .windowed_by(Session::gap(ms("gap_ms").unwrap()).grace(grace))
                .reduce(&SessionStore::plain("store"), concat)
                .to(&Topic::with("out", SessionWindowed::of(Plain), Plain));
            return session_texts;
        }
        "hopping_reduce" => {
            let hopping = Hopping::of(size).every(ms("advance_ms").unwrap());
            values()
                .windowed_by(hopping.grace(grace))
                .reduce(&WindowStore::plain("store"), concat)
                .to(&window_texts_topic());
            return window_texts;
        }
        "hopping_aggregate_on_close" => {
            let hopping = Hopping::of(size).every(ms("advance_ms").unwrap());
            values()
                .windowed_by(hopping.grace(grace))
                .aggregate(
                    &WindowStore::plain("store"),
                    || "<".to_owned(),
                    |_, value, so_far| format!("{so_far}{value};"),
                )
                .emit_on_close()
                .to(&window_texts_topic());
            return window_texts;
        }
        "sliding_aggregate" | "sliding_aggregate_on_close" => {
            let table = source()
                .windowed_by(Sliding::of(size).grace(grace))
                .aggregate(
                    &SlidingStore::<String, String>::plain("store"),
                    || "<".to_owned(),
                    |_, value, so_far| format!("{so_far}{};", value.unwrap_or("null".into())),
                );
            let out = window_texts_topic();
            match case["operator"] == "sliding_aggregate" {
                true => table.to(&out),
                false => table.emit_on_close().to(&out),
            }
            return window_texts;
        }
        other => panic!("{other}"),
    }
    match case["operator"].as_str().unwrap().starts_with("session") {
        true => |driver| {
            let records = driver.read(&sessions()).into_iter();
            let value = |value: Option<u64>| value.map(|it| it.to_string());
            records
                .map(|it| shown(it.key.clone(), 1, value(it.value), it.timestamp))
                .collect()
        },
        // The codec of the replay does not know the length of the windows.
        false => |driver| {
            let records = driver.read(&windowed()).into_iter();
            records
                .map(|it| shown(it.key.clone(), 0, Some(it.value.to_string()), it.timestamp))
                .collect()
        },
    }
}

fn concat(so_far: String, value: String) -> String {
    format!("{so_far}|{value}")
}

fn window_texts_topic() -> Topic<Windowed<String>, String, TimeWindowed, Plain> {
    Topic::with("out", TimeWindowed::of(Duration::from_millis(1)), Plain)
}

fn window_texts(driver: &mut TestDriver) -> Vec<Shown> {
    let records = driver.read(&window_texts_topic()).into_iter();
    let shown = |it: OutputRecord<Windowed<String>, String>| {
        shown(it.key.clone(), 0, Some(it.value.clone()), it.timestamp)
    };
    records.map(shown).collect()
}

fn session_texts(driver: &mut TestDriver) -> Vec<Shown> {
    let topic = Topic::<_, Option<String>, _, _>::with("out", SessionWindowed::of(Plain), Plain);
    let records = driver.read(&topic).into_iter();
    records
        .map(|it| shown(it.key.clone(), 1, it.value.clone(), it.timestamp))
        .collect()
}

fn windowed() -> Topic<Windowed<String>, u64, TimeWindowed, Plain> {
    Topic::with("out", TimeWindowed::of(Duration::from_millis(1)), Plain)
}

fn sessions() -> Topic<Windowed<String>, Option<u64>, SessionWindowed<Plain>, Plain> {
    Topic::with("out", SessionWindowed::of(Plain), Plain)
}

fn shown(key: Windowed<String>, inclusive: i64, value: Option<String>, time: Timestamp) -> Shown {
    (
        key.key,
        key.window.start.0,
        key.window.end.0 - inclusive,
        value,
        time.0,
    )
}

fn expected(out: &Value, is_session: bool) -> Shown {
    let number = |value: &Value| value.as_i64().unwrap();
    let start = number(&out["window"]["start"]);
    let value = match &out["value"] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        number => Some(number.to_string()),
    };
    let end = match is_session {
        true => number(&out["window"]["end"]),
        false => start + 1,
    };
    (
        out["key"].as_str().unwrap().to_owned(),
        start,
        end,
        value,
        number(&out["timestamp"]),
    )
}

/// Removes the tombstones that Kafka Streams writes for sessions whose bounds stay.
fn without_needless_tombstones(results: Vec<Shown>) -> Vec<Shown> {
    let span = |it: &Shown| (it.0.clone(), it.1, it.2);
    let is_needless = |pair: &[Shown]| pair[0].3.is_none() && span(&pair[0]) == span(&pair[1]);
    let needless: Vec<bool> = results.windows(2).map(is_needless).chain([false]).collect();
    let results = results.into_iter().zip(needless);
    results
        .filter(|(_, needless)| !needless)
        .map(|(it, _)| it)
        .collect()
}

/// Replays a case. Final results of windows behind final results come earlier than in Kafka Streams, where each
/// operator has its own stream time. So only their order is compared.
fn replay(file: &Path) {
    let text = fs::read_to_string(file).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let case = &lines[0]["case"];
    let is_session = case["operator"].as_str().unwrap().starts_with("session");
    let at_the_end = case["operator"] == "longer_on_close";
    let mut app = App::new("golden");
    let read = declare(case, &mut app);
    let mut driver = TestDriver::new(app);
    let (mut found, mut results) = (Vec::new(), Vec::new());
    for line in &lines[1..] {
        if let Some(record) = line.get("in") {
            if !at_the_end {
                let results = without_needless_tombstones(results.clone());
                assert_eq!(found, results, "{} before {record}", file.display());
            }
            let text = |value: &Value| value.as_str().map(str::to_owned);
            // A record without key fails here; see DIFFERENCES.md.
            let Some(key) = text(&record["key"]) else {
                continue;
            };
            let time = Timestamp(record["timestamp"].as_i64().unwrap());
            driver.pipe_input(&input(), Input::new(key, text(&record["value"])).at(time));
            found.extend(read(&mut driver));
        } else if let Some(out) = line.get("out") {
            results.push(expected(out, is_session));
        }
    }
    let results = without_needless_tombstones(results);
    if at_the_end {
        // Kafka Streams sends the last windows only after another input. They are in its store.
        let store = lines.iter().filter_map(|line| line.get("store"));
        let store = store.map(|row| expected(row, is_session));
        let last: Vec<_> = store.filter(|row| !results.contains(row)).collect();
        assert_eq!(found, [results, last].concat(), "{}", file.display());
    } else {
        assert_eq!(found, results, "{}", file.display());
    }
}

fn cases(operator: &str) -> Vec<PathBuf> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../integration-tests/golden/cases");
    let files = fs::read_dir(cases.join(operator)).unwrap();
    files.map(|file| file.unwrap().path()).collect()
}

#[test]
fn final_results_and_sessions_are_those_of_kafka_streams() {
    let least = [
        ("window_count_on_close", 15),
        ("hopping_count_on_close", 10),
        ("longer_on_close", 1),
        ("session_count", 12),
        ("session_count_on_close", 12),
        ("session_aggregate", 2),
        ("session_aggregate_on_close", 1),
        ("session_reduce", 1),
        ("hopping_reduce", 1),
        ("hopping_aggregate_on_close", 1),
        ("sliding_aggregate", 12),
        ("sliding_aggregate_on_close", 12),
    ];
    for (operator, least) in least {
        let files = cases(operator);
        assert!(files.len() >= least, "{operator}: {}", files.len());
        files.iter().for_each(|file| replay(file));
    }
}

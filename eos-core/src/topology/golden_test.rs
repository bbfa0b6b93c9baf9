//! What Kafka Streams answers, replayed: `integration-tests/golden`.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use eos_protocol::{Offset, Partition, TaskId, Timestamp, TopicPartition};
use eos_state::{Direction, KeyRange, MemoryBackend, StoreKind, TaskStore};
use serde_json::Value;

use super::{Chains, Next, Raw, Scratch, Topology};
use crate::client::Headers;
use crate::ctx::{Ctx, Origin};
use crate::store::StateAccess;
use crate::{App, KeyValueStore, Topic};

/// A record as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    topic: String,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    timestamp: i64,
}

/// All stages of an app, one task each.
struct Driver {
    topology: Arc<Topology>,
    stages: Vec<(Chains, TaskStore)>,
}

impl Driver {
    fn new(app: &App) -> Self {
        let topology = app.check().unwrap();
        let stages = topology.stages().iter().map(|stage| {
            let stores = topology
                .stores_of(stage)
                .map(|s| (s.id, StoreKind::Ordered));
            let store = TaskStore::new(Box::new(MemoryBackend::new()), stores).unwrap();
            (topology.instantiate(stage), store)
        });
        let stages = stages.collect();
        Self { topology, stages }
    }

    /// Takes a record through all stages that it leads to; answers what leaves the app.
    fn pipe(&mut self, piece: Piece) -> Vec<Piece> {
        let (mut out, mut waiting) = (Vec::new(), VecDeque::from([piece]));
        while let Some(piece) = waiting.pop_front() {
            let stages = self.topology.stages();
            let stage = stages
                .iter()
                .position(|stage| stage.topics.iter().any(|t| t.as_str() == piece.topic));
            match stage {
                Some(stage) => waiting.extend(self.process(stage, &piece)),
                None => out.push(piece),
            }
        }
        out
    }

    /// A record that fails is left out, as `ErrorPolicy::Skip` does.
    fn process(&mut self, stage: usize, piece: &Piece) -> Vec<Piece> {
        let Some((chains, store)) = self.stages.get_mut(stage) else {
            return Vec::new();
        };
        let partition = TopicPartition::new(&piece.topic[..], Partition::ZERO);
        let (scratch, buffers) = (RefCell::new(Scratch::default()), RefCell::default());
        let (headers, timestamp) = (Headers::new(), Some(Timestamp(piece.timestamp)));
        let ctx = Ctx::new(
            self.topology.token(),
            self.topology.outputs(),
            &scratch,
            StateAccess {
                specs: self.topology.stores(),
                task: Some(store),
                buffers: &buffers,
            },
            Origin {
                task: TaskId::default(),
                partition: &partition,
                offset: Offset::ZERO,
                timestamp,
                stream_time: timestamp,
                headers: &headers,
            },
        );
        let raw = Raw {
            key: piece.key.as_deref(),
            value: piece.value.as_deref(),
            timestamp,
            headers: &headers,
        };
        let mut done = Ok(());
        for source in chains.inputs.iter_mut().flatten() {
            let mut next = Next::all(&mut chains.places, source.first);
            done = done.and_then(|()| source.entry.enter(&ctx, &raw, &mut next));
        }
        if done.is_err() {
            store.drop_record();
            return Vec::new();
        }
        store.keep_record();
        let scratch = scratch.into_inner();
        let written = (0..scratch.len()).map(|at| {
            let out = scratch.get(at, &[], Partition::ZERO).unwrap();
            Piece {
                topic: self.topology.outputs()[out.topic].name.to_string(),
                key: out.key.map(<[u8]>::to_vec),
                value: out.value.map(<[u8]>::to_vec),
                timestamp: out.timestamp.unwrap().0,
            }
        });
        written.collect()
    }

    /// Key, value and time of all that is kept.
    fn kept(&self) -> Vec<(Vec<u8>, Vec<u8>, i64)> {
        let mut kept = Vec::new();
        for (stage, (_, store)) in self.topology.stages().iter().zip(&self.stages) {
            for spec in self.topology.stores_of(stage) {
                let mut scan = store
                    .scan(spec.id, &KeyRange::all(), Direction::Forward)
                    .unwrap();
                while let Some((key, value)) = scan.next().unwrap() {
                    let (time, value) = value.split_first_chunk().unwrap();
                    kept.push((key.to_vec(), value.to_vec(), i64::from_be_bytes(*time)));
                }
            }
        }
        kept
    }
}

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

/// Why a case can't be replayed, if it can't.
fn beyond(case: &Value) -> Option<&'static str> {
    let name = case["name"].as_str().unwrap();
    if case.get("negative_timestamps").is_some() {
        return Some("a negative time is no error here: the record has none");
    }
    (name.starts_with("null_result") || name == "delete_at_first")
        .then_some("a result that deletes its key has no form yet")
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

/// Answers whether the case was replayed.
fn replay(operator: &str, file: &Path) -> bool {
    let text = fs::read_to_string(file).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    if beyond(&lines[0]["case"]).is_some() {
        return false;
    }
    let mut app = App::new("golden");
    declare(operator, &mut app);
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

#[test]
fn what_is_kept_per_key_is_what_kafka_streams_keeps() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../integration-tests/golden/cases");
    let mut replayed = BTreeMap::new();
    for operator in [
        "count",
        "reduce_sum",
        "reduce_concat",
        "aggregate",
        "word_count",
    ] {
        let mut files: Vec<_> = fs::read_dir(cases.join(operator)).unwrap().collect();
        files.sort_by_key(|file| file.as_ref().unwrap().path());
        let done = files
            .iter()
            .filter(|file| replay(operator, &file.as_ref().unwrap().path()));
        replayed.insert(operator, done.count());
    }
    let least = [
        ("aggregate", 7),
        ("count", 11),
        ("reduce_concat", 3),
        ("reduce_sum", 5),
        ("word_count", 5),
    ];
    for (operator, least) in least {
        assert!(replayed[operator] >= least, "{replayed:?}");
    }
}

//! Runs an app without Kafka, one record after the other.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use eos_protocol::{Offset, Partition, TaskId, Timestamp, TopicPartition};
use eos_state::{Direction, KeyRange, MemoryBackend, TaskStore};

use crate::App;
use crate::client::Headers;
use crate::ctx::{Ctx, Origin};
use crate::store::StateAccess;
use crate::topology::{Chains, Next, Raw, Scratch, Topology};

/// An encoded record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::topology) struct Piece {
    pub(in crate::topology) topic: String,
    pub(in crate::topology) key: Option<Vec<u8>>,
    pub(in crate::topology) value: Option<Vec<u8>>,
    /// The timestamp. Negative if the record has none.
    pub(in crate::topology) timestamp: i64,
}

/// All stages of an app, one task each.
pub(in crate::topology) struct Driver {
    topology: Arc<Topology>,
    stages: Vec<Running>,
}

/// A task: its nodes, its stores, its stream time.
struct Running {
    chains: Chains,
    store: TaskStore,
    stream_time: Option<Timestamp>,
}

impl Driver {
    pub(in crate::topology) fn new(app: &App) -> Self {
        let topology = app.check().unwrap();
        let stages = topology.stages().iter().map(|stage| {
            let stores = topology.stores_of(stage).map(|s| (s.id, s.kind));
            let store = TaskStore::new(Box::new(MemoryBackend::new()), stores).unwrap();
            Running {
                chains: topology.instantiate(stage),
                store,
                stream_time: None,
            }
        });
        let stages = stages.collect();
        Self { topology, stages }
    }

    /// Runs a record through all stages that it reaches. Returns the app's outputs.
    pub(in crate::topology) fn pipe(&mut self, piece: Piece) -> Vec<Piece> {
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

    /// Skips a failed record, as `ErrorPolicy::skip` does.
    fn process(&mut self, stage: usize, piece: &Piece) -> Vec<Piece> {
        let Some(running) = self.stages.get_mut(stage) else {
            return Vec::new();
        };
        let (chains, store) = (&mut running.chains, &mut running.store);
        let partition = TopicPartition::new(&piece.topic[..], Partition::ZERO);
        let (scratch, buffers) = (RefCell::new(Scratch::default()), RefCell::default());
        let (headers, timestamp) = (Headers::new(), Some(Timestamp(piece.timestamp)));
        let timestamp = timestamp.filter(|time| time.0 >= 0);
        let stream_time = running.stream_time.max(timestamp);
        let origin = Origin {
            task: TaskId::default(),
            partition: &partition,
            offset: Offset::ZERO,
            timestamp,
            stream_time,
            wall_clock: None,
            handled_to: stream_time,
            takes_moments: true,
            headers: &headers,
        };
        let ctx = Ctx::new(
            self.topology.token(),
            (self.topology.outputs(), &[]),
            &scratch,
            StateAccess {
                specs: self.topology.stores(),
                task: Some(store),
                windows: &[],
                closed: &[],
                most_ahead: None,
                buffers: &buffers,
            },
            &origin,
        );
        let raw = Raw {
            key: piece.key.as_deref(),
            value: piece.value.as_deref(),
            timestamp,
            headers: &headers,
        };
        let mut done = Ok(());
        let topics = &self.topology.stages()[stage].topics;
        let input = topics.iter().position(|t| t.as_str() == piece.topic);
        for source in &mut chains.inputs[input.unwrap()] {
            let mut next = Next::all(&mut chains.places, source.first);
            done = done.and_then(|()| source.entry.enter(&ctx, &raw, &mut next));
        }
        if done.is_err() {
            store.drop_record();
            return Vec::new();
        }
        running.stream_time = stream_time;
        store.keep_record();
        let scratch = scratch.into_inner();
        let written = (0..scratch.len()).map(|at| {
            let out = scratch.get(at, &[], Partition::ZERO).unwrap();
            Piece {
                topic: self.topology.outputs()[out.topic].name.to_string(),
                key: out.key.map(<[u8]>::to_vec),
                value: out.value.map(<[u8]>::to_vec),
                timestamp: out.timestamp.map_or(-1, |time| time.0),
            }
        });
        written.collect()
    }

    /// Returns key, value and time of all entries in the store "store".
    pub(in crate::topology) fn kept(&self) -> Vec<(Vec<u8>, Vec<u8>, i64)> {
        let mut kept = Vec::new();
        for (stage, running) in self.topology.stages().iter().zip(&self.stages) {
            let specs = self.topology.stores_of(stage);
            for spec in specs.filter(|spec| &*spec.name == "store") {
                let mut scan = running
                    .store
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

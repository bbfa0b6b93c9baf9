//! The count of requests, on a network without faults.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use kafka_protocol::messages::{ApiKey, RequestKind};

use crate::fault::Api;
use eos_testkit::client::{Fate, Sent, Watcher};
use eos_testkit::rng::Rng;

/// The longest delay of a request or a response, in milliseconds.
const MOST: i64 = 2;

/// The requests of a period.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The number of requests of each kind.
    pub requests: BTreeMap<Api, u64>,
    /// The number of partitions that transactions wrote to.
    pub partitions: u64,
    /// The number of offsets that transactions carried.
    pub offsets: u64,
    /// The metadata beside these offsets, in bytes.
    pub metadata_bytes: u64,
    /// The number of generations of the group.
    pub generations: u64,
    /// The largest assignment of all members together, in bytes.
    pub assignment_bytes: u64,
}

impl Traffic {
    /// Returns the number of requests of this kind.
    #[must_use]
    pub fn of(&self, key: ApiKey) -> u64 {
        self.requests.get(&Api(key)).copied().unwrap_or(0)
    }

    /// Returns the number of requests to the coordinator of the group.
    #[must_use]
    pub fn to_group(&self) -> u64 {
        let keys = [
            ApiKey::JoinGroup,
            ApiKey::SyncGroup,
            ApiKey::Heartbeat,
            ApiKey::LeaveGroup,
            ApiKey::OffsetFetch,
            ApiKey::TxnOffsetCommit,
            ApiKey::DescribeGroups,
        ];
        keys.into_iter().map(|key| self.of(key)).sum()
    }

    /// Returns the number of requests to the coordinators of transactions.
    #[must_use]
    pub fn to_transactions(&self) -> u64 {
        let keys = [
            ApiKey::InitProducerId,
            ApiKey::AddPartitionsToTxn,
            ApiKey::AddOffsetsToTxn,
            ApiKey::EndTxn,
        ];
        keys.into_iter().map(|key| self.of(key)).sum()
    }

    /// Returns the number of all requests.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.requests.values().sum()
    }

    fn count(&mut self, sent: &Sent<'_>, generation: &mut i32) {
        *self.requests.entry(Api(sent.key)).or_default() += 1;
        match sent.body {
            RequestKind::AddPartitionsToTxn(it) => {
                let topics = it.v3_and_below_topics.iter();
                self.partitions += topics.map(|it| it.partitions.len() as u64).sum::<u64>();
            }
            RequestKind::TxnOffsetCommit(it) => {
                for it in it.topics.iter().flat_map(|it| &it.partitions) {
                    let metadata = it.committed_metadata.as_ref();
                    self.offsets += 1;
                    self.metadata_bytes += metadata.map_or(0, |it| it.len() as u64);
                }
            }
            RequestKind::SyncGroup(it) => {
                let shares = it.assignments.iter();
                let bytes = shares.map(|it| it.assignment.len() as u64).sum();
                self.assignment_bytes = self.assignment_bytes.max(bytes);
                let newer = i64::from(it.generation_id) - i64::from(*generation);
                self.generations += u64::try_from(newer).unwrap_or(0);
                *generation = it.generation_id.max(*generation);
            }
            _ => {}
        }
    }
}

#[derive(Debug)]
struct Counting {
    rng: Rng,
    traffic: Traffic,
    /// The newest generation of the group.
    generation: i32,
}

/// A network without faults that counts requests. A clone shares the same counts.
#[derive(Debug, Clone)]
pub(super) struct Counter(Arc<Mutex<Counting>>);

impl Counter {
    pub(super) fn new(seed: u64) -> Counter {
        Counter(Arc::new(Mutex::new(Counting {
            rng: Rng::new(seed ^ 0x7472_6166_6669_6300),
            traffic: Traffic::default(),
            generation: 0,
        })))
    }

    /// Returns the counts since the last call.
    pub(super) fn take(&self) -> Traffic {
        let mut counting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut counting.traffic)
    }
}

impl Watcher for Counter {
    fn fate(&mut self, sent: &Sent<'_>) -> Fate {
        let mut counting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Counting {
            rng,
            traffic,
            generation,
        } = &mut *counting;
        traffic.count(sent, generation);
        Fate::Arrives {
            there: rng.between(0, MOST),
            back: rng.between(0, MOST),
        }
    }
}

//! A transactional producer: the work of librdkafka's threads.
//!
//! ```text
//! records ─► by partition ─► AddPartitionsToTxn ─► Produce, one batch of a partition at a time
//! offsets ─► AddOffsetsToTxn ─► TxnOffsetCommit
//! end     ─► once no request is under way: EndTxn
//! ```

mod adding;
mod batches;
mod ending;
mod init;
mod offsets;
mod phase;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use eos_client::{ClientError, ProducerSpec};
use eos_protocol::CallSite;
use kafka_wire::batch::ProducerIdentity;

use super::call::Call;
use super::errors::{self, Sense, sense};
use super::fabric::Wire;
use offsets::Offsets;
use phase::Phase;

/// A record that is not sent yet.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) timestamp: i64,
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) headers: Vec<(String, Option<Vec<u8>>)>,
}

type Place = (usize, i32);

/// The protocol state of a producer.
#[derive(Debug)]
pub(super) struct Writer {
    transactional_id: Option<String>,
    timeout_ms: i32,
    topics: Vec<String>,
    phase: Phase,
    identity: Option<ProducerIdentity>,
    init: Option<Call>,
    queues: BTreeMap<Place, VecDeque<Queued>>,
    sequences: BTreeMap<Place, i32>,
    /// Partitions that the coordinator has in the transaction.
    added: BTreeSet<Place>,
    adding: Option<(Call, Vec<Place>)>,
    /// By partition: the batch under way, and its number of records.
    produces: BTreeMap<Place, (Call, i32)>,
    offsets: Option<Offsets>,
    /// The group is in the transaction.
    with_offsets: bool,
    end: Option<(Call, bool)>,
    /// Why the transaction can't continue.
    failed: Option<ClientError>,
    /// Whether the producer is unusable.
    fatal: bool,
    /// Whether a request that could hit a later transaction got no response.
    unanswered: bool,
}

impl Writer {
    pub(super) fn new(spec: &ProducerSpec) -> Writer {
        let id = spec.transactional_id.as_ref();
        let timeout = spec.transaction_timeout.as_millis();
        Writer {
            transactional_id: id.map(|id| id.as_str().to_owned()),
            timeout_ms: i32::try_from(timeout).unwrap_or(i32::MAX),
            topics: spec
                .topics
                .iter()
                .map(|it| it.as_str().to_owned())
                .collect(),
            phase: Phase::New,
            identity: None,
            init: None,
            queues: BTreeMap::new(),
            sequences: BTreeMap::new(),
            added: BTreeSet::new(),
            adding: None,
            produces: BTreeMap::new(),
            offsets: None,
            with_offsets: false,
            end: None,
            failed: None,
            fatal: false,
            unanswered: false,
        }
    }

    pub(super) fn is_transactional(&self) -> bool {
        self.transactional_id.is_some()
    }

    pub(super) fn unanswered(&self) -> bool {
        self.unanswered
    }

    /// Why the transaction can only be ended.
    pub(super) fn failure(&self, call: CallSite) -> Option<ClientError> {
        let failed = self.failed.clone()?;
        Some(ClientError { call, ..failed })
    }

    pub(super) fn is_fatal(&self) -> bool {
        self.fatal
    }

    pub(super) fn has_topic(&self, topic: usize) -> bool {
        topic < self.topics.len()
    }

    pub(super) fn queue(&mut self, (topic, partition): Place, record: Queued) {
        // Several outputs of an app may be one topic. The broker counts the batches of its partitions together.
        let name = self.topics.get(topic);
        let first = self.topics.iter().position(|it| Some(it) == name);
        let place = (first.unwrap_or(topic), partition);
        self.queues.entry(place).or_default().push_back(record);
    }

    fn fail(&mut self, call: CallSite, error: i16) {
        let found = match sense(error) {
            Sense::Fenced => {
                self.fatal = true;
                errors::fenced(call)
            }
            Sense::Fatal => {
                self.fatal = true;
                let text = errors::plain(call, error).text;
                errors::fatal(call, error.into(), &text)
            }
            _ => errors::abortable(call, error),
        };
        // The first cause is kept, except that a lost producer replaces it.
        if self.failed.is_none() || found.fault.fatal {
            self.failed = Some(found);
        }
    }

    /// Ends a call: records whether the coordinator may still get an older copy of it.
    fn over(&mut self, call: &Call) {
        self.unanswered |= call.broke();
    }

    /// Whether all queued records are acknowledged.
    pub(super) fn is_flushed(&self) -> bool {
        self.queues.values().all(VecDeque::is_empty)
            && self.produces.is_empty()
            && self.adding.is_none()
    }

    /// Sends ready requests, and takes responses.
    pub(super) fn tick(&mut self, wire: &mut Wire<'_>) {
        if self.fatal {
            self.queues.clear();
            self.produces.clear();
            self.adding = None;
            return;
        }
        self.add_partitions(wire);
        self.produce(wire);
    }

    fn id(&self) -> &str {
        self.transactional_id.as_deref().unwrap_or_default()
    }
}

//! A transactional producer: what librdkafka's threads do for it, whenever it is ticked.
//!
//! ```text
//! records ─► by partition ─► AddPartitionsToTxn ─► Produce, one batch of a partition at a time
//! offsets ─► AddOffsetsToTxn ─► TxnOffsetCommit
//! end     ─► once nothing is under way: EndTxn
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use eos_core::client::{ClientError, OffsetToCommit, ProducerSpec};
use eos_protocol::{CallSite, code};
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest,
    ProduceRequest, RequestKind, ResponseKind, TxnOffsetCommitRequest,
};

use super::call::Call;
use super::errors::{self, Sense, sense};
use super::network::Line;
use super::queries::{by_topic, text};
use super::source::ModelMember;
use super::world::Wire;
use crate::records::{BatchBuilder, ProducerIdentity};

/// A record that is not sent yet.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) timestamp: i64,
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) headers: Vec<(String, Option<Vec<u8>>)>,
}

type Place = (usize, i32);

/// Two requests, one after the other.
#[derive(Debug)]
enum Offsets {
    /// AddOffsetsToTxn, and what follows it.
    Adding(Call, Box<TxnOffsetCommitRequest>),
    Committing(Call),
}

/// How far the transaction is (`rd_kafka_txn_state_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Not initialised.
    New,
    /// None is open.
    Ready,
    /// One is open.
    Open,
    /// A commit was asked for and not answered.
    Committing,
    /// An abort was.
    Aborting,
}

/// A producer's end of the protocol.
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
    /// Partitions that the coordinator knows to be in the transaction.
    added: BTreeSet<Place>,
    adding: Option<(Call, Vec<Place>)>,
    /// By partition: the batch under way, and how many records it has.
    produces: BTreeMap<Place, (Call, i32)>,
    offsets: Option<Offsets>,
    /// The group is in the transaction.
    with_offsets: bool,
    end: Option<(Call, bool)>,
    /// Why the transaction can't go on.
    failed: Option<ClientError>,
    /// The producer is of no use any more.
    fatal: bool,
    /// A request that could hit a later transaction was never answered.
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

    /// Why nothing of this transaction can be done any more but end it.
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

    /// Whether it can be initialised; or why not.
    pub(super) fn inits(&self) -> Result<(), &'static str> {
        match self.phase {
            Phase::New => Ok(()),
            Phase::Ready => Err("of a producer that is initialised"),
            Phase::Open | Phase::Committing | Phase::Aborting => Err("while a transaction is open"),
        }
    }

    /// Begins a transaction; or says why it can't.
    pub(super) fn begin(&mut self) -> Result<(), &'static str> {
        if self.is_transactional() {
            match self.phase {
                Phase::Ready => self.phase = Phase::Open,
                Phase::New => return Err("before the producer is initialised"),
                Phase::Open => return Err("while a transaction is open"),
                Phase::Committing => return Err("while a commit is without an answer"),
                Phase::Aborting => return Err("while an abort is without an answer"),
            }
        }
        self.added.clear();
        self.with_offsets = false;
        if !self.fatal {
            self.failed = None;
        }
        Ok(())
    }

    /// Whether a transaction takes records and offsets; or why not.
    pub(super) fn takes(&self) -> Result<(), &'static str> {
        match self.phase {
            _ if !self.is_transactional() || self.fatal => Ok(()),
            Phase::Open => Ok(()),
            Phase::New | Phase::Ready => Err("without a transaction"),
            Phase::Committing | Phase::Aborting => Err("while the transaction ends"),
        }
    }

    /// Whether the transaction can be ended so; or why not.
    pub(super) fn ends(&self, commits: bool) -> Result<(), &'static str> {
        match (self.phase, commits) {
            _ if self.fatal => Ok(()),
            (Phase::Open, _) | (Phase::Committing, true) | (Phase::Aborting, false) => Ok(()),
            (Phase::New | Phase::Ready, _) => Err("without a transaction"),
            (Phase::Committing, false) => Err("while a commit is without an answer"),
            (Phase::Aborting, true) => Err("while an abort is without an answer"),
        }
    }

    pub(super) fn queue(&mut self, place: Place, record: Queued) {
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
        // The first cause is the one to tell; but nothing hides that the producer is lost.
        if self.failed.is_none() || found.fault.fatal {
            self.failed = Some(found);
        }
    }

    /// A call is over: whether the coordinator may still get an older copy of it.
    fn over(&mut self, call: &Call) {
        self.unanswered |= call.broke();
    }

    /// InitProducerId, until it is answered well.
    pub(super) fn init(&mut self, wire: &mut Wire<'_>) -> Option<Result<(), ClientError>> {
        let mut call = self.init.take().unwrap_or_else(|| {
            let id = self.transactional_id.as_deref();
            let request = InitProducerIdRequest::default()
                .with_transactional_id(id.map(|id| text(id).into()))
                .with_transaction_timeout_ms(self.timeout_ms)
                .with_producer_id((-1).into())
                .with_producer_epoch(-1);
            Call::new(Line::Coordinator, request)
        });
        let Some(ResponseKind::InitProducerId(answer)) = call.poll(wire) else {
            self.init = Some(call);
            return None;
        };
        match sense(answer.error_code) {
            Sense::Well => {
                self.over(&call);
                self.phase = Phase::Ready;
                self.identity = Some(ProducerIdentity {
                    id: answer.producer_id.0,
                    epoch: answer.producer_epoch,
                });
                Some(Ok(()))
            }
            Sense::Again => {
                call.again(wire);
                self.init = Some(call);
                None
            }
            _ => {
                self.over(&call);
                self.fail(CallSite::Init, answer.error_code);
                self.failure(CallSite::Init).map(Err)
            }
        }
    }

    /// Whether everything that was queued is acknowledged.
    pub(super) fn is_flushed(&self) -> bool {
        self.queues.values().all(VecDeque::is_empty)
            && self.produces.is_empty()
            && self.adding.is_none()
    }

    /// Sends what can be sent, and takes in what was answered.
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

    fn add_partitions(&mut self, wire: &mut Wire<'_>) {
        if !self.is_transactional() {
            return;
        }
        let Some(identity) = self.identity else {
            return;
        };
        if self.adding.is_none() && self.failed.is_none() && self.end.is_none() {
            let waiting = self.queues.iter().filter(|(_, queue)| !queue.is_empty());
            let new = waiting
                .map(|(place, _)| *place)
                .filter(|place| !self.added.contains(place));
            let new: Vec<Place> = new.collect();
            if !new.is_empty() {
                let call = Call::new(Line::Coordinator, self.add_request(identity, &new));
                self.adding = Some((call, new));
            }
        }
        let Some((mut call, new)) = self.adding.take() else {
            return;
        };
        let Some(ResponseKind::AddPartitionsToTxn(answer)) = call.poll(wire) else {
            self.adding = Some((call, new));
            return;
        };
        let topics = answer.results_by_topic_v3_and_below.iter();
        let partitions = topics.flat_map(|topic| &topic.results_by_partition);
        let errors: Vec<i16> = partitions.map(|it| it.partition_error_code).collect();
        let worst = errors
            .iter()
            .copied()
            .max_by_key(|error| sense(*error) as u8);
        let worst = worst.unwrap_or(0);
        match sense(worst) {
            Sense::Well => {
                self.over(&call);
                self.added.extend(new);
            }
            Sense::Again => {
                call.again(wire);
                self.adding = Some((call, new));
            }
            _ => {
                self.over(&call);
                self.fail(CallSite::Flush, worst);
            }
        }
    }

    fn add_request(&self, identity: ProducerIdentity, new: &[Place]) -> RequestKind {
        let mut topics: BTreeMap<usize, Vec<i32>> = BTreeMap::new();
        for (topic, partition) in new {
            topics.entry(*topic).or_default().push(*partition);
        }
        let topics = topics.into_iter().map(|(topic, partitions)| {
            AddPartitionsToTxnTopic::default()
                .with_name(text(&self.topics[topic]).into())
                .with_partitions(partitions)
        });
        AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(self.id().into())
            .with_v3_and_below_producer_id(identity.id.into())
            .with_v3_and_below_producer_epoch(identity.epoch)
            .with_v3_and_below_topics(topics.collect())
            .into()
    }

    fn id(&self) -> kafka_protocol::protocol::StrBytes {
        text(self.transactional_id.as_deref().unwrap_or_default())
    }

    fn produce(&mut self, wire: &mut Wire<'_>) {
        let Some(identity) = self.identity.or_else(|| self.idempotent(wire)) else {
            return;
        };
        let transactional = self.is_transactional();
        if self.failed.is_none() {
            let places: Vec<Place> = self.queues.keys().copied().collect();
            for place in places {
                let in_it = !transactional || self.added.contains(&place);
                if in_it && !self.produces.contains_key(&place) {
                    self.next_batch(place, identity);
                }
            }
        }
        for (place, (mut call, count)) in std::mem::take(&mut self.produces) {
            let Some(ResponseKind::Produce(answer)) = call.poll(wire) else {
                self.produces.insert(place, (call, count));
                continue;
            };
            let partitions = answer
                .responses
                .iter()
                .flat_map(|it| &it.partition_responses);
            let error = partitions.map(|it| it.error_code).find(|it| *it != 0);
            let error = error.unwrap_or(0);
            match sense(error) {
                // The copy that was counted is there already.
                _ if i32::from(error) == code::DUPLICATE_SEQUENCE => {
                    self.over(&call);
                    *self.sequences.entry(place).or_default() += count;
                }
                Sense::Well => {
                    self.over(&call);
                    *self.sequences.entry(place).or_default() += count;
                }
                Sense::Again => {
                    call.again(wire);
                    self.produces.insert(place, (call, count));
                }
                _ => {
                    self.over(&call);
                    self.fail(CallSite::Flush, error);
                }
            }
        }
    }

    /// An idempotent producer asks for its id when it first has something to send.
    fn idempotent(&mut self, wire: &mut Wire<'_>) -> Option<ProducerIdentity> {
        if !self.is_transactional() && self.queues.values().any(|queue| !queue.is_empty()) {
            let _failed = self.init(wire);
        }
        self.identity
    }

    fn next_batch(&mut self, place: Place, identity: ProducerIdentity) {
        let Some(queue) = self.queues.get_mut(&place).filter(|it| !it.is_empty()) else {
            return;
        };
        let mut batch = BatchBuilder::new(256);
        for record in queue.drain(..) {
            let headers = record.headers.iter();
            let headers = headers.map(|(name, value)| (name.as_str(), value.as_deref()));
            batch.push(
                record.timestamp,
                record.key.as_deref(),
                record.value.as_deref(),
                headers,
            );
        }
        let (topic, partition) = place;
        let count = batch.count();
        let sequence = self.sequences.get(&place).copied().unwrap_or(0);
        let transactional = self.is_transactional();
        let data = PartitionProduceData::default()
            .with_index(partition)
            .with_records(Some(batch.close(identity, sequence, transactional)));
        let topic = TopicProduceData::default()
            .with_name(text(&self.topics[topic]).into())
            .with_partition_data(vec![data]);
        let id = self.transactional_id.as_deref();
        let request = ProduceRequest::default()
            .with_transactional_id(id.map(|id| text(id).into()))
            .with_acks(-1)
            .with_timeout_ms(30_000)
            .with_topic_data(vec![topic]);
        self.produces
            .insert(place, (Call::new(Line::Data, request), count));
    }

    /// Adds offsets, until they are added; those of one transaction in one call.
    pub(super) fn send_offsets(
        &mut self,
        offsets: &[OffsetToCommit],
        member: &ModelMember,
        wire: &mut Wire<'_>,
    ) -> Option<Result<(), ClientError>> {
        if let Some(failure) = self.failure(CallSite::SendOffsets) {
            return Some(Err(failure));
        }
        let identity = self.identity?;
        if self.offsets.is_none() {
            self.offsets = Some(self.first_offsets(offsets, member, identity));
        }
        self.go_on_with_offsets(wire)
    }

    /// Nothing if there are none under way, or they are not answered.
    fn go_on_with_offsets(&mut self, wire: &mut Wire<'_>) -> Option<Result<(), ClientError>> {
        let call = CallSite::SendOffsets;
        match self.offsets.take()? {
            Offsets::Adding(mut add, then) => {
                let Some(ResponseKind::AddOffsetsToTxn(answer)) = add.poll(wire) else {
                    self.offsets = Some(Offsets::Adding(add, then));
                    return None;
                };
                match sense(answer.error_code) {
                    Sense::Well => {
                        self.over(&add);
                        self.with_offsets = true;
                        let next = Call::new(Line::Coordinator, *then);
                        self.offsets = Some(Offsets::Committing(next));
                        self.go_on_with_offsets(wire)
                    }
                    Sense::Again => {
                        add.again(wire);
                        self.offsets = Some(Offsets::Adding(add, then));
                        None
                    }
                    _ => {
                        self.over(&add);
                        self.fail(call, answer.error_code);
                        self.failure(call).map(Err)
                    }
                }
            }
            Offsets::Committing(mut commit) => {
                let Some(ResponseKind::TxnOffsetCommit(answer)) = commit.poll(wire) else {
                    self.offsets = Some(Offsets::Committing(commit));
                    return None;
                };
                let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
                let error = partitions.map(|it| it.error_code).find(|it| *it != 0);
                match sense(error.unwrap_or(0)) {
                    Sense::Well => {
                        self.over(&commit);
                        Some(Ok(()))
                    }
                    Sense::Again => {
                        commit.again(wire);
                        self.offsets = Some(Offsets::Committing(commit));
                        None
                    }
                    _ => {
                        self.over(&commit);
                        self.fail(call, error.unwrap_or(0));
                        self.failure(call).map(Err)
                    }
                }
            }
        }
    }

    fn first_offsets(
        &self,
        offsets: &[OffsetToCommit],
        member: &ModelMember,
        identity: ProducerIdentity,
    ) -> Offsets {
        let topics = by_topic(offsets.iter().map(|it| (it.partition.clone(), it)));
        let topics = topics.into_iter().map(|(topic, partitions)| {
            let partitions = partitions.into_iter().map(|(number, it)| {
                TxnOffsetCommitRequestPartition::default()
                    .with_partition_index(number)
                    .with_committed_offset(it.offset.get())
                    .with_committed_leader_epoch(-1)
                    .with_committed_metadata(Some(text(&it.metadata)))
            });
            TxnOffsetCommitRequestTopic::default()
                .with_name(text(&topic).into())
                .with_partitions(partitions.collect())
        });
        let then = TxnOffsetCommitRequest::default()
            .with_transactional_id(self.id().into())
            .with_group_id(text(&member.group).into())
            .with_producer_id(identity.id.into())
            .with_producer_epoch(identity.epoch)
            .with_generation_id(member.generation)
            .with_member_id(text(&member.id))
            .with_group_instance_id(member.instance_id.as_deref().map(text))
            .with_topics(topics.collect());
        let add = AddOffsetsToTxnRequest::default()
            .with_transactional_id(self.id().into())
            .with_producer_id(identity.id.into())
            .with_producer_epoch(identity.epoch)
            .with_group_id(text(&member.group).into());
        Offsets::Adding(Call::new(Line::Coordinator, add), Box::new(then))
    }

    /// Ends the transaction, until that is answered. An abort drops what is not sent, and waits for what is
    /// under way; a transaction that nobody knows of ends without a word.
    pub(super) fn end(
        &mut self,
        commits: bool,
        wire: &mut Wire<'_>,
    ) -> Option<Result<(), ClientError>> {
        let call = if commits {
            CallSite::Commit
        } else {
            CallSite::Abort
        };
        if self.fatal || (commits && self.failed.is_some()) {
            return self.failure(call).map(Err);
        }
        if self.end.as_ref().is_none_or(|(_, is)| *is != commits) {
            if !commits {
                self.queues.clear();
                // What is under way comes to its end first.
                let _abandoned = self.go_on_with_offsets(wire);
                if self.offsets.is_some() || !self.is_flushed() {
                    return None;
                }
            }
            let Some(identity) = self.identity else {
                return Some(Ok(()));
            };
            if self.added.is_empty() && !self.with_offsets && self.failed.is_none() {
                self.phase = Phase::Ready;
                return Some(Ok(()));
            }
            self.phase = if commits {
                Phase::Committing
            } else {
                Phase::Aborting
            };
            let request = EndTxnRequest::default()
                .with_transactional_id(self.id().into())
                .with_producer_id(identity.id.into())
                .with_producer_epoch(identity.epoch)
                .with_committed(commits);
            self.end = Some((Call::new(Line::Coordinator, request), commits));
        }
        let (mut end, _) = self.end.take()?;
        let Some(ResponseKind::EndTxn(answer)) = end.poll(wire) else {
            self.end = Some((end, commits));
            return None;
        };
        match sense(answer.error_code) {
            Sense::Well => {
                self.over(&end);
                self.failed = None;
                self.phase = Phase::Ready;
                Some(Ok(()))
            }
            Sense::Again => {
                end.again(wire);
                self.end = Some((end, commits));
                None
            }
            _ => {
                self.over(&end);
                self.phase = Phase::Open;
                self.fail(call, answer.error_code);
                self.failure(call).map(Err)
            }
        }
    }
}

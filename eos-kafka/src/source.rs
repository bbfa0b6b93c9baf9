//! [`Source`] on librdkafka's consumer.
//!
//! Each assigned partition keeps its own queue, read on demand: nothing is paused for flow control, and a full
//! partition starves no other one. A rebalance is an event on the consumer's queue. librdkafka waits for
//! `incremental_assign` or `incremental_unassign` as the response, and only the worker makes these calls.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use eos_client::{
    ClientError, CommittedOffset, LogEnds, Message, OffsetBounds, OffsetToCommit, Records as _,
    Result, Source, SourceEvent, SourceSpec,
};
use eos_protocol::{CallSite, Offset, TopicName, TopicPartition, code};

use super::committed::CommittedQuery;
use super::config::KafkaConfig;
use super::ffi::{
    Client, Event, EventKind, Failure, KafkaRecords, Kind, Member, PartitionList, Queue,
};
use super::group::GroupQuery;
use super::identity::Identities;
use super::lookups::Lookups;
use super::probe::Probe;
use super::queries::{BoundsQuery, CommitQuery, EndsQuery};
use super::tail::{End, Tail};
use super::wake::Wake;

/// The longest time that an abandoned close may still take.
const ABANDONED_CLOSE: Duration = Duration::from_secs(6);

/// A member of a consumer group.
#[derive(Debug)]
pub struct KafkaSource {
    /// The open consumer. `None` once it is closed.
    open: Option<Open>,
    /// Events that the worker has not polled yet.
    events: VecDeque<SourceEvent>,
    /// Signalled by each queue that gets its first element.
    wake: Arc<Wake>,
}

#[derive(Debug)]
struct Open {
    partitions: BTreeMap<TopicPartition, Assigned>,
    committed: Option<CommittedQuery>,
    bounds: Option<BoundsQuery>,
    ends: Option<EndsQuery>,
    commit: Option<CommitQuery>,
    assigned: Option<GroupQuery>,
    identities: Identities,
    /// `group.id`.
    group: String,
    lookups: Lookups,
    uncommitted: Uncommitted,
    /// The queue of the group's events while the consumer closes.
    closing: Option<Queue>,
    /// The queue of the group's events before that.
    control: Queue,
    client: Arc<Client>,
}

/// Queries ends for a reader of all records, with its own client. Created on demand: only a source that restores state
/// needs it.
#[derive(Debug)]
struct Uncommitted {
    config: KafkaConfig,
    client_id: String,
    lookups: Option<Lookups>,
}

impl Uncommitted {
    fn lookups(&mut self, wake: &Arc<Wake>) -> Result<&Lookups, Failure> {
        let lookups = match self.lookups.take() {
            Some(lookups) => lookups,
            None => {
                let settings = self.config.for_lookups(&self.client_id);
                Lookups::start(&Client::new(Kind::Lookup, &self.config, &settings)?, wake)?
            }
        };
        Ok(self.lookups.insert(lookups))
    }
}

#[derive(Debug)]
struct Assigned {
    queue: Queue,
    tail: Tail,
    probe: Probe,
}

impl KafkaSource {
    pub(super) fn new(config: &KafkaConfig, spec: &SourceSpec) -> Result<Self> {
        let failed = |failure: Failure| failure.at(CallSite::Create);
        let client =
            Client::new(Kind::Consumer, config, &config.for_source(spec)).map_err(failed)?;
        let wake = Arc::new(Wake::default());
        let control = Queue::consumer(&client)
            .ok_or_else(|| failed(Failure::new(code::LOCAL_INVALID_ARG, "group.id is empty")))?
            .waking(&wake);
        let open = Open {
            lookups: Lookups::start(&client, &wake).map_err(failed)?,
            partitions: BTreeMap::new(),
            committed: None,
            bounds: None,
            ends: None,
            commit: None,
            assigned: None,
            identities: Identities::of(&spec.watched),
            group: spec.group.clone(),
            uncommitted: Uncommitted {
                config: config.clone(),
                client_id: spec.client_id.clone(),
                lookups: None,
            },
            closing: None,
            control,
            client,
        };
        Ok(Self {
            open: Some(open),
            events: VecDeque::new(),
            wake,
        })
    }

    fn open(&mut self, call: CallSite) -> Result<&mut Open> {
        self.open
            .as_mut()
            .ok_or_else(|| ClientError::new(call, code::LOCAL_STATE, "it is closed"))
    }
}

impl Open {
    /// Returns the queue with the group's events.
    fn group(&self) -> &Queue {
        self.closing.as_ref().unwrap_or(&self.control)
    }

    fn next_event(&self) -> Option<SourceEvent> {
        loop {
            let event = self.group().poll(Duration::ZERO)?;
            if let Some(event) = self.translate(&event) {
                return Some(event);
            }
        }
    }

    fn translate(&self, event: &Event<'_>) -> Option<SourceEvent> {
        let partitions = || {
            event
                .partitions()
                .into_iter()
                .map(|e| e.partition)
                .collect()
        };
        match event.kind() {
            EventKind::Assign => Some(SourceEvent::Assigned(partitions())),
            // `assignment_lost` is valid only until the response to the rebalance.
            EventKind::Revoke => Some(SourceEvent::Revoked {
                partitions: partitions(),
                lost: self.client.assignment_lost(),
            }),
            EventKind::Error => event
                .check()
                .err()
                .map(|e| SourceEvent::Failed(self.client.clean(e).at(CallSite::Poll))),
            _ => None,
        }
    }
}

impl Drop for KafkaSource {
    /// Moves an unfinished close to its own thread: it may take six seconds, and a worker drops its source in the
    /// middle of a step. The thread owns everything that librdkafka's handles need.
    fn drop(&mut self) {
        let Some(open) = self.open.take_if(|open| open.closing.is_some()) else {
            return;
        };
        // Without a thread the close ends here: a failed spawn drops its closure.
        let _ = std::thread::Builder::new()
            .name("eos-close".into())
            .spawn(move || drop(open));
    }
}

impl Drop for Open {
    /// Finishes an unfinished close: a client that is destroyed during a close may wait forever for a response to its
    /// last rebalance. The group's coordinator may take [`ABANDONED_CLOSE`] for the LeaveGroup, which is librdkafka's
    /// own limit.
    fn drop(&mut self) {
        let Some(events) = &self.closing else { return };
        let (nothing, end) = (PartitionList::new(0), Instant::now() + ABANDONED_CLOSE);
        while !self.client.is_closed() && Instant::now() < end {
            let event = events.poll(Duration::from_millis(10));
            let kind = event.map(|event| event.kind());
            if matches!(kind, Some(EventKind::Assign | EventKind::Revoke)) {
                // During the close, any response means "nothing is assigned". After an error no response is
                // possible.
                let _ = self.client.incremental_assign(&nothing);
            }
        }
    }
}

impl Source for KafkaSource {
    type Records = KafkaRecords;
    type Member = Member;

    fn subscribe(&mut self, topics: &[TopicName]) -> Result<()> {
        let call = CallSite::Subscribe;
        let client = &self.open(call)?.client;
        let outcome = client.subscribe(topics);
        outcome.map_err(|e| client.cause(e).at(call))
    }

    fn unsubscribe(&mut self) -> Result<()> {
        let call = CallSite::Subscribe;
        let client = &self.open(call)?.client;
        let outcome = client.unsubscribe();
        outcome.map_err(|e| client.cause(e).at(call))
    }

    fn poll(&mut self) -> Option<SourceEvent> {
        // Polls the queue even if events are left: this poll counts for `max.poll.interval.ms`.
        if let Some(event) = self.open.as_ref().and_then(Open::next_event) {
            self.events.push_back(event);
        }
        // A closing consumer delivers no more records.
        if let Some(open) = &mut self.open
            && open.closing.is_none()
        {
            let report = open.identities.look(&open.client, &self.wake);
            self.events.extend(report);
        }
        self.events.pop_front()
    }

    fn wait(&mut self, at_most: Duration) {
        // Queues signal when they become non-empty, so the rest of an earlier poll causes no further signal. An element
        // that arrives after this check finds the queue empty, and signals.
        let left = self
            .open
            .as_ref()
            .is_some_and(|open| open.group().len() > 0);
        if !left && self.events.is_empty() {
            self.wake.wait(at_most);
        }
    }

    fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.wake))
    }

    fn take(&mut self, from: &TopicPartition, max: usize, into: &mut KafkaRecords) -> Result<()> {
        let call = CallSite::Take;
        let open = self.open.as_mut();
        let assigned = open.and_then(|open| {
            let assigned = open.partitions.get_mut(from)?;
            Some((assigned, &mut open.identities, &open.client))
        });
        let Some((assigned, identities, client)) = assigned else {
            let text = format!("{from} is not assigned");
            return Err(ClientError::new(call, code::LOCAL_UNKNOWN_PARTITION, text));
        };
        let Assigned { queue, tail, .. } = assigned;
        let events = &mut self.events;
        if identities.hold(client) {
            events.extend(identities.look(client, &self.wake));
        }
        // No record is taken from a topic that may have been replaced, nor before the worker has evaluated the report.
        let unread = events.iter().any(|it| matches!(it, SourceEvent::Topics(_)));
        let held = unread || identities.hold(client);
        let max = if held { 0 } else { max };
        queue.take(max, into, |code, offset, text| match code {
            code::LOCAL_AUTO_OFFSET_RESET | code::OFFSET_OUT_OF_RANGE => {
                events.push_back(SourceEvent::OutOfRange {
                    partition: from.clone(),
                    // A negative number is not an offset.
                    asked: Offset::new(offset).ok(),
                });
            }
            _ => {
                let text = format!("{from}: {text}");
                events.push_back(SourceEvent::Failed(ClientError::new(call, code, text)));
            }
        });
        for gone in client.gone() {
            events.push_back(SourceEvent::Failed(gone.at(call)));
        }
        if let Some(last) = into.last() {
            tail.took(last.offset().get());
        }
        Ok(())
    }

    fn held_back(&mut self, of: &TopicPartition) -> Option<u64> {
        // Processes a response of a broker, or sends a query.
        self.end(of)?;
        let open = self.open.as_ref()?;
        let assigned = open.partitions.get(of)?;
        let waiting = assigned.queue.len() > 0;
        assigned
            .tail
            .held_back(open.client.known(of).ok()?, waiting)
    }

    fn high_watermark(&mut self, of: &TopicPartition) -> Option<Offset> {
        let open = self.open.as_ref()?;
        let assigned = open.partitions.get(of)?;
        let high = assigned.tail.high(open.client.known(of).ok()?)?;
        Offset::new(high).ok()
    }

    fn committed(
        &mut self,
        of: &[TopicPartition],
        slice: Duration,
    ) -> Poll<Result<Vec<CommittedOffset>>> {
        let wake = Arc::clone(&self.wake);
        let open = self.open(CallSite::Committed)?;
        if open.committed.as_ref().is_none_or(|query| query.of() != of) {
            open.committed = Some(CommittedQuery::start(&open.client, of, &wake)?);
        }
        let answer = open
            .committed
            .as_mut()
            .map_or(Poll::Pending, |query| query.poll(slice));
        if answer.is_ready() {
            open.committed = None;
        }
        answer
    }

    fn bounds(
        &mut self,
        of: &[TopicPartition],
        slice: Duration,
    ) -> Poll<Result<Vec<OffsetBounds>>> {
        let open = self.open(CallSite::Bounds)?;
        if open.bounds.as_ref().is_none_or(|query| query.of() != of) {
            open.bounds = Some(BoundsQuery::start(&open.lookups, of));
        }
        let answer = open
            .bounds
            .as_mut()
            .map_or(Poll::Pending, |query| query.poll(slice));
        if answer.is_ready() {
            open.bounds = None;
        }
        answer
    }

    fn ends(&mut self, of: &[TopicPartition], slice: Duration) -> Poll<Result<Vec<LogEnds>>> {
        let call = CallSite::Bounds;
        let wake = Arc::clone(&self.wake);
        let open = self.open(call)?;
        if open.ends.as_ref().is_none_or(|query| query.of() != of) {
            let uncommitted = open.uncommitted.lookups(&wake).map_err(|e| e.at(call))?;
            open.ends = Some(EndsQuery::start(&open.lookups, uncommitted, of));
        }
        let answer = open
            .ends
            .as_mut()
            .map_or(Poll::Pending, |query| query.poll(slice));
        if answer.is_ready() {
            open.ends = None;
        }
        answer
    }

    fn drained(&mut self, of: &TopicPartition) -> Option<Offset> {
        // Processes a response of a broker, or sends a query.
        self.end(of)?;
        let open = self.open.as_ref()?;
        let assigned = open.partitions.get(of)?;
        let waiting = assigned.queue.len() > 0;
        let stable = assigned
            .tail
            .drained(open.client.known(of).ok()?, waiting)?;
        Offset::new(stable).ok()
    }

    fn end(&mut self, of: &TopicPartition) -> Option<Offset> {
        let open = self.open.as_mut()?;
        let Assigned { queue, tail, probe } = open.partitions.get_mut(of)?;
        if let Some((stable, high)) = probe.answer() {
            tail.told(stable, high);
        }
        // Read before the other values: a record that arrives meanwhile only makes the end a moment old.
        let waiting = queue.len() > 0;
        let known = open.client.known(of).ok()?;
        let end = tail.end(known, waiting);
        if matches!(end, End::Unclear(_) | End::Unknown) {
            probe.ask(&open.lookups, of, known.high);
        }
        match end {
            End::Here(end) | End::Ahead(end) | End::Unclear(end) => Offset::new(end).ok(),
            End::Unknown => None,
        }
    }

    fn assign(&mut self, at: &[(TopicPartition, Offset)]) -> Result<()> {
        let call = CallSite::Assign;
        let wake = Arc::clone(&self.wake);
        let open = self.open(call)?;
        let list = with_offsets(at).map_err(|e| e.at(call))?;
        open.identities.assigned();
        // The queues are separated from the consumer's before the fetchers start, so that no record ends up among the
        // group's events.
        let mut queues = Vec::with_capacity(at.len());
        for (partition, offset) in at {
            let queue = Queue::partition(&open.client, partition).ok_or_else(|| {
                let text = format!("{partition} cannot be consumed");
                ClientError::new(call, code::LOCAL_UNKNOWN_PARTITION, text)
            })?;
            let known = open.client.known(partition).map_err(|e| e.at(call))?;
            let assigned = Assigned {
                queue: queue.waking(&wake),
                tail: Tail::at(offset.get(), known),
                probe: Probe::default(),
            };
            queues.push((partition.clone(), assigned));
        }
        open.client
            .incremental_assign(&list)
            .map_err(|e| e.at(call))?;
        open.partitions.extend(queues);
        Ok(())
    }

    fn unassign(&mut self, partitions: &[TopicPartition]) -> Result<()> {
        let call = CallSite::Unassign;
        let open = self.open(call)?;
        // A revocation may name partitions that were never assigned, because their offsets were not stable yet.
        // librdkafka rejects the removal of unassigned partitions. The call is made even for an empty list, because it
        // is the response.
        let assigned = partitions
            .iter()
            .filter(|p| open.partitions.contains_key(p));
        let list = PartitionList::of(assigned).map_err(|e| e.at(call))?;
        for partition in partitions {
            open.partitions.remove(partition);
        }
        // A query about these partitions may have its response by now. When the partitions come back, the response
        // would predate another owner's commits.
        open.committed = None;
        open.bounds = None;
        open.ends = None;
        open.client
            .incremental_unassign(&list)
            .map_err(|e| e.at(call))
    }

    fn seek(&mut self, to: &[(TopicPartition, Offset)], slice: Duration) -> Poll<Result<()>> {
        let call = CallSite::Seek;
        if to.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let open = self.open(call)?;
        let list = with_offsets(to).map_err(|e| e.at(call))?;
        let slice = slice.max(Duration::from_millis(1));
        match open.client.seek(&list, slice) {
            // A repeated seek is harmless: the last one counts.
            Err(failure) if failure.fault.code == code::LOCAL_TIMED_OUT => Poll::Pending,
            Err(failure) => Poll::Ready(Err(failure.at(call))),
            Ok(outcome) => match outcome.into_iter().find(|entry| entry.code != 0) {
                None => {
                    for (partition, offset) in to {
                        let known = open.client.known(partition).map_err(|e| e.at(call))?;
                        if let Some(assigned) = open.partitions.get_mut(partition) {
                            assigned.tail = Tail::at(offset.get(), known);
                            assigned.probe = Probe::default();
                        }
                    }
                    Poll::Ready(Ok(()))
                }
                Some(entry) => {
                    let failure = Failure::of(entry.code);
                    let text = format!("{}: {}", entry.partition, failure.text);
                    Poll::Ready(Err(ClientError::new(call, entry.code, text)))
                }
            },
        }
    }

    fn assigned(&mut self) -> Poll<Result<Option<Vec<TopicPartition>>>> {
        let wake = Arc::clone(&self.wake);
        let open = self.open(CallSite::Subscribe)?;
        if open.assigned.is_none() {
            open.assigned = Some(GroupQuery::start(&open.client, &open.group, &wake)?);
        }
        let answer = open
            .assigned
            .as_ref()
            .map_or(Poll::Pending, GroupQuery::poll);
        if answer.is_ready() {
            open.assigned = None;
        }
        answer
    }

    fn member(&mut self) -> Result<Member> {
        let call = CallSite::Member;
        let member = self.open(call)?.client.member();
        member.ok_or_else(|| ClientError::new(call, code::LOCAL_STATE, "the consumer has no group"))
    }

    fn commit(&mut self, offsets: &[OffsetToCommit], slice: Duration) -> Poll<Result<()>> {
        let wake = Arc::clone(&self.wake);
        let open = self.open(CallSite::ConsumerCommit)?;
        if open
            .commit
            .as_ref()
            .is_none_or(|query| query.offsets() != offsets)
        {
            open.commit = Some(CommitQuery::start(&open.client, offsets, &wake)?);
        }
        let answer = open
            .commit
            .as_mut()
            .map_or(Poll::Pending, |query| query.poll(&open.client, slice));
        if answer.is_ready() {
            open.commit = None;
        }
        answer
    }

    fn close(&mut self, slice: Duration) -> Poll<Result<()>> {
        let call = CallSite::Close;
        let Some(open) = self.open.as_mut() else {
            return Poll::Ready(Ok(()));
        };
        if open.closing.is_none() {
            open.committed = None;
            open.bounds = None;
            open.ends = None;
            open.assigned = None;
            let events = Queue::fresh(&open.client).waking(&self.wake);
            if let Err(failure) = open.client.begin_close(&events) {
                // After a fatal error librdkafka has already left the group, and closes nothing.
                let fatal = failure.fault.fatal;
                self.open = None;
                return Poll::Ready(if fatal { Ok(()) } else { Err(failure.at(call)) });
            }
            open.closing = Some(events);
        }
        let end = Instant::now() + slice;
        loop {
            let Some(open) = self.open.as_ref() else {
                return Poll::Ready(Ok(()));
            };
            if open.client.is_closed() {
                // Events that can no longer be handled.
                self.events
                    .retain(|event| matches!(event, SourceEvent::Failed(_)));
                self.open = None;
                return Poll::Ready(Ok(()));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || open.group().len() > 0 || !self.events.is_empty() {
                return Poll::Pending;
            }
            // The end is also an element of the queue, but is declared right after it.
            self.wake.wait(left.min(Duration::from_millis(5)));
        }
    }
}

fn with_offsets(at: &[(TopicPartition, Offset)]) -> Result<PartitionList, Failure> {
    let mut list = PartitionList::new(at.len());
    for (partition, offset) in at {
        list.push(partition, offset.get(), None)?;
    }
    Ok(list)
}

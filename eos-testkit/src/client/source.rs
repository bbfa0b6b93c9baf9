//! [`Source`] on the model.

use std::collections::VecDeque;
use std::task::Poll;
use std::time::Duration;

use eos_client::{
    ClientError, CommittedOffset, Headers, LogEnds, Message, OffsetBounds, OffsetToCommit, Records,
    Result, Source, SourceEvent, SourceSpec,
};
use eos_protocol::{CallSite, Offset, Timestamp, TopicName, TopicPartition, code};
use kafka_wire::batch::Record;

use super::cluster::Cluster;
use super::fabric::Wire;
use super::look::Look;
use super::member::{Member, ModelMember};
use super::network::ClientId;
use super::queries::{Commit, Committed, Ends, Everybodys, as_bounds};
use super::reader::Reader;

/// A fetched record.
#[derive(Debug)]
pub struct ModelMessage(Record);

impl Message for ModelMessage {
    fn offset(&self) -> Offset {
        Offset::new(self.0.offset).unwrap_or(Offset::ZERO)
    }
    fn timestamp(&self) -> Option<Timestamp> {
        (self.0.timestamp >= 0).then_some(Timestamp(self.0.timestamp))
    }
    fn key(&self) -> Option<&[u8]> {
        self.0.key.as_deref()
    }
    fn value(&self) -> Option<&[u8]> {
        self.0.value.as_deref()
    }
    fn headers(&self) -> Headers {
        let mut headers = Headers::new();
        for (name, value) in &self.0.headers {
            headers.push(name.as_str(), value.as_deref());
        }
        headers
    }
}

/// Fetched records of one partition.
#[derive(Debug, Default)]
pub struct ModelRecords(VecDeque<ModelMessage>);

impl Records for ModelRecords {
    type Message = ModelMessage;

    fn first(&self) -> Option<&ModelMessage> {
        self.0.front()
    }
    fn last(&self) -> Option<&ModelMessage> {
        self.0.back()
    }
    fn drop_first(&mut self) {
        self.0.pop_front();
    }
    fn clear(&mut self) {
        self.0.clear();
    }
}

/// A member of a consumer group, on the model.
#[derive(Debug)]
pub struct ModelSource {
    cluster: Cluster,
    id: ClientId,
    client_id: String,
    group: String,
    reader: Reader,
    look: Look,
    /// The report of `look` that the worker has not polled yet.
    report: Option<SourceEvent>,
    committed: Option<Committed>,
    bounds: Option<Ends>,
    ends: Option<Ends>,
    everybodys: Option<Everybodys>,
    commit: Option<Commit>,
    closing: bool,
    closed: bool,
}

impl ModelSource {
    pub(super) fn new(cluster: Cluster, spec: &SourceSpec) -> ModelSource {
        let member = Member::new(spec);
        let id = cluster.with(|world| {
            let id = world.new_client(&spec.client_id);
            world.members.join(id, spec.client_id.clone(), member);
            id
        });
        ModelSource {
            cluster,
            id,
            client_id: spec.client_id.clone(),
            group: spec.group.clone(),
            reader: Reader::default(),
            look: Look::of(&spec.watched),
            report: None,
            committed: None,
            bounds: None,
            ends: None,
            everybodys: None,
            commit: None,
            closing: false,
            closed: false,
        }
    }

    fn before(&self, call: CallSite) {
        self.cluster.before(call, &self.client_id);
    }

    fn after(&self, call: CallSite) {
        self.cluster.after(call, &self.client_id);
    }

    fn on_member<T>(&self, act: impl FnOnce(&mut Member, &mut Wire<'_>) -> T) -> Option<T> {
        self.cluster.with(|world| world.member(self.id, act))
    }

    fn tick_reader(&mut self) {
        let (id, client_id, reader) = (self.id, &self.client_id, &mut self.reader);
        let look = &self.look;
        self.cluster
            .with(|world| world.on_wire(id, client_id, |wire| reader.tick(look, wire)));
    }

    fn look_at_topics(&mut self) {
        if self.closing {
            return;
        }
        let (id, client_id, look) = (self.id, &self.client_id, &mut self.look);
        let report = self
            .cluster
            .with(|world| world.on_wire(id, client_id, |wire| look.tick(wire)));
        let resized = self.look.resized();
        if !resized.is_empty() {
            self.on_member(|member, _| member.resized(&resized));
        }
        self.report = report.or_else(|| self.report.take());
    }

    /// Whether records wait for a response, or for the worker's decision on one.
    fn holds(&self) -> bool {
        self.report.is_some() || self.look.holds(self.cluster.now())
    }
}

impl Drop for ModelSource {
    /// Sends no request, as at the death of the process.
    fn drop(&mut self) {
        self.cluster.with(|world| world.gone(self.id));
    }
}

fn is_closed(call: CallSite) -> ClientError {
    ClientError::new(call, code::LOCAL_STATE, "it is closed")
}

impl Source for ModelSource {
    type Records = ModelRecords;
    type Member = ModelMember;

    fn subscribe(&mut self, topics: &[TopicName]) -> Result<()> {
        self.before(CallSite::Subscribe);
        let topics = topics.iter().map(|it| it.as_str().to_owned()).collect();
        self.on_member(|member, _| member.subscribe(topics));
        self.after(CallSite::Subscribe);
        Ok(())
    }

    fn unsubscribe(&mut self) -> Result<()> {
        self.before(CallSite::Subscribe);
        self.on_member(|member, _| member.unsubscribe());
        self.after(CallSite::Subscribe);
        Ok(())
    }

    fn poll(&mut self) -> Option<SourceEvent> {
        self.look_at_topics();
        self.tick_reader();
        let event = self.on_member(|member, _| member.next_event()).flatten();
        event
            .or_else(|| self.report.take())
            .or_else(|| self.reader.next_event())
    }

    /// Time passes only between steps of the worker.
    fn wait(&mut self, _: Duration) {}

    fn take(&mut self, from: &TopicPartition, max: usize, into: &mut ModelRecords) -> Result<()> {
        into.clear();
        let call = CallSite::Take;
        if !self.reader.is_assigned(from) {
            let text = format!("{from} is not assigned");
            return Err(ClientError::new(call, code::LOCAL_UNKNOWN_PARTITION, text));
        }
        self.look_at_topics();
        self.tick_reader();
        if self.holds() {
            return Ok(());
        }
        let taken = self.reader.take(from, max);
        if !taken.is_empty() {
            self.after(call);
        }
        into.0.extend(taken.into_iter().map(ModelMessage));
        Ok(())
    }

    fn committed(
        &mut self,
        of: &[TopicPartition],
        _: Duration,
    ) -> Poll<Result<Vec<CommittedOffset>>> {
        let (id, client_id, group) = (self.id, &self.client_id, &self.group);
        let query = &mut self.committed;
        let answer = self.cluster.with(|world| {
            let now = world.fabric.now();
            if query.as_ref().is_none_or(|query| query.of() != of) {
                *query = Some(Committed::new(group, of, now));
            }
            let query = query.as_mut();
            world.on_wire(id, client_id, |wire| query.and_then(|it| it.poll(wire)))
        });
        let Some(answer) = answer else {
            return Poll::Pending;
        };
        self.committed = None;
        self.after(CallSite::Committed);
        Poll::Ready(answer)
    }

    fn bounds(&mut self, of: &[TopicPartition], _: Duration) -> Poll<Result<Vec<OffsetBounds>>> {
        let answer = ask_ends(
            &self.cluster,
            (self.id, &self.client_id),
            &mut self.bounds,
            of,
        );
        if answer.is_ready() {
            self.after(CallSite::Bounds);
        }
        answer.map_ok(as_bounds)
    }

    fn ends(&mut self, of: &[TopicPartition], _: Duration) -> Poll<Result<Vec<LogEnds>>> {
        let answer = ask_ends(
            &self.cluster,
            (self.id, &self.client_id),
            &mut self.ends,
            of,
        );
        if answer.is_ready() {
            self.after(CallSite::Bounds);
        }
        answer
    }

    fn drained(&mut self, of: &TopicPartition) -> Option<Offset> {
        self.tick_reader();
        Offset::new(self.reader.drained(of)?).ok()
    }

    fn end(&mut self, of: &TopicPartition) -> Option<Offset> {
        self.tick_reader();
        Offset::new(self.reader.end(of)?).ok()
    }

    fn held_back(&mut self, of: &TopicPartition) -> Option<u64> {
        self.tick_reader();
        self.reader.held_back(of)
    }

    fn high_watermark(&mut self, of: &TopicPartition) -> Option<Offset> {
        self.tick_reader();
        Offset::new(self.reader.high_watermark(of)?).ok()
    }

    fn assign(&mut self, at: &[(TopicPartition, Offset)]) -> Result<()> {
        let call = CallSite::Assign;
        self.before(call);
        if let Some((twice, _)) = at.iter().find(|(it, _)| self.reader.is_assigned(it)) {
            // librdkafka's `RD_KAFKA_RESP_ERR__CONFLICT`.
            let text = format!("{twice} is already assigned");
            return Err(ClientError::new(call, -173, text));
        }
        self.reader.assign(at);
        self.on_member(|member, _| member.assigned());
        self.after(call);
        Ok(())
    }

    fn unassign(&mut self, partitions: &[TopicPartition]) -> Result<()> {
        self.before(CallSite::Unassign);
        self.reader.unassign(partitions);
        // Their responses would be older than another owner's commits.
        self.committed = None;
        self.bounds = None;
        self.ends = None;
        self.on_member(|member, _| member.unassigned());
        self.after(CallSite::Unassign);
        Ok(())
    }

    fn seek(&mut self, to: &[(TopicPartition, Offset)], _: Duration) -> Poll<Result<()>> {
        self.before(CallSite::Seek);
        if let Some((gone, _)) = to.iter().find(|(it, _)| !self.reader.is_assigned(it)) {
            let text = format!("{gone} is not assigned");
            let error = ClientError::new(CallSite::Seek, code::LOCAL_UNKNOWN_PARTITION, text);
            return Poll::Ready(Err(error));
        }
        self.reader.seek(to);
        self.after(CallSite::Seek);
        Poll::Ready(Ok(()))
    }

    fn assigned(&mut self) -> Poll<Result<Option<Vec<TopicPartition>>>> {
        let group = &self.group;
        let query = self
            .everybodys
            .get_or_insert_with(|| Everybodys::new(group));
        let (id, client_id) = (self.id, &self.client_id);
        let answer = self
            .cluster
            .with(|world| world.on_wire(id, client_id, |wire| query.poll(wire)));
        let Some(answer) = answer else {
            return Poll::Pending;
        };
        self.everybodys = None;
        Poll::Ready(Ok(answer))
    }

    fn member(&mut self) -> Result<ModelMember> {
        let found = self.on_member(|member, _| member.metadata());
        found.ok_or_else(|| is_closed(CallSite::Member))
    }

    fn commit(&mut self, offsets: &[OffsetToCommit], _: Duration) -> Poll<Result<()>> {
        let Some(member) = self.on_member(|member, _| member.metadata()) else {
            return Poll::Ready(Err(is_closed(CallSite::ConsumerCommit)));
        };
        if self
            .commit
            .as_ref()
            .is_none_or(|it| it.offsets() != offsets)
        {
            self.before(CallSite::ConsumerCommit);
            self.commit = Some(Commit::new(&member, offsets));
        }
        let (id, client_id, commit) = (self.id, &self.client_id, self.commit.as_mut());
        let answer = self
            .cluster
            .with(|world| world.on_wire(id, client_id, |wire| commit.and_then(|it| it.poll(wire))));
        let Some(answer) = answer else {
            return Poll::Pending;
        };
        self.commit = None;
        self.after(CallSite::ConsumerCommit);
        Poll::Ready(answer)
    }

    fn close(&mut self, _: Duration) -> Poll<Result<()>> {
        if self.closed {
            return Poll::Ready(Ok(()));
        }
        if !self.closing {
            self.before(CallSite::Close);
            self.closing = true;
        }
        let gone = self.on_member(|member, wire| {
            if member.has_events() || !member.gives_back() {
                return false;
            }
            if member.is_member() && !member.is_static() {
                member.leave(wire);
            }
            true
        });
        if gone == Some(false) {
            return Poll::Pending;
        }
        // Its last request still arrives, and the response is dropped.
        self.cluster.with(|world| world.gone(self.id));
        self.closed = true;
        self.after(CallSite::Close);
        Poll::Ready(Ok(()))
    }
}

fn ask_ends(
    cluster: &Cluster,
    (id, client_id): (ClientId, &str),
    query: &mut Option<Ends>,
    of: &[TopicPartition],
) -> Poll<Result<Vec<LogEnds>>> {
    if query.as_ref().is_none_or(|query| query.of() != of) {
        *query = Some(Ends::new(of));
    }
    let asked = query.as_mut();
    let answer = cluster
        .with(|world| world.on_wire(id, client_id, |wire| asked.and_then(|it| it.poll(wire))));
    let Some(answer) = answer else {
        return Poll::Pending;
    };
    *query = None;
    Poll::Ready(answer)
}

//! A scripted Kafka for unit tests: one log per partition, one group, transactions with epochs.
//!
//! It shows that the worker needs nothing but the client traits: several workers are stepped on one
//! thread under a virtual clock. Failures are scripted per call; every call is written down.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use eos_protocol::{
    CallSite, Fault, Now, Offset, Partition, Timestamp, TopicName, TopicPartition, code,
};

use super::spec::Env;
use crate::client::*;

/// The numbers of a member that the group knows.
pub(super) const MEMBER: (i32, &str) = (7, "member-1");

#[derive(Debug, Default)]
pub(super) struct Broker {
    pub(super) input: BTreeMap<TopicPartition, Vec<String>>,
    pub(super) committed: BTreeMap<TopicPartition, (i64, String)>,
    /// Values that a reader of committed records sees, by output topic index.
    pub(super) visible: Vec<(usize, String)>,
    /// Offsets that an open transaction of somebody else holds: those of these partitions.
    pub(super) unstable: BTreeSet<TopicPartition>,
    /// Partitions whose end the client has not heard of.
    pub(super) silent: BTreeSet<TopicPartition>,
    /// How many records somebody's open transaction holds back at the end.
    pub(super) held_back: BTreeMap<TopicPartition, u64>,
    pub(super) events: BTreeMap<String, VecDeque<SourceEvent>>,
    pub(super) calls: Vec<String>,
    /// The next answers to a call, instead of success.
    pub(super) script: BTreeMap<CallSite, VecDeque<Answer>>,
    pub(super) membership: Option<(i32, String)>,
    pub(super) unanswered: bool,
    /// The first offset that is still in the logs.
    pub(super) first: i64,
    /// A value that aborts every transaction which it is sent in.
    pub(super) toxic: Option<String>,
    /// The headers of the last record that was sent with any.
    pub(super) headers: Vec<(String, String)>,
    /// How many seeks still land one record too late, as if an old fetch were still in the queue.
    pub(super) late_seeks: u32,
    epoch: u32,
}

/// What a scripted call does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    Pending,
    /// Fails, having done nothing.
    Fails(Fault),
    /// Does what it should, and reports a failure all the same.
    DoneBut(Fault),
}

pub(super) fn abortable(code: i32) -> Fault {
    Fault {
        abortable: true,
        ..Fault::plain(code)
    }
}

pub(super) fn fatal(code: i32) -> Fault {
    Fault {
        fatal: true,
        ..Fault::plain(code)
    }
}

impl Broker {
    fn called(&mut self, what: impl Into<String>) {
        self.calls.push(what.into());
    }

    fn scripted(&mut self, call: CallSite) -> Option<Answer> {
        self.script.get_mut(&call)?.pop_front()
    }
}

/// A cluster of one scripted broker.
#[derive(Debug, Clone, Default)]
pub(super) struct Fake(Arc<Mutex<Broker>>);

impl Fake {
    pub(super) fn broker(&self) -> MutexGuard<'_, Broker> {
        self.0.lock().unwrap()
    }

    pub(super) fn answer(&self, call: CallSite, answers: impl IntoIterator<Item = Answer>) {
        self.broker()
            .script
            .entry(call)
            .or_default()
            .extend(answers);
    }

    /// The coordinator aborts what is open, if anything was sent in it, and fences its producer.
    pub(super) fn expire(&self) {
        let mut broker = self.broker();
        let sent = broker
            .calls
            .iter()
            .rev()
            .take_while(|call| *call != "commit");
        if sent.into_iter().any(|call| call == "send") {
            broker.called("expired");
            broker.epoch += 1;
        }
    }

    /// The calls so far, forgotten afterwards.
    pub(super) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.broker().calls)
    }

    pub(super) fn event(&self, client_id: &str, event: SourceEvent) {
        self.broker()
            .events
            .entry(client_id.to_owned())
            .or_default()
            .push_back(event);
    }
}

/// A clock that only the test moves.
#[derive(Debug, Clone, Default)]
pub(super) struct Clock(Arc<AtomicU64>);

impl Clock {
    pub(super) fn pass(&self, time: Duration) {
        self.0.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
    }

    pub(super) fn env(&self) -> Env {
        let (clock, counter) = (self.clone(), AtomicU64::new(1));
        Env::new(
            move || Now(Duration::from_millis(clock.0.load(Ordering::Relaxed))),
            move || counter.fetch_add(1, Ordering::Relaxed),
        )
    }
}

pub(super) fn tp(partition: i32) -> TopicPartition {
    TopicPartition::new("in", Partition::new(partition).unwrap())
}

#[derive(Debug)]
pub(super) struct FakeMessage {
    offset: i64,
    value: String,
}

impl Message for FakeMessage {
    fn offset(&self) -> Offset {
        Offset::new(self.offset).unwrap()
    }
    fn timestamp(&self) -> Option<Timestamp> {
        Some(Timestamp(self.offset))
    }
    fn key(&self) -> Option<&[u8]> {
        Some(b"k")
    }
    fn value(&self) -> Option<&[u8]> {
        Some(self.value.as_bytes())
    }
    fn headers(&self) -> Headers {
        Headers::new()
    }
}

#[derive(Debug, Default)]
pub(super) struct FakeRecords(VecDeque<FakeMessage>);

impl Records for FakeRecords {
    type Message = FakeMessage;

    fn first(&self) -> Option<&FakeMessage> {
        self.0.front()
    }
    fn drop_first(&mut self) {
        self.0.pop_front();
    }
    fn clear(&mut self) {
        self.0.clear();
    }
}

#[derive(Debug)]
pub(super) struct FakeMember(i32, String);

impl GroupMetadata for FakeMember {
    fn generation_id(&self) -> i32 {
        self.0
    }
    fn member_id(&self) -> &str {
        &self.1
    }
}

#[derive(Debug)]
pub(super) struct FakeSource {
    fake: Fake,
    id: String,
    at: BTreeMap<TopicPartition, i64>,
    /// In how many looks at the membership an unsubscribe will have led to a LeaveGroup: the
    /// client sends it on its own time.
    leaves_after: Option<u32>,
}

impl FakeSource {
    fn fails(&self, call: CallSite) -> Result<Option<Poll<()>>> {
        match self.fake.broker().scripted(call) {
            None => Ok(None),
            Some(Answer::Pending) => Ok(Some(Poll::Pending)),
            Some(Answer::Fails(fault) | Answer::DoneBut(fault)) => Err(ClientError {
                call,
                fault,
                text: "scripted".into(),
            }),
        }
    }
}

impl Source for FakeSource {
    type Records = FakeRecords;
    type Member = FakeMember;

    fn subscribe(&mut self, _: &[TopicName]) -> Result<()> {
        Ok(())
    }

    fn unsubscribe(&mut self) -> Result<()> {
        let partitions = self.at.keys().cloned().collect();
        self.fake.event(
            &self.id,
            SourceEvent::Revoked {
                partitions,
                lost: false,
            },
        );
        self.fake.broker().called("unsubscribe");
        self.leaves_after = Some(3);
        Ok(())
    }

    fn poll(&mut self) -> Option<SourceEvent> {
        self.fake.broker().events.get_mut(&self.id)?.pop_front()
    }

    fn wait(&mut self, _: Duration) {}

    fn take(&mut self, from: &TopicPartition, max: usize, into: &mut FakeRecords) -> Result<()> {
        into.clear();
        let Some(at) = self.at.get_mut(from) else {
            return Ok(());
        };
        let broker = self.fake.broker();
        let log = broker.input.get(from).map_or(&[][..], Vec::as_slice);
        for value in log.iter().skip(*at as usize).take(max) {
            into.0.push_back(FakeMessage {
                offset: *at,
                value: value.clone(),
            });
            *at += 1;
        }
        Ok(())
    }

    fn committed(
        &mut self,
        of: &[TopicPartition],
        _: Duration,
    ) -> Poll<Result<Vec<CommittedOffset>>> {
        if let Some(answer) = self.fails(CallSite::Committed)? {
            return answer.map(|()| Ok(Vec::new()));
        }
        let broker = self.fake.broker();
        let stable = of.iter().filter(|p| !broker.unstable.contains(p));
        let committed = stable.map(|partition| {
            let found = broker.committed.get(partition).cloned();
            let (offset, metadata) = found.map_or((None, String::new()), |(o, m)| (Some(o), m));
            let offset = offset.map(|o| Offset::new(o).unwrap());
            CommittedOffset {
                partition: partition.clone(),
                offset,
                metadata,
            }
        });
        let committed: Vec<_> = committed.collect();
        if committed.is_empty() && !of.is_empty() {
            return Poll::Pending;
        }
        Poll::Ready(Ok(committed))
    }

    fn bounds(&mut self, of: &[TopicPartition], _: Duration) -> Poll<Result<Vec<OffsetBounds>>> {
        let broker = self.fake.broker();
        let end = |p| broker.input.get(p).map_or(0, Vec::len) as i64;
        let bounds = of.iter().map(|partition| OffsetBounds {
            partition: partition.clone(),
            first: Offset::new(broker.first).unwrap(),
            end: Offset::new(end(partition)).unwrap(),
        });
        Poll::Ready(Ok(bounds.collect()))
    }

    fn end(&mut self, of: &TopicPartition) -> Option<Offset> {
        self.at.get(of)?;
        let broker = self.fake.broker();
        let end = broker.input.get(of).map_or(0, Vec::len) as i64;
        (!broker.silent.contains(of)).then(|| Offset::new(end).unwrap())
    }

    fn held_back(&mut self, of: &TopicPartition) -> Option<u64> {
        self.end(of)?;
        Some(self.fake.broker().held_back.get(of).copied().unwrap_or(0))
    }

    fn assign(&mut self, at: &[(TopicPartition, Offset)]) -> Result<()> {
        self.at.extend(at.iter().map(|(p, o)| (p.clone(), o.get())));
        let at: Vec<String> = at.iter().map(|(p, o)| format!("{p}@{o}")).collect();
        self.fake
            .broker()
            .called(format!("assign {}", at.join(" ")));
        Ok(())
    }

    fn unassign(&mut self, partitions: &[TopicPartition]) -> Result<()> {
        self.at.retain(|p, _| !partitions.contains(p));
        self.fake
            .broker()
            .called(format!("unassign {partitions:?}"));
        Ok(())
    }

    fn seek(&mut self, to: &[(TopicPartition, Offset)], _: Duration) -> Poll<Result<()>> {
        if let Some(answer) = self.fails(CallSite::Seek)? {
            return answer.map(Ok);
        }
        let late = {
            let left = &mut self.fake.broker().late_seeks;
            let late = i64::from(*left > 0);
            *left = left.saturating_sub(1);
            late
        };
        for (partition, offset) in to {
            self.at.insert(partition.clone(), offset.get() + late);
            self.fake
                .broker()
                .called(format!("seek {partition}@{offset}"));
        }
        Poll::Ready(Ok(()))
    }

    fn member(&mut self) -> Result<FakeMember> {
        match &mut self.leaves_after {
            Some(0) => {
                self.leaves_after = None;
                let mut broker = self.fake.broker();
                broker.called("leave");
                broker.membership = Some((-1, String::new()));
            }
            Some(looks) => *looks -= 1,
            None => {}
        }
        let (generation, id) = self
            .fake
            .broker()
            .membership
            .clone()
            .unwrap_or((MEMBER.0, MEMBER.1.to_owned()));
        Ok(FakeMember(generation, id))
    }

    fn commit(&mut self, offsets: &[OffsetToCommit], _: Duration) -> Poll<Result<()>> {
        let mut broker = self.fake.broker();
        broker.called("consumer commit");
        for o in offsets {
            broker
                .committed
                .insert(o.partition.clone(), (o.offset.get(), o.metadata.clone()));
        }
        Poll::Ready(Ok(()))
    }

    fn close(&mut self, _: Duration) -> Poll<Result<()>> {
        if let Some(answer) = self.fails(CallSite::Close)? {
            return answer.map(Ok);
        }
        self.fake.broker().called("close");
        Poll::Ready(Ok(()))
    }
}

#[derive(Debug)]
pub(super) struct FakeProducer {
    fake: Fake,
    transactional: bool,
    epoch: u32,
    sent: Vec<(usize, String)>,
    offsets: Vec<OffsetToCommit>,
}

impl FakeProducer {
    /// Performs a call as scripted: `effect` is what it does when it works.
    fn call(
        &mut self,
        call: CallSite,
        name: &str,
        effect: impl FnOnce(&mut Self, &mut Broker),
    ) -> Poll<Result<()>> {
        let fake = self.fake.clone();
        let mut broker = fake.broker();
        let fenced = self.transactional && self.epoch != broker.epoch && call != CallSite::Init;
        let answer = broker.scripted(call);
        let fault = match answer {
            Some(Answer::Pending) => return Poll::Pending,
            _ if fenced => Some(fatal(code::LOCAL_FENCED)),
            Some(Answer::Fails(fault)) => Some(fault),
            Some(Answer::DoneBut(fault)) => {
                broker.called(name);
                effect(self, &mut broker);
                Some(fault)
            }
            None => {
                broker.called(name);
                effect(self, &mut broker);
                None
            }
        };
        Poll::Ready(match fault {
            None => Ok(()),
            Some(fault) => Err(ClientError {
                call,
                fault,
                text: "scripted".into(),
            }),
        })
    }

    fn publish(&mut self, broker: &mut Broker) {
        broker.visible.append(&mut self.sent);
        for o in self.offsets.drain(..) {
            broker
                .committed
                .insert(o.partition, (o.offset.get(), o.metadata));
        }
    }
}

impl Producer for FakeProducer {
    type Member = FakeMember;

    fn init(&mut self, _: Duration) -> Poll<Result<()>> {
        self.call(CallSite::Init, "init", |this, broker| {
            broker.epoch += 1;
            this.epoch = broker.epoch;
        })
    }

    fn begin(&mut self) -> Result<()> {
        match self.call(CallSite::Begin, "begin", |_, _| ()) {
            Poll::Ready(done) => done,
            Poll::Pending => Ok(()),
        }
    }

    fn send(&mut self, record: &Outgoing<'_>) -> Poll<Result<()>> {
        let text = String::from_utf8_lossy(record.value.unwrap_or_default()).into_owned();
        let topic = record.topic;
        if !record.headers.is_empty() {
            let text = |value: &Option<Box<[u8]>>| {
                String::from_utf8_lossy(value.as_deref().unwrap_or_default()).into_owned()
            };
            let headers = record.headers.iter();
            self.fake.broker().headers = headers
                .map(|h| (h.name.to_string(), text(&h.value)))
                .collect();
        }
        self.call(CallSite::Send, "send", move |this, _| {
            this.sent.push((topic, text))
        })
    }

    fn send_offsets(
        &mut self,
        offsets: &[OffsetToCommit],
        member: &FakeMember,
        _: Duration,
    ) -> Poll<Result<()>> {
        assert!(
            member.0 >= 0 && !member.1.is_empty(),
            "an unfenced membership was sent"
        );
        let offsets = offsets.to_vec();
        self.call(CallSite::SendOffsets, "send_offsets", move |this, _| {
            this.offsets = offsets
        })
    }

    fn flush(&mut self, _: Duration) -> Poll<Result<()>> {
        let toxic = self.fake.broker().toxic.clone();
        if toxic.is_some_and(|toxic| self.sent.iter().any(|(_, value)| *value == toxic)) {
            return Poll::Ready(Err(ClientError {
                call: CallSite::Flush,
                fault: abortable(code::RECORD_LIST_TOO_LARGE),
                text: "toxic".into(),
            }));
        }
        self.call(CallSite::Flush, "flush", |this, broker| {
            if !this.transactional {
                broker.visible.append(&mut this.sent);
            }
        })
    }

    fn commit(&mut self, _: Duration) -> Poll<Result<()>> {
        self.call(CallSite::Commit, "commit", Self::publish)
    }

    fn abort(&mut self, _: Duration) -> Poll<Result<()>> {
        self.call(CallSite::Abort, "abort", |this, _| {
            this.sent.clear();
            this.offsets.clear();
        })
    }

    fn unanswered(&self) -> bool {
        self.fake.broker().unanswered
    }
}

impl Client for Fake {
    type Source = FakeSource;
    type Producer = FakeProducer;

    fn facts(&self, _: &[TopicName], _: Duration) -> Result<ClusterFacts> {
        Ok(ClusterFacts {
            cluster_id: None,
            partitions: Vec::new(),
            max_message_bytes: Vec::new(),
            verification: Verification::On,
            limits: BrokerLimits::default(),
        })
    }

    fn source(&self, spec: &SourceSpec) -> Result<FakeSource> {
        Ok(FakeSource {
            fake: self.clone(),
            id: spec.client_id.clone(),
            at: BTreeMap::new(),
            leaves_after: None,
        })
    }

    fn producer(&self, spec: &ProducerSpec) -> Result<FakeProducer> {
        let mut broker = self.broker();
        broker.called("new producer");
        broker.unanswered = false;
        Ok(FakeProducer {
            fake: self.clone(),
            transactional: spec.transactional_id.is_some(),
            epoch: 0,
            sent: Vec::new(),
            offsets: Vec::new(),
        })
    }
}

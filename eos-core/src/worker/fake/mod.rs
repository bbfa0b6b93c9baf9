//! A scripted Kafka for unit tests: one log per partition, one group, transactions with epochs.
//!
//! It shows that the worker needs only the client traits: a test steps several workers on one thread under a virtual
//! clock. A script sets failures per call, and every call is recorded.

mod producer;
mod source;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use eos_protocol::{CallSite, Fault, Now, Offset, Partition, TopicName, TopicPartition};

use super::spec::Env;
use crate::client::*;
use producer::FakeProducer;
use source::FakeSource;

/// The generation and id of a member that the group knows.
pub(in crate::worker) const MEMBER: (i32, &str) = (7, "member-1");

/// A key and a value.
pub(in crate::worker) type Pair = (Vec<u8>, Option<Vec<u8>>);

#[derive(Debug, Default)]
pub(in crate::worker) struct Broker {
    pub(in crate::worker) input: BTreeMap<TopicPartition, Vec<String>>,
    pub(in crate::worker) committed: BTreeMap<TopicPartition, (i64, String)>,
    /// Values that a reader of committed records sees, by output topic index.
    pub(in crate::worker) visible: Vec<(usize, String)>,
    /// Partitions whose offsets an open transaction of another producer holds.
    pub(in crate::worker) unstable: BTreeSet<TopicPartition>,
    /// Whether no broker reports the topics.
    pub(in crate::worker) away: bool,
    /// Partitions whose end the client does not know.
    pub(in crate::worker) silent: BTreeSet<TopicPartition>,
    /// The number of records that another producer's open transaction holds back at the end.
    pub(in crate::worker) held_back: BTreeMap<TopicPartition, u64>,
    pub(in crate::worker) events: BTreeMap<String, VecDeque<SourceEvent>>,
    pub(in crate::worker) calls: Vec<String>,
    /// The next results of a call, instead of success.
    pub(in crate::worker) script: BTreeMap<CallSite, VecDeque<Answer>>,
    pub(in crate::worker) membership: Option<(i32, String)>,
    pub(in crate::worker) unanswered: bool,
    /// The first offset that is still in the logs.
    pub(in crate::worker) first: i64,
    /// A value that aborts every transaction that contains it.
    pub(in crate::worker) toxic: Option<String>,
    /// The contents of the changelogs: key and value, or `None` where a transaction ended.
    pub(in crate::worker) changelogs: BTreeMap<TopicPartition, Vec<Option<Pair>>>,
    /// The number of delivered changelog records.
    pub(in crate::worker) changelog_records: u64,
    /// The first offsets of changelogs that do not begin at 0.
    pub(in crate::worker) starts: BTreeMap<TopicPartition, i64>,
    /// Records at the end of a changelog that an open transaction of another producer holds back.
    pub(in crate::worker) open_at_end: i64,
    /// Partitions without a leader: queries of their ends have no response.
    pub(in crate::worker) leaderless: BTreeSet<TopicPartition>,
    /// The header `eos-replay` of input records, by offset.
    pub(in crate::worker) replays: BTreeMap<(TopicPartition, i64), String>,
    /// The headers of the last record that was sent with headers.
    pub(in crate::worker) headers: Vec<(String, String)>,
    /// The number of seeks that still land one record too late, like an old fetch in the queue.
    pub(in crate::worker) late_seeks: u32,
    /// A partition that is revoked during the next seek. The event is not reported yet.
    pub(in crate::worker) revoked_in_seek: Option<TopicPartition>,
    /// The assigned partitions of the group's members, as the coordinator reports them.
    pub(in crate::worker) group: Option<Vec<TopicPartition>>,
    /// The settings of the last source.
    pub(in crate::worker) source_spec: Option<SourceSpec>,
    /// The time limit of the last commit call.
    pub(in crate::worker) last_commit_slice: Duration,
    epoch: u32,
}

/// The effect of a scripted call.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker) enum Answer {
    Pending,
    /// Fails without an effect.
    Fails(Fault),
    /// Has its effect, but reports a failure.
    DoneBut(Fault),
}

pub(in crate::worker) fn abortable(code: i32) -> Fault {
    Fault {
        abortable: true,
        ..Fault::plain(code)
    }
}

pub(in crate::worker) fn fatal(code: i32) -> Fault {
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

    /// Returns the number of records in an input.
    fn input_end(&self, of: &TopicPartition) -> i64 {
        self.input.get(of).map_or(0, Vec::len) as i64
    }

    /// Returns the number of readable entries in a changelog.
    fn changelog_end(&self, of: &TopicPartition) -> i64 {
        self.changelogs.get(of).map_or(0, Vec::len) as i64
    }

    /// Returns the first offset of a partition: `usual`, unless a test has set another one.
    fn start(&self, of: &TopicPartition, usual: i64) -> Offset {
        offset(self.starts.get(of).copied().unwrap_or(usual))
    }

    fn commit(&mut self, offset: OffsetToCommit) {
        let committed = (offset.offset.get(), offset.metadata);
        self.committed.insert(offset.partition, committed);
    }
}

fn offset(n: i64) -> Offset {
    Offset::new(n).unwrap()
}

/// Returns the error of a call that fails by the script.
fn scripted_error(call: CallSite, fault: Fault) -> ClientError {
    ClientError {
        call,
        fault,
        text: "scripted".into(),
    }
}

/// A cluster of one scripted broker.
#[derive(Debug, Clone, Default)]
pub(in crate::worker) struct Fake(Arc<Mutex<Broker>>);

impl Fake {
    pub(in crate::worker) fn broker(&self) -> MutexGuard<'_, Broker> {
        self.0.lock().unwrap()
    }

    pub(in crate::worker) fn answer(
        &self,
        call: CallSite,
        answers: impl IntoIterator<Item = Answer>,
    ) {
        let mut broker = self.broker();
        broker.script.entry(call).or_default().extend(answers);
    }

    /// Makes the coordinator abort the open transaction and fence its producer, if the transaction has records.
    pub(in crate::worker) fn expire(&self) {
        let mut broker = self.broker();
        let calls = broker.calls.iter().rev();
        let mut open = calls.take_while(|call| *call != "commit");
        if open.any(|call| call == "send") {
            broker.called("expired");
            broker.epoch += 1;
        }
    }

    /// Takes the calls since the last check.
    pub(in crate::worker) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.broker().calls)
    }

    pub(in crate::worker) fn event(&self, client_id: &str, event: SourceEvent) {
        let mut broker = self.broker();
        let events = broker.events.entry(client_id.to_owned());
        events.or_default().push_back(event);
    }
}

/// A clock that only the test moves.
#[derive(Debug, Clone, Default)]
pub(in crate::worker) struct Clock {
    us: Arc<AtomicU64>,
    /// The advance of the clock after each reading.
    each_look: Arc<AtomicU64>,
}

impl Clock {
    pub(in crate::worker) fn pass(&self, time: Duration) {
        self.us
            .fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    /// Makes the clock advance by a tenth of a millisecond with each reading.
    pub(in crate::worker) fn tick(&self) {
        self.each_look.store(100, Ordering::Relaxed);
    }

    pub(in crate::worker) fn env(&self) -> Env {
        let (clock, counter) = (self.clone(), AtomicU64::new(1));
        Env::new(
            move || {
                let each_look = clock.each_look.load(Ordering::Relaxed);
                let us = clock.us.fetch_add(each_look, Ordering::Relaxed);
                Now(Duration::from_micros(us))
            },
            move || counter.fetch_add(1, Ordering::Relaxed),
        )
    }
}

pub(in crate::worker) fn tp(partition: i32) -> TopicPartition {
    TopicPartition::new("in", Partition::new(partition).unwrap())
}
impl Client for Fake {
    type Source = FakeSource;
    type Producer = FakeProducer;

    fn facts(&self, _: &[TopicName], _: Duration) -> Result<ClusterFacts> {
        Ok(ClusterFacts {
            cluster_id: None,
            topics: Vec::new(),
            others: Vec::new(),
            verification: Verification::On,
            limits: BrokerLimits::default(),
        })
    }

    fn create_topics(
        &self,
        topics: &[NewTopic],
        _: Duration,
    ) -> Result<Vec<(TopicName, Result<()>)>> {
        let created = topics.iter().map(|topic| (topic.name.clone(), Ok(())));
        Ok(created.collect())
    }

    fn delete_records(
        &self,
        before: &[(TopicPartition, Offset)],
        _: Duration,
    ) -> Result<Vec<(TopicPartition, Result<Offset>)>> {
        let deleted = before.iter();
        Ok(deleted
            .map(|(partition, offset)| (partition.clone(), Ok(*offset)))
            .collect())
    }

    fn source(&self, spec: &SourceSpec) -> Result<FakeSource> {
        self.broker().source_spec = Some(spec.clone());
        Ok(FakeSource::new(self, &spec.client_id))
    }

    fn producer(&self, spec: &ProducerSpec) -> Result<FakeProducer> {
        let mut broker = self.broker();
        broker.called("new producer");
        broker.unanswered = false;
        Ok(FakeProducer::new(self, spec))
    }
}

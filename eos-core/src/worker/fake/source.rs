//! The consumer of the scripted Kafka.

use std::collections::{BTreeMap, VecDeque};
use std::task::Poll;
use std::time::Duration;

use eos_protocol::sequence::REPLAY;
use eos_protocol::{CallSite, Offset, Timestamp, TopicName, TopicPartition};

use super::{Answer, Fake, MEMBER, offset, scripted_error};
use crate::client::*;

#[derive(Debug)]
pub(in crate::worker) struct FakeMessage {
    offset: i64,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    replay: Option<String>,
}

impl Message for FakeMessage {
    fn offset(&self) -> Offset {
        offset(self.offset)
    }
    /// Returns the number after an `@` in the value, or else the offset.
    fn timestamp(&self) -> Option<Timestamp> {
        let value = std::str::from_utf8(self.value.as_deref()?).ok();
        match value.and_then(|value| value.split_once('@')) {
            Some((_, time)) => time.parse().ok().map(Timestamp),
            None => Some(Timestamp(self.offset)),
        }
    }
    fn key(&self) -> Option<&[u8]> {
        Some(&self.key)
    }
    fn value(&self) -> Option<&[u8]> {
        self.value.as_deref()
    }
    fn headers(&self) -> Headers {
        let mut headers = Headers::new();
        if let Some(replay) = &self.replay {
            headers.push(REPLAY, Some(replay.as_bytes()));
        }
        headers
    }
}

#[derive(Debug, Default)]
pub(in crate::worker) struct FakeRecords(VecDeque<FakeMessage>);

impl Records for FakeRecords {
    type Message = FakeMessage;

    fn first(&self) -> Option<&FakeMessage> {
        self.0.front()
    }
    fn last(&self) -> Option<&FakeMessage> {
        self.0.back()
    }
    fn drop_first(&mut self) {
        self.0.pop_front();
    }
    fn clear(&mut self) {
        self.0.clear();
    }
}

#[derive(Debug)]
pub(in crate::worker) struct FakeMember(pub(super) i32, pub(super) String);

impl GroupMetadata for FakeMember {
    fn generation_id(&self) -> i32 {
        self.0
    }
    fn member_id(&self) -> &str {
        &self.1
    }
}

#[derive(Debug)]
pub(in crate::worker) struct FakeSource {
    fake: Fake,
    id: String,
    at: BTreeMap<TopicPartition, i64>,
    /// The number of membership queries until an unsubscribe has led to a LeaveGroup: the client sends it on its own
    /// thread.
    leaves_after: Option<u32>,
    /// Whether this poll ended with a report of the topics. The report is empty and shows that brokers respond.
    reported: bool,
}

impl FakeSource {
    pub(super) fn new(fake: &Fake, id: &str) -> Self {
        Self {
            fake: fake.clone(),
            id: id.into(),
            at: BTreeMap::new(),
            leaves_after: None,
            reported: false,
        }
    }

    fn fails(&self, call: CallSite) -> Result<Option<Poll<()>>> {
        match self.fake.broker().scripted(call) {
            None => Ok(None),
            Some(Answer::Pending) => Ok(Some(Poll::Pending)),
            Some(Answer::Fails(fault) | Answer::DoneBut(fault)) => Err(scripted_error(call, fault)),
        }
    }

    fn called(&self, what: impl Into<String>) {
        self.fake.broker().called(what);
    }

    /// Makes the group revoke these partitions, which are not lost.
    fn revoked(&self, partitions: Vec<TopicPartition>) {
        let lost = false;
        let event = SourceEvent::Revoked { partitions, lost };
        self.fake.event(&self.id, event);
    }
}

impl Source for FakeSource {
    type Records = FakeRecords;
    type Member = FakeMember;

    fn subscribe(&mut self, topics: &[TopicName]) -> Result<()> {
        let names: Vec<&str> = topics.iter().map(TopicName::as_str).collect();
        self.called(format!("subscribe {}", names.join(" ")));
        Ok(())
    }

    fn unsubscribe(&mut self) -> Result<()> {
        self.revoked(self.at.keys().cloned().collect());
        self.called("unsubscribe");
        self.leaves_after = Some(3);
        Ok(())
    }

    fn poll(&mut self) -> Option<SourceEvent> {
        let mut broker = self.fake.broker();
        let events = broker.events.entry(self.id.clone()).or_default();
        if let Some(event) = events.pop_front() {
            return Some(event);
        }
        self.reported = !self.reported && !broker.away;
        self.reported.then(|| SourceEvent::Topics(Vec::new()))
    }

    fn wait(&mut self, _: Duration) {}

    fn take(&mut self, from: &TopicPartition, max: usize, into: &mut FakeRecords) -> Result<()> {
        into.clear();
        let Some(at) = self.at.get_mut(from) else {
            return Ok(());
        };
        let mut broker = self.fake.broker();
        let log = broker.input.get(from).map_or(&[][..], Vec::as_slice);
        for value in log.iter().skip(*at as usize).take(max) {
            into.0.push_back(FakeMessage {
                offset: *at,
                key: b"k".to_vec(),
                value: Some(value.clone().into_bytes()),
                replay: broker.replays.get(&(from.clone(), *at)).cloned(),
            });
            *at += 1;
        }
        let log = broker.changelogs.get(from).map_or(&[][..], Vec::as_slice);
        if broker.starts.get(from).is_some_and(|start| *at < *start) {
            // The client has received this error, and has stopped there.
            return Ok(());
        }
        for pair in log.iter().skip(*at as usize).take(max) {
            if let Some((key, value)) = pair.clone() {
                into.0.push_back(FakeMessage {
                    offset: *at,
                    key,
                    value,
                    replay: None,
                });
            }
            *at += 1;
        }
        if !log.is_empty() {
            broker.changelog_records += into.0.len() as u64;
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
            let offset = offset.map(self::offset);
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
        if let Some(answer) = self.fails(CallSite::Bounds)? {
            return answer.map(|()| Ok(Vec::new()));
        }
        let broker = self.fake.broker();
        let bounds = of.iter().map(|partition| OffsetBounds {
            partition: partition.clone(),
            first: broker.start(partition, broker.first),
            end: offset(broker.input_end(partition)),
        });
        Poll::Ready(Ok(bounds.collect()))
    }

    fn ends(&mut self, of: &[TopicPartition], _: Duration) -> Poll<Result<Vec<LogEnds>>> {
        if let Some(answer) = self.fails(CallSite::Bounds)? {
            return answer.map(|()| Ok(Vec::new()));
        }
        let mut broker = self.fake.broker();
        broker.called("ends");
        if of.iter().any(|it| broker.leaderless.contains(it)) {
            return Poll::Pending;
        }
        let ends = of.iter().map(|partition| {
            let stable = broker.changelog_end(partition);
            LogEnds {
                partition: partition.clone(),
                first: broker.start(partition, 0),
                stable: offset(stable),
                end: offset(stable + broker.open_at_end),
            }
        });
        Poll::Ready(Ok(ends.collect()))
    }

    fn drained(&mut self, of: &TopicPartition) -> Option<Offset> {
        let at = *self.at.get(of)?;
        let stable = self.fake.broker().changelog_end(of);
        (at >= stable).then(|| offset(stable))
    }

    fn end(&mut self, of: &TopicPartition) -> Option<Offset> {
        self.at.get(of)?;
        let broker = self.fake.broker();
        (!broker.silent.contains(of)).then(|| offset(broker.input_end(of)))
    }

    fn held_back(&mut self, of: &TopicPartition) -> Option<u64> {
        self.end(of)?;
        Some(self.fake.broker().held_back.get(of).copied().unwrap_or(0))
    }

    fn high_watermark(&mut self, of: &TopicPartition) -> Option<Offset> {
        let stable = self.end(of)?.get();
        Offset::new(stable + self.held_back(of)? as i64).ok()
    }

    fn assign(&mut self, at: &[(TopicPartition, Offset)]) -> Result<()> {
        for (partition, _) in at {
            let twice = self.at.contains_key(partition);
            assert!(!twice, "{partition} is assigned twice");
        }
        self.at.extend(at.iter().map(|(p, o)| (p.clone(), o.get())));
        let at: Vec<String> = at.iter().map(|(p, o)| format!("{p}@{o}")).collect();
        self.called(format!("assign {}", at.join(" ")));
        Ok(())
    }

    fn unassign(&mut self, partitions: &[TopicPartition]) -> Result<()> {
        self.at.retain(|p, _| !partitions.contains(p));
        self.called(format!("unassign {partitions:?}"));
        Ok(())
    }

    fn seek(&mut self, to: &[(TopicPartition, Offset)], _: Duration) -> Poll<Result<()>> {
        let revoked = self.fake.broker().revoked_in_seek.take();
        if let Some(partition) = revoked {
            self.revoked(vec![partition]);
        }
        if let Some(answer) = self.fails(CallSite::Seek)? {
            return answer.map(Ok);
        }
        let left = self.fake.broker().late_seeks;
        self.fake.broker().late_seeks = left.saturating_sub(1);
        let late = i64::from(left > 0);
        for (partition, offset) in to {
            self.at.insert(partition.clone(), offset.get() + late);
            self.called(format!("seek {partition}@{offset}"));
        }
        Poll::Ready(Ok(()))
    }

    fn assigned(&mut self) -> Poll<Result<Option<Vec<TopicPartition>>>> {
        if self.fake.broker().away {
            return Poll::Pending;
        }
        let mut broker = self.fake.broker();
        let group = broker.group.clone();
        if group.is_some() {
            broker.called("describe");
        }
        Poll::Ready(Ok(group))
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
        let member = self.fake.broker().membership.clone();
        let (generation, id) = member.unwrap_or((MEMBER.0, MEMBER.1.to_owned()));
        Ok(FakeMember(generation, id))
    }

    fn commit(&mut self, offsets: &[OffsetToCommit], _: Duration) -> Poll<Result<()>> {
        if let Some(answer) = self.fails(CallSite::ConsumerCommit)? {
            return answer.map(Ok);
        }
        let mut broker = self.fake.broker();
        broker.called("consumer commit");
        for offset in offsets {
            broker.commit(offset.clone());
        }
        Poll::Ready(Ok(()))
    }

    fn close(&mut self, _: Duration) -> Poll<Result<()>> {
        if let Some(answer) = self.fails(CallSite::Close)? {
            return answer.map(Ok);
        }
        self.called("close");
        Poll::Ready(Ok(()))
    }
}

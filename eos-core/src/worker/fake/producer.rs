//! The producer of the scripted Kafka. Its records are visible once its transaction commits.

use std::collections::BTreeSet;
use std::task::Poll;
use std::time::Duration;

use eos_protocol::{CallSite, TopicName, TopicPartition, code};

use super::source::FakeMember;
use super::{Answer, Broker, Fake, Pair, abortable, fatal, scripted_error};
use crate::client::*;

#[derive(Debug)]
pub(in crate::worker) struct FakeProducer {
    fake: Fake,
    transactional: bool,
    epoch: u32,
    topics: Vec<TopicName>,
    sent: Vec<(usize, String)>,
    logged: Vec<(TopicPartition, Pair)>,
    offsets: Vec<OffsetToCommit>,
}

impl FakeProducer {
    pub(super) fn new(fake: &Fake, spec: &ProducerSpec) -> Self {
        Self {
            fake: fake.clone(),
            transactional: spec.transactional_id.is_some(),
            topics: spec.topics.clone(),
            epoch: 0,
            sent: Vec::new(),
            logged: Vec::new(),
            offsets: Vec::new(),
        }
    }

    /// Runs a call as scripted. `effect` is the effect of a success.
    fn call(
        &mut self,
        call: CallSite,
        name: &str,
        effect: impl FnOnce(&mut Self, &mut Broker),
    ) -> Poll<Result<()>> {
        let fake = self.fake.clone();
        let mut broker = fake.broker();
        let fenced = self.transactional && self.epoch != broker.epoch && call != CallSite::Init;
        let fails = |fault| Poll::Ready(Err(scripted_error(call, fault)));
        let answer = broker.scripted(call);
        match answer {
            Some(Answer::Pending) => return Poll::Pending,
            _ if fenced => return fails(fatal(code::LOCAL_FENCED)),
            Some(Answer::Fails(fault)) => return fails(fault),
            Some(Answer::DoneBut(_)) | None => {}
        }
        broker.called(name);
        effect(self, &mut broker);
        match answer {
            Some(Answer::DoneBut(fault)) => fails(fault),
            _ => Poll::Ready(Ok(())),
        }
    }

    fn publish(&mut self, broker: &mut Broker) {
        broker.visible.append(&mut self.sent);
        let mut touched = BTreeSet::new();
        for (partition, pair) in self.logged.drain(..) {
            let log = broker.changelogs.entry(partition.clone()).or_default();
            log.push(Some(pair));
            touched.insert(partition);
        }
        for partition in touched {
            broker.changelogs.entry(partition).or_default().push(None);
        }
        for offset in self.offsets.drain(..) {
            broker.commit(offset);
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
        let name = self.topics.get(topic).cloned();
        if let Some(name) = name.filter(|name| name.as_str().ends_with("changelog")) {
            let partition = TopicPartition::new(name, record.partition);
            let pair = (
                record.key.unwrap_or_default().to_vec(),
                record.value.map(<[u8]>::to_vec),
            );
            return self.call(CallSite::Send, "log", move |this, _| {
                this.logged.push((partition, pair));
            });
        }
        if !record.headers.is_empty() {
            let text = |value: Option<&[u8]>| {
                String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
            };
            let headers = record.headers.iter();
            self.fake.broker().headers = headers
                .map(|h| (h.name().to_owned(), text(h.value())))
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

    fn commit(&mut self, slice: Duration) -> Poll<Result<()>> {
        self.fake.broker().last_commit_slice = slice;
        self.call(CallSite::Commit, "commit", Self::publish)
    }

    fn abort(&mut self, _: Duration) -> Poll<Result<()>> {
        self.call(CallSite::Abort, "abort", |this, _| {
            this.sent.clear();
            this.logged.clear();
            this.offsets.clear();
        })
    }

    fn unanswered(&self) -> bool {
        self.fake.broker().unanswered
    }
}

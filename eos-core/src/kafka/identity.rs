//! Notices that a topic was deleted and made anew under its name.
//!
//! librdkafka 2.12.1 goes on with the new one at the offset that it had in the old one (its
//! `rd_kafka_topic_metadata_update` says that this is to be mended). If the new log is longer by then, nothing complains: its first
//! records are skipped. Only the topic's id tells (KIP-516).
//!
//! Fetch requests name topics by id (Kafka 3.1), so a record of the new topic comes only after a
//! Metadata answer has named its id. Each such answer is therefore a reason to ask for the ids, and no
//! record is taken until they are told. The question is a Metadata request, too, to the broker that
//! the cluster calls its controller; never to a coordinator (docs/design/0020).
//!
//! ```text
//! assigned ─┐
//! Metadata ─┼─→ suspicious ──ask──→ asked ──same ids──→ known
//! now and then ┘       ↑ no answer ───┘ └──another id──→ Recreated, once
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eos_protocol::TopicName;
use eos_protocol::state::TopicUuid;

use super::ffi::{Client, Queue};
use super::wake::Wake;
use crate::client::SourceEvent;

/// How long the broker may take.
const ANSWER: Duration = Duration::from_secs(5);
/// How long records are held back for an answer: who is to answer may be dead, or frozen, while the
/// leaders are not.
const HOLD: Duration = Duration::from_secs(1);
/// A broker may lag behind the one that told the consumer of a new topic: the ids are looked at
/// once more, sooner or later.
const LATER: Duration = Duration::from_secs(10);
/// Between a question that failed and the next one.
const PAUSE: Duration = Duration::from_millis(100);

/// The ids of the topics that were assigned.
#[derive(Debug, Default)]
pub(super) struct Identities {
    /// The first that was heard of; `None` until then.
    known: BTreeMap<TopicName, Option<TopicUuid>>,
    /// Since when an answer is owed.
    suspicious: Option<Instant>,
    asked: Option<Instant>,
    /// Where the answer comes.
    question: Option<Queue>,
    /// One is another topic now: nothing can be taken any more.
    over: bool,
}

impl Identities {
    /// Looks after these topics, too.
    pub(super) fn add<'a>(&mut self, topics: impl Iterator<Item = &'a TopicName>) {
        for topic in topics {
            if !self.known.contains_key(topic) {
                self.known.insert(topic.clone(), None);
                self.suspicious.get_or_insert_with(Instant::now);
            }
        }
    }

    /// Whether what is fetched is of another topic than it seems, or may be.
    pub(super) fn hold(&self, client: &Client) -> bool {
        let owed = self.suspicious.map(|since| since.elapsed());
        match owed {
            _ if self.over => true,
            None => !self.known.is_empty() && client.has_news(),
            Some(owed) => owed < HOLD,
        }
    }

    /// Takes the answer, or asks if there is reason to. Never waits.
    pub(super) fn look(&mut self, client: &Arc<Client>, wake: &Arc<Wake>) -> Vec<SourceEvent> {
        if self.known.is_empty() {
            return Vec::new();
        }
        let Some(question) = &self.question else {
            self.ask_if_due(client, wake);
            return Vec::new();
        };
        let Some(event) = question.poll(Duration::ZERO) else {
            return Vec::new();
        };
        let ids = event.check().is_ok().then(|| event.topics());
        drop(event);
        self.question = None;
        // The answer was one of those that are news.
        client.take_news();
        let Some(ids) = ids else {
            // Asked again after a pause.
            self.suspicious.get_or_insert_with(Instant::now);
            return Vec::new();
        };
        self.suspicious = None;
        let found = ids.iter().filter_map(|topic| {
            let id = topic.found.as_ref().ok()?.id?;
            self.told(&topic.name, id)
        });
        found.collect()
    }

    fn ask_if_due(&mut self, client: &Arc<Client>, wake: &Arc<Wake>) {
        let since = self.asked.map(|asked| asked.elapsed());
        if client.take_news() || since.is_some_and(|since| since >= LATER) {
            self.suspicious.get_or_insert_with(Instant::now);
        }
        let Some(suspicious) = self.suspicious else {
            return;
        };
        // The first question of a suspicion is put at once.
        let again = self.asked.is_some_and(|asked| asked >= suspicious);
        if again && since.is_some_and(|since| since < PAUSE) {
            return;
        }
        self.asked = Some(Instant::now());
        let topics: Vec<TopicName> = self.known.keys().cloned().collect();
        let question = Queue::fresh(client).waking(wake);
        // What can't be asked now is asked later.
        if client.ask_topics(&topics, ANSWER, &question).is_ok() {
            self.question = Some(question);
        }
    }

    /// A topic that is gone for now is not told of: the client says so itself.
    fn told(&mut self, topic: &str, now: TopicUuid) -> Option<SourceEvent> {
        let (topic, known) = self
            .known
            .iter_mut()
            .find(|(name, _)| name.as_str() == topic)?;
        let before = known.replace(now)?;
        if before == now {
            return None;
        }
        self.over = true;
        Some(SourceEvent::Recreated {
            topic: topic.clone(),
            before,
            now,
        })
    }
}

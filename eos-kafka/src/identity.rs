//! Queries the brokers for the ids and the partition counts of the app's topics.
//!
//! A topic may be deleted and created again under its name. librdkafka 2.12.1 goes on with the new one at the
//! offset that it had in the old one (its `rd_kafka_topic_metadata_update` says that this is to be mended). If the
//! new log is longer by then, nothing complains: its first records are skipped. Only the topic's id tells
//! (KIP-516). Partitions that are added to a topic are reported by nothing else either.
//!
//! Fetch requests name topics by id (Kafka 3.1), so a record of the new topic comes only after a
//! Metadata answer has named its id. Each such answer is therefore a reason to query the ids, and no
//! record is taken until they are known. The query is a Metadata request, too, to the broker that
//! the cluster calls its controller; never to a coordinator (docs/design/0020).
//!
//! ```text
//! made, assigned ─┐
//! Metadata       ─┼─→ suspicious ──query──→ asked ──answer──→ SourceEvent::Topics
//! now and then   ─┘       ↑ no answer ────────┘
//! ```
//!
//! What a report means is decided by the worker (`eos_protocol::TopicWatch`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use eos_client::SourceEvent;
use eos_protocol::{SeenTopic, TopicName, code};

use super::ffi::{Client, Queue, TopicAnswer};
use super::wake::Wake;

/// How long the broker may take.
const ANSWER: Duration = Duration::from_secs(5);
/// How long records are held back for an answer: who is to answer may be dead, or frozen, while the
/// leaders are not.
const HOLD: Duration = Duration::from_secs(1);
/// A broker may lag behind the one that reported a new topic to the consumer: the topics are looked at
/// once more, sooner or later. Outputs are looked at for no other reason.
const LATER: Duration = Duration::from_secs(10);
/// The same while a topic is missing, which counts only if it lasts.
const SOON: Duration = Duration::from_secs(1);
/// Between a query that failed and the next one.
const PAUSE: Duration = Duration::from_millis(100);

/// The topics of the app.
#[derive(Debug, Default)]
pub(super) struct Identities {
    topics: Vec<TopicName>,
    /// Whether a broker has answered yet.
    known: bool,
    /// Whether the last answer lacked one of them.
    missing: bool,
    /// Since when an answer is owed.
    suspicious: Option<Instant>,
    /// As far as the client's Metadata responses are looked into: [`Client::news`].
    looked_into: u64,
    asked: Option<Instant>,
    /// Where the answer comes.
    question: Option<Queue>,
}

impl Identities {
    /// Looks after these topics.
    pub(super) fn of(topics: &[TopicName]) -> Self {
        let mut topics = topics.to_vec();
        // librdkafka refuses a query that names one twice.
        topics.sort();
        topics.dedup();
        Self {
            suspicious: (!topics.is_empty()).then(Instant::now),
            topics,
            ..Self::default()
        }
    }

    /// Records come from now on: they wait for the first answer, if there was none.
    pub(super) fn assigned(&mut self) {
        if !self.known && !self.topics.is_empty() {
            self.suspicious = Some(Instant::now());
        }
    }

    /// Whether what is fetched may be of another topic than it seems.
    pub(super) fn hold(&self, client: &Client) -> bool {
        match self.suspicious.map(|since| since.elapsed()) {
            None => !self.topics.is_empty() && client.news() != self.looked_into,
            Some(owed) => owed < HOLD,
        }
    }

    /// Takes the answer, or sends a query if there is reason to. Never waits.
    pub(super) fn look(&mut self, client: &Arc<Client>, wake: &Arc<Wake>) -> Option<SourceEvent> {
        if self.topics.is_empty() {
            return None;
        }
        let Some(question) = &self.question else {
            self.ask_if_due(client, wake);
            return None;
        };
        let event = question.poll(Duration::ZERO)?;
        let answers = event.check().is_ok().then(|| event.topics());
        drop(event);
        // The answer is a Metadata response itself, and counts before its event is enqueued. A response
        // that came behind that event may name another id.
        self.looked_into = question.news();
        self.question = None;
        let Some(answers) = answers else {
            // Asked again after a pause.
            self.suspicious.get_or_insert_with(Instant::now);
            return None;
        };
        self.suspicious = None;
        self.known = true;
        let report: Vec<_> = answers.iter().filter_map(|it| self.seen(it)).collect();
        self.missing = report.iter().any(|(_, seen)| seen.is_none());
        Some(SourceEvent::Topics(report))
    }

    fn ask_if_due(&mut self, client: &Arc<Client>, wake: &Arc<Wake>) {
        let since = self.asked.map(|asked| asked.elapsed());
        let later = if self.missing { SOON } else { LATER };
        let news = client.news();
        let came = std::mem::replace(&mut self.looked_into, news) != news;
        if came || since.is_some_and(|since| since >= later) {
            self.suspicious.get_or_insert_with(Instant::now);
        }
        let Some(suspicious) = self.suspicious else {
            return;
        };
        // The first query of a suspicion leaves at once.
        let again = self.asked.is_some_and(|asked| asked >= suspicious);
        if again && since.is_some_and(|since| since < PAUSE) {
            return;
        }
        self.asked = Some(Instant::now());
        let question = Queue::fresh(client).waking(wake);
        // What can't be asked now is asked later.
        if client.ask_topics(&self.topics, ANSWER, &question).is_ok() {
            self.question = Some(question);
        }
    }

    /// `None` if the broker could not answer for it, or may not.
    fn seen(&self, answer: &TopicAnswer) -> Option<(TopicName, Option<SeenTopic>)> {
        let mut topics = self.topics.iter();
        let name = topics.find(|name| name.as_str() == answer.name)?.clone();
        match &answer.found {
            // In the middle of its creation: the brokers know no partition of it yet.
            Ok(found) if found.partitions == 0 => None,
            Ok(found) => {
                let (id, partitions) = (found.id, found.partitions);
                Some((name, Some(SeenTopic { id, partitions })))
            }
            Err(failure) if failure.fault.code == code::UNKNOWN_TOPIC_OR_PARTITION => {
                Some((name, None))
            }
            Err(_) => None,
        }
    }
}

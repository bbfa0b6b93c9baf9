//! Queries the ids and partition counts of the app's topics.
//!
//! A topic may be deleted and created again under its name. librdkafka 2.12.1 continues with the new topic at the
//! offset of the old one (a comment in its `rd_kafka_topic_metadata_update` announces a fix). If the new log is longer
//! by then, there is no error: its first records are skipped. Only the topic's id reveals the change (KIP-516).
//! Partitions that are added to a topic are not reported in any other way either.
//!
//! Fetch requests contain topic ids (Kafka 3.1), so a record of the new topic arrives only after a Metadata response
//! with its id. Each such response is therefore a reason to query the ids, and no record is taken until they are known.
//! The query is also a Metadata request, to the broker that the cluster reports as its controller, never to a
//! coordinator (docs/design/0020).
//!
//! ```text
//! made, assigned ─┐
//! Metadata       ─┼─→ suspicious ──query──→ asked ──response──→ SourceEvent::Topics
//! timer          ─┘       ↑ no response ──────┘
//! ```
//!
//! The worker interprets the reports (`eos_protocol::TopicWatch`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use eos_client::SourceEvent;
use eos_protocol::{SeenTopic, TopicName, code};

use super::ffi::{Client, Queue, TopicAnswer};
use super::wake::Wake;

/// The time limit of a response.
const ANSWER: Duration = Duration::from_secs(5);
/// The longest time that records are held back for a response: the queried broker may be dead or frozen, while the
/// leaders are not.
const HOLD: Duration = Duration::from_secs(1);
/// The interval of the periodic query. A broker may lag behind the one that reported a new topic to the consumer, so
/// the topics are queried again. It is the only query of outputs.
const LATER: Duration = Duration::from_secs(10);
/// The interval while a topic is missing. A missing topic counts only if the condition lasts.
const SOON: Duration = Duration::from_secs(1);
/// The pause between a failed query and the next one.
const PAUSE: Duration = Duration::from_millis(100);

/// The topics of the app.
#[derive(Debug, Default)]
pub(super) struct Identities {
    topics: Vec<TopicName>,
    /// Whether a broker has responded yet.
    known: bool,
    /// Whether a topic was missing in the last response.
    missing: bool,
    /// The time since which a response is due.
    suspicious: Option<Instant>,
    /// The number of processed Metadata responses of the client: [`Client::news`].
    looked_into: u64,
    asked: Option<Instant>,
    /// The queue of the response.
    question: Option<Queue>,
}

impl Identities {
    /// Watches these topics.
    pub(super) fn of(topics: &[TopicName]) -> Self {
        let mut topics = topics.to_vec();
        // librdkafka rejects a query with duplicate topics.
        topics.sort();
        topics.dedup();
        Self {
            suspicious: (!topics.is_empty()).then(Instant::now),
            topics,
            ..Self::default()
        }
    }

    /// Records the assignment. Records wait for the first response, if there was none.
    pub(super) fn assigned(&mut self) {
        if !self.known && !self.topics.is_empty() {
            self.suspicious = Some(Instant::now());
        }
    }

    /// Returns whether fetched records may come from another topic of the same name.
    pub(super) fn hold(&self, client: &Client) -> bool {
        match self.suspicious.map(|since| since.elapsed()) {
            None => !self.topics.is_empty() && client.news() != self.looked_into,
            Some(owed) => owed < HOLD,
        }
    }

    /// Takes the response, or sends a query if there is a reason. Never waits.
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
        // The response is itself a Metadata response, and is counted before its event is enqueued. A response after
        // that event may contain another id.
        self.looked_into = question.news();
        self.question = None;
        let Some(answers) = answers else {
            // Queried again after a pause.
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
        // The first query of a suspicion is sent at once.
        let again = self.asked.is_some_and(|asked| asked >= suspicious);
        if again && since.is_some_and(|since| since < PAUSE) {
            return;
        }
        self.asked = Some(Instant::now());
        let question = Queue::fresh(client).waking(wake);
        // If the query fails now, it is sent later.
        if client.ask_topics(&self.topics, ANSWER, &question).is_ok() {
            self.question = Some(question);
        }
    }

    /// Returns `None` if the broker could not report the topic, or had no permission to.
    fn seen(&self, answer: &TopicAnswer) -> Option<(TopicName, Option<SeenTopic>)> {
        let mut topics = self.topics.iter();
        let name = topics.find(|name| name.as_str() == answer.name)?.clone();
        match &answer.found {
            // The topic is being created: the brokers know no partition of it yet.
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

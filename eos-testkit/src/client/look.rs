//! The periodic query for the app's topics, as in librdkafka.
//!
//! ```text
//! made ──────────────┐
//! an id has changed ─┼─→ suspicious ─Metadata─→ answered ─→ SourceEvent::Topics
//! now and then ──────┘
//! ```

use std::collections::BTreeMap;

use eos_client::SourceEvent;
use eos_protocol::state::TopicUuid;
use eos_protocol::{SeenTopic, TopicName, code};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{MetadataRequest, MetadataResponse, ResponseKind};

use super::call::Call;
use super::fabric::Wire;
use super::network::Line;
use super::requests::text;

/// The time between two queries, in milliseconds, and the shorter one while a topic is missing.
const LATER: i64 = 10_000;
const SOON: i64 = 1_000;
/// The time for which records wait for a response, in milliseconds.
const HOLD: i64 = 1_000;

/// The topics of an app, as a consumer knows them from Metadata responses.
#[derive(Debug, Default)]
pub(super) struct Look {
    topics: Vec<TopicName>,
    known: BTreeMap<String, SeenTopic>,
    resized: Vec<String>,
    missing: bool,
    call: Option<Call>,
    /// The time of the last response.
    answered: Option<i64>,
    /// The value of [`Wire::topic_changes`] when the last comparison found no known topic with another id. While it is
    /// unchanged, the ids are not compared again. A comparison of all topics in each step of a worker takes a fifth of
    /// a simulation's time.
    unchanged: Option<u64>,
    /// The time since which a response is pending.
    suspicious: Option<i64>,
}

impl Look {
    pub(super) fn of(topics: &[TopicName]) -> Look {
        Look {
            topics: topics.to_vec(),
            ..Look::default()
        }
    }

    /// Whether fetches under this name return records of another topic than the known one. A fetch names topics
    /// by id, so records of a new topic arrive only after a Metadata response with its id.
    pub(super) fn is_foreign(&self, topic: &str, wire: &Wire<'_>) -> bool {
        if self.unchanged == Some(wire.topic_changes()) {
            return false;
        }
        let known = self.known.get(topic).and_then(|it| it.id);
        known.is_some() && wire.topic_id(topic) != known
    }

    /// Whether records wait for a response.
    pub(super) fn holds(&self, now: i64) -> bool {
        self.suspicious.is_some_and(|since| now - since < HOLD)
    }

    /// Sends a due request, and processes a response.
    pub(super) fn tick(&mut self, wire: &mut Wire<'_>) -> Option<SourceEvent> {
        if self.topics.is_empty() {
            return None;
        }
        let now = wire.now();
        if self.call.is_none() {
            let later = if self.missing { SOON } else { LATER };
            let due = self.answered.is_none_or(|at| now - at >= later);
            // A refused fetch makes the client refresh its own metadata.
            let is_known = self.unchanged == Some(wire.topic_changes());
            if !due && (is_known || !self.has_news(wire)) {
                return None;
            }
            self.suspicious.get_or_insert(now);
            self.call = Some(Call::new(Line::Queries, self.request()));
        }
        let answer = self.call.as_mut()?.poll(wire);
        let Some(ResponseKind::Metadata(answer)) = answer else {
            return None;
        };
        self.call = None;
        self.suspicious = None;
        self.answered = Some(now);
        Some(SourceEvent::Topics(self.take_in(&answer)))
    }

    /// Whether a known topic exists with another id.
    fn has_news(&mut self, wire: &Wire<'_>) -> bool {
        let foreign = self.known.keys().filter(|it| self.is_foreign(it, wire));
        let foreign: Vec<&String> = foreign.collect();
        let exists = foreign.iter().any(|it| wire.topic_id(it).is_some());
        if foreign.is_empty() {
            self.unchanged = Some(wire.topic_changes());
        }
        exists
    }

    fn request(&self) -> MetadataRequest {
        let names = self
            .topics
            .iter()
            .map(|it| MetadataRequestTopic::default().with_name(Some(text(it.as_str()).into())));
        MetadataRequest::default()
            .with_topics(Some(names.collect()))
            .with_allow_auto_topic_creation(false)
    }

    fn take_in(&mut self, answer: &MetadataResponse) -> Vec<(TopicName, Option<SeenTopic>)> {
        self.missing = false;
        self.unchanged = None;
        let mut report = Vec::new();
        for topic in &answer.topics {
            let Some(name) = &topic.name else { continue };
            let seen = match i32::from(topic.error_code) {
                0 => {
                    let id = topic.topic_id.as_u128();
                    let seen = SeenTopic {
                        id: (id != 0).then_some(TopicUuid(id)),
                        partitions: u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX),
                    };
                    let before = self.known.insert(name.to_string(), seen);
                    if before.is_some_and(|it| it.partitions != seen.partitions) {
                        self.resized.push(name.to_string());
                    }
                    Some(seen)
                }
                code::UNKNOWN_TOPIC_OR_PARTITION => {
                    self.missing = true;
                    None
                }
                _ => continue,
            };
            report.push((TopicName::new(name.to_string()), seen));
        }
        report
    }

    /// The topics whose number of partitions has changed since the last call.
    pub(super) fn resized(&mut self) -> Vec<String> {
        std::mem::take(&mut self.resized)
    }
}

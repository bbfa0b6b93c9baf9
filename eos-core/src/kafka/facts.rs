//! What a cluster says of itself, asked once at start.

use std::sync::Arc;
use std::time::{Duration, Instant};

use eos_protocol::{CallSite, TopicName, code};

use super::config::KafkaConfig;
use super::ffi::{Client, ConfigAnswer, Event, Failure, Kind, Queue};
use crate::client::{ClientError, ClusterFacts, Result, Verification};

/// Kafka 3.6 and newer (KIP-890, part 1).
const VERIFICATION: &str = "transaction.partition.verification.enable";

/// How long to wait before a question is put again that failed for the moment.
const PAUSE: Duration = Duration::from_millis(200);

/// Asks a cluster.
pub(super) fn facts(
    config: &KafkaConfig,
    topics: &[TopicName],
    within: Duration,
) -> Result<ClusterFacts> {
    let settings = config.for_queries("eos-facts");
    let client = Client::new(Kind::Producer, &settings).map_err(|e| e.at(CallSite::Create))?;
    let start = Instant::now();
    let inquiry = Inquiry {
        answers: Queue::fresh(&client),
        client,
        end: start + within,
    };
    let facts = inquiry.facts(topics);
    facts.map_err(|failure| inquiry.explain(failure, &config.bootstrap, start.elapsed()))
}

struct Inquiry {
    answers: Queue,
    client: Arc<Client>,
    end: Instant,
}

impl Inquiry {
    fn facts(&self, topics: &[TopicName]) -> Result<ClusterFacts, Failure> {
        let (cluster_id, brokers) = self.ask(
            |within| self.client.ask_cluster(within, &self.answers),
            |event| Ok(event.cluster()),
        )?;
        let partitions = self.partitions(topics)?;
        let verification = self.verification(&brokers)?;
        Ok(ClusterFacts {
            cluster_id,
            partitions,
            verification,
        })
    }

    fn partitions(&self, topics: &[TopicName]) -> Result<Vec<(TopicName, Option<u32>)>, Failure> {
        // librdkafka refuses to be asked for nothing, or for anything twice.
        let mut names = topics.to_vec();
        names.sort();
        names.dedup();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let answers = self.ask(
            |within| self.client.ask_topics(&names, within, &self.answers),
            |event| {
                let answers = event.topics().into_iter();
                answers
                    .map(|topic| match topic.partitions {
                        Ok(count) => Ok((topic.name, Some(count))),
                        Err(f) if f.fault.code == code::UNKNOWN_TOPIC_OR_PARTITION => {
                            Ok((topic.name, None))
                        }
                        Err(f) => {
                            let text = format!("topic {}: {}", topic.name, f.text);
                            Err(Failure { text, ..f })
                        }
                    })
                    .collect::<Result<Vec<_>, _>>()
            },
        )?;
        let count = |name: &TopicName| {
            answers
                .iter()
                .find(|(n, _)| n == name.as_str())
                .and_then(|(_, count)| *count)
        };
        Ok(topics
            .iter()
            .map(|name| (name.clone(), count(name)))
            .collect())
    }

    /// Brokers may differ, in the middle of an upgrade for one: the weakest counts.
    fn verification(&self, brokers: &[i32]) -> Result<Verification, Failure> {
        let mut all = Verification::On;
        for &broker in brokers {
            let answer = self.ask(
                |within| self.client.ask_broker_config(broker, within, &self.answers),
                |event| match event.broker_config(VERIFICATION) {
                    ConfigAnswer::Value(value) if value == "true" => Ok(Verification::On),
                    ConfigAnswer::Value(_) | ConfigAnswer::Absent => Ok(Verification::Off),
                    ConfigAnswer::Refused(f) => Err(f),
                },
            );
            match answer {
                Ok(Verification::Off) => return Ok(Verification::Off),
                Ok(_) => {}
                Err(f) if f.fault.code == code::CLUSTER_AUTHORIZATION_FAILED => {
                    all = Verification::Unknown;
                }
                Err(f) => return Err(f),
            }
        }
        Ok(all)
    }

    /// Puts a question until it is answered, or refused for good, or the time is over.
    fn ask<T>(
        &self,
        question: impl Fn(Duration) -> Result<(), Failure>,
        answer: impl Fn(&Event<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        loop {
            let left = self.end.saturating_duration_since(Instant::now());
            question(left)?;
            let Some(event) = self.answers.poll(left + PAUSE) else {
                return Err(Failure::of(code::LOCAL_TIMED_OUT));
            };
            let failure = match event.check().and_then(|()| answer(&event)) {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let passes = passes(failure.fault.code);
            if !passes || Instant::now() + PAUSE >= self.end {
                return Err(failure);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn explain(&self, failure: Failure, bootstrap: &str, waited: Duration) -> ClientError {
        let mut error = failure.at(CallSite::Facts);
        if error.fault.code == code::LOCAL_TIMED_OUT || passes(error.fault.code) {
            let last = self.client.last_complaint();
            let last = last
                .map(|last| format!("; last error: {last}"))
                .unwrap_or_default();
            error.text = format!(
                "no usable answer from {bootstrap} within {:.1} s: {}{last}",
                waited.as_secs_f64(),
                error.text
            );
        }
        error
    }
}

/// Whether asking again may help.
fn passes(code: i32) -> bool {
    matches!(
        code,
        code::LOCAL_TRANSPORT
            | code::LOCAL_RESOLVE
            | code::LOCAL_ALL_BROKERS_DOWN
            | code::LOCAL_TIMED_OUT_QUEUE
            | code::LEADER_NOT_AVAILABLE
            | code::BROKER_NOT_AVAILABLE
            | code::REQUEST_TIMED_OUT
            | code::NETWORK_EXCEPTION
    )
}

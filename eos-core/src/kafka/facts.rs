//! What a cluster says of itself, asked once at start.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eos_protocol::{CallSite, TopicName, code};

use super::config::KafkaConfig;
use super::ffi::{Client, ConfigOf, Event, EventKind, Failure, Kind, Queue};
use crate::client::{BrokerLimits, ClientError, ClusterFacts, LOCAL_SSL, Result, Verification};

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
        complaints: Queue::main(&client),
        client,
        end: start + within,
    };
    let facts = inquiry.facts(topics);
    facts.map_err(|failure| inquiry.explain(failure, &config.bootstrap, start.elapsed()))
}

struct Inquiry {
    answers: Queue,
    /// What the instance reports by itself.
    complaints: Queue,
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
        let others = self.others(&partitions);
        let max_message_bytes = self.max_message_bytes(&partitions)?;
        let (verification, limits) = self.brokers(&brokers)?;
        Ok(ClusterFacts {
            cluster_id,
            partitions,
            others,
            max_message_bytes,
            verification,
            limits,
        })
    }

    /// If a topic is missing, one of these may be meant. Not worth an error of its own.
    fn others(&self, partitions: &[(TopicName, Option<u32>)]) -> Vec<TopicName> {
        if partitions.iter().all(|(_, count)| count.is_some()) {
            return Vec::new();
        }
        let left = self.end.saturating_duration_since(Instant::now());
        let names = self.client.topic_names(left).unwrap_or_default();
        names.iter().map(|name| name.as_str().into()).collect()
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

    /// Brokers may differ, in the middle of an upgrade for one: the strictest counts.
    fn brokers(&self, ids: &[i32]) -> Result<(Verification, BrokerLimits), Failure> {
        let (mut verification, mut limits) = (Verification::On, BrokerLimits::default());
        for &id in ids {
            let answer = self.ask(
                |within| {
                    let of = ConfigOf::Broker(id);
                    self.client.ask_config(&of, within, &self.answers)
                },
                |event| {
                    event
                        .configs()
                        .pop()
                        .map_or(Ok(HashMap::new()), |c| c.settings)
                },
            );
            let settings = match answer {
                Ok(settings) => settings,
                Err(f) if f.fault.code == code::CLUSTER_AUTHORIZATION_FAILED => {
                    verification = verification.min(Verification::Unknown);
                    continue;
                }
                Err(f) => return Err(f),
            };
            let on = settings.get(VERIFICATION).is_some_and(|on| on == "true");
            verification = verification.min(if on {
                Verification::On
            } else {
                Verification::Off
            });
            let time = |key| Some(Duration::from_millis(settings.get(key)?.parse().ok()?));
            let strictest = |a: Option<Duration>, b| a.into_iter().chain(b).min();
            limits = BrokerLimits {
                max_transaction_timeout: strictest(
                    limits.max_transaction_timeout,
                    time("transaction.max.timeout.ms"),
                ),
                min_session_timeout: limits
                    .min_session_timeout
                    .max(time("group.min.session.timeout.ms")),
                max_session_timeout: strictest(
                    limits.max_session_timeout,
                    time("group.max.session.timeout.ms"),
                ),
            };
        }
        Ok((verification, limits))
    }

    /// How large the records of these topics may be, as far as we may ask.
    fn max_message_bytes(
        &self,
        topics: &[(TopicName, Option<u32>)],
    ) -> Result<Vec<(TopicName, Option<u64>)>, Failure> {
        let there = topics.iter().filter(|(_, count)| count.is_some());
        let mut names: Vec<TopicName> = there.map(|(name, _)| name.clone()).collect();
        names.sort();
        names.dedup();
        let answers = if names.is_empty() {
            Vec::new()
        } else {
            let of = ConfigOf::Topics(&names);
            self.ask(
                |within| self.client.ask_config(&of, within, &self.answers),
                |event| Ok(event.configs()),
            )?
        };
        let bytes = |name: &TopicName| {
            let answer = answers.iter().find(|a| a.of == name.as_str())?;
            let settings = answer.settings.as_ref().ok()?;
            settings.get("max.message.bytes")?.parse().ok()
        };
        Ok(topics
            .iter()
            .map(|(name, _)| (name.clone(), bytes(name)))
            .collect())
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
            let Some(event) = self.answer(left + PAUSE)? else {
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

    /// Waits for an answer, unless a broker will not have us: that does not pass, however long
    /// librdkafka goes on trying.
    fn answer(&self, at_most: Duration) -> Result<Option<Event<'_>>, Failure> {
        let end = Instant::now() + at_most;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if let Some(event) = self.answers.poll(left.min(PAUSE)) {
                return Ok(Some(event));
            }
            while let Some(event) = self.complaints.poll(Duration::ZERO) {
                if event.kind() == EventKind::Error
                    && let Err(failure) = event.check()
                    && matches!(failure.fault.code, code::LOCAL_AUTHENTICATION | LOCAL_SSL)
                {
                    return Err(failure);
                }
            }
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    fn explain(&self, failure: Failure, bootstrap: &str, waited: Duration) -> ClientError {
        let mut error = self.client.clean(failure).at(CallSite::Facts);
        if error.fault.code == code::LOCAL_TIMED_OUT || passes(error.fault.code) {
            let last = self.client.last_complaint();
            error.text = last.as_deref().map(cause).unwrap_or_else(|| {
                let waited = waited.as_secs_f64();
                format!("{bootstrap} gave no usable answer within {waited:.1} s")
            });
        }
        error
    }
}

/// librdkafka goes on with a reset of the connection, or with a guess at TLS or Kafka 0.9.
const HUNG_UP: &str = ": Disconnected";

/// What a line of librdkafka's log complains of, without the thread that wrote it and what it counts.
fn cause(line: &str) -> String {
    let line = match line.split_once("]: ") {
        Some((thread, rest)) if thread.starts_with("[thrd:") => rest,
        _ => line,
    };
    if let Some((broker, _guess)) = line.split_once(HUNG_UP) {
        return format!(
            "{broker} took the connection and hung up; check that `security.protocol` is the \
             listener's, and that the brokers take more connections (max.connections, \
             max.connections.per.ip)"
        );
    }
    let end = line.find(" (after ").unwrap_or(line.len());
    line.get(..end).unwrap_or(line).to_owned()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_told_without_what_only_librdkafka_cares_for() {
        assert_eq!(
            cause(
                "[thrd:localhost:1/bootstrap]: localhost:1/bootstrap: Connect to ipv4#127.0.0.1:1 \
                 failed: Connection refused (after 0ms in state CONNECT, 3 identical error(s) \
                 suppressed)"
            ),
            "localhost:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused"
        );
        assert_eq!(cause("something else"), "something else");
        let told = cause(
            "[thrd:localhost:1/bootstrap]: localhost:1/bootstrap: Disconnected: requesting ApiVersion: \
             might be caused by incorrect security.protocol configuration (connecting to a SSL \
             listener?) or broker version is < 0.10 (see api.version.request) (after 1ms in state \
             APIVERSION_QUERY)",
        );
        assert!(
            told.starts_with("localhost:1/bootstrap took the connection and hung up; check")
                && told.ends_with("(max.connections, max.connections.per.ip)"),
            "{told}"
        );
    }
}

//! The facts of a cluster, queried once at start.

use std::collections::BTreeMap;
use std::time::Duration;

use eos_client::{BrokerLimits, ClusterFacts, Result, TopicFacts, Verification};
use eos_protocol::{CallSite, TopicName, code};

use super::config::KafkaConfig;
use super::ffi::{ConfigOf, Failure, TopicFound};
use super::inquiry::Inquiry;

/// Kafka 3.6 and newer (KIP-890, part 1).
const VERIFICATION: &str = "transaction.partition.verification.enable";

/// Queries the facts of a cluster.
pub(super) fn facts(
    config: &KafkaConfig,
    topics: &[TopicName],
    within: Duration,
) -> Result<ClusterFacts> {
    let inquiry = Inquiry::open(config, "eos-facts", within)?;
    let facts = inquiry.facts(topics);
    facts.map_err(|failure| inquiry.explain(failure, CallSite::Facts))
}

impl Inquiry {
    fn facts(&self, topics: &[TopicName]) -> Result<ClusterFacts, Failure> {
        let (cluster_id, brokers) = self.ask(
            |within| self.client.ask_cluster(within, &self.answers),
            |event| Ok(event.cluster()),
        )?;
        let topics = self.topics(topics)?;
        let others = self.others(&topics);
        let (verification, limits) = self.brokers(&brokers)?;
        Ok(ClusterFacts {
            cluster_id,
            topics,
            others,
            verification,
            limits,
        })
    }

    /// Returns topics that may be the intended ones if a topic is missing. A failure is not reported.
    fn others(&self, topics: &[(TopicName, Option<TopicFacts>)]) -> Vec<TopicName> {
        if topics.iter().all(|(_, facts)| facts.is_some()) {
            return Vec::new();
        }
        let names = self.client.topic_names(self.left()).unwrap_or_default();
        names.iter().map(|name| name.as_str().into()).collect()
    }

    fn topics(
        &self,
        topics: &[TopicName],
    ) -> Result<Vec<(TopicName, Option<TopicFacts>)>, Failure> {
        // librdkafka rejects empty requests and duplicates.
        let mut names = topics.to_vec();
        names.sort();
        names.dedup();
        let found = self.found(&names)?;
        names.retain(|name| found.contains_key(name.as_str()));
        let settings = self.settings(&names)?;
        let facts = |name: &TopicName| {
            let found = found.get(name.as_str())?;
            Some(TopicFacts {
                partitions: found.partitions,
                replication: found.replicas,
                id: found.id,
                settings: settings.get(name.as_str()).cloned(),
            })
        };
        let topics = topics.iter().map(|name| (name.clone(), facts(name)));
        Ok(topics.collect())
    }

    /// Returns the existing topics.
    fn found(&self, names: &[TopicName]) -> Result<BTreeMap<String, TopicFound>, Failure> {
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        self.ask(
            |within| self.client.ask_topics(names, within, &self.answers),
            |event| {
                let answers = event.topics().into_iter();
                answers
                    .filter_map(|topic| match topic.found {
                        Ok(found) => Some(Ok((topic.name, found))),
                        Err(f) if f.fault.code == code::UNKNOWN_TOPIC_OR_PARTITION => None,
                        Err(f) => {
                            let text = format!("topic {}: {}", topic.name, f.text);
                            Some(Err(Failure { text, ..f }))
                        }
                    })
                    .collect()
            },
        )
    }

    /// Returns the strictest values of all brokers. Brokers may differ, for example during an upgrade.
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
                        .map_or(Ok(BTreeMap::new()), |c| c.settings)
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

    /// Returns the settings of these topics, as far as the permissions allow.
    fn settings(
        &self,
        names: &[TopicName],
    ) -> Result<BTreeMap<String, BTreeMap<String, String>>, Failure> {
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        let of = ConfigOf::Topics(names);
        let answers = self.ask(
            |within| self.client.ask_config(&of, within, &self.answers),
            |event| Ok(event.configs()),
        )?;
        let answers = answers.into_iter();
        Ok(answers
            .filter_map(|answer| Some((answer.of, answer.settings.ok()?)))
            .collect())
    }
}

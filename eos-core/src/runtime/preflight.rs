//! What is checked before the first worker starts.

use std::collections::BTreeMap;
use std::time::Duration;

use eos_protocol::{Guarantee, TopicName};

use crate::client::{Client, ClientError, ClusterFacts, Verification};
use crate::topology::Topology;

/// The cluster is not fit for the app.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PreflightError {
    /// No broker answered.
    #[error(
        "no Kafka broker answered at {bootstrap} within {waited_s} s ({source}). Is it running, and \
         are host and port right? `cargo xtask kafka up` starts one"
    )]
    Unreachable {
        /// `bootstrap.servers`.
        bootstrap: String,
        /// How long, in seconds.
        waited_s: u64,
        /// The client's last word.
        source: ClientError,
    },
    /// Topics are missing.
    #[error(
        "topic{} {} not there. Create {}: kafka-topics.sh --create --bootstrap-server {bootstrap} \
         --topic {} --partitions 6",
        if topics.len() == 1 { "" } else { "s" },
        list(topics),
        if topics.len() == 1 { "it" } else { "them" },
        topics[0]
    )]
    MissingTopics {
        /// Their names, at least one.
        topics: Vec<TopicName>,
        /// `bootstrap.servers`.
        bootstrap: String,
    },
    /// The brokers don't verify transactions.
    #[error(
        "the brokers don't verify the transactions of older clients \
         (transaction.partition.verification.enable is off, or Kafka is older than 3.6), so a \
         delayed record could land outside its transaction. Switch it on, or use a newer Kafka"
    )]
    NotVerified,
}

fn list(topics: &[TopicName]) -> String {
    let names: Vec<&str> = topics.iter().map(TopicName::as_str).collect();
    match names[..] {
        [one] => format!("{one} is"),
        _ => format!("{} are", names.join(", ")),
    }
}

/// How many partitions the topics have.
#[derive(Debug)]
pub(crate) struct Partitions {
    pub(crate) inputs: BTreeMap<TopicName, u32>,
    /// By the topology's outputs.
    pub(crate) outputs: Vec<u32>,
}

/// Asks the cluster, within a deadline, and checks what it says.
pub(crate) fn preflight<C: Client>(
    client: &C,
    topology: &Topology,
    guarantee: Guarantee,
    bootstrap: &str,
    within: Duration,
) -> Result<Partitions, PreflightError> {
    let inputs = topology
        .stages()
        .iter()
        .flat_map(|stage| stage.topics.iter().cloned());
    let mut topics: Vec<TopicName> = inputs.chain(topology.output_names()).collect();
    topics.sort();
    topics.dedup();
    let facts = client
        .facts(&topics, within)
        .map_err(|source| PreflightError::Unreachable {
            bootstrap: bootstrap.to_owned(),
            waited_s: within.as_secs(),
            source,
        })?;
    fit(&facts, topology, guarantee, bootstrap)
}

fn fit(
    facts: &ClusterFacts,
    topology: &Topology,
    guarantee: Guarantee,
    bootstrap: &str,
) -> Result<Partitions, PreflightError> {
    let missing: Vec<TopicName> = facts
        .partitions
        .iter()
        .filter(|(_, count)| count.is_none_or(|n| n == 0))
        .map(|(topic, _)| topic.clone())
        .collect();
    if !missing.is_empty() {
        return Err(PreflightError::MissingTopics {
            topics: missing,
            bootstrap: bootstrap.into(),
        });
    }
    match (guarantee, facts.verification) {
        (Guarantee::ExactlyOnce, Verification::Off) => return Err(PreflightError::NotVerified),
        (Guarantee::ExactlyOnce, Verification::Unknown) => tracing::warn!(
            "no permission to ask whether the brokers verify transactions; check that \
             transaction.partition.verification.enable is on"
        ),
        _ => {}
    }
    let count = |topic: &TopicName| {
        let found = facts.partitions.iter().find(|(name, _)| name == topic);
        found.and_then(|(_, count)| *count).unwrap_or(1)
    };
    Ok(Partitions {
        inputs: topology
            .stages()
            .iter()
            .map(|s| (s.driving_topic().clone(), count(s.driving_topic())))
            .collect(),
        outputs: topology.outputs().iter().map(|o| count(&o.name)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{App, Topic};

    fn facts(counts: &[(&str, Option<u32>)], verification: Verification) -> ClusterFacts {
        let partitions = counts.iter().map(|&(t, n)| (t.into(), n)).collect();
        ClusterFacts {
            cluster_id: None,
            partitions,
            verification,
        }
    }

    fn topology() -> std::sync::Arc<Topology> {
        let mut app = App::new("a");
        app.source(&Topic::<String, String>::plain("in"))
            .to(&Topic::plain("out"));
        app.check().unwrap()
    }

    fn check(facts: &ClusterFacts, guarantee: Guarantee) -> Result<Partitions, String> {
        fit(facts, &topology(), guarantee, "h:1").map_err(|e| e.to_string())
    }

    #[test]
    fn missing_topics_are_named_with_the_command_that_makes_them() {
        let f = facts(&[("in", Some(6)), ("out", None)], Verification::On);
        let error = check(&f, Guarantee::ExactlyOnce).unwrap_err();
        assert!(
            error.starts_with("topic out is not there. Create it: kafka-topics.sh"),
            "{error}"
        );
        let f = facts(&[("in", None), ("out", None)], Verification::On);
        assert!(
            check(&f, Guarantee::ExactlyOnce)
                .unwrap_err()
                .starts_with("topics in, out are")
        );
    }

    #[test]
    fn unverified_transactions_are_refused_where_there_are_any() {
        let f = facts(&[("in", Some(6)), ("out", Some(3))], Verification::Off);
        assert!(
            check(&f, Guarantee::ExactlyOnce)
                .unwrap_err()
                .contains("Kafka is older than 3.6")
        );
        assert!(check(&f, Guarantee::AtLeastOnce).is_ok());
        let f = ClusterFacts {
            verification: Verification::Unknown,
            ..f
        };
        let partitions = check(&f, Guarantee::ExactlyOnce).unwrap();
        assert_eq!(partitions.outputs, [3]);
        assert_eq!(partitions.inputs.get(&"in".into()), Some(&6));
    }
}

//! What is checked before the first worker starts.

use std::collections::BTreeMap;
use std::time::Duration;

use eos_protocol::{CallSite, Guarantee, TopicName, UnequalWidths, check_widths, code};

use crate::client::{BrokerLimits, Client, ClientError, ClusterFacts, LOCAL_SSL, Verification};
use crate::config::{Origin, Protocol, Settings};
use crate::topology::Topology;

use super::missing::{MissingTopic, missing};

/// The cluster is not fit for the app.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PreflightError {
    /// No broker answered.
    #[error(
        "no Kafka broker answered: {}. Tried {bootstrap} ({origin}) for {waited_s} s. Is it running, \
         and are host and port right? In a clone of eos `cargo xtask kafka up` starts one",
        source.text
    )]
    Unreachable {
        /// `bootstrap.servers`.
        bootstrap: String,
        /// Where it was set.
        origin: Origin,
        /// How long, in seconds.
        waited_s: u64,
        /// The client's last word.
        source: ClientError,
    },
    /// The brokers don't take the app's credentials.
    #[error(
        "the brokers at {bootstrap} did not authenticate this app ({source}). Check \
         `security.protocol` and `sasl.mechanism`, and the user name and password or what else the \
         mechanism asks for"
    )]
    Authentication {
        /// `bootstrap.servers`.
        bootstrap: String,
        /// What the client says.
        source: ClientError,
    },
    /// No encrypted connection could be made.
    #[error(
        "no TLS connection to {bootstrap} ({source}). Check that the port speaks TLS, that \
         `ssl.ca.location` holds the CA that signed the brokers' certificates, that they name the \
         host, and `ssl.key.location` with `ssl.certificate.location` if brokers ask for one"
    )]
    Tls {
        /// `bootstrap.servers`.
        bootstrap: String,
        /// What the client says.
        source: ClientError,
    },
    /// The client can't be made.
    #[error("the Kafka client refuses its configuration ({source}); change the property")]
    Configuration {
        /// What it says.
        source: ClientError,
    },
    /// The brokers don't allow the checks.
    #[error(
        "the brokers at {bootstrap} refuse to answer ({source}). Give this app the right to \
         describe its topics"
    )]
    Refused {
        /// `bootstrap.servers`.
        bootstrap: String,
        /// What the client says.
        source: ClientError,
    },
    /// A time-out that the brokers don't allow.
    #[error(
        "{ours} = {ours_ms} must not be {} the brokers' {theirs} = {theirs_ms}: they would \
         refuse it. Change either",
        if ours_ms > theirs_ms { "more than" } else { "less than" }
    )]
    Limit {
        /// The app's property.
        ours: &'static str,
        /// Its value in milliseconds.
        ours_ms: u128,
        /// The brokers' property.
        theirs: &'static str,
        /// Its value in milliseconds.
        theirs_ms: u128,
    },
    /// Topics are missing.
    #[error("{}", super::missing::text(topics, bootstrap))]
    MissingTopics {
        /// Which, at least one.
        topics: Vec<MissingTopic>,
        /// `bootstrap.servers`.
        bootstrap: String,
    },
    /// The topics that a task reads together don't match.
    #[error("{0}")]
    Widths(#[from] UnequalWidths),
    /// The brokers don't verify transactions.
    #[error(
        "the brokers don't verify the transactions of older clients \
         (transaction.partition.verification.enable is off, or Kafka is older than 3.6), so a \
         delayed record could land outside its transaction. Switch it on, or use a newer Kafka"
    )]
    NotVerified,
}

/// How many partitions the topics have.
#[derive(Debug)]
pub(crate) struct Partitions {
    pub(crate) inputs: BTreeMap<TopicName, u32>,
    /// By the topology's outputs.
    pub(crate) outputs: Vec<u32>,
    /// By the topology's outputs: `max.message.bytes`, if it is known.
    pub(crate) limits: Vec<Option<usize>>,
}

/// Asks the cluster, within a deadline, and checks what it says.
pub(crate) fn preflight<C: Client>(
    client: &C,
    topology: &Topology,
    settings: &Settings,
    bootstrap: &str,
) -> Result<Partitions, PreflightError> {
    let inputs = topology
        .stages()
        .iter()
        .flat_map(|stage| stage.topics.iter().cloned());
    let mut topics: Vec<TopicName> = inputs.chain(topology.output_names()).collect();
    topics.sort();
    topics.dedup();
    let within = settings.start_deadline;
    let facts = client.facts(&topics, within);
    let facts = facts.map_err(|source| {
        let origin = settings.origin("bootstrap.servers");
        let origin = origin.cloned().unwrap_or(Origin::Code);
        cause(source, bootstrap, origin, within)
    })?;
    allowed(&facts.limits, settings)?;
    fit(&facts, topology, settings.guarantee, bootstrap)
}

/// Why the cluster could not be asked.
fn cause(source: ClientError, bootstrap: &str, origin: Origin, within: Duration) -> PreflightError {
    let bootstrap = bootstrap.to_owned();
    match (source.call, source.fault.code) {
        (_, LOCAL_SSL) => PreflightError::Tls { bootstrap, source },
        (_, code::LOCAL_AUTHENTICATION) => PreflightError::Authentication { bootstrap, source },
        (CallSite::Create, _) => PreflightError::Configuration { source },
        (_, code::TOPIC_AUTHORIZATION_FAILED | code::CLUSTER_AUTHORIZATION_FAILED) => {
            PreflightError::Refused { bootstrap, source }
        }
        _ => PreflightError::Unreachable {
            bootstrap,
            origin,
            waited_s: within.as_secs(),
            source,
        },
    }
}

/// Whether the brokers would take the app's time-outs.
fn allowed(limits: &BrokerLimits, settings: &Settings) -> Result<(), PreflightError> {
    let check = |ours,
                 ours_value: Duration,
                 theirs,
                 theirs_value: Option<Duration>,
                 fits: fn(Duration, Duration) -> bool| {
        match theirs_value {
            Some(limit) if !fits(ours_value, limit) => Err(PreflightError::Limit {
                ours,
                ours_ms: ours_value.as_millis(),
                theirs,
                theirs_ms: limit.as_millis(),
            }),
            _ => Ok(()),
        }
    };
    if settings.guarantee == Guarantee::ExactlyOnce {
        check(
            "transaction.timeout.ms",
            settings.transaction_timeout,
            "transaction.max.timeout.ms",
            limits.max_transaction_timeout,
            |ours, limit| ours <= limit,
        )?;
    }
    if settings.protocol == Protocol::Consumer {
        return Ok(());
    }
    let (ours, session) = ("session.timeout.ms", settings.session_timeout());
    let (least, most) = (limits.min_session_timeout, limits.max_session_timeout);
    check(
        ours,
        session,
        "group.min.session.timeout.ms",
        least,
        |ours, limit| ours >= limit,
    )?;
    check(
        ours,
        session,
        "group.max.session.timeout.ms",
        most,
        |ours, limit| ours <= limit,
    )
}

fn fit(
    facts: &ClusterFacts,
    topology: &Topology,
    guarantee: Guarantee,
    bootstrap: &str,
) -> Result<Partitions, PreflightError> {
    let topics = missing(facts, topology);
    if !topics.is_empty() {
        return Err(PreflightError::MissingTopics {
            topics,
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
    let limit = |topic: &TopicName| {
        let mut limits = facts.max_message_bytes.iter();
        let (_, limit) = limits.find(|(name, _)| name == topic)?;
        limit.and_then(|bytes| usize::try_from(bytes).ok())
    };
    let stages = topology.stages().iter();
    let inputs: BTreeMap<TopicName, u32> = stages
        .flat_map(|stage| &stage.topics)
        .map(|topic| (topic.clone(), count(topic)))
        .collect();
    for stage in topology.stages() {
        check_widths(stage, &inputs)?;
    }
    Ok(Partitions {
        inputs,
        limits: topology.outputs().iter().map(|o| limit(&o.name)).collect(),
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
            others: Vec::new(),
            max_message_bytes: Vec::new(),
            verification,
            limits: BrokerLimits::default(),
        }
    }

    #[test]
    fn why_the_cluster_could_not_be_asked_is_told_apart() {
        let text = |call, code| {
            let error = ClientError::new(call, code, "because");
            cause(error, "h:1", Origin::Code, Duration::from_secs(15)).to_string()
        };
        for (call, code, start) in [
            (
                CallSite::Facts,
                code::LOCAL_AUTHENTICATION,
                "the brokers at h:1 did not authenticate",
            ),
            (CallSite::Facts, LOCAL_SSL, "no TLS connection to h:1"),
            (
                CallSite::Create,
                code::LOCAL_INVALID_ARG,
                "the Kafka client refuses its configuration",
            ),
            (
                CallSite::Facts,
                code::TOPIC_AUTHORIZATION_FAILED,
                "the brokers at h:1 refuse to answer",
            ),
            (
                CallSite::Facts,
                code::LOCAL_TIMED_OUT,
                "no Kafka broker answered: because. Tried h:1 (in the program) for 15 s. Is it \
                 running, and are host and port right? In a clone of eos `cargo xtask kafka up` \
                 starts one",
            ),
        ] {
            let text = text(call, code);
            assert!(
                text.starts_with(start) && text.contains("because"),
                "{text}"
            );
        }
    }

    #[test]
    fn time_outs_that_brokers_would_refuse_are_told_with_both_values() {
        let ms = |ms| Some(Duration::from_millis(ms));
        let limits = BrokerLimits {
            max_transaction_timeout: ms(900_000),
            min_session_timeout: ms(6000),
            max_session_timeout: ms(1_800_000),
        };
        let check = |set: &[(&str, u64)]| {
            let mut settings = Settings::new("a");
            for (key, value) in set {
                settings.set(key, value);
            }
            let settings = settings.resolve([]).unwrap();
            allowed(&limits, &settings).map_err(|e| e.to_string())
        };
        assert_eq!(check(&[]), Ok(()));
        let error = check(&[("transaction.timeout.ms", 900_001)]).unwrap_err();
        assert!(error.starts_with(
            "transaction.timeout.ms = 900001 must not be more than the brokers' transaction.max.timeout.ms = 900000"
        ), "{error}");
        let error = check(&[("session.timeout.ms", 5999)]).unwrap_err();
        assert!(error.starts_with(
            "session.timeout.ms = 5999 must not be less than the brokers' group.min.session.timeout.ms = 6000"
        ), "{error}");
        let long = [
            ("session.timeout.ms", 1_800_001),
            ("max.poll.interval.ms", 2_000_000),
        ];
        assert!(
            check(&long)
                .unwrap_err()
                .contains("group.max.session.timeout.ms")
        );
        let unknown = BrokerLimits::default();
        assert!(allowed(&unknown, &Settings::new("a")).is_ok());
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
    fn a_missing_topic_is_told_before_anything_else_is_looked_at() {
        let f = facts(&[("in", Some(6)), ("out", None)], Verification::Off);
        let error = check(&f, Guarantee::ExactlyOnce).unwrap_err();
        assert!(
            error.starts_with("the output topic out is not there"),
            "{error}"
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

//! Errors of the checks before the start.

use eos_protocol::{TopicName, UnequalWidths, code};

use crate::boundary::LedgerError;
use crate::client::ClientError;
use crate::config::Origin;
use crate::runtime::internal::{UncreatedTopic, UnfitTopic};
use crate::runtime::missing::MissingTopic;

fn list(topics: &[TopicName]) -> String {
    let topics: Vec<_> = topics.iter().map(TopicName::as_str).collect();
    topics.join(", ")
}

/// Returns the resource that the app could not describe, and the command that adds the right.
fn described(error: &ClientError) -> &'static str {
    match error.fault.code {
        code::CLUSTER_AUTHORIZATION_FAILED => {
            "the cluster (kafka-acls.sh --add --operation Describe --cluster)"
        }
        _ => "its topics (kafka-acls.sh --add --operation Describe --topic ..)",
    }
}

/// The cluster is not fit for the app.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PreflightError {
    /// No broker responded.
    #[error(
        "no Kafka broker responded: {}. Tried {bootstrap} ({origin}) for {waited_s} s. Is it running, \
         and are host and port right? `eos kafka up` starts one and prints its address",
        source.text
    )]
    Unreachable {
        /// `bootstrap.servers`.
        bootstrap: String,
        /// Where it was set.
        origin: Origin,
        /// The wait in seconds.
        waited_s: u64,
        /// The client's last error.
        source: ClientError,
    },
    /// The ledger of the app is not available.
    #[error("{ledger} is not available: {source}. Tried for {waited_s} s")]
    LedgerUnavailable {
        /// The ledger.
        ledger: String,
        /// The wait in seconds.
        waited_s: u64,
        /// The ledger's error.
        source: LedgerError,
    },
    /// The ledger of the app does not fit the app.
    #[error("{ledger} does not fit the app: {source}")]
    LedgerUnfit {
        /// The ledger.
        ledger: String,
        /// The mistakes, with their fixes.
        source: LedgerError,
    },
    /// The brokers did not authenticate the app.
    #[error(
        "the brokers at {bootstrap} did not authenticate this app ({source}). Check \
         `security.protocol` and `sasl.mechanism`, and the user name and password or other \
         credentials of the mechanism"
    )]
    Authentication {
        /// `bootstrap.servers`.
        bootstrap: String,
        /// The client's error.
        source: ClientError,
    },
    /// A TLS connection failed.
    #[error(
        "no TLS connection to {bootstrap} ({source}). Check that the port speaks TLS, that \
         `ssl.ca.location` holds the CA that signed the brokers' certificates, that they name the \
         host, and `ssl.key.location` with `ssl.certificate.location` if brokers ask for one"
    )]
    Tls {
        /// `bootstrap.servers`.
        bootstrap: String,
        /// The client's error.
        source: ClientError,
    },
    /// The client can't be created.
    #[error("the Kafka client rejects its configuration ({source}). Change the property")]
    Configuration {
        /// The client's error.
        source: ClientError,
    },
    /// The app has no permission to describe the cluster or its topics.
    #[error(
        "the brokers at {bootstrap} refuse to describe the cluster or its topics ({source}). Give this app the \
         right to describe {}",
        described(source)
    )]
    Refused {
        /// `bootstrap.servers`.
        bootstrap: String,
        /// The client's error.
        source: ClientError,
    },
    /// The brokers don't allow a timeout of the app.
    #[error(
        "{ours} = {ours_ms} must not be {} the brokers' {theirs} = {theirs_ms}: they would reject \
         it. Change one of them",
        if ours_ms > theirs_ms { "more than" } else { "less than" }
    )]
    Limit {
        /// The app's property.
        ours: &'static str,
        /// Its value in milliseconds.
        ours_ms: u64,
        /// The brokers' property.
        theirs: &'static str,
        /// Its value in milliseconds.
        theirs_ms: u64,
    },
    /// Topics are missing.
    #[error("{}", crate::runtime::missing::text(topics, bootstrap))]
    MissingTopics {
        /// The topics, at least one.
        topics: Vec<MissingTopic>,
        /// `bootstrap.servers`.
        bootstrap: String,
    },
    /// Internal topics are missing, and the app can't create them.
    #[error("{}", crate::runtime::internal::told_uncreated(topics, bootstrap))]
    Uncreated {
        /// The topics, at least one.
        topics: Vec<UncreatedTopic>,
        /// `bootstrap.servers`.
        bootstrap: String,
    },
    /// A stage has another name than the one under which it keeps its state.
    #[error(
        "the stage that reads {} would begin with empty state: its changelog {changelog} does not exist, but {} exists, \
         perhaps from an earlier version of the app. {}. If no app needs the state in it, delete that topic",
        list(topics), list(found),
        match name {
            Some(name) => format!(
                "To resume with that state, add `.stage({name:?})` after a source of the stage"
            ),
            None => "A stage cannot take over the state of two: keep them apart, or give the app another name".into(),
        }
    )]
    StageRenamed {
        /// The topics of the stage.
        topics: Vec<TopicName>,
        /// The missing changelog.
        changelog: TopicName,
        /// The changelogs under other names, at least one.
        found: Vec<TopicName>,
        /// The name that the stage had, if there can be only one.
        name: Option<String>,
    },
    /// Internal topics exist, but do not meet their requirements.
    #[error("{}", crate::runtime::internal::told(topics, bootstrap))]
    Unfit {
        /// The topics, at least one.
        topics: Vec<UnfitTopic>,
        /// `bootstrap.servers`.
        bootstrap: String,
    },
    /// The topics that a task reads together have different partition counts.
    #[error("{}", widths_text(reason, bootstrap))]
    Widths {
        /// The topics, with their partition counts.
        reason: UnequalWidths,
        /// `bootstrap.servers`.
        bootstrap: String,
    },
    /// The brokers don't verify transactions.
    #[error(
        "the brokers don't verify the transactions of older clients \
         (transaction.partition.verification.enable is off, or Kafka is older than 3.6), so a \
         delayed record could land outside its transaction. Enable it, or use a newer Kafka"
    )]
    NotVerified,
}

/// Returns the error text of different partition counts, with a command for each topic that has fewer partitions.
fn widths_text(reason: &UnequalWidths, bootstrap: &str) -> String {
    let commands = reason.smaller_topics().map(|topic| {
        format!(
            "`kafka-topics.sh --alter --bootstrap-server {bootstrap} --topic {topic} --partitions {}`",
            reason.most
        )
    });
    let commands: Vec<String> = commands.collect();
    format!(
        "{reason}. If a topic is empty, add partitions: {}. If it has records, copy them into a new topic, because their \
         keys would move to other partitions. If the app only merges the streams, replace `merge` with `union`, which accepts \
         different counts",
        commands.join(", ")
    )
}

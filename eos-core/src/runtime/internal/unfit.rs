//! Error texts about unusable internal topics.

use std::fmt::{self, Write as _};

use eos_protocol::{TopicName, code};

use super::Internal;
use crate::client::ClientError;

/// An existing internal topic that does not meet its requirements.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnfitTopic {
    /// The name.
    pub name: TopicName,
    /// The role: `changelog`, `windowed changelog` or `repartition topic`.
    pub role: &'static str,
    /// Whether the topic is the only lasting copy of state.
    pub(super) holds_state: bool,
    /// The differences from the requirements, at least one.
    pub wrong: Vec<Unfit>,
}

/// A difference of a topic from its requirements.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unfit {
    /// The number of partitions.
    Partitions {
        /// The current number.
        has: u32,
        /// The required number.
        must: u32,
        /// The topic with the same number of partitions.
        like: TopicName,
    },
    /// A setting.
    Setting {
        /// Kafka's name of the setting.
        key: &'static str,
        /// The current value.
        has: String,
        /// The required value.
        must: &'static str,
    },
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partitions { has, must, like } => {
                let s = if *has == 1 { "" } else { "s" };
                write!(
                    f,
                    "it has {has} partition{s} and must have {must}, as many as {like}"
                )
            }
            Self::Setting { key, has, must } => write!(f, "{key} is {has} and must be {must}"),
        }
    }
}

/// An internal topic that does not exist and can't be created.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UncreatedTopic {
    /// The name.
    pub name: TopicName,
    /// The role: `changelog`, `windowed changelog` or `repartition topic`.
    pub role: &'static str,
    /// The requirements, as options of `kafka-topics.sh --create`.
    options: String,
    /// The error of the brokers.
    pub source: ClientError,
}

impl UncreatedTopic {
    pub(in crate::runtime) fn new(topic: &Internal, source: ClientError) -> Self {
        let mut options = format!("--partitions {}", topic.partitions);
        for (key, value) in topic.settings() {
            // A write to a `String` can't fail.
            let _ = write!(options, " --config {key}={value}");
        }
        Self {
            name: topic.name.clone(),
            role: topic.role(),
            options,
            source,
        }
    }

    fn told(&self, bootstrap: &str) -> String {
        let Self {
            name,
            role,
            options,
            source,
        } = self;
        let right = match source.fault.code {
            code::TOPIC_AUTHORIZATION_FAILED | code::CLUSTER_AUTHORIZATION_FAILED => format!(
                "Permit the app to create it: kafka-acls.sh --bootstrap-server {bootstrap} --add \
                 --allow-principal User:<app's> --operation Create --topic {name}; or create it \
                 yourself"
            ),
            _ => "Remove the cause, or create the topic yourself".to_owned(),
        };
        format!(
            "the {role} {name} is missing, and the app can't create it ({source}). {right}: \
             kafka-topics.sh --create --bootstrap-server {bootstrap} --topic {name} {options}"
        )
    }
}

/// Returns the error text for topics that could not be created.
pub(in crate::runtime) fn told_uncreated(topics: &[UncreatedTopic], bootstrap: &str) -> String {
    let told: Vec<_> = topics.iter().map(|topic| topic.told(bootstrap)).collect();
    told.join(". ")
}

/// Returns the error text for topics that do not meet their requirements.
pub(in crate::runtime) fn told(topics: &[UnfitTopic], bootstrap: &str) -> String {
    let told: Vec<_> = topics.iter().map(|topic| topic.told(bootstrap)).collect();
    told.join(". ")
}

impl UnfitTopic {
    fn told(&self, bootstrap: &str) -> String {
        let Self { name, role, .. } = self;
        let wrong: Vec<String> = self.wrong.iter().map(ToString::to_string).collect();
        let fixes: Vec<String> = self
            .settings_fix(bootstrap)
            .into_iter()
            .chain(self.partitions_fix(bootstrap))
            .collect();
        format!(
            "the {role} {name} has the wrong settings: {}. {}",
            wrong.join("; "),
            fixes.join(". ")
        )
    }

    fn settings_fix(&self, bootstrap: &str) -> Option<String> {
        let settings = self.wrong.iter().filter_map(|wrong| match wrong {
            // Brackets, because commas separate the settings.
            Unfit::Setting { key, must, .. } if must.contains(',') => {
                Some(format!("{key}=[{must}]"))
            }
            Unfit::Setting { key, must, .. } => Some(format!("{key}={must}")),
            Unfit::Partitions { .. } => None,
        });
        let settings: Vec<_> = settings.collect();
        (!settings.is_empty()).then(|| {
            format!(
                "Correct them: kafka-configs.sh --bootstrap-server {bootstrap} --alter \
                 --entity-type topics --entity-name {} --add-config {}",
                self.name,
                settings.join(",")
            )
        })
    }

    /// Returns the fix of a wrong partition count. Existing records and state stay in their partitions, so adding
    /// partitions separates them from their keys.
    fn partitions_fix(&self, bootstrap: &str) -> Option<String> {
        let like = self.wrong.iter().find_map(|wrong| match wrong {
            Unfit::Partitions { like, .. } => Some(like),
            Unfit::Setting { .. } => None,
        })?;
        let delete = format!(
            "kafka-topics.sh --delete --bootstrap-server {bootstrap} --topic {}",
            self.name
        );
        Some(if self.holds_state {
            format!(
                "If {like} got another number of partitions, the state of its keys is in other \
                 partitions: run the app under a new name, which starts with empty state. If the \
                 topic is still empty, delete it, and the app creates it: {delete}"
            )
        } else {
            format!(
                "Let the app read the topic to its end, then stop the app and delete the topic. \
                 The app creates it again: {delete}"
            )
        })
    }
}

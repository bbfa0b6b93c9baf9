//! What is said of the app's own topics that can't be used, or made.

use std::fmt::{self, Write as _};

use eos_protocol::{TopicName, code};

use super::Internal;
use crate::client::ClientError;

/// One of the app's own topics that is there, and not as it has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnfitTopic {
    /// Its name.
    pub name: TopicName,
    /// What it is: `changelog`, `windowed changelog` or `repartition topic`.
    pub role: &'static str,
    /// Whether it is the only lasting copy of state.
    pub(super) holds_state: bool,
    /// In what it is not as it has to be, at least one.
    pub wrong: Vec<Unfit>,
}

/// In what a topic is not as it has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unfit {
    /// The number of its partitions.
    Partitions {
        /// How many it has.
        has: u32,
        /// How many it must have.
        must: u32,
        /// The topic that has as many.
        like: TopicName,
    },
    /// A setting.
    Setting {
        /// Kafka's name for it.
        key: &'static str,
        /// Its value.
        has: String,
        /// The one that it must have.
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

/// One of the app's own topics that is not there and can't be made.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UncreatedTopic {
    /// Its name.
    pub name: TopicName,
    /// What it is: `changelog`, `windowed changelog` or `repartition topic`.
    pub role: &'static str,
    /// How it has to be, as options of `kafka-topics.sh --create`.
    options: String,
    /// What the brokers say.
    pub source: ClientError,
}

impl UncreatedTopic {
    pub(in crate::runtime) fn new(topic: &Internal, source: ClientError) -> Self {
        let mut options = format!("--partitions {}", topic.partitions);
        for (key, value) in topic.settings() {
            // A `String` takes everything.
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
                "Give the app the right to: kafka-acls.sh --bootstrap-server {bootstrap} --add \
                 --allow-principal User:<app's> --operation Create --topic {name}; or create it \
                 yourself"
            ),
            _ => "Change what the brokers object to, or create it yourself".to_owned(),
        };
        format!(
            "the {role} {name} is not there, and the app can't create it ({source}). {right}: \
             kafka-topics.sh --create --bootstrap-server {bootstrap} --topic {name} {options}"
        )
    }
}

/// What is said of topics that could not be made.
pub(in crate::runtime) fn told_uncreated(topics: &[UncreatedTopic], bootstrap: &str) -> String {
    let told: Vec<_> = topics.iter().map(|topic| topic.told(bootstrap)).collect();
    told.join(". ")
}

/// What is said of topics that are not as they have to be.
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
            "the {role} {name} is not as it has to be: {}. {}",
            wrong.join("; "),
            fixes.join(". ")
        )
    }

    fn settings_fix(&self, bootstrap: &str) -> Option<String> {
        let settings = self.wrong.iter().filter_map(|wrong| match wrong {
            // Brackets, because commas part one setting from the next.
            Unfit::Setting { key, must, .. } if must.contains(',') => {
                Some(format!("{key}=[{must}]"))
            }
            Unfit::Setting { key, must, .. } => Some(format!("{key}={must}")),
            Unfit::Partitions { .. } => None,
        });
        let settings: Vec<_> = settings.collect();
        (!settings.is_empty()).then(|| {
            format!(
                "Set it right: kafka-configs.sh --bootstrap-server {bootstrap} --alter \
                 --entity-type topics --entity-name {} --add-config {}",
                self.name,
                settings.join(",")
            )
        })
    }

    /// Records, and state, are where their keys were before: adding partitions parts them.
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
                "If {like} was given other partitions, the state of its keys is elsewhere: run the app \
                 under a new name, so that it starts afresh. If nothing is in the topic yet, delete it, \
                 and the app creates it: {delete}"
            )
        } else {
            format!(
                "Stop the app when it has read the topic to its end, and delete it; the app creates it \
                 again: {delete}"
            )
        })
    }
}

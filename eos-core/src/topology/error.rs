//! What can be wrong with a graph.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::TopicName;
use eos_protocol::windows::WindowError;

use crate::error_policy::{ErrorPolicy, PolicyError};

/// The mistakes in an app's graph: all of them, one per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyError(Vec<Mistake>);

impl TopologyError {
    /// The mistakes, one at least.
    #[must_use]
    pub fn mistakes(&self) -> &[Mistake] {
        &self.0
    }
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [mistake] = &self.0[..] {
            return mistake.fmt(f);
        }
        write!(f, "the app has {} mistakes:", self.0.len())?;
        self.0
            .iter()
            .try_for_each(|mistake| write!(f, "\n- {mistake}"))
    }
}

impl std::error::Error for TopologyError {}

/// Collects mistakes, each one once.
#[derive(Debug, Default, Clone)]
pub(crate) struct Mistakes(Vec<Mistake>);

impl Mistakes {
    pub(crate) fn add(&mut self, mistake: Mistake) {
        if !self.0.contains(&mistake) {
            self.0.push(mistake);
        }
    }

    pub(super) fn check(&mut self, result: Result<(), Mistake>) {
        if let Err(mistake) = result {
            self.add(mistake);
        }
    }

    pub(super) fn none(self) -> Result<(), TopologyError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(TopologyError(self.0))
        }
    }
}

/// A mistake in an app's graph.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Mistake {
    /// Nothing to do.
    #[error("the app has no source: begin with `app.source(&topic)`")]
    Empty,
    /// A chain ends in nothing.
    #[error(
        "the chain that reads {topic} ends in `{kind}`, so its records go nowhere: end it with \
         `.to(&topic)`, `.route(..)`, `.for_each(..)` or `.ignore()`{}",
        if *kind == "branch" {
            "; if only one of the two streams is wanted, `.filter(..)` gives just that"
        } else {
            ""
        }
    )]
    Dangling {
        /// The source's topic.
        topic: TopicName,
        /// The last node.
        kind: &'static str,
    },
    /// Kafka does not allow this name.
    #[error(
        "{topic:?} is no topic name: 1 to 249 letters, digits, dots, underscores and hyphens, and \
         neither \".\" nor \"..\""
    )]
    TopicName {
        /// The name.
        topic: TopicName,
    },
    /// An error policy can't be carried out.
    #[error("the error policy of the source {topic}: {reason}")]
    ErrorPolicy {
        /// The source's topic.
        topic: TopicName,
        /// Why.
        reason: PolicyError,
    },
    /// A source has two error policies.
    #[error(
        "the source {topic} has two error policies, {first} and {second}. A policy is its source's, \
         whatever branch it is said of, so one of them would replace the other: keep one call of \
         `on_error`. For a branch to have its own, write it to a topic and read that with \
         `app.source(..)`"
    )]
    TwoPolicies {
        /// The source's topic.
        topic: TopicName,
        /// The one that was said first.
        first: Box<ErrorPolicy>,
        /// The other.
        second: Box<ErrorPolicy>,
    },
    /// A store's name can't be one.
    #[error(
        "{name:?} is no name for a store: 1 to 100 letters, digits, dots, underscores and hyphens"
    )]
    StoreName {
        /// The name.
        name: String,
    },
    /// Two stores can't be told apart.
    #[error(
        "{}: give one of them another name",
        if first == second {
            format!("two stores are called {first}")
        } else {
            format!("the stores {first} and {second} would have the same number in the changelog")
        }
    )]
    SameStore {
        /// The one that was declared first.
        first: String,
        /// The other.
        second: String,
    },
    /// A store has no stream that may use it.
    #[error(
        "no stream has the store {name}: declare it with `.with_store(&{name})` before the closure \
         that uses it, or leave it out"
    )]
    UnusedStore {
        /// The store.
        name: String,
    },
    /// There are no such windows.
    #[error("the windows of the store {store}: {reason}")]
    Windows {
        /// The store that their results are kept in.
        store: String,
        /// What is wrong with them.
        reason: WindowError,
    },
    /// A store would forget windows that are open.
    #[error(
        "the store {store} keeps windows for {retention:?} after their start, but they take records for \
         {least:?}, their length and grace: leave `.retention(..)` out, or make it that long at least"
    )]
    Retention {
        /// The store.
        store: String,
        /// How long it would keep them.
        retention: Duration,
        /// How long it has to.
        least: Duration,
    },
    /// A window store of a closure has no retention.
    #[error(
        "the store {store} does not say how long it keeps its windows: a closure's store can't know it by \
         itself, so add `.retention(..)`, 1 ms at least"
    )]
    NoRetention {
        /// The store.
        store: String,
    },
    /// Two topics of the app's own would have one name.
    #[error(
        "two topics of the app's own would both be called {name}: that of a stage's stores is named after \
         the app and the stage's first topic, without the app's name in front of it. Rename the topic, or \
         the app"
    )]
    SameInternal {
        /// The name.
        name: TopicName,
    },
    /// The app writes to one of its own internal topics.
    #[error(
        "the app writes to {name}, which is the name of one of its own internal topics, so these records would \
         mix with its internal ones. Give the output or the dead-letter topic another name"
    )]
    OutputIsInternal {
        /// The name.
        name: TopicName,
    },
    /// Records of a source are written back to its topic.
    #[error(
        "records of the source {topic} are written to {topic} again, so the app would process them endlessly. \
         Write them to another topic"
    )]
    Loop {
        /// The topic.
        topic: TopicName,
    },
    /// A topic is read as two types.
    #[error(
        "the topic {topic} is read as {first} and as {second}, so each record fails in one of them: give both sources \
         the same type, or read one of them as a view, with `topic.values::<..>()`"
    )]
    TwoTypes {
        /// The topic.
        topic: TopicName,
        /// The types that were declared first.
        first: String,
        /// The others.
        second: String,
    },
    /// Topics that one task reads together have different partitioners.
    #[error(
        "one task reads {} and {}, so the records of one key would be in different tasks: give both topics the same \
         `partition_by`, or repartition one of the streams",
        partitioned(first),
        partitioned(second)
    )]
    Partitioners {
        /// A topic, and the name of its partitioner; `None` is Kafka's.
        first: (TopicName, Option<Arc<str>>),
        /// Another topic of the same task.
        second: (TopicName, Option<Arc<str>>),
    },
    /// Records have no topic to go to.
    #[error("`route` was given no topics: give it those that its closure chooses among")]
    NoRoute,
    /// Two repartition topics would be one.
    #[error(
        "two calls of `repartition` name their topic {name}: give one of them another name, for each \
         is a topic of its own"
    )]
    SameRepartition {
        /// The name.
        name: String,
    },
    /// What belongs to two apps can't meet.
    #[error(
        "`{method}` was given a {what} of another app: make both with one `App`, or let the apps meet \
         in a topic"
    )]
    OtherApp {
        /// The method.
        method: &'static str,
        /// What it was given.
        what: &'static str,
    },
}

fn partitioned((topic, partitioner): &(TopicName, Option<Arc<str>>)) -> String {
    match partitioner {
        Some(name) => format!("{topic}, whose partitioner is {name:?},"),
        None => format!("{topic}, whose partitioner is Kafka's,"),
    }
}

/// A store's name goes into messages and metrics, and may become part of a topic's.
pub(super) fn check_store_name(name: &str) -> Result<(), Mistake> {
    let fine = name.len() <= 100 && check_name(&name.into()).is_ok();
    if fine {
        Ok(())
    } else {
        Err(Mistake::StoreName { name: name.into() })
    }
}

/// Kafka's rule for topic names (`org.apache.kafka.common.internals.Topic#validate`).
pub(super) fn check_name(name: &TopicName) -> Result<(), Mistake> {
    let text = name.as_str();
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let fine = !text.is_empty() && text.len() <= 249 && text.chars().all(legal);
    if fine && text != "." && text != ".." {
        Ok(())
    } else {
        Err(Mistake::TopicName {
            topic: name.clone(),
        })
    }
}

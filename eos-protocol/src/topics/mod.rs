//! Whether the topics of a running app are still the topics that it started with.
//!
//! At its start an app reads the id and the number of partitions of each of its topics, and works by them from
//! then on: a task is a partition number, a key's partition is a hash modulo a count, an offset belongs to a log.
//! While it runs it queries the brokers now and then, and [`TopicWatch`] compares what they report.
//!
//! | the brokers report | it means | the app |
//! |---|---|---|
//! | another id | deleted and created again | stops at once |
//! | no such topic, or fewer partitions | deleted; or a broker that lags behind | stops when it lasts for [`LASTS`] |
//! | more partitions | keys move to other partitions | stops at once; goes on if the topic [may grow](TopicRole::may_grow) |
//! | no id | the broker knows none | goes on: that is no difference |

mod error;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::ids::{AppId, TopicName};
use crate::state::TopicUuid;
use crate::time::Now;

pub use error::{TopicChange, TopicChanged};

/// How long brokers have to report that a topic is missing, or smaller than it was, before the app stops.
///
/// One broker may learn of a topic or of its new partitions later than another. Each report in between that
/// shows the topic whole starts the time again, so at least two reports in a row are needed.
pub const LASTS: Duration = Duration::from_secs(5);

/// What a topic is to the app, from what a change hurts least to what it hurts most: of a topic with several
/// roles the last one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TopicRole {
    /// It drives a stage that keeps no state, reads no other topic, and writes to no repartition topic, which
    /// would have to have as many partitions.
    Input,
    /// Records that failed go there.
    DeadLetter,
    /// Results go there.
    Output,
    /// A stage reads it beside the topic that drives it, partition by partition: a table that is joined.
    Sibling,
    /// It drives a stage for which it matters in which partition a key is: one that keeps state, reads other
    /// topics beside it, or writes to a repartition topic.
    KeyedInput,
    /// The app's own, between two of its stages.
    Repartition,
    /// The app's own: the lasting copy of its state.
    Changelog,
}

impl TopicRole {
    /// Whether more partitions are only more tasks. Their keys' order across partitions is the business of those
    /// who write to the topic.
    #[must_use]
    pub fn may_grow(self) -> bool {
        self == Self::Input
    }
}

impl fmt::Display for TopicRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Input | Self::KeyedInput => "input topic",
            Self::Sibling => "input topic (table or joined stream)",
            Self::Output => "output topic",
            Self::DeadLetter => "dead letter topic",
            Self::Repartition => "repartition topic",
            Self::Changelog => "changelog",
        })
    }
}

/// A topic as a broker reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenTopic {
    /// Which of all topics of its name; `None` if the broker gives no id.
    pub id: Option<TopicUuid>,
    /// How many partitions it has.
    pub partitions: u32,
}

/// A topic that got partitions, and may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicGrown {
    /// Its name.
    pub topic: TopicName,
    /// How many partitions it had.
    pub before: u32,
    /// How many it has now.
    pub now: u32,
}

/// The topics of an app, as it knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicWatch {
    app: AppId,
    topics: BTreeMap<TopicName, Known>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    role: TopicRole,
    id: Option<TopicUuid>,
    partitions: u32,
    /// Since when each report lacks the topic or some of its partitions.
    lacking: Option<Now>,
}

/// What a report of one topic means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Same,
    /// Bad if it lasts.
    Lacking(TopicChange),
    Grown,
    Changed(TopicChange),
}

impl TopicWatch {
    /// Of an app without topics.
    #[must_use]
    pub fn new(app: AppId) -> Self {
        Self {
            app,
            topics: BTreeMap::new(),
        }
    }

    /// The app has this topic, and at its start it was this one.
    pub fn add(&mut self, topic: TopicName, role: TopicRole, seen: SeenTopic) {
        let known = self.topics.entry(topic).or_insert(Known {
            role,
            id: seen.id,
            partitions: seen.partitions,
            lacking: None,
        });
        known.role = known.role.max(role);
    }

    /// Their names, each once.
    #[must_use]
    pub fn names(&self) -> Vec<TopicName> {
        self.topics.keys().cloned().collect()
    }

    /// Compares what the brokers report now: each topic with what there is under its name, `None` if there is
    /// nothing. A topic that is not in the report was not answered for.
    ///
    /// Returns the topics that grew and may.
    ///
    /// # Errors
    /// [`TopicChanged`] if the app must stop.
    pub fn compare(
        &mut self,
        now: Now,
        report: &[(TopicName, Option<SeenTopic>)],
    ) -> Result<Vec<TopicGrown>, TopicChanged> {
        let mut grown = Vec::new();
        for (topic, seen) in report {
            let Some(known) = self.topics.get_mut(topic) else {
                continue;
            };
            let change = match judge(*known, *seen) {
                Verdict::Changed(change) => change,
                Verdict::Lacking(change) => {
                    let since = *known.lacking.get_or_insert(now);
                    if now.since(since) < LASTS {
                        continue;
                    }
                    change
                }
                verdict => {
                    let Some(seen) = seen else { continue };
                    known.lacking = None;
                    known.id = known.id.or(seen.id);
                    if verdict == Verdict::Grown {
                        grown.push(TopicGrown {
                            topic: topic.clone(),
                            before: known.partitions,
                            now: seen.partitions,
                        });
                        known.partitions = seen.partitions;
                    }
                    continue;
                }
            };
            return Err(TopicChanged {
                app: self.app.clone(),
                topic: topic.clone(),
                role: known.role,
                change,
            });
        }
        Ok(grown)
    }
}

fn judge(known: Known, seen: Option<SeenTopic>) -> Verdict {
    let Some(seen) = seen else {
        return Verdict::Lacking(TopicChange::Deleted { before: known.id });
    };
    if let (Some(before), Some(now)) = (known.id, seen.id)
        && before != now
    {
        return Verdict::Changed(TopicChange::Recreated { before, now });
    }
    let (before, now) = (known.partitions, seen.partitions);
    match now.cmp(&before) {
        std::cmp::Ordering::Equal => Verdict::Same,
        std::cmp::Ordering::Less => Verdict::Lacking(TopicChange::Shrunk { before, now }),
        std::cmp::Ordering::Greater if known.role.may_grow() => Verdict::Grown,
        std::cmp::Ordering::Greater => Verdict::Changed(TopicChange::Grown { before, now }),
    }
}

#[cfg(test)]
#[path = "topics_test.rs"]
mod tests;

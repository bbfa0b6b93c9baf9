//! Detects changes of a running app's topics.
//!
//! At its start an app reads the id and the partition count of each of its topics, and relies on both: a task is a
//! partition number, a key's partition is a hash modulo a count, and an offset belongs to a log. While the app
//! runs, it queries the brokers periodically, and [`TopicWatch`] compares their reports.
//!
//! | the brokers report | it means | the app |
//! |---|---|---|
//! | another id | deleted and created again | stops at once |
//! | no such topic, or fewer partitions | deleted, or the broker lags | stops if it lasts for [`LASTS`] |
//! | more partitions | keys move to other partitions | stops at once, unless the topic [may grow](TopicRole::may_grow) |
//! | no id | the broker supports none | continues |

mod error;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::ids::{AppId, TopicName};
use crate::state::TopicUuid;
use crate::time::Now;

pub use error::{TopicChange, TopicChanged};

/// The time for which brokers must report a topic as missing or smaller before the app stops.
///
/// One broker may receive the metadata of a topic or of its new partitions later than another. A report that shows the
/// whole topic resets the time, so at least two reports in a row are needed.
pub const LASTS: Duration = Duration::from_secs(5);

/// The role of a topic in the app.
///
/// The order is that of the damage from a change, smallest first. If a topic has several roles, the last one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TopicRole {
    /// Is read as a global table. The next start reads its copy again.
    Global,
    /// Drives a stage that keeps no state, reads no other topic and writes to no repartition topic. (A
    /// repartition topic would need the same partition count.)
    Input,
    /// Receives failed records.
    DeadLetter,
    /// Receives results.
    Output,
    /// Is read beside the topic that drives the stage, partition by partition, such as a joined table.
    Sibling,
    /// Drives a stage that depends on the partition of a key: it keeps state, reads other topics, or writes to
    /// a repartition topic.
    KeyedInput,
    /// An internal topic between two stages.
    Repartition,
    /// An internal topic: the durable copy of the state.
    Changelog,
}

impl TopicRole {
    /// Returns whether new partitions only add tasks. The producers of the topic are responsible for the order of keys
    /// that move between partitions.
    #[must_use]
    pub fn may_grow(self) -> bool {
        self == Self::Input
    }
}

impl fmt::Display for TopicRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Global => "topic of a global table",
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
    /// The topic's id; `None` if the broker reports none.
    pub id: Option<TopicUuid>,
    /// The partition count.
    pub partitions: u32,
}

/// A topic that was given more partitions, and [may grow](TopicRole::may_grow).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicGrown {
    /// Its name.
    pub topic: TopicName,
    /// The partition count before.
    pub before: u32,
    /// The partition count now.
    pub now: u32,
}

/// The last known state of an app's topics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicWatch {
    app: AppId,
    in_ledger: bool,
    topics: BTreeMap<TopicName, Known>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    role: TopicRole,
    id: Option<TopicUuid>,
    partitions: u32,
    /// The time of the first in a series of reports without the topic or some of its partitions.
    lacking: Option<Now>,
}

/// The result of comparing one topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Same,
    /// An error if it lasts.
    Lacking(TopicChange),
    Grown,
    Changed(TopicChange),
}

impl TopicWatch {
    /// A watch without topics.
    #[must_use]
    pub fn new(app: AppId) -> Self {
        Self {
            app,
            in_ledger: false,
            topics: BTreeMap::new(),
        }
    }

    /// The same for an app whose positions are in a ledger, if `in_ledger` is true.
    #[must_use]
    pub fn in_ledger(self, in_ledger: bool) -> Self {
        Self { in_ledger, ..self }
    }

    /// Adds a topic of the app, in its state at the start.
    pub fn add(&mut self, topic: TopicName, role: TopicRole, seen: SeenTopic) {
        let known = self.topics.entry(topic).or_insert(Known {
            role,
            id: seen.id,
            partitions: seen.partitions,
            lacking: None,
        });
        known.role = known.role.max(role);
    }

    /// The names of the topics, without duplicates.
    #[must_use]
    pub fn names(&self) -> Vec<TopicName> {
        self.topics.keys().cloned().collect()
    }

    /// Compares a report of the brokers with the last known state. `None` means that the topic does not exist. A
    /// topic that is not in the report is unknown, and is not compared.
    ///
    /// Returns the topics that have grown and may.
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
                in_ledger: self.in_ledger,
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

//! The identity of the state in a database.

use std::fmt;

use super::Family;
use crate::ids::{AppId, TaskId, TopicName};

/// The identity of a topic: a topic that was deleted and created again under its name has another id (KIP-516).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicUuid(pub u128);

/// A 64-bit digest of a topic's id, to detect that a topic was deleted and created again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicDigest(pub u64);

impl TopicUuid {
    /// The digest in a transaction's name. `None` if the brokers report no id.
    #[must_use]
    pub const fn digest(self) -> Option<TopicDigest> {
        // Topic ids are random (KIP-516), so any 64 of their bits suffice.
        match self.0 {
            0 => None,
            id => Some(TopicDigest((id >> 64) as u64 ^ id as u64)),
        }
    }
}

/// As Kafka's tools show it: base64 for URLs, without padding.
impl fmt::Display for TopicUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        // 22 digits of 6 bits hold 132 bits: the last 4 are zero.
        for digit in 0..22_u32 {
            let six = match 122_u32.checked_sub(6 * digit) {
                Some(shift) => self.0 >> shift,
                None => self.0 << 4,
            };
            let digit = DIGITS.get((six & 63) as usize).copied().unwrap_or(b'?');
            write!(f, "{}", char::from(digit))?;
        }
        Ok(())
    }
}

/// A topic from which state is made, or in which it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TopicIdentity {
    /// Its name.
    pub name: TopicName,
    /// The topic's id.
    pub id: TopicUuid,
    /// The number of partitions. With another number, keys belong to other tasks.
    pub partitions: u32,
}

/// A hash of a stage's stores: their names and families.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoresHash(pub u64);

impl StoresHash {
    /// Hashes the stores' names and families, in any order, by FNV-1a (64 bit). The zero that ends a name is a one if
    /// the store is windowed.
    pub fn of<'a>(stores: impl IntoIterator<Item = (&'a str, Family)>) -> Self {
        let ends = stores.into_iter().map(|(name, family)| match family {
            Family::Plain => (name, 0),
            Family::Windowed => (name, 1),
        });
        let mut stores: Vec<(&str, u8)> = ends.collect();
        stores.sort_unstable();
        let bytes = stores
            .iter()
            .flat_map(|(name, end)| name.bytes().chain([*end]));
        Self(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        }))
    }
}

impl fmt::Display for StoresHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The identity of a task's state. It does not include slots, hosts or paths: a task keeps its identity wherever it
/// runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The cluster's id.
    pub cluster: String,
    /// The app.
    pub app: AppId,
    /// The task.
    pub task: TaskId,
    /// The inputs of its stage, the driving topic first, and its changelogs.
    pub topics: Vec<TopicIdentity>,
    /// The stores of its stage.
    pub stores: StoresHash,
}

/// The first difference between the found state and the task's own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Difference {
    /// Another cluster.
    #[error("it belongs to cluster {found}, but this is cluster {now}")]
    Cluster {
        /// The state's.
        found: String,
        /// This one.
        now: String,
    },
    /// Another app.
    #[error("it belongs to app {found}, but this is app {now}")]
    App {
        /// The state's.
        found: AppId,
        /// This one.
        now: AppId,
    },
    /// Another task.
    #[error("it belongs to task {found}, but this is task {now}")]
    Task {
        /// The state's.
        found: TaskId,
        /// This one.
        now: TaskId,
    },
    /// Another stage: neither reads the driving topic of the other. Tasks are numbered by their stages, and that
    /// stage had this number before.
    #[error("it belongs to the stage that reads {found}, but this one reads {now}")]
    Stage {
        /// The state's.
        found: TopicName,
        /// This one's.
        now: TopicName,
    },
    /// A topic was deleted and created again.
    #[error("topic {topic} had id {found}, now it has {now}: it was deleted and created again")]
    Recreated {
        /// The topic.
        topic: TopicName,
        /// The state's.
        found: TopicUuid,
        /// The current topic's.
        now: TopicUuid,
    },
    /// A topic has another number of partitions.
    #[error("topic {topic} had {found} partitions, now it has {now}")]
    Partitions {
        /// The topic.
        topic: TopicName,
        /// The state's.
        found: u32,
        /// The current number.
        now: u32,
    },
    /// The stage reads or keeps other topics.
    #[error("topic {topic} belongs either to the state or to this stage, but not to both")]
    Topics {
        /// The first topic that is not in both.
        topic: TopicName,
    },
    /// The stage has other stores.
    #[error("its stores have fingerprint {found}, now they have {now}")]
    Stores {
        /// The state's.
        found: StoresHash,
        /// The program's.
        now: StoresHash,
    },
}

impl Difference {
    /// Returns whether the state has a foreign origin: another cluster, app, stage or task, or earlier topics of the
    /// same names. The other differences are changes of the program or the topics during this task's life.
    #[must_use]
    pub const fn is_foreign(&self) -> bool {
        matches!(
            self,
            Self::Cluster { .. }
                | Self::App { .. }
                | Self::Task { .. }
                | Self::Stage { .. }
                | Self::Recreated { .. }
        )
    }
}

impl Identity {
    /// The first difference between the found state (`self`) and the task's own; `None` if it is its own.
    #[must_use]
    pub fn difference(&self, now: &Self) -> Option<Difference> {
        // An unreported cluster id, then or now, is no evidence of another cluster.
        if self.cluster != now.cluster && !self.cluster.is_empty() && !now.cluster.is_empty() {
            let (found, now) = (self.cluster.clone(), now.cluster.clone());
            return Some(Difference::Cluster { found, now });
        }
        if self.app != now.app {
            let (found, now) = (self.app.clone(), now.app.clone());
            return Some(Difference::App { found, now });
        }
        if self.task != now.task {
            let (found, now) = (self.task, now.task);
            return Some(Difference::Task { found, now });
        }
        if let (Some(found), Some(driving)) = (self.topics.first(), now.topics.first())
            && self.topic(&driving.name).is_none()
            && now.topic(&found.name).is_none()
        {
            let (found, now) = (found.name.clone(), driving.name.clone());
            return Some(Difference::Stage { found, now });
        }
        self.topics_differ(now).or_else(|| {
            let (found, now) = (self.stores, now.stores);
            (found != now).then_some(Difference::Stores { found, now })
        })
    }

    /// The topic of that name.
    #[must_use]
    pub fn topic(&self, name: &TopicName) -> Option<&TopicIdentity> {
        self.topics.iter().find(|topic| topic.name == *name)
    }

    fn topics_differ(&self, now: &Self) -> Option<Difference> {
        for found in &self.topics {
            let topic = found.name.clone();
            let Some(now) = now.topic(&topic) else {
                return Some(Difference::Topics { topic });
            };
            // Zero: the brokers reported no id, then or now.
            if found.id != now.id && found.id.0 != 0 && now.id.0 != 0 {
                let (found, now) = (found.id, now.id);
                return Some(Difference::Recreated { topic, found, now });
            }
            if found.partitions != now.partitions {
                let (found, now) = (found.partitions, now.partitions);
                return Some(Difference::Partitions { topic, found, now });
            }
        }
        let new = now.topics.iter().find(|t| self.topic(&t.name).is_none());
        new.map(|t| Difference::Topics {
            topic: t.name.clone(),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ids::{Partition, StageId};

    /// App `a`, task `0_3` of two topics, one of them its changelog.
    pub(crate) fn sample() -> Identity {
        let topic = |name: &str, id| TopicIdentity {
            name: name.into(),
            id: TopicUuid(id),
            partitions: 6,
        };
        Identity {
            cluster: "c1".into(),
            app: "a".into(),
            task: TaskId {
                stage: StageId(0),
                partition: Partition::new(3).unwrap(),
            },
            topics: vec![topic("in", 7), topic("a-0-changelog", 8)],
            stores: StoresHash(5),
        }
    }

    #[test]
    fn a_topic_id_reads_as_in_kafka() {
        // org.apache.kafka.common.Uuid: ZERO_UUID and METADATA_TOPIC_ID.
        assert_eq!(TopicUuid(0).to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(TopicUuid(1).to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(TopicUuid(u128::MAX).to_string(), "_____________________w");
    }

    #[test]
    fn other_names_and_families_are_other_stores() {
        let of = |stores: &[(&'static str, Family)]| StoresHash::of(stores.iter().copied());
        let (a, b) = (("a", Family::Plain), ("b", Family::Plain));
        assert_eq!(of(&[a, b]), of(&[b, a]));
        assert_eq!(
            of(&[a, b]).to_string(),
            "ab40d7820d408076",
            "it is on disk: another hash would throw all state away"
        );
        let others = [
            of(&[]),
            of(&[a]),
            of(&[a, b]),
            of(&[("ab", Family::Plain)]),
            of(&[a, ("b", Family::Windowed)]),
            of(&[("a", Family::Windowed), b]),
        ];
        let different: std::collections::BTreeSet<_> = others.iter().collect();
        assert_eq!(different.len(), others.len());
    }

    #[test]
    fn every_part_of_an_identity_counts() {
        let now = sample();
        assert_eq!(now.difference(&now), None);
        let says = |change: &dyn Fn(&mut Identity)| {
            let mut found = sample();
            change(&mut found);
            found.difference(&now).unwrap().to_string()
        };
        let mut unknown = sample();
        unknown.cluster.clear();
        assert_eq!(unknown.difference(&now), None);
        assert_eq!(now.difference(&unknown), None);
        assert!(says(&|i| i.cluster = "c0".into()).contains("cluster c0, but this is cluster c1"));
        assert!(says(&|i| i.app = "b".into()).contains("app b, but this is app a"));
        assert!(says(&|i| i.task.stage = StageId(1)).contains("task 1_3, but this is task 0_3"));
        assert!(says(&|i| i.topics[0].id = TopicUuid(1)).contains("topic in had id"));
        assert!(says(&|i| i.topics[1].partitions = 4).contains("had 4 partitions, now it has 6"));
        assert!(
            says(&|i| drop(i.topics.pop())).contains("a-0-changelog belongs either to the state")
        );
        let of_another_stage = says(&|i| i.topics[0].name = "old".into());
        assert!(of_another_stage.contains("the stage that reads old, but this one reads in"));
        let mut driven_by_another = sample();
        driven_by_another.topics.swap(0, 1);
        assert_eq!(driven_by_another.difference(&now), None, "the layout tells");
        assert!(says(&|i| i.stores = StoresHash(6)).contains("0000000000000006"));
    }
}

//! The local copy of a global table: whether a start continues with it, or reads the whole topic again.
//!
//! A process reads all partitions of the topic without a group, and keeps the rows beside a [`GlobalMark`] in one
//! database. The topic is the only durable copy, so a copy that is in doubt is deleted.
//!
//! | the copy | the start | why |
//! |---|---|---|
//! | no mark | reads from the beginning | there is no copy, or it was damaged |
//! | a mark of another topic, cluster or topic id | reads again | its rows are those of another topic |
//! | a mark with other types | reads again | its rows were checked by other codecs |
//! | a mark with other partitions | reads again | a key may have moved to another partition |
//! | an offset below the log start | reads again | deletions that it missed are no longer in the log |
//! | an offset beyond the end | reads again | the log was cut, and now holds other records |
//! | older than half of `delete.retention.ms`, and there is something to read | reads again | tombstones may be gone, and their rows would stay for ever |
//! | anything else | reads on | |
//!
//! Half of `delete.retention.ms` is the margin for wrong clocks, in either direction, as for changelogs. Kafka Streams
//! has none of these checks for its global tables (KAFKA-8671: rows of another topic under the same name).

mod age;

use std::fmt;
use std::time::Duration;

use crate::fnv::Fnv;
use crate::ids::{Offset, Partition, Timestamp, TopicName, TopicPartition};
use crate::state::TopicUuid;
use crate::state::position::codec::{Reader, length, number, optional, text};

pub use age::{GlobalAge, MissedTombstones};

/// The format that this version writes, and the only one that it reads.
const VERSION: u8 = 1;

/// The content of a copy, written in the batch of its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalMark {
    /// The cluster's id; empty if the cluster reports none.
    pub cluster: String,
    /// The topic.
    pub topic: TopicName,
    /// The topic's id, if the brokers report one.
    pub id: Option<TopicUuid>,
    /// The names of the types of keys, values and codecs.
    pub types: String,
    /// The last time at which the copy had all records, or at which the reading from the beginning began.
    pub current: Timestamp,
    /// The next offset of each partition, in order.
    pub next: Vec<(Partition, Offset)>,
}

impl GlobalMark {
    /// Returns the encoded mark.
    ///
    /// ```text
    /// version (1 byte) · cluster · topic · id · types · current · offsets · FNV-1a of all before (8 bytes)
    /// ```
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        text(&mut out, &self.cluster);
        text(&mut out, self.topic.as_str());
        optional(&mut out, self.id, |out, id| number(out, id.0));
        text(&mut out, &self.types);
        number(&mut out, self.current.0);
        length(&mut out, self.next.len());
        for (partition, offset) in &self.next {
            number(&mut out, partition.get());
            number(&mut out, offset.get());
        }
        let mut sum = Fnv::new();
        sum.write(&out);
        out.extend(sum.finish().to_be_bytes());
        out
    }

    /// Reads the bytes of [`encode`](Self::encode). `None` if they are damaged or of another version: the copy is then
    /// read again, which needs no other version of the program.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk::<8>()?;
        let mut found = Fnv::new();
        found.write(body);
        if found.finish().to_be_bytes() != *sum {
            return None;
        }
        let mut reader = Reader(body);
        if reader.byte()? != VERSION {
            return None;
        }
        let mark = Self {
            cluster: reader.text()?.to_owned(),
            topic: TopicName::from(reader.text()?),
            id: reader.optional(|r| Some(TopicUuid(r.chunk().map(u128::from_be_bytes)?)))?,
            types: reader.text()?.to_owned(),
            current: Timestamp(reader.i64()?),
            next: reader.list(|r| Some((r.partition()?, r.offset()?)))?,
        };
        reader.0.is_empty().then_some(mark)
    }
}

/// One partition of the topic at a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GlobalLog {
    /// The partition.
    pub partition: Partition,
    /// The log start offset.
    pub first: Offset,
    /// The end for a reader of committed records.
    pub end: Offset,
}

/// The facts at the start of a global table.
#[derive(Debug, Clone, Copy)]
pub struct GlobalSituation<'a> {
    /// The cluster's id; empty if the cluster reports none.
    pub cluster: &'a str,
    /// The topic.
    pub topic: &'a TopicName,
    /// The topic's id, if the brokers report one.
    pub id: Option<TopicUuid>,
    /// The names of the types of keys, values and codecs.
    pub types: &'a str,
    /// `delete.retention.ms` of the topic.
    pub delete_retention: Duration,
    /// All partitions, in order.
    pub logs: &'a [GlobalLog],
    /// The mark of the copy. `None` if there is no copy, or its mark can't be read.
    pub mark: Option<&'a GlobalMark>,
    /// This host's clock.
    pub now: Timestamp,
}

/// The decision about the start of a global table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GlobalStart {
    /// The copy is good. Read from these offsets.
    ReadOn(Vec<(Partition, Offset)>),
    /// Throw the copy away, and read from these offsets, which are the log starts.
    Rebuild {
        /// The offsets.
        from: Vec<(Partition, Offset)>,
        /// The defect of the copy. `None` if there is no copy.
        why: Option<StaleCopy>,
    },
}

/// The defect of the copy of a global table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StaleCopy {
    /// It is of another topic, or of another cluster.
    OtherTopic {
        /// The topic.
        topic: TopicName,
        /// The cluster.
        cluster: String,
    },
    /// The topic was deleted and created again.
    Recreated {
        /// The id of the old topic.
        before: TopicUuid,
        /// The id of the new topic.
        now: TopicUuid,
    },
    /// An earlier program read it with other types or codecs.
    OtherTypes {
        /// The types of the copy.
        before: String,
        /// The types of this program.
        now: String,
    },
    /// The topic has another number of partitions.
    Partitions {
        /// The number of the copy's partitions.
        before: usize,
        /// The number of the topic's partitions.
        now: usize,
    },
    /// Records after the copy's offset were deleted.
    Deleted {
        /// The partition.
        partition: TopicPartition,
        /// The copy's offset.
        next: Offset,
        /// The log start offset.
        first: Offset,
    },
    /// The log ends before the copy's offset.
    Cut {
        /// The partition.
        partition: TopicPartition,
        /// The copy's offset.
        next: Offset,
        /// The end of the log.
        end: Offset,
    },
    /// Tombstones that it has not read may be compacted away.
    TooOld {
        /// The age of the copy.
        age: Duration,
        /// Half of `delete.retention.ms`.
        limit: Duration,
    },
}

impl fmt::Display for StaleCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherTopic { topic, cluster } => {
                write!(
                    f,
                    "it holds rows of the topic {topic} of the cluster {cluster:?}"
                )
            }
            Self::Recreated { before, now } => write!(
                f,
                "the topic was deleted and created again: it had the id {before}, now it has {now}"
            ),
            Self::OtherTypes { before, now } => {
                write!(f, "its rows have the types {before}, now they have {now}")
            }
            Self::Partitions { before, now } => write!(
                f,
                "the topic had {before} partitions, now it has {now}, so keys may have moved"
            ),
            Self::Deleted {
                partition,
                next,
                first,
            } => write!(
                f,
                "{partition} begins at offset {first}, and the records from {next} on were deleted"
            ),
            Self::Cut {
                partition,
                next,
                end,
            } => {
                write!(
                    f,
                    "{partition} ends at offset {end}, before the copy's offset {next}"
                )
            }
            Self::TooOld { age, limit } => write!(
                f,
                "it is {} s old, by this machine's clock, and half of delete.retention.ms is {} s, so deletions may be \
                 compacted away",
                age.as_secs(),
                limit.as_secs()
            ),
        }
    }
}

impl GlobalSituation<'_> {
    /// Decides whether a start reads on, or reads the whole topic again: see the [module](self).
    #[must_use]
    pub fn decide(&self) -> GlobalStart {
        let Some(mark) = self.mark else {
            return self.rebuild(None);
        };
        match self.stale(mark) {
            Some(why) => self.rebuild(Some(why)),
            None => GlobalStart::ReadOn(mark.next.clone()),
        }
    }

    fn rebuild(&self, why: Option<StaleCopy>) -> GlobalStart {
        let from = self.logs.iter().map(|log| (log.partition, log.first));
        GlobalStart::Rebuild {
            from: from.collect(),
            why,
        }
    }

    fn stale(&self, mark: &GlobalMark) -> Option<StaleCopy> {
        // An unreported cluster id, then or now, is no evidence of another cluster.
        let other_cluster =
            mark.cluster != self.cluster && !mark.cluster.is_empty() && !self.cluster.is_empty();
        if other_cluster || mark.topic != *self.topic {
            return Some(StaleCopy::OtherTopic {
                topic: mark.topic.clone(),
                cluster: mark.cluster.clone(),
            });
        }
        if let (Some(before), Some(now)) = (mark.id, self.id)
            && before != now
        {
            return Some(StaleCopy::Recreated { before, now });
        }
        if mark.types != self.types {
            return Some(StaleCopy::OtherTypes {
                before: mark.types.clone(),
                now: self.types.to_owned(),
            });
        }
        let ours = mark.next.iter().map(|(partition, _)| *partition);
        if !ours.eq(self.logs.iter().map(|log| log.partition)) {
            return Some(StaleCopy::Partitions {
                before: mark.next.len(),
                now: self.logs.len(),
            });
        }
        let mut any_new = false;
        for (log, (_, next)) in self.logs.iter().zip(&mark.next) {
            let partition = || TopicPartition::new(self.topic.clone(), log.partition);
            if *next < log.first {
                return Some(StaleCopy::Deleted {
                    partition: partition(),
                    next: *next,
                    first: log.first,
                });
            }
            if *next > log.end {
                return Some(StaleCopy::Cut {
                    partition: partition(),
                    next: *next,
                    end: log.end,
                });
            }
            any_new |= *next < log.end;
        }
        // With nothing to read, no record can be missing.
        let limit = self.delete_retention / 2;
        too_old(mark.current, self.now, limit).filter(|_| any_new)
    }
}

fn too_old(current: Timestamp, now: Timestamp, limit: Duration) -> Option<StaleCopy> {
    let age = Duration::from_millis(now.0.abs_diff(current.0));
    (age > limit).then_some(StaleCopy::TooOld { age, limit })
}

/// A global table whose start made no progress.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the global table {table}: reading {partition} made no progress for {} s, at offset {next} of {end}, and no record is \
     processed before. The broker returns neither records nor the end of the partition: is its leader reachable, and may this \
     user read the topic (kafka-acls.sh --add --operation Read --topic {})?",
    waited.as_secs(), partition.topic
)]
pub struct GlobalStalled {
    /// The global table.
    pub table: String,
    /// The partition.
    pub partition: TopicPartition,
    /// The next offset to read.
    pub next: Offset,
    /// The end of the partition at the start.
    pub end: Offset,
    /// The time without progress.
    pub waited: Duration,
}

#[cfg(test)]
#[path = "global_test.rs"]
mod tests;

//! The decision at a restart: the restart table.
//!
//! A task finds three sources. Its *local* state names its last transaction (number j, attempt n). The *committed*
//! offsets name the last transaction (number k) and the last commit record that it left in each changelog (m). The
//! last commit records of the *changelogs* (c) are known only after reading.
//!
//! | found | decision |
//! |---|---|
//! | j = k, same attempt, same input offsets, identity equal, log end ≥ position | [`Exact`](Restart::Exact): no record is read, whatever the size |
//! | j < k | [`Replay`](Restart::Replay) from the stored offsets. Another attempt at another number is normal: another worker had the task |
//! | an interrupted restore | [`Replay`](Restart::Replay) from its last offset |
//! | no local state | [`Rebuild`](Restart::Rebuild) |
//! | another attempt at j = k; j > k; commit records that the committed offsets don't name; other identity; damaged | [`Rebuild`](Restart::Rebuild), with a warning |
//! | j < k or interrupted, and older than half of `delete.retention.ms`, or its offset below the log start | [`Rebuild`](Restart::Rebuild), with a warning; for windows only if the copy holds one that is not expired |
//! | no offsets, or without our name; no state in any place | [`First`](Restart::First), or [`FirstIfEmpty`](Restart::FirstIfEmpty) once the changelog was read |
//! | no offsets, but state | stop: [`OffsetGone`](RestartError::OffsetGone) |
//! | offsets without our name, but state | stop: [`OffsetReset`](RestartError::OffsetReset) |
//! | a changelog that held a commit record was deleted and created again | stop: [`ChangelogRecreated`](RestartError::ChangelogRecreated), before any change |
//! | a rebuild, and the front of the changelog of plain stores was deleted | stop: [`ChangelogPurged`](RestartError::ChangelogPurged) |
//! | log end < position | stop: [`ChangelogShorter`](RestartError::ChangelogShorter) |
//! | j = k, same attempt, other input offsets | stop: [`OffsetsMoved`](RestartError::OffsetsMoved) |
//! | the input was deleted and created again, and j = k: the offsets belong to the old topic | stop: [`InputRecreated`](RestartError::InputRecreated) |
//! | other number of partitions | stop: [`PartitionsChanged`](RestartError::PartitionsChanged) |
//! | local state of a newer format | stop: [`NewerState`](RestartError::NewerState) |
//! | *after reading:* c = m | the local state is complete up to k |
//! | c > m, exactly once: offsets went back behind the state, and a rebuild would double records | stop: [`OffsetsBehind`](RestartError::OffsetsBehind) |
//! | a table step that follows rows is new, and there are rows | stop: [`AddedLate`](RestartError::AddedLate) |
//! | c < m: the changelog lost data | stop: [`ChangelogLost`](RestartError::ChangelogLost) |
//!
//! **At least once**, changelog and offsets do not commit together. The changelog is acknowledged before the offsets
//! commit, so after a crash it may be ahead: c > m is then no error, and some records count twice. State behind the
//! offsets would have lost records. So c < m stays an error, and a restore leaves out records that arrived late:
//! records of an attempt after records of a newer one ([`Restore::took`](super::Restore::took)). An interrupted restore
//! begins again, because it does not know the newest attempt that it has read.
//!
//! The first part is [`decide`], the part after reading is [`Restore::finish`](super::Restore::finish).
//!
//! **Age.** A tombstone disappears `delete.retention.ms` after the cleaner first saw it. A copy that was away for
//! longer would keep these keys forever. Half of that time is the margin for wrong clocks, in either direction: a
//! position from the future is as suspect as an old one.

//!
//! **Expired windows.** The changelog of windowed stores is trimmed below its oldest live window, so a copy that was
//! away for a while finds its offset below the log start. If all its windows are expired, the copy does not need the
//! missed records: expired windows are never read, and are deleted with the next commit. Then the rest of the
//! changelog is read on top of the copy, as in a rebuild. A single live window needs the deleted records, which may
//! be a later value or a deletion. (Our own trimming leaves a copy no live window: it reaches the copy's offset only
//! once stream time is a retention beyond the copy's.)

mod error;
mod kind;
mod situation;
mod why;

use std::time::Duration;

pub use error::{AddedStep, Evidence, RestartError};
pub use kind::RestoreKind;
pub use situation::{Bounds, Local, Offsets, Situation};
pub use why::Why;

use super::{
    CommitRecord, Difference, Family, Identity, PerFamily, Position, PositionError, Standing,
};
use crate::guarantee::Guarantee;
use crate::ids::{Offset, Seq, Timestamp, TopicName, TopicPartition};
use crate::name::TransactionName;

/// The decision about local state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restart {
    /// The local state is proven exact: there is nothing to read.
    Exact,
    /// The local state is behind: read the later records.
    Replay(Reading),
    /// Delete the local state, if there is any, and read everything.
    Rebuild {
        /// The reason why it can't be used.
        why: Why,
        /// The records to read.
        reading: Reading,
    },
    /// There is no state in any place: a first start.
    First {
        /// Why foreign local state has to be deleted.
        discard: Option<Why>,
    },
    /// A first start if the changelogs hold no committed record (an aborted transaction may have left records there).
    /// If they do, [`Restore`](super::Restore) returns the error.
    FirstIfEmpty {
        /// Why foreign local state has to be deleted.
        discard: Option<Why>,
        /// The records to read.
        reading: Reading,
    },
}

impl Restart {
    /// Its row in the table above, for logs: `exact`, `replay`, `first`, `first_if_empty`, or the reason why local
    /// state can't be used.
    #[must_use]
    pub const fn row(&self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Replay(_) => "replay",
            Self::Rebuild { why, .. } => why.row(),
            Self::First { .. } => "first",
            Self::FirstIfEmpty { .. } => "first_if_empty",
        }
    }
}

/// The records to read from the changelogs, and the expected result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// Each changelog's part.
    pub parts: PerFamily<Option<Part>>,
    /// The time up to which every deletion is in the local state or in the records to read.
    pub since: Timestamp,
    /// The time when the offsets were read, by this host's clock.
    pub now: Timestamp,
    pub(super) identity: Identity,
    pub(super) guarantee: Guarantee,
    pub(super) group: String,
    /// The attempt whose state the local copy has.
    pub(super) newest: Option<CommitRecord>,
    pub(super) expect: Expect,
}

/// The records to read from one changelog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The partition as the broker reports it.
    pub bounds: Bounds,
    /// The first offset to read.
    pub from: Offset,
    /// The last commit record that the local state holds.
    pub seen: Option<Seq>,
}

/// The expected result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expect {
    /// The state of this transaction.
    Named {
        name: TransactionName,
        inputs: Vec<(TopicPartition, Offset)>,
    },
    /// Nothing: there are no offsets of ours. Each error is the one for a committed record in that changelog.
    Nothing(PerFamily<Option<RestartError>>),
}

/// Decides a restart from the situation. See the table above.
///
/// # Errors
/// [`RestartError`] if every possible state would lose or double records.
pub fn decide(about: &Situation<'_>) -> Result<Restart, RestartError> {
    match about.offsets {
        Offsets::Named { name, at } => about.named(name, at),
        Offsets::Unnamed { .. } | Offsets::Missing { .. } => about.unnamed(),
    }
}

impl Situation<'_> {
    fn unnamed(&self) -> Result<Restart, RestartError> {
        let discard = match self.local {
            Local::Nothing => None,
            Local::Position(found) => match found.identity.difference(self.identity) {
                // The local state has no relation to these offsets.
                Some(difference) if difference.is_foreign() => Some(Why::Identity(difference)),
                _ => return Err(self.no_name(Evidence::local(&found.standing))),
            },
            Local::Unreadable(_) => return Err(self.no_name(Evidence::Local { seq: None })),
        };
        if self
            .changelogs
            .iter()
            .all(|(_, log)| log.as_ref().is_none_or(Bounds::is_empty))
        {
            return Ok(Restart::First { discard });
        }
        let errors = PerFamily::from_fn(|family| {
            let log = self.changelogs.get(family).as_ref()?;
            let changelog = self.partition_of(log);
            Some(self.no_name(Evidence::Changelog { changelog }))
        });
        let reading = self.reading(Expect::Nothing(errors), None);
        Ok(Restart::FirstIfEmpty { discard, reading })
    }

    fn no_name(&self, state: Evidence) -> RestartError {
        let (task, group) = (self.identity.task, self.group.to_owned());
        match self.offsets {
            Offsets::Missing { partition } => RestartError::OffsetGone {
                task,
                group,
                partition: partition.clone(),
                state,
            },
            Offsets::Unnamed {
                partition,
                metadata,
            } => RestartError::OffsetReset {
                task,
                group,
                partition: partition.clone(),
                metadata: metadata.into(),
                state,
                changelogs: self.changelog_names(),
            },
            Offsets::Named { .. } => RestartError::OffsetsMoved { task, group },
        }
    }

    fn named(
        &self,
        name: &TransactionName,
        at: &[(TopicPartition, Offset)],
    ) -> Result<Restart, RestartError> {
        let task = self.identity.task;
        if name.width != self.width {
            return Err(RestartError::PartitionsChanged {
                task,
                topic: None,
                found: name.width,
                now: self.width,
            });
        }
        self.check_changelogs(name)?;
        let expect = || Expect::Named {
            name: name.clone(),
            inputs: at.to_vec(),
        };
        let rebuild = |why| {
            self.check_front()?;
            let reading = self.reading(expect(), None);
            Ok(Restart::Rebuild { why, reading })
        };
        let found = match self.local {
            Local::Nothing => return rebuild(Why::NoState),
            Local::Unreadable(source @ PositionError::Newer { .. }) => {
                let source = source.clone();
                return Err(RestartError::NewerState { task, source });
            }
            Local::Unreadable(source) => return rebuild(Why::Damaged(source.clone())),
            Local::Position(found) => found,
        };
        if let Some(difference) = found.identity.difference(self.identity) {
            self.check_inputs(&difference, &found.standing, name, at)?;
            return rebuild(Why::Identity(difference));
        }
        for (family, log) in self.changelogs.iter() {
            if let (Some(log), Some(position)) = (log, *found.changelogs.get(family))
                && log.end < position
            {
                return Err(RestartError::ChangelogShorter {
                    task,
                    changelog: self.partition_of(log),
                    position,
                    end: log.end,
                });
            }
        }
        if let Standing::At {
            seq,
            nonce,
            inputs,
            commit_records,
            ..
        } = &found.standing
        {
            if *seq == name.seq && *nonce == name.nonce {
                return if same_offsets(inputs, at) {
                    Ok(Restart::Exact)
                } else {
                    let group = self.group.to_owned();
                    Err(RestartError::OffsetsMoved { task, group })
                };
            }
            if let Some(why) = Why::of_another_history(*seq, commit_records, name) {
                return rebuild(why);
            }
        }
        if matches!(found.standing, Standing::Restoring { .. })
            && self.guarantee == Guarantee::AtLeastOnce
        {
            return rebuild(Why::Interrupted);
        }
        let reading = self.reading(expect(), Some(found));
        match self.too_late_for(&reading, found) {
            Some(why) => rebuild(why),
            None => Ok(Restart::Replay(reading)),
        }
    }

    /// Fails if this difference means that the offsets themselves are not valid.
    fn check_inputs(
        &self,
        difference: &Difference,
        standing: &Standing,
        name: &TransactionName,
        at: &[(TopicPartition, Offset)],
    ) -> Result<(), RestartError> {
        let task = self.identity.task;
        let is_input = |topic: &TopicName| at.iter().any(|(input, _)| input.topic == *topic);
        match difference {
            Difference::Partitions { topic, found, now } if is_input(topic) => {
                Err(RestartError::PartitionsChanged {
                    task,
                    topic: Some(topic.clone()),
                    found: *found,
                    now: *now,
                })
            }
            // These very offsets were committed for the old topic.
            Difference::Recreated { topic, found, now }
                if is_input(topic) && standing.is_at(name) =>
            {
                Err(RestartError::InputRecreated {
                    task,
                    topic: topic.clone(),
                    found: *found,
                    now: *now,
                })
            }
            _ => Ok(()),
        }
    }

    /// Checks that the changelogs are the topics that hold the last transaction's commit records. A changelog that
    /// was created again may end with the right commit record, but lack all earlier ones: c = m proves only the end.
    fn check_changelogs(&self, name: &TransactionName) -> Result<(), RestartError> {
        for (family, log) in self.changelogs.iter() {
            let (Some(log), Some(seq)) = (log, *name.commit_records().get(family)) else {
                continue;
            };
            let Some(now) = self.identity.topic(&log.topic).map(|topic| topic.id) else {
                continue;
            };
            let found = match (name.topics.get(family), self.local) {
                (Some(named), _) => Some(*named),
                // Format 1 names no topics, but the local copy of the state does.
                (None, Local::Position(copy)) => match copy.identity.difference(self.identity) {
                    Some(Difference::Recreated { topic, found, .. }) if topic == log.topic => {
                        found.digest()
                    }
                    _ => None,
                },
                (None, _) => None,
            };
            let is_other = found
                .zip(now.digest())
                .is_some_and(|(found, now)| found != now);
            if is_other && !self.accepted.contains(&now.to_string()) {
                return Err(RestartError::ChangelogRecreated {
                    task: self.identity.task,
                    changelog: self.partition_of(log),
                    seq,
                    now,
                });
            }
        }
        Ok(())
    }

    /// Fails if the changelog of plain stores does not begin at offset 0. Compaction does not move the beginning, so
    /// records were deleted. A key that was written only there is in no copy made from the rest. (The changelog of
    /// windowed stores is trimmed below its oldest live window.)
    fn check_front(&self) -> Result<(), RestartError> {
        match &self.changelogs.plain {
            Some(log) if log.start > Offset::ZERO => Err(RestartError::ChangelogPurged {
                task: self.identity.task,
                changelog: self.partition_of(log),
                start: log.start,
            }),
            _ => Ok(()),
        }
    }

    /// Returns the reason why records that the copy misses may no longer be in the changelog.
    fn too_late_for(&self, reading: &Reading, found: &Position) -> Option<Why> {
        for (family, part) in reading.parts.iter() {
            let Some(part) = part else { continue };
            let position = found.changelogs.get(family).unwrap_or_default();
            // Its owner has since trimmed only expired windows, and all of the copy's are expired, too.
            let trimmed = family == Family::Windowed && self.windows_over;
            if position < part.bounds.start && !trimmed {
                return Some(Why::Trimmed {
                    changelog: self.partition_of(&part.bounds),
                    position,
                    start: part.bounds.start,
                });
            }
            let age = Duration::from_millis(self.now.0.abs_diff(reading.since.0));
            let limit = part.bounds.delete_retention / 2;
            // With nothing to read, no record can be missing.
            if part.from < part.bounds.end && age > limit {
                let changelog = self.partition_of(&part.bounds);
                return Some(Why::TooOld {
                    changelog,
                    age,
                    limit,
                });
            }
        }
        None
    }

    /// The records to read: those after `found`, or all.
    fn reading(&self, expect: Expect, found: Option<&Position>) -> Reading {
        let (since, seen) = match found.map(|found| &found.standing) {
            None => (self.now, PerFamily::default()),
            Some(Standing::Restoring { since, seen }) => (*since, *seen),
            Some(Standing::At {
                wall_time,
                commit_records,
                ..
            }) => (*wall_time, *commit_records),
        };
        let parts = PerFamily::from_fn(|family| {
            let bounds = self.changelogs.get(family).clone()?;
            let stored = found.and_then(|found| *found.changelogs.get(family));
            Some(Part {
                from: stored.unwrap_or_default().max(bounds.start),
                seen: *seen.get(family),
                bounds,
            })
        });
        Reading {
            parts,
            since,
            now: self.now,
            identity: self.identity.clone(),
            guarantee: self.guarantee,
            group: self.group.to_owned(),
            newest: match found.map(|found| &found.standing) {
                Some(Standing::At { seq, nonce, .. }) => Some(CommitRecord {
                    seq: *seq,
                    nonce: *nonce,
                }),
                _ => None,
            },
            expect,
        }
    }

    fn partition_of(&self, log: &Bounds) -> TopicPartition {
        TopicPartition::new(log.topic.clone(), self.identity.task.partition)
    }

    fn changelog_names(&self) -> Box<[TopicName]> {
        let names = self.changelogs.iter().filter_map(|(_, log)| log.as_ref());
        names.map(|log| log.topic.clone()).collect()
    }
}

impl Standing {
    /// Returns whether the state is exactly that after this transaction.
    #[must_use]
    pub fn is_at(&self, name: &TransactionName) -> bool {
        matches!(self, Self::At { seq, nonce, .. } if (*seq, *nonce) == (name.seq, name.nonce))
    }
}

fn same_offsets(one: &[(TopicPartition, Offset)], other: &[(TopicPartition, Offset)]) -> bool {
    one.len() == other.len() && one.iter().all(|input| other.contains(input))
}

#[cfg(test)]
#[path = "restart_test.rs"]
pub(super) mod tests;

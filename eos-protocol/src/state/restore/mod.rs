//! The restore of a task's state from its changelogs.
//!
//! ```text
//! offsets, stable ─→ ends, read_uncommitted ─→ decide ─→ read_committed from each start
//!    ─→ every changelog arrived ─→ c = m in each ─→ seq and nonce, written once
//! ```
//!
//! A changelog has *arrived* in two cases. Either the position is at the end that was queried after the stable
//! offsets. Or its named commit record is read and the reader is at the LSO. Beyond the LSO, a dead owner's open
//! transaction can't commit any more: its offsets would have had to commit before the offsets became stable. Without
//! the second case a restore waits for the transaction timeout of a dead producer. With a read_committed end the
//! restore would end too soon.

mod progress;

use std::cmp::Ordering;
use std::task::Poll;
use std::time::Duration;

pub use progress::{Progress, Stalled, StalledBy};

use super::restart::Expect;
use super::{CommitRecord, Family, Part, PerFamily, Position, Reading, RestartError, Standing};
use crate::guarantee::Guarantee;
use crate::ids::{Offset, Seq, TopicPartition};
use crate::time::Now;

/// A restore under way: its progress and its remaining records. One per task.
///
/// Pass it every record ([`took`](Self::took)) and every end of a partition ([`ended`](Self::ended)). Write batches
/// of data with its [`checkpoint`](Self::checkpoint), so that an interrupted restore resumes. Check whether it is
/// [stalled](Self::stalled) and whether it is [done](Self::finish).
#[derive(Debug, Clone)]
pub struct Restore {
    reading: Reading,
    tracks: PerFamily<Option<Track>>,
    patience: Duration,
    began: Now,
}

/// The progress in one changelog.
#[derive(Debug, Clone)]
struct Track {
    part: Part,
    position: Offset,
    seen: Option<Seq>,
    /// The newest attempt whose records were read.
    newest: Option<CommitRecord>,
    /// The number of records of older attempts that came after it.
    late: u64,
    /// The last end of committed records that the reader reached.
    lso: Option<Offset>,
    arrived: bool,
    records: u64,
    bytes: u64,
    /// The time when the position last advanced, in broker time.
    moved: Now,
}

/// The result of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restored {
    /// The state is whole: write this position with the last batch of data.
    At(Box<Position>),
    /// There was no state: a first start.
    First,
}

impl Restore {
    /// Starts a restore. If a changelog does not advance for `patience`, the restore [is stalled](Self::stalled).
    /// `brokers` is the [`BrokerTime`](crate::BrokerTime) of `now`.
    #[must_use]
    pub fn new(reading: Reading, patience: Duration, now: Now, brokers: Now) -> Self {
        let track = |part: &Part| Track {
            position: part.from,
            seen: part.seen,
            newest: reading.newest,
            late: 0,
            lso: None,
            arrived: part.from >= part.bounds.end,
            records: 0,
            bytes: 0,
            moved: brokers,
            part: part.clone(),
        };
        let tracks = PerFamily::from_fn(|family| reading.parts.get(family).as_ref().map(track));
        Self {
            reading,
            tracks,
            patience,
            began: now,
        }
    }

    /// The next offset of each changelog that has not arrived.
    pub fn wanted(&self) -> impl Iterator<Item = (Family, Offset)> {
        let tracks = self
            .tracks
            .iter()
            .filter_map(|(f, t)| Some((f, t.as_ref()?)));
        let open = tracks.filter(|(_, track)| !track.arrived);
        open.map(|(family, track)| (family, track.position))
    }

    /// Takes a committed record. Returns whether it belongs in the store. It does not if it was read before, or if it
    /// is beyond the committed offsets (another worker may own the task by now).
    ///
    /// `bytes` is its size. `commit` is its content if it is a commit record. `attempt` is the attempt that wrote it, if
    /// the record names one (at least once). `brokers` is the [`BrokerTime`](crate::BrokerTime).
    ///
    /// A record is *late* if its attempt is older than one whose records were read before. A former owner of the task
    /// sent it, or a former producer. It does not belong in the store: its value may lack records that the newer attempt
    /// has counted.
    ///
    /// # Errors
    /// If no committed record should exist, or if the record belongs to another attempt than the offsets.
    pub fn took(
        &mut self,
        family: Family,
        offset: Offset,
        bytes: usize,
        commit: Option<CommitRecord>,
        attempt: Option<CommitRecord>,
        brokers: Now,
    ) -> Result<bool, RestartError> {
        let is_new = |track: &Track| {
            !track.arrived && offset >= track.position && offset < track.part.bounds.end
        };
        if !self.tracks.get(family).as_ref().is_some_and(is_new) {
            return Ok(false);
        }
        if let Some(attempt) = attempt
            && let Some(track) = self.tracks.get_mut(family)
            && is_late(attempt, track.newest)
        {
            track.late += 1;
            track.reach(offset.next(), brokers);
            return Ok(false);
        }
        match (&self.reading.expect, commit) {
            (Expect::Nothing(errors), _) => {
                if let Some(error) = errors.get(family) {
                    return Err(error.clone());
                }
            }
            (Expect::Named { name, .. }, Some(found))
                if found.seq == name.seq && found.nonce != name.nonce =>
            {
                return Err(RestartError::OtherHistory {
                    task: self.reading.identity.task,
                    changelog: self.changelog(family),
                    seq: found.seq,
                    found: found.nonce,
                    named: name.nonce,
                });
            }
            _ => {}
        }
        let Some(track) = self.tracks.get_mut(family) else {
            return Ok(false);
        };
        track.records += 1;
        track.bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
        track.seen = commit.map(|record| record.seq).or(track.seen);
        if let Some(attempt) = attempt.or(commit) {
            track.newest = Some(attempt);
        }
        track.reach(offset.next(), brokers);
        Ok(true)
    }

    /// The number of late records that were left out.
    #[must_use]
    pub fn late(&self) -> u64 {
        let tracks = self.tracks.iter();
        tracks
            .filter_map(|(_, track)| Some(track.as_ref()?.late))
            .sum()
    }

    /// At least once: whether the changelogs hold more than the committed offsets, so that some records count twice.
    #[must_use]
    pub fn is_ahead(&self) -> bool {
        (self.tracks.iter()).any(|(family, track)| {
            track
                .as_ref()
                .is_some_and(|track| track.seen > self.named(family))
        })
    }

    /// Records that a read_committed reader reached its end, the LSO (`RD_KAFKA_RESP_ERR__PARTITION_EOF`, with its
    /// offset). `brokers` is the [`BrokerTime`](crate::BrokerTime).
    pub fn ended(&mut self, family: Family, lso: Offset, brokers: Now) {
        let named = self.named(family);
        if let Some(track) = self.tracks.get_mut(family) {
            track.lso = Some(lso);
            // The records beyond the end were not taken, so the position must not pass it.
            let lso = lso.min(track.part.bounds.end);
            track.reach(lso, brokers);
            // Without a named commit record nothing shows that the reader has seen all records. A lagging
            // follower (`client.rack`) has an earlier LSO of its own.
            track.arrived |= track.position == lso && named.is_some() && track.seen >= named;
        }
    }

    /// Takes a new query of the changelog's bounds (`end` read_uncommitted). A stalled restore may wait for deleted
    /// records.
    ///
    /// # Errors
    /// If unread records were deleted.
    pub fn asked(&self, family: Family, start: Offset, end: Offset) -> Result<(), RestartError> {
        let Some(track) = self.tracks.get(family) else {
            return Ok(());
        };
        let task = self.reading.identity.task;
        let changelog = self.changelog(family);
        let position = track.position;
        if end < track.part.bounds.end {
            let position = track.part.bounds.end;
            return Err(RestartError::ChangelogShorter {
                task,
                changelog,
                position,
                end,
            });
        }
        if !track.arrived && position < start {
            return Err(RestartError::TrimmedMeanwhile {
                task,
                changelog,
                position,
                start,
            });
        }
        Ok(())
    }

    /// The position for the batches of data before the last: no number, but the offsets to resume from.
    #[must_use]
    pub fn checkpoint(&self) -> Position {
        let of = |family| self.tracks.get(family).as_ref();
        Position {
            identity: self.reading.identity.clone(),
            standing: Standing::Restoring {
                since: self.reading.since,
                seen: PerFamily::from_fn(|family| of(family)?.seen),
            },
            changelogs: self.positions(),
        }
    }

    /// Returns the result of the restore. Pending until it is done.
    ///
    /// # Errors
    /// If the changelogs' last commit records are not those that the offsets name. Before you trust that a changelog
    /// is *ahead* ([`RestartError::OffsetsBehind`]), read the stable offsets once more. If they advanced meanwhile,
    /// another worker owns the task and wrote those records.
    pub fn finish(&self, now: Now) -> Poll<Result<Restored, RestartError>> {
        if self.wanted().next().is_some() {
            return Poll::Pending;
        }
        Poll::Ready(self.verdict(now))
    }

    fn verdict(&self, now: Now) -> Result<Restored, RestartError> {
        let Some(position) = self.whole() else {
            return Ok(Restored::First);
        };
        for (family, track) in self.tracks.iter() {
            if let Some(track) = track {
                self.compare(family, track.seen)?;
                self.check_speed(family, track, now)?;
            }
        }
        Ok(Restored::At(Box::new(position)))
    }

    /// The position for the last batch of data, once every changelog arrived. In an earlier batch it would be wrong.
    /// `None` where no state should exist.
    #[must_use]
    pub fn whole(&self) -> Option<Position> {
        let Expect::Named { name, inputs } = &self.reading.expect else {
            return None;
        };
        Some(Position {
            identity: self.reading.identity.clone(),
            standing: Standing::At {
                seq: name.seq,
                nonce: name.nonce,
                inputs: inputs.clone(),
                commit_records: name.commit_records(),
                stream_time: name.stream_time,
                // The time when the state is whole, not the time of its reading: a later time would be wrong.
                wall_time: self.reading.now,
            },
            changelogs: self.positions(),
        })
    }

    /// Compares c with m.
    fn compare(&self, family: Family, found: Option<Seq>) -> Result<(), RestartError> {
        let (task, changelog) = (self.reading.identity.task, self.changelog(family));
        let named = self.named(family);
        match (found.cmp(&named), found, named) {
            (Ordering::Less, found, Some(named)) => Err(RestartError::ChangelogLost {
                task,
                changelog,
                found,
                named,
            }),
            // The changelog is acknowledged before the offsets commit.
            (Ordering::Greater, Some(_), _) if self.reading.guarantee == Guarantee::AtLeastOnce => {
                Ok(())
            }
            (Ordering::Greater, Some(found), named) => Err(RestartError::OffsetsBehind {
                task,
                group: self.reading.group.clone(),
                changelog,
                found,
                named,
            }),
            _ => Ok(()),
        }
    }

    /// Fails if deletions may have disappeared between the beginning and the end of the restore.
    fn check_speed(&self, family: Family, track: &Track, now: Now) -> Result<(), RestartError> {
        let before = self.reading.now.0.abs_diff(self.reading.since.0);
        let took = Duration::from_millis(before).saturating_add(now.since(self.began));
        let limit = track.part.bounds.delete_retention;
        if track.part.from >= track.part.bounds.end || took <= limit {
            return Ok(());
        }
        Err(RestartError::TooSlow {
            task: self.reading.identity.task,
            changelog: self.changelog(family),
            took,
            limit,
        })
    }

    fn positions(&self) -> PerFamily<Option<Offset>> {
        PerFamily::from_fn(|family| self.tracks.get(family).as_ref().map(|t| t.position))
    }

    /// The commit record that the offsets name (m).
    fn named(&self, family: Family) -> Option<Seq> {
        match &self.reading.expect {
            Expect::Named { name, .. } => *name.commit_records().get(family),
            Expect::Nothing(_) => None,
        }
    }

    fn changelog(&self, family: Family) -> TopicPartition {
        let part = self.reading.parts.get(family).as_ref();
        let topic = part.map_or_else(|| "".into(), |part| part.bounds.topic.clone());
        TopicPartition::new(topic, self.reading.identity.task.partition)
    }
}

fn is_late(attempt: CommitRecord, newest: Option<CommitRecord>) -> bool {
    newest.is_some_and(|newest| match attempt.seq.cmp(&newest.seq) {
        Ordering::Less => true,
        Ordering::Equal => attempt.nonce != newest.nonce,
        Ordering::Greater => false,
    })
}

impl Track {
    /// Notes the position of the reader. Control records and compacted records may lie before it.
    fn reach(&mut self, position: Offset, brokers: Now) {
        if position > self.position {
            self.position = position;
            self.moved = brokers;
        }
        self.arrived |= self.position >= self.part.bounds.end;
    }
}

#[cfg(test)]
#[path = "restore_test.rs"]
mod tests;

//! The progress of a restore, and the causes of a stall.

use std::time::Duration;

use super::{Restore, Track};
use crate::ids::{Offset, TaskId, TopicPartition};
use crate::state::Family;
use crate::time::Now;

/// The progress of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Records read.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Offsets still to read. Some no longer have a record, or only a transaction marker.
    pub remaining: u64,
    /// The remaining time at the current speed; `None` without a speed.
    pub eta: Option<Duration>,
}

/// A stalled restore.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "task {task}: the restore of {changelog} made no progress for {} s, at offset {position} of \
     {end}, and the state is incomplete. {by}",
    waited.as_secs()
)]
pub struct Stalled {
    /// The task.
    pub task: TaskId,
    /// The changelog's partition.
    pub changelog: TopicPartition,
    /// The next offset to read.
    pub position: Offset,
    /// The target offset.
    pub end: Offset,
    /// The time without progress.
    pub waited: Duration,
    /// The cause.
    pub by: StalledBy,
}

/// The cause of a stalled restore.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StalledBy {
    /// A transaction is open at the reader's position.
    #[error(
        "A transaction is open at offset {lso}: its producer froze or died. The broker aborts it \
         after the producer's transaction.timeout.ms. If it does not, the transaction hangs: run \
         `kafka-transactions.sh find-hanging`, then `abort`"
    )]
    OpenTransaction {
        /// The end of committed records.
        lso: Offset,
    },
    /// No records arrive, not even the end of the partition.
    #[error(
        "The broker returns neither records nor the end of the partition: is its leader reachable, \
         and may this user read the topic?"
    )]
    Silence,
}

impl Restore {
    /// The current progress.
    #[must_use]
    pub fn progress(&self, now: Now) -> Progress {
        let mut progress = Progress::default();
        let mut done = 0;
        for track in self.tracks.iter().filter_map(|(_, track)| track.as_ref()) {
            progress.records += track.records;
            progress.bytes += track.bytes;
            progress.remaining += track.remaining();
            done += between(track.part.from, track.position);
        }
        progress.eta = match progress.remaining {
            0 => Some(Duration::ZERO),
            remaining if done > 0 => {
                let elapsed = now.since(self.began).as_millis();
                let eta = elapsed * u128::from(remaining) / u128::from(done);
                u64::try_from(eta).ok().map(Duration::from_millis)
            }
            _ => None,
        };
        progress
    }

    /// Notes that the restore waits for its database, so the time until now does not count as a delay of the brokers.
    pub fn waits_for_database(&mut self, brokers: Now) {
        for family in [Family::Plain, Family::Windowed] {
            if let Some(track) = self.tracks.get_mut(family) {
                track.moved = brokers;
            }
        }
    }

    /// The changelog that has not advanced for too long, if any, and the cause. Time without brokers does not count:
    /// `brokers` is the [`BrokerTime`](crate::BrokerTime).
    #[must_use]
    pub fn stalled(&self, brokers: Now) -> Option<Stalled> {
        self.tracks.iter().find_map(|(family, track)| {
            let track = track.as_ref().filter(|track| !track.arrived)?;
            let waited = brokers.since(track.moved);
            (waited >= self.patience).then(|| Stalled {
                task: self.reading.identity.task,
                changelog: self.changelog(family),
                position: track.position,
                end: track.part.bounds.end,
                waited,
                by: match track.lso {
                    Some(lso) if lso >= track.position => StalledBy::OpenTransaction { lso },
                    _ => StalledBy::Silence,
                },
            })
        })
    }
}

impl Track {
    fn remaining(&self) -> u64 {
        if self.arrived {
            0
        } else {
            between(self.position, self.part.bounds.end)
        }
    }
}

fn between(from: Offset, to: Offset) -> u64 {
    u64::try_from(to.get().saturating_sub(from.get())).unwrap_or(0)
}

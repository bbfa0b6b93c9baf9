//! How far a restore has come, and why it does not get further.

use std::time::Duration;

use super::{Restore, Track};
use crate::ids::{Offset, TaskId, TopicPartition};
use crate::time::Now;

/// How far a restore has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Records read.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Offsets still to go. Some have no record any more, or hold one that says where a transaction
    /// ended.
    pub remaining: u64,
    /// How long that takes at the speed so far; `None` as long as there is none.
    pub eta: Option<Duration>,
}

/// A restore that does not get further.
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
    /// Up to where it has to be read.
    pub end: Offset,
    /// For how long nothing moved.
    pub waited: Duration,
    /// Why.
    pub by: StalledBy,
}

/// Why a restore does not get further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StalledBy {
    /// A transaction is open where the reader stands.
    #[error(
        "A transaction is open at offset {lso}: its producer froze or died. The broker aborts it \
         after the producer's transaction.timeout.ms. If it does not, the transaction hangs: run \
         `kafka-transactions.sh find-hanging`, then `abort`"
    )]
    OpenTransaction {
        /// Where committed records end.
        lso: Offset,
    },
    /// Nothing comes, not even the end.
    #[error(
        "The broker sends neither records nor an end: is the partition's leader reachable, and may \
         this user read the topic?"
    )]
    Silence,
}

impl Restore {
    /// How far it has come.
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

    /// The changelog that has not advanced for too long, if any, and the cause. Time without brokers does not
    /// count: `brokers` is the [`BrokerTime`](crate::BrokerTime).
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

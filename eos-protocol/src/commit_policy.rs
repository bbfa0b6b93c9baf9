//! When an open transaction is committed.

use std::time::Duration;

use crate::time::Now;

/// Why a transaction is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CommitCause {
    /// It has been open for as long as it should be: `commit.interval.ms` at most.
    Interval,
    /// It holds as many records as one transaction may.
    Records,
    /// Its outputs are as large as one transaction's may be.
    Bytes,
    /// A start offset that the first-start policy resolved is committed before the first record.
    FirstStart,
    /// The offsets of idle tasks are committed again, before the broker forgets them.
    Idle,
    /// Partitions are about to go to another worker.
    Revoke,
    /// The worker stops.
    Shutdown,
    /// A record failed: what came before it is kept.
    RecordFailed,
    /// A record took so long that the transaction might not outlive it: what came before it is
    /// committed, and its effects go into the next one.
    Slow,
    /// The state of a task is whole or about to be read, or a task rewinds to its last commit. Its partitions
    /// can be assigned only while no transaction is open.
    Restore,
}

impl CommitCause {
    /// All causes, in the order of their declaration.
    pub const ALL: [Self; 10] = [
        Self::Interval,
        Self::Records,
        Self::Bytes,
        Self::FirstStart,
        Self::Idle,
        Self::Revoke,
        Self::Shutdown,
        Self::RecordFailed,
        Self::Slow,
        Self::Restore,
    ];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interval => "interval",
            Self::Records => "records",
            Self::Bytes => "bytes",
            Self::FirstStart => "first_start",
            Self::Idle => "idle",
            Self::Revoke => "revoke",
            Self::Shutdown => "shutdown",
            Self::RecordFailed => "record_failed",
            Self::Slow => "slow",
            Self::Restore => "restore",
        }
    }
}

/// How the time between two commits is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// It is the interval.
    Fixed,
    /// As short as its cost allows: readers see results soon while there is little to do, and a
    /// worker under load commits rarely. [`CommitPacer`](crate::CommitPacer) finds it.
    Adaptive {
        /// The shortest time.
        least: Duration,
        /// How much of the worker's time commits may cost, in per cent.
        percent: u32,
        /// How many partitions commits may touch per second, all commits together: each is a
        /// record or two on the broker.
        partitions_per_second: u32,
    },
}

impl Default for Pace {
    fn default() -> Self {
        Self::Adaptive {
            least: Duration::from_millis(10),
            percent: 10,
            partitions_per_second: 2000,
        }
    }
}

/// The limits of one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitPolicy {
    /// How long a transaction stays open at most (`commit.interval.ms`).
    pub interval: Duration,
    /// Whether it may be committed sooner.
    pub pace: Pace,
    /// How many records it takes at most.
    pub max_records: u64,
    /// How many bytes of outputs it takes at most; bounds the producer's queue.
    pub max_bytes: u64,
}

impl Default for CommitPolicy {
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(100),
            pace: Pace::default(),
            max_records: 1_000_000,
            max_bytes: 128 << 20,
        }
    }
}

/// What an open transaction holds so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// When it began.
    pub since: Now,
    /// How many records were consumed in it.
    pub records: u64,
    /// How many bytes of outputs it holds.
    pub bytes: u64,
}

impl CommitPolicy {
    /// Whether to commit now, and why. It takes the interval as it is: a worker with an adaptive
    /// pace asks [`CommitPacer::policy`](crate::CommitPacer::policy).
    #[must_use]
    pub fn due(&self, now: Now, load: &Load) -> Option<CommitCause> {
        if load.bytes >= self.max_bytes {
            Some(CommitCause::Bytes)
        } else if load.records >= self.max_records {
            Some(CommitCause::Records)
        } else if now.since(load.since) >= self.interval {
            Some(CommitCause::Interval)
        } else {
            None
        }
    }

    /// How long an idle worker may wait before the open transaction is due.
    #[must_use]
    pub fn wait(&self, now: Now, load: &Load) -> Duration {
        self.interval.saturating_sub(now.since(load.since))
    }
}

/// Whether a record that is finished may join the open transaction. If not, the transaction is
/// committed first ([`CommitCause::Slow`]), and the record's effects go into the next one: a slow
/// record must not cost the records before it an abort.
///
/// `load` is the transaction as it was before the record. It has to live until its commit is
/// through, `commit_deadline` from now at the latest; the coordinator aborts it
/// `transaction_timeout` after it began (`transaction.timeout.ms`). An empty one takes anything:
/// the coordinator counts from the first partition that it is told of, and none was sent.
#[must_use]
pub fn may_join(
    now: Now,
    load: &Load,
    transaction_timeout: Duration,
    commit_deadline: Duration,
) -> bool {
    load.records == 0 || now.since(load.since).saturating_add(commit_deadline) < transaction_timeout
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now(Duration::from_millis(ms))
    }

    #[test]
    fn the_first_limit_that_is_met_commits() {
        let policy = CommitPolicy {
            interval: Duration::from_millis(100),
            pace: Pace::Fixed,
            max_records: 10,
            max_bytes: 1000,
        };
        let load = |records, bytes| Load {
            since: at(50),
            records,
            bytes,
        };
        assert_eq!(policy.due(at(149), &load(9, 999)), None);
        assert_eq!(
            policy.due(at(150), &load(0, 0)),
            Some(CommitCause::Interval)
        );
        assert_eq!(policy.due(at(50), &load(10, 0)), Some(CommitCause::Records));
        assert_eq!(
            policy.due(at(150), &load(10, 1000)),
            Some(CommitCause::Bytes)
        );
        assert_eq!(policy.wait(at(120), &load(0, 0)), Duration::from_millis(30));
        assert_eq!(policy.wait(at(999), &load(0, 0)), Duration::ZERO);
    }

    #[test]
    fn a_slow_record_does_not_take_the_records_before_it_along() {
        let load = |records| Load {
            since: at(1000),
            records,
            bytes: 0,
        };
        let join = |now, records| {
            may_join(
                at(now),
                &load(records),
                Duration::from_secs(30),
                Duration::from_secs(10),
            )
        };
        assert!(join(1000, 1));
        assert!(join(11_000, 1), "a record of ten seconds passes");
        assert!(join(20_999, 1));
        assert!(!join(21_000, 1), "its commit could end too late");
        assert!(!join(99_000, 1));
        assert!(join(99_000, 0), "there is nothing to abort");
    }
}

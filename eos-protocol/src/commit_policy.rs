//! The conditions under which an open transaction is committed.

use std::time::Duration;

use crate::time::Now;

/// The reason for a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CommitCause {
    /// It has reached the commit interval, `commit.interval.ms` at most.
    Interval,
    /// It holds the maximum number of records.
    Records,
    /// Its outputs have reached the maximum size.
    Bytes,
    /// A start offset that the first-start policy resolved is committed before the first record.
    FirstStart,
    /// The offsets of idle tasks are committed again, before the broker forgets them.
    Idle,
    /// Partitions are about to go to another worker.
    Revoke,
    /// The worker is stopping.
    Shutdown,
    /// A record failed: the records before it are kept.
    RecordFailed,
    /// A record took so long that the transaction might time out before its commit. The records before it are
    /// committed, and its effects go into the next transaction.
    Slow,
    /// The state of a task is whole or is about to be read, or a task rewinds to its last commit. The worker can
    /// assign its partitions only while no transaction is open.
    Restore,
    /// At most once: all claimed records are processed, and more are fetched.
    Claim,
}

impl CommitCause {
    /// All causes, in the order of their declaration.
    pub const ALL: [Self; 11] = [
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
        Self::Claim,
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
            Self::Claim => "claim",
        }
    }
}

/// The choice of the time between two commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// The time is the configured interval.
    Fixed,
    /// The time is as short as the cost of commits allows. Readers see results soon while the load is low, and a
    /// worker under load commits rarely. [`CommitPacer`](crate::CommitPacer) computes the time.
    Adaptive {
        /// The shortest time.
        least: Duration,
        /// The maximum share of the worker's time that commits may cost, in per cent.
        percent: u32,
        /// The maximum number of partitions that all commits together may touch per second. Each partition costs one or
        /// two records on the broker.
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
    /// The maximum time that a transaction stays open (`commit.interval.ms`).
    pub interval: Duration,
    /// The choice of the interval within that maximum.
    pub pace: Pace,
    /// The maximum number of records.
    pub max_records: u64,
    /// The maximum size of outputs, in bytes. It bounds the producer's queue.
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

/// The content of an open transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// The beginning of the transaction.
    pub since: Now,
    /// The number of records consumed.
    pub records: u64,
    /// The bytes of outputs.
    pub bytes: u64,
}

impl CommitPolicy {
    /// Whether to commit now, and why. Uses the configured interval: a worker with an adaptive pace uses
    /// [`CommitPacer::policy`](crate::CommitPacer::policy).
    #[must_use]
    #[inline]
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

    /// Returns the time that an idle worker may wait before the open transaction is due.
    #[must_use]
    pub fn wait(&self, now: Now, load: &Load) -> Duration {
        self.interval.saturating_sub(now.since(load.since))
    }
}

/// Returns whether a finished record may join the open transaction. If not, the worker commits the transaction first
/// ([`CommitCause::Slow`]), and the record's effects go into the next one. A slow record must not cause an abort for
/// the records before it.
///
/// `load` is the transaction before the record. The transaction has to live until its commit ends, at
/// `commit_deadline` from now at the latest. The coordinator aborts it `transaction_timeout` after its begin
/// (`transaction.timeout.ms`). An empty transaction accepts any record: the coordinator starts its timer at the first
/// partition, and none was sent.
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

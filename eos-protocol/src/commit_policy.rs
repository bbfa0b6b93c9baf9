//! When an open transaction is committed.

use std::time::Duration;

use crate::time::Now;

/// Why a transaction is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CommitCause {
    /// `commit.interval.ms` has passed since it began.
    Interval,
    /// It holds as many records as one transaction may.
    Records,
    /// Its outputs are as large as one transaction's may be.
    Bytes,
    /// A start offset that the first-start policy resolved is committed before the first record.
    FirstStart,
    /// Partitions are about to go to another worker.
    Revoke,
    /// The worker stops.
    Shutdown,
    /// A record failed: what came before it is kept.
    RecordFailed,
}

/// The limits of one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitPolicy {
    /// How long a transaction stays open at most (`commit.interval.ms`).
    pub interval: Duration,
    /// How many records it takes at most.
    pub max_records: u64,
    /// How many bytes of outputs it takes at most; bounds the producer's queue.
    pub max_bytes: u64,
}

impl Default for CommitPolicy {
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(100),
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
    /// Whether to commit now, and why.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_limit_that_is_met_commits() {
        let policy = CommitPolicy {
            interval: Duration::from_millis(100),
            max_records: 10,
            max_bytes: 1000,
        };
        let at = |ms| Now(Duration::from_millis(ms));
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
}

//! The number of records in a transaction whose commit takes long.
//!
//! Some commits take longer with each record: a ledger that runs refused rows again, or that waits for rows which other
//! workers lock. If such a commit exceeds its deadline, the same records exceed it again. So the next transactions have
//! fewer records, in proportion to the time, and grow again while their commits are short.

use std::time::Duration;

/// The limit of records per transaction, from the time of commits.
///
/// ```
/// use eos_protocol::CommitSize;
/// use std::time::Duration;
///
/// let second = Duration::from_secs(1);
/// let mut size = CommitSize::new(second);
/// assert_eq!(size.limit(), None);
/// size.given_up(12_000, 8 * second, false);
/// assert_eq!(size.limit(), Some(1_500));
/// size.committed(1_500, second / 2);
/// assert_eq!(size.limit(), Some(3_000));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitSize {
    /// A commit may take so long.
    target: Duration,
    limit: Option<u64>,
}

impl CommitSize {
    /// A limit that reaches this number is removed. Usual transactions have fewer records.
    const MOST: u64 = 1 << 20;

    /// Returns a size without a limit. A commit may take as long as `target`.
    #[must_use]
    pub fn new(target: Duration) -> Self {
        Self {
            target,
            limit: None,
        }
    }

    /// Returns the limit of records in the next transaction.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Notes a commit of this number of records.
    pub fn committed(&mut self, records: u64, took: Duration) {
        if took > self.target {
            return self.shrink(self.in_time(records, took));
        }
        // A transaction below the limit does not show whether a larger one is short.
        if let Some(limit) = self.limit.filter(|limit| records >= *limit) {
            self.limit = Some(limit.saturating_mul(2)).filter(|limit| *limit < Self::MOST);
        }
    }

    /// Records a transaction that was aborted, and the time of its commit until then. `contended` means that a lock of
    /// another worker caused the abort. Smaller transactions hold fewer locks.
    pub fn given_up(&mut self, records: u64, took: Duration, contended: bool) {
        if took > self.target {
            self.shrink(self.in_time(records, took));
        } else if contended {
            self.shrink(records / 2);
        }
    }

    /// The number of records that would have taken the target.
    fn in_time(&self, records: u64, took: Duration) -> u64 {
        let scaled = u128::from(records) * self.target.as_nanos() / took.as_nanos().max(1);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    fn shrink(&mut self, records: u64) {
        let known = self.limit.unwrap_or(u64::MAX);
        self.limit = Some(records.min(known).max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn short_commits_have_no_limit() {
        let mut size = CommitSize::new(SECOND);
        size.committed(100_000, SECOND);
        size.given_up(100_000, SECOND, false);
        assert_eq!(size.limit(), None);
    }

    /// Each record takes 1 ms: some attempts find a size that the deadline of 8 s allows.
    #[test]
    fn a_backlog_gets_through() {
        let mut size = CommitSize::new(SECOND);
        let (mut left, mut attempts) = (100_000_u64, 0);
        while left > 0 {
            attempts += 1;
            assert!(attempts < 100, "{left} left");
            let records = size.limit().unwrap_or(u64::MAX).min(left);
            let took = Duration::from_millis(records);
            if took > 8 * SECOND {
                size.given_up(records, 8 * SECOND, false);
            } else {
                left -= records;
                size.committed(records, took);
            }
        }
    }

    /// A cause that does not depend on the records must not keep transactions small.
    #[test]
    fn the_limit_ends_after_short_commits() {
        let mut size = CommitSize::new(SECOND);
        for _ in 0..10 {
            size.given_up(10_000, 60 * SECOND, false);
        }
        assert!(size.limit() < Some(1_000));
        for _ in 0..30 {
            let records = size.limit().unwrap_or(CommitSize::MOST);
            size.committed(records, SECOND / 100);
        }
        assert_eq!(size.limit(), None);
    }

    #[test]
    fn a_transaction_below_the_limit_keeps_it() {
        let mut size = CommitSize::new(SECOND);
        size.given_up(1_000, 2 * SECOND, false);
        size.committed(10, SECOND / 100);
        assert_eq!(size.limit(), Some(500));
    }

    #[test]
    fn contention_halves_down_to_one_record() {
        let mut size = CommitSize::new(SECOND);
        for _ in 0..5 {
            let records = size.limit().unwrap_or(8);
            size.given_up(records, Duration::ZERO, true);
        }
        assert_eq!(size.limit(), Some(1));
    }
}

//! The start time of a producer's next transaction.
//!
//! The coordinator responds to EndTxn once its decision is in its log. Later it writes the markers in the partitions
//! and the log entry that completes the transaction. Until then it refuses an AddPartitionsToTxn with
//! CONCURRENT_TRANSACTIONS, and librdkafka retries only after 20 ms (`rd_kafka_txn_handle_AddPartitionsToTxn`).
//! During that time no record of the transaction leaves the client. A transaction that begins a little later is
//! therefore faster (docs/design/0029).

use std::time::Duration;

/// Upper bound of the wait. While librdkafka waits, the worker still takes records, and only their outputs wait.
/// While a worker waits, it does no work.
const AT_MOST: Duration = Duration::from_millis(10);

/// The time until the markers of a commit that took `commit` should be written, as far as a client can estimate. The
/// response to EndTxn comes after one replicated write. The markers have to reach the brokers and replicate, and so
/// does the completion: three times as long. Returns zero if that wait is too long: a part of it would cost both the
/// wait and the refusal.
#[must_use]
pub fn until_markers_are_written(commit: Duration) -> Duration {
    let wait = commit.saturating_mul(3);
    if wait > AT_MOST { Duration::ZERO } else { wait }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_takes_three_times_as_long_and_is_waited_for_in_whole_or_not_at_all() {
        let us = Duration::from_micros;
        assert_eq!(until_markers_are_written(us(0)), us(0));
        assert_eq!(until_markers_are_written(us(900)), us(2_700));
        assert_eq!(until_markers_are_written(us(3_333)), us(9_999));
        assert_eq!(until_markers_are_written(us(3_334)), us(0));
        assert_eq!(until_markers_are_written(Duration::MAX), us(0));
    }
}

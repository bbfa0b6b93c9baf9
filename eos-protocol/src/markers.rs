//! When the next transaction of a producer may touch its first partition.
//!
//! The coordinator answers EndTxn once its decision is in its log. The markers in the partitions, and the
//! line that completes the transaction, are written after that. An AddPartitionsToTxn that comes before
//! them is refused with CONCURRENT_TRANSACTIONS, and librdkafka repeats it only after 20 ms
//! (`rd_kafka_txn_handle_AddPartitionsToTxn`): as long nothing of the transaction leaves the client. So
//! who begins a little later is sooner (docs/design/0029).

use std::time::Duration;

/// Upper bound of the wait. While librdkafka waits, records are taken all the same, and only what they
/// write stands; while a worker waits, nothing is done.
const AT_MOST: Duration = Duration::from_millis(10);

/// How long after a commit that took `commit` its markers should be written, as far as a client can
/// tell. EndTxn is answered after one write that is replicated. The markers have to reach the brokers and are
/// replicated there, and then the completion is: three times as long. Where that is too long to wait for, zero:
/// to wait for a part of it would cost the wait and the refusal.
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

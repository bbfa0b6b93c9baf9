//! When the next transaction of a producer may touch its first partition.
//!
//! The coordinator answers EndTxn once its decision is in its log. The markers in the partitions, and the
//! line that completes the transaction, are written after that. An AddPartitionsToTxn that comes before
//! them is refused with CONCURRENT_TRANSACTIONS, and librdkafka repeats it only after 20 ms
//! (`rd_kafka_txn_handle_AddPartitionsToTxn`): as long nothing of the transaction leaves the client. So
//! who begins a little later is sooner (docs/design/0029).

use std::time::Duration;

/// More than this is never waited: half of what it saves.
const AT_MOST: Duration = Duration::from_millis(10);

/// How long after a commit that took `commit` its markers should be written, as far as a client can
/// tell. EndTxn is answered after one write that is replicated. The markers have to reach the brokers and are
/// replicated there, and then the completion is: three times as long.
#[must_use]
pub fn until_markers_are_written(commit: Duration) -> Duration {
    commit.saturating_mul(3).min(AT_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_takes_three_times_as_long_and_nobody_waits_for_what_it_saves() {
        let ms = Duration::from_millis;
        assert_eq!(until_markers_are_written(ms(0)), ms(0));
        assert_eq!(until_markers_are_written(ms(2)), ms(6));
        assert_eq!(until_markers_are_written(ms(4)), ms(10));
        assert_eq!(until_markers_are_written(Duration::MAX), ms(10));
    }
}

//! Records that wait for their turn.

mod held;
mod numbers;
mod totals;

pub use held::{Held, HeldError};
pub use numbers::{Arrival, Turn, TurnError};
pub use totals::{Waiting, WaitingError};

use crate::ids::Timestamp;

/// The largest number of bytes of a task's waiting records.
pub const MOST_WAITING: u64 = 64 << 20;

/// Returns whether a record comes too late to be put in order: later records may already have been forwarded.
///
/// Records wait until they are `within` milliseconds behind stream time. So no forwarded record is later than
/// `stream_time - within`. A record at exactly this time is still in order.
#[must_use]
pub const fn is_too_late(time: Timestamp, within: i64, stream_time: Timestamp) -> bool {
    time.0.saturating_add(within) < stream_time.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_at_the_end_of_the_wait_is_in_order() {
        for (time, late) in [(9, true), (10, false), (11, false)] {
            assert_eq!(
                is_too_late(Timestamp(time), 5, Timestamp(15)),
                late,
                "{time}"
            );
        }
        assert!(!is_too_late(
            Timestamp(i64::MAX),
            i64::MAX,
            Timestamp(i64::MAX)
        ));
    }
}

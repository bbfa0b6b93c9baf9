//! The time of day.

use std::time::{SystemTime, UNIX_EPOCH};

use eos_protocol::Timestamp;

/// Returns the time of day. It is for times that outlive the process or compare with record timestamps, such as stamps
/// of positions on disk, wall-clock timers, and the end of a replay. Timeouts and intervals use the monotonic clock.
pub(crate) fn time_of_day() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let ms = since.map_or(0, |since| since.as_millis());
    Timestamp(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// Returns the time of day in the type of file times, for the age of files.
#[cfg(feature = "rocksdb")]
pub(super) fn time_of_files() -> SystemTime {
    SystemTime::now()
}

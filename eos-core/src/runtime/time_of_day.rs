//! The time of day.

use std::time::{SystemTime, UNIX_EPOCH};

use eos_protocol::Timestamp;

/// Returns the time of day. It stamps positions on disk and ends the replay of dead letters, which have times. Files have
/// their own times. All other code uses the monotonic clock.
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

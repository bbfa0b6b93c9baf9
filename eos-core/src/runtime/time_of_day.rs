//! The time of day.

use std::time::{SystemTime, UNIX_EPOCH};

use eos_protocol::Timestamp;

/// Only positions on disk are stamped with it, and files have their times; everything else goes by the
/// monotonic clock.
pub(super) fn time_of_day() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let ms = since.map_or(0, |since| since.as_millis());
    Timestamp(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// As files are stamped with it: to tell how old they are.
#[cfg(feature = "rocksdb")]
pub(super) fn time_of_files() -> SystemTime {
    SystemTime::now()
}

//! Warns once about timestamps far in the future.

use std::time::Duration;

use eos_protocol::{TaskId, Timestamp};

/// The default of Kafka's `message.timestamp.after.max.ms`: no correct clock is further ahead than this.
const CLOCKS_DIFFER: Duration = Duration::from_secs(3600);

/// The warnings about a task with windowed stores. Timestamps far in the future are expensive, and may come from a
/// wrong clock.
#[derive(Debug, Default)]
pub(super) struct FutureTimestamps {
    warned_of_stream_time: bool,
    warned_of_windows: bool,
}

/// A time far in the future.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Far {
    /// The lead of stream time over this host's clock. Current records are late.
    StreamTime(Duration),
    /// The lead of a window over stream time. The changelog is not trimmed for this long plus the retention.
    Window(Duration),
}

impl FutureTimestamps {
    /// Returns the due warnings: for times that are far ahead now and were not before.
    pub(super) fn look(
        &mut self,
        (stream_time, clock): (Option<Timestamp>, Timestamp),
        window: Option<Duration>,
        retention: Duration,
    ) -> impl Iterator<Item = Far> + use<> {
        let of_clock = stream_time.map_or(Duration::ZERO, |time| between(clock, time));
        let of_clock = (of_clock > CLOCKS_DIFFER).then_some(Far::StreamTime(of_clock));
        let window = window.filter(|ahead| *ahead > retention).map(Far::Window);
        let new = |warned: &mut bool, found: Option<Far>| {
            let before = std::mem::replace(warned, found.is_some());
            found.filter(|_| !before)
        };
        let due = [
            new(&mut self.warned_of_stream_time, of_clock),
            new(&mut self.warned_of_windows, window),
        ];
        due.into_iter().flatten()
    }
}

impl Far {
    pub(super) fn warn(self, app: &str, task: TaskId) {
        match self {
            Self::StreamTime(ahead) => tracing::warn!(
                app, %task, ahead_s = ahead.as_secs(),
                "stream time is far ahead of this host's clock because of a record's timestamp; all \
                 earlier windows are closed, and current records are late until the clock reaches \
                 stream time; set message.timestamp.after.max.ms of the topic, so that brokers reject \
                 such records (guide: Windows)"
            ),
            Self::Window(ahead) => tracing::warn!(
                app, %task, ahead_s = ahead.as_secs(),
                "a closure wrote a window that starts more than a retention ahead of stream time; \
                 the changelog is not trimmed until stream time is a retention after that start \
                 (guide: Windows)"
            ),
        }
    }
}

/// Returns the distance between two times, or zero if `to` is earlier.
pub(super) fn between(from: Timestamp, to: Timestamp) -> Duration {
    let ms = to.0.saturating_sub(from.0);
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    #[test]
    fn a_future_timestamp_is_logged_once_and_again_when_it_returns() {
        let mut ahead = FutureTimestamps::default();
        let mut look = |time: Option<i64>, window: Option<u64>| -> Vec<Far> {
            let times = (time.map(Timestamp), Timestamp(10 * HOUR));
            let window = window.map(Duration::from_secs);
            ahead.look(times, window, Duration::from_secs(60)).collect()
        };
        assert_eq!(look(None, None), []);
        assert_eq!(look(Some(0), Some(60)), []);
        assert_eq!(look(Some(11 * HOUR), None), [], "clocks differ");
        let (clock, window) = (
            Far::StreamTime(Duration::from_millis(3_600_001)),
            Far::Window(Duration::from_secs(61)),
        );
        assert_eq!(look(Some(11 * HOUR + 1), None), [clock]);
        assert_eq!(look(Some(12 * HOUR), Some(61)), [window]);
        assert_eq!(look(Some(12 * HOUR), Some(61)), []);
        assert_eq!(look(Some(11 * HOUR), Some(60)), []);
        assert_eq!(look(Some(11 * HOUR + 1), Some(61)), [clock, window]);
        assert_eq!(look(Some(i64::MAX), Some(u64::MAX / 1000)), []);
    }
}

//! When a store of windows forgets.

use std::time::Duration;

use super::{OtherWindows, Terms, ms};
use crate::ids::Timestamp;

/// Deleting a range has a cost, and expired windows do no harm: a store expires its windows in
/// steps of this part of its retention.
const STEPS: i64 = 8;

/// How long a store keeps its windows, in stream time.
///
/// A window that starts at `s` is kept as long as `s + retention > stream time`: with a retention of
/// its length and grace (the default, as in Kafka Streams), until it is closed. What is over is not
/// *read* any more at once; the database forgets it in steps, for which [`due`](Self::due) is asked
/// at each commit.
///
/// What is over stays over, also for a program that keeps windows for longer: see [`Terms`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    size: i64,
    retention: i64,
    step: i64,
    /// Windows that start before this were over for a program before this one.
    floor: Timestamp,
    /// Windows that start before this are gone from the database.
    forgotten: Option<Timestamp>,
}

impl Expiry {
    /// Windows of length `size` are kept this long after their start.
    #[must_use]
    pub fn new(retention: Duration, size: Duration) -> Self {
        let (retention, size) = (ms(retention), ms(size));
        Self {
            size,
            retention,
            step: (retention / STEPS).max(size).max(1),
            floor: Timestamp(i64::MIN),
            forgotten: None,
        }
    }

    /// What is to be written beside the windows.
    #[must_use]
    pub fn terms(&self) -> Terms {
        Terms {
            size: self.size,
            retention: self.retention,
            over_before: self.floor,
        }
    }

    /// The store holds windows already, that were kept on these terms up to this committed stream time.
    /// Returns whether they are other ones.
    ///
    /// # Errors
    /// [`OtherWindows`]: they are of another length.
    pub fn take_over(
        &mut self,
        found: &Terms,
        stream_time: Option<Timestamp>,
    ) -> Result<bool, OtherWindows> {
        if found.size != self.size {
            return Err(OtherWindows {
                found: found.size(),
                now: self.terms().size(),
            });
        }
        let over = over_before(found.retention, stream_time);
        self.floor = self.floor.max(found.over_before).max(over);
        Ok(found.retention != self.retention)
    }

    /// How long a window is kept after its start.
    #[must_use]
    pub fn retention(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.retention).unwrap_or(0))
    }

    /// Windows that start before this are over at this stream time. None are if there is none: no
    /// record had a time.
    #[must_use]
    pub fn over_before(&self, stream_time: Option<Timestamp>) -> Timestamp {
        over_before(self.retention, stream_time).max(self.floor)
    }

    /// Whether the window that starts here is over.
    #[must_use]
    pub fn is_over(&self, start: Timestamp, stream_time: Option<Timestamp>) -> bool {
        start < self.over_before(stream_time)
    }

    /// A transaction with this stream time is committed: which windows the database is to forget with
    /// it, by their starts, from and up to (not included); none while they are too few.
    ///
    /// What expired before the database was opened is unknown. So the first call returns everything
    /// that is over.
    #[must_use]
    pub fn due(&self, stream_time: Option<Timestamp>) -> Option<(Option<Timestamp>, Timestamp)> {
        // No window starts before 1970.
        let over = Some(self.over_before(stream_time)).filter(|over| over.0 > 0)?;
        match self.forgotten {
            Some(before) if over.0 < before.0.saturating_add(self.step) => None,
            before => Some((before, over)),
        }
    }

    /// The database has forgotten the windows that start before this.
    pub fn forgot(&mut self, before: Timestamp) {
        self.forgotten = self.forgotten.max(Some(before));
    }
}

fn over_before(retention: i64, stream_time: Option<Timestamp>) -> Timestamp {
    // `s + retention <= t` is `s < t - retention + 1`.
    let over = |time: Timestamp| time.0.saturating_sub(retention).saturating_add(1);
    Timestamp(stream_time.map_or(i64::MIN, over))
}

//! The windows in which an id counts as seen.

use std::time::Duration;

use super::{Seen, SeenKind};
use crate::ids::Timestamp;
use crate::windows::Expiry;

/// The upper limit of the default lateness.
const DEFAULT_LATENESS: Duration = Duration::from_secs(3_600);

/// The time for which an id counts as seen, and the accepted lateness of records.
///
/// Sightings are stored by bucket. A bucket is half a window of event time. A bucket and an id make a key, and the
/// value is a [`Sighting`]. Two first sightings of one id are at least a window apart, so each is in a bucket of its
/// own.
///
/// A sighting has the time of its record, and the time of the first record of its chain of repetitions. A record is a
/// duplicate if all of this is true:
///
/// - It is less than a window before the first record.
/// - It is less than a window after the sighting.
/// - It is less than `at_most` after the first record.
///
/// Without a sighting, a record that is further behind stream time than the lateness is too old, because a sighting may
/// have expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenWindow {
    window: i64,
    lateness: i64,
    /// Whether a duplicate extends the window.
    slides: bool,
    /// The longest time from the first sighting to a duplicate.
    at_most: i64,
}

/// A `SeenIds` is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SeenWindowError {
    /// The window is shorter than a millisecond.
    #[error("the window is shorter than 1 ms, the resolution of timestamps. Set at least 1 ms")]
    TooShort,
    /// The window is longer than [`SeenWindow::LONGEST`].
    #[error(
        "the window is {0:?}, longer than the maximum of {longest:?}. Set a shorter window, or use `SeenIds::for_ever`",
        longest = SeenWindow::LONGEST
    )]
    TooLong(Duration),
    /// `at_most` is shorter than the window.
    #[error(
        "the limit `at_most` ({at_most:?}) is shorter than the window ({window:?}). Set `at_most` to at least {window:?}"
    )]
    AtMost {
        /// The window.
        window: Duration,
        /// The limit.
        at_most: Duration,
    },
    /// The window is shorter than `redelivered_within`.
    #[error(
        "the window is {window:?}, but producers repeat records for {horizon:?} (`redelivered_within`). Later repetitions \
         would count as new. Set a window of at least {horizon:?}"
    )]
    Horizon {
        /// The window.
        window: Duration,
        /// The time for which producers repeat a record.
        horizon: Duration,
    },
    /// A preset has limits for its window.
    #[error(
        "the window is {window:?}, but the preset accepts {least:?} to {most:?}. Set a window between them"
    )]
    Limits {
        /// The window.
        window: Duration,
        /// The shortest window.
        least: Duration,
        /// The longest window.
        most: Duration,
    },
    /// The store counts from the time in an id, and the ids have none.
    #[error(
        "the ids have no time, which `time_embedded` counts from. Call `by_uuid_v7` or `by_ulid`, or use `SeenIds::fixed`"
    )]
    NoTimeInIds,
    /// The ids have a time, and the store does not count from it.
    #[error("`by_uuid_v7` and `by_ulid` require `SeenIds::time_embedded`. Use it, or call `by`")]
    UnusedTimeInIds,
}

impl SeenWindow {
    /// The longest window.
    pub const LONGEST: Duration = Duration::from_secs(99 * 86_400);

    /// The most buckets whose sightings decide about a record.
    pub const MOST_BUCKETS: usize = 5;

    /// A window that begins with the first sighting and never moves.
    #[must_use]
    pub fn fixed(window: Duration) -> Self {
        Self {
            window: ms(window),
            lateness: ms(window.min(DEFAULT_LATENESS)),
            slides: false,
            at_most: i64::MAX,
        }
    }

    /// A window that begins again with each sighting.
    #[must_use]
    pub fn sliding(window: Duration) -> Self {
        Self {
            slides: true,
            ..Self::fixed(window)
        }
    }

    /// Sets the longest time from the first sighting to a duplicate.
    #[must_use]
    pub fn at_most(self, at_most: Duration) -> Self {
        Self {
            at_most: ms(at_most),
            ..self
        }
    }

    /// Sets the longest accepted time by which a record is behind stream time. The default is the window, but no more than
    /// one hour.
    #[must_use]
    pub fn lateness(self, lateness: Duration) -> Self {
        Self {
            lateness: ms(lateness),
            ..self
        }
    }

    /// The kind of the window.
    #[must_use]
    pub fn kind(&self) -> SeenKind {
        match self.slides {
            true => SeenKind::Sliding,
            false => SeenKind::Fixed,
        }
    }

    /// The longest accepted time by which a record is behind stream time.
    #[must_use]
    pub fn max_lateness(&self) -> Duration {
        duration(self.lateness)
    }

    /// The length of the window.
    #[must_use]
    pub fn length(&self) -> Duration {
        duration(self.window)
    }

    /// Checks the durations. `horizon`: the time for which senders repeat a record, if it is known.
    ///
    /// # Errors
    /// [`SeenWindowError`] with the durations and the fix.
    pub fn check(&self, horizon: Option<Duration>) -> Result<(), SeenWindowError> {
        let window = self.length();
        if self.window < 1 {
            return Err(SeenWindowError::TooShort);
        }
        if window > Self::LONGEST {
            return Err(SeenWindowError::TooLong(window));
        }
        if self.slides && self.at_most < self.window {
            let at_most = duration(self.at_most);
            return Err(SeenWindowError::AtMost { window, at_most });
        }
        match horizon {
            Some(horizon) if window < horizon => Err(SeenWindowError::Horizon { window, horizon }),
            _ => Ok(()),
        }
    }

    /// Returns the time for which buckets are kept. A sighting is needed as long as a record within the lateness can be
    /// its duplicate.
    #[must_use]
    pub fn expiry(&self) -> Expiry {
        let retention = self
            .bucket()
            .saturating_add(self.window)
            .saturating_add(self.lateness);
        Expiry::of_buckets(duration(retention), duration(self.bucket()))
    }

    /// The length of a bucket, in ms: half a window, rounded up.
    fn bucket(&self) -> i64 {
        (self.window / 2 + self.window % 2).max(1)
    }

    /// The start of the bucket of this time.
    #[must_use]
    pub fn bucket_of(&self, time: Timestamp) -> Timestamp {
        Timestamp(time.0.saturating_sub(time.0.rem_euclid(self.bucket())))
    }

    /// The first of the [`buckets`](Self::buckets).
    #[must_use]
    pub fn first_bucket(&self, time: Timestamp) -> Timestamp {
        let earliest = time.0.saturating_sub(self.window - 1);
        self.bucket_of(Timestamp(earliest.max(0)))
    }

    /// The starts of the buckets whose sightings decide about a record at this time, in ascending order: at
    /// most [`MOST_BUCKETS`](Self::MOST_BUCKETS). Some
    /// are later than stream time, because timers and closures may forward records with later timestamps.
    pub fn buckets(&self, time: Timestamp) -> impl Iterator<Item = Timestamp> + use<> {
        let first = self.first_bucket(time);
        let last = time.0.saturating_add(self.window - 1);
        let bucket = self.bucket();
        let mut next = Some(first.0);
        std::iter::from_fn(move || {
            let start = next.filter(|start| *start <= last)?;
            next = start.checked_add(bucket);
            Some(Timestamp(start))
        })
    }

    /// Judges a record at this time by the sightings of its id in [`buckets`](Self::buckets), and returns the sighting to
    /// store in the bucket of the record's time, if one is to be stored.
    ///
    /// `has_expired`: whether the first of these buckets has expired. Without a change of the lateness, that is so only for
    /// records behind the lateness.
    #[must_use]
    pub fn judge(
        &self,
        time: Timestamp,
        stream_time: Timestamp,
        sightings: impl IntoIterator<Item = Sighting>,
        has_expired: bool,
    ) -> (Seen, Option<Sighting>) {
        let matches = |sighting: &Sighting| {
            let (before, after) = (
                sighting.first.0.saturating_sub(time.0),
                time.0.saturating_sub(sighting.at.0),
            );
            before < self.window
                && after < self.window
                && time.0.saturating_sub(sighting.first.0) < self.at_most
        };
        let (mut found, mut latest): (Option<Sighting>, _) = (None, Timestamp(i64::MIN));
        for sighting in sightings.into_iter().filter(matches) {
            latest = latest.max(sighting.at);
            if found.is_none_or(|found| sighting.first < found.first) {
                found = Some(sighting);
            }
        }
        let Some(Sighting { first, .. }) = found else {
            if has_expired || time.0 < stream_time.0.saturating_sub(self.lateness) {
                return (Seen::TooOld, None);
            }
            let (at, first) = (time, time);
            return (Seen::New, Some(Sighting { at, first }));
        };
        let at = time;
        let moved = (self.slides && time > latest).then_some(Sighting { at, first });
        (Seen::Duplicate { first }, moved)
    }

    /// Judges a record of a replay whose own window has expired. The sightings are those of such records with its id and its
    /// generation, in [`buckets`](Self::buckets) of stream time. Two of them are one if their times are within a window.
    ///
    /// Returns the sighting to store in the bucket of stream time, if one is to be stored.
    #[must_use]
    pub fn judge_replayed(
        &self,
        time: Timestamp,
        stream_time: Timestamp,
        sightings: impl IntoIterator<Item = Sighting>,
    ) -> (Seen, Option<Sighting>) {
        let same = |it: &Sighting| {
            let apart = it.first.0.saturating_sub(time.0);
            apart.saturating_abs() < self.window
        };
        match sightings.into_iter().find(same) {
            Some(Sighting { first, .. }) => (Seen::Duplicate { first }, None),
            None => {
                let (at, first) = (stream_time, time);
                (Seen::New, Some(Sighting { at, first }))
            }
        }
    }
}

/// A record whose id was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sighting {
    /// The time of the record.
    pub at: Timestamp,
    /// The time of the first record of a chain of duplicates.
    pub first: Timestamp,
}

/// A row of a deduplication store can't be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the row of an id has {len} bytes instead of 4 or 12. Run the newest version that ever used this state. If this \
     version is the newest one, another program wrote to the changelog: start under another app name"
)]
pub struct SightingError {
    /// The number of bytes.
    pub len: usize,
}

impl Sighting {
    /// Writes the sighting relative to its bucket: milliseconds from the start of the bucket to the record (4 bytes), and,
    /// if it is not the first one, the time of the first record (8 bytes). Numbers are big-endian.
    pub fn encode(&self, bucket: Timestamp, into: &mut Vec<u8>) {
        // A bucket is at most half of `SeenWindow::LONGEST`.
        let offset = u32::try_from(self.at.0 - bucket.0).unwrap_or(u32::MAX);
        into.extend_from_slice(&offset.to_be_bytes());
        if self.first != self.at {
            into.extend_from_slice(&self.first.0.to_be_bytes());
        }
    }

    /// Reads the bytes of [`encode`](Self::encode).
    ///
    /// # Errors
    /// [`SightingError`] if the length is another one.
    pub fn decode(bucket: Timestamp, bytes: &[u8]) -> Result<Self, SightingError> {
        let damaged = SightingError { len: bytes.len() };
        let (offset, first) = bytes.split_first_chunk::<4>().ok_or(damaged)?;
        let at = Timestamp(bucket.0.saturating_add(u32::from_be_bytes(*offset).into()));
        let first = match <[u8; 8]>::try_from(first) {
            Ok(first) => Timestamp(i64::from_be_bytes(first)),
            Err(_) if first.is_empty() => at,
            Err(_) => return Err(damaged),
        };
        Ok(Self { at, first })
    }
}

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn duration(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

#[cfg(test)]
#[path = "window_test.rs"]
mod tests;

//! The identity of records: which ids were seen before.

mod content;
mod embedded_time;
mod key;
mod sequence;
mod sizing;
mod window;

pub use content::ContentHash;
pub use embedded_time::{IdAge, MOST_SKEW, TimedId, TimedIdError, TimedIdFormat, TimedIds};
pub use key::{Id, IdKey, LONGEST_RAW_ID};
pub use sequence::{Follows, Mark, RowError, Version};
pub use sizing::Sizing;
pub use window::{SeenWindow, SeenWindowError, Sighting, SightingError};

use crate::ids::Timestamp;

/// The status of a record's id in a deduplication store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Seen {
    /// The id is not in the store. The record stores it.
    New,
    /// The id was seen before.
    Duplicate {
        /// The timestamp of the first processed record of this repetition. If a record is late, this can be later than
        /// its own timestamp. If the windows of two first records contain the record, this is the earlier timestamp.
        /// Without an expiry, it is −1 if the first record had no timestamp. For sequences, it is always −1, because
        /// they have no times.
        first: Timestamp,
    },
    /// The record is further behind stream time than the lateness, and its id is not in the store: it may have expired. Or
    /// the time in its id is too old.
    TooOld,
    /// The record has no id.
    NoId,
    /// The epoch of the record's producer is lower than the stored one, or its version is not higher than the stored one.
    Stale,
}

/// The time for which an id counts as seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenKind {
    /// For a window after the first record.
    Fixed,
    /// For a window after the last record.
    Sliding,
    /// For a window after the time in the id.
    TimeEmbedded,
    /// For ever.
    Ever,
}

impl SeenKind {
    /// The number of buckets in a window: an id is stored in one of them. None if ids do not expire.
    #[must_use]
    pub fn buckets(self) -> Option<u32> {
        match self {
            Self::Fixed | Self::Sliding => Some(2),
            Self::TimeEmbedded => Some(TimedIds::BUCKETS),
            Self::Ever => None,
        }
    }

    /// The most bytes of a row's value, and the most rows that are read for a new id.
    #[must_use]
    pub fn cost(self) -> (u32, u32) {
        match self {
            Self::Fixed => (4, SeenWindow::MOST_BUCKETS as u32),
            Self::Sliding => (12, SeenWindow::MOST_BUCKETS as u32),
            Self::TimeEmbedded | Self::Ever => (8, 1),
        }
    }

    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Fixed, Self::Sliding, Self::TimeEmbedded, Self::Ever];
}

/// The part of a stream in which an id is unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdScope {
    /// The records of one key.
    Key,
    /// The records of one partition.
    Partition,
    /// The records of one tenant and key.
    TenantAndKey,
    /// The records of one tenant and partition.
    TenantAndPartition,
}

impl IdScope {
    /// Every scope.
    pub const ALL: [Self; 4] = [
        Self::Key,
        Self::Partition,
        Self::TenantAndKey,
        Self::TenantAndPartition,
    ];
}

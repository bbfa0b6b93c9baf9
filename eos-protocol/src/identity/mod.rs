//! The identity of records: which ids were seen before.

mod content;
mod key;
mod window;

pub use content::ContentHash;
pub use key::{IdKey, LONGEST_RAW_ID};
pub use window::{SeenWindow, SeenWindowError, Sighting, SightingError};

use crate::ids::Timestamp;

/// What the store of a deduplication knows of a record's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Seen {
    /// The id is new. From now on, it is known.
    New,
    /// The id was seen before.
    Duplicate {
        /// The time of the first record with this id. With two such records, because the second one came after the
        /// window of the first one, the earlier time whose window contains this record.
        first: Timestamp,
    },
    /// The record is older than the lateness allows, and its id is not known: it may have been forgotten.
    TooOld,
    /// The record has no id.
    NoId,
}

/// For how long an id counts as seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenKind {
    /// For a window after the first record.
    Fixed,
    /// For a window after the last record.
    Sliding,
    /// For ever.
    Ever,
}

impl SeenKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Fixed, Self::Sliding, Self::Ever];
}

/// The part of a stream in which an id is unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdScope {
    /// The records of one key.
    Key,
    /// The records of one partition.
    Partition,
}

impl IdScope {
    /// Every scope.
    pub const ALL: [Self; 2] = [Self::Key, Self::Partition];
}

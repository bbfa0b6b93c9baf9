//! The identity of records: which ids were seen before.

mod key;
mod window;

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

//! The rows that a commit deletes because they expired.

use eos_protocol::state::StoreId;

use crate::range::KeyRange;

/// Expired rows of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiredRows {
    /// The store.
    pub store: StoreId,
    /// The keys of the rows.
    pub range: KeyRange,
    /// Whether earlier snapshots keep the rows. If not, the engine may free their space at once. Views read windows in
    /// snapshots, but no view reads remembered ids.
    pub in_snapshots: bool,
}

impl ExpiredRows {
    /// Rows that earlier snapshots keep.
    #[must_use]
    pub const fn new(store: StoreId, range: KeyRange) -> Self {
        Self {
            store,
            range,
            in_snapshots: true,
        }
    }
}

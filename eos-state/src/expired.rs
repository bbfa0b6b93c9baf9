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
    /// The keys of all rows that have expired so far. The engine may remove tables that contain only these rows, so
    /// snapshots may lose them. `None` for windows, because views read windows in snapshots.
    pub removable: Option<KeyRange>,
}

impl ExpiredRows {
    /// Creates expired rows that stay in earlier snapshots.
    #[must_use]
    pub const fn new(store: StoreId, range: KeyRange) -> Self {
        Self {
            store,
            range,
            removable: None,
        }
    }
}

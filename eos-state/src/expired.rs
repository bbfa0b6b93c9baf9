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
    /// The keys of all rows that have expired so far, if no snapshot has to show them. The engine may remove whole tables
    /// of these rows from the disk at once. `None` for windows, because views read them in snapshots.
    pub tables: Option<KeyRange>,
}

impl ExpiredRows {
    /// Creates expired rows that earlier snapshots still show.
    #[must_use]
    pub const fn new(store: StoreId, range: KeyRange) -> Self {
        Self {
            store,
            range,
            tables: None,
        }
    }
}

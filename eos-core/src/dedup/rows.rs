//! The rows of a deduplication store, for tests.

use eos_protocol::identity::IdScope;
use eos_protocol::state::StoreId;
use eos_state::StoreBackend;

use super::SeenIds;
use crate::store::{RowsError, RowsOf, StoreRows, live_rows};

/// The rows of all scopes. The key is the encoded id, with its bucket in front if it expires. The value is the encoded
/// time.
impl<K> StoreRows for SeenIds<K> {
    type Key = Vec<u8>;
    type Value = Vec<u8>;

    fn store_name(&self) -> &str {
        self.name()
    }

    fn rows(&self, database: &dyn StoreBackend) -> Result<RowsOf<Self>, RowsError> {
        let mut rows = Vec::new();
        for scope in IdScope::ALL {
            let id = StoreId::seen(self.name(), self.kind(), scope);
            rows.extend(live_rows(database, id)?);
        }
        Ok(rows)
    }
}

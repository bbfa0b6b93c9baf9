//! The definition of a store of versions.

use std::fmt;
use std::sync::Arc;

use eos_protocol::identity::Version;
use eos_protocol::state::{OwnRows, StoreId};
use eos_state::StoreBackend;

use crate::codec::{Codec, CodecError, Field, Part, Plain, PlainType};
use crate::store::{RowsError, RowsOf, StoreRows, StoreSpec, live_rows};

/// The definition of a store of versions: for each key, the highest version that has passed.
///
/// `K` is the type of the stream's keys. The name identifies the store. If another operator has used the name, the app
/// does not start.
///
/// ```
/// # use eos_core::identity::Versions;
/// let versions = Versions::<String>::new("product-versions");
/// ```
pub struct Versions<K> {
    pub(super) name: Arc<str>,
    pub(crate) key: Arc<dyn Codec<K>>,
}

impl<K> Versions<K> {
    /// Creates a store with plain keys: text, bytes or integers.
    #[must_use]
    pub fn new(name: &str) -> Self
    where
        K: PlainType,
    {
        Self::with(name, Plain)
    }

    /// Creates a store with a codec of your choice. Equal keys must have equal bytes.
    pub fn with(name: &str, key: impl Codec<K>) -> Self {
        Self {
            name: name.into(),
            key: Arc::new(key),
        }
    }

    /// The name of the store.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn spec(&self) -> StoreSpec {
        super::spec(&self.name, OwnRows::Versions)
    }
}

impl<K: 'static> StoreRows for Versions<K> {
    type Key = K;
    type Value = u128;

    fn store_name(&self) -> &str {
        &self.name
    }

    fn rows(&self, database: &dyn StoreBackend) -> Result<RowsOf<Self>, RowsError> {
        let rows = live_rows(database, StoreId::own(&self.name, OwnRows::Versions))?;
        let field = Field::bare(&self.name, Part::Key);
        let unreadable = |source| RowsError::Row {
            store: self.name.to_string(),
            source,
        };
        let read = |(key, row): (Vec<u8>, Vec<u8>)| {
            let version = Version::decode(&row);
            let version =
                version.map_err(|error| unreadable(CodecError::invalid("a version", error)))?;
            let key = self.key.decode(Some(&key), &field).map_err(unreadable)?;
            Ok((key, version.0))
        };
        rows.into_iter().map(read).collect()
    }
}

impl<K> Clone for Versions<K> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            key: Arc::clone(&self.key),
        }
    }
}

impl<K> fmt::Debug for Versions<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Versions")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

//! The stores that can be viewed, and the formats of their rows.

use std::any::Any;
use std::ops::RangeBounds;
use std::sync::Arc;

use eos_protocol::Timestamp;
use eos_state::{KeyRange, StoreKind, due_range, due_row};

use super::error::ViewError;
use super::place::key_bytes;
use super::viewer::names;
use crate::codec::{Codec, CodecError, OrderedKey};
use crate::store::{
    Definition, KeyValueStore, OrderedStore, Stamped, StoreSpec, WindowStore, window_range,
    window_row_key,
};
use crate::store_handle::{Store, StoreHandle};
use crate::table_rows::Rows;
use crate::topology::Topology;

/// A store, for [`Handle::view`](crate::Handle::view): a [`KeyValueStore`], an [`OrderedStore`], a [`WindowStore`], a
/// [`Store`](crate::Store), or the [`Rows`](crate::state::Rows) of a table. The store may belong to closures, to an
/// aggregation or to a table. This trait is sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be viewed",
    note = "pass the definition of a store, `app.store(..)`'s handle, or `table.rows()`"
)]
pub trait Viewable: sealed::Find {
    /// The kind of the store.
    type Store: ViewedStore;
}

/// The kind of a viewed store. This trait is sealed.
pub trait ViewedStore: sealed::Kind {}

pub(super) mod sealed {
    use super::*;

    pub trait Find {
        /// Returns the number of the store in the app.
        #[doc(hidden)]
        fn index_in(&self, topology: &Topology) -> Result<usize, ViewError>;
    }

    pub trait Kind: 'static {
        #[doc(hidden)]
        type Access: Send + Sync;

        /// Returns the access to a store of the app. `None` if it has other types.
        #[doc(hidden)]
        fn access(spec: &StoreSpec) -> Option<Self::Access>;
    }
}

/// A value, and the time in front of it in the store of an operator.
pub(super) type Timed<V> = (V, Option<Timestamp>);

/// A store without windows.
pub(super) enum KeyValueAccess<K, V> {
    Own(KeyValueStore<K, V>),
    /// The store of an operator.
    Table(KeyValueStore<K, Stamped<V>>),
}

/// A store with windows.
pub(super) enum WindowAccess<K, V> {
    Own(WindowStore<K, V>),
    /// The store of an operator.
    Table(WindowStore<K, Stamped<V>>),
}

/// One of the two definitions that an app may have for a store.
fn either<T: Clone + 'static, S: Clone + 'static, A>(
    definition: &(dyn Any + Send + Sync),
    own: fn(T) -> A,
    table: fn(S) -> A,
) -> Option<A> {
    let found = definition.downcast_ref::<T>();
    let found = found.map(|definition| own(definition.clone()));
    found.or_else(|| Some(table(definition.downcast_ref::<S>()?.clone())))
}

impl<K: 'static, V: 'static> KeyValueAccess<K, V> {
    pub(super) fn codec(&self) -> &dyn Codec<K> {
        match self {
            Self::Own(store) => &*store.key,
            Self::Table(store) => &*store.key,
        }
    }

    fn expires(&self) -> bool {
        matches!(self, Self::Own(store) if store.expire_after.is_some())
    }

    /// Returns the rows of these keys.
    pub(super) fn range(&self, keys: KeyRange) -> KeyRange {
        match self.expires() {
            true => due_range(&keys),
            false => keys,
        }
    }

    /// Decodes a row, unless it is expired at this stream time.
    pub(super) fn live<'r>(
        &self,
        key: &'r [u8],
        row: &'r [u8],
        now: Option<Timestamp>,
    ) -> Option<(&'r [u8], &'r [u8])> {
        if !self.expires() {
            return Some((key, row));
        }
        let (key, due, value) = due_row(key, row)?;
        now.is_none_or(|now| due > now).then_some((key, value))
    }

    pub(super) fn decode_key(&self, bytes: &[u8]) -> Result<K, CodecError> {
        match self {
            Self::Own(store) => store.decode_key(bytes),
            Self::Table(store) => store.decode_key(bytes),
        }
    }

    pub(super) fn decode_value(&self, bytes: &[u8]) -> Result<Timed<V>, CodecError> {
        Ok(match self {
            Self::Own(store) => (store.decode_value(bytes)?, None),
            Self::Table(store) => unpack(store.decode_value(bytes)?),
        })
    }
}

impl<K: 'static, V: 'static> WindowAccess<K, V> {
    pub(super) fn codec(&self) -> &dyn Codec<K> {
        match self {
            Self::Own(store) => &*store.key,
            Self::Table(store) => &*store.key,
        }
    }

    /// Returns the rows of the windows that start in this range, without expired ones.
    pub(super) fn range(starts: &impl RangeBounds<Timestamp>, over_before: Timestamp) -> KeyRange {
        window_range(starts, over_before)
    }

    pub(super) fn decode_key(&self, bytes: &[u8]) -> Result<(Timestamp, K), CodecError> {
        match self {
            Self::Own(store) => window_row_key(store, bytes),
            Self::Table(store) => window_row_key(store, bytes),
        }
    }

    pub(super) fn decode_value(&self, bytes: &[u8]) -> Result<Timed<V>, CodecError> {
        Ok(match self {
            Self::Own(store) => (store.decode_value(bytes)?, None),
            Self::Table(store) => unpack(store.decode_value(bytes)?),
        })
    }
}

fn unpack<V>(row: Stamped<V>) -> Timed<V> {
    (row.value, row.timestamp)
}

/// Encodes a key of a store.
pub(super) fn encode<K: 'static>(
    codec: &dyn Codec<K>,
    key: &K,
    store: &Arc<str>,
) -> Result<Vec<u8>, ViewError> {
    let failed = |source| ViewError::Key {
        store: Arc::clone(store),
        source: Arc::new(source),
    };
    let bytes = key_bytes(codec, key, store).map_err(failed)?;
    let null = || CodecError::Null {
        expected: "a key that is not null",
    };
    bytes.ok_or_else(|| failed(null()))
}

impl<K: 'static, V: 'static> ViewedStore for KeyValueStore<K, V> {}
impl<K: OrderedKey, V: 'static> ViewedStore for OrderedStore<K, V> {}
impl<K: 'static, V: 'static> ViewedStore for WindowStore<K, V> {}

impl<K: 'static, V: 'static> sealed::Kind for KeyValueStore<K, V> {
    type Access = KeyValueAccess<K, V>;

    fn access(spec: &StoreSpec) -> Option<Self::Access> {
        let definition = &*spec.definition;
        either(definition, KeyValueAccess::Own, KeyValueAccess::Table)
    }
}

impl<K: OrderedKey, V: 'static> sealed::Kind for OrderedStore<K, V> {
    type Access = KeyValueAccess<K, V>;

    fn access(spec: &StoreSpec) -> Option<Self::Access> {
        let is_ordered = spec.kind == StoreKind::Ordered;
        let found = <KeyValueStore<K, V> as sealed::Kind>::access(spec);
        found.filter(|_| is_ordered)
    }
}

impl<K: 'static, V: 'static> sealed::Kind for WindowStore<K, V> {
    type Access = WindowAccess<K, V>;

    fn access(spec: &StoreSpec) -> Option<Self::Access> {
        let definition = &*spec.definition;
        either(definition, WindowAccess::Own, WindowAccess::Table)
    }
}

fn by_name(topology: &Topology, name: &str) -> Result<usize, ViewError> {
    let mut stores = topology.stores().iter();
    let index = stores.position(|store| &*store.name == name);
    index.ok_or_else(|| ViewError::UnknownStore {
        store: name.to_owned(),
        stores: names(topology),
    })
}

fn by_handle(topology: &Topology, handle: &impl StoreHandle) -> Result<usize, ViewError> {
    match handle.app() == topology.token() {
        true => Ok(handle.index()),
        false => Err(ViewError::OtherApp),
    }
}

impl<K: 'static, V: 'static> Viewable for KeyValueStore<K, V> {
    type Store = Self;
}

impl<K: 'static, V: 'static> sealed::Find for KeyValueStore<K, V> {
    fn index_in(&self, topology: &Topology) -> Result<usize, ViewError> {
        by_name(topology, self.name())
    }
}

impl<K: OrderedKey, V: 'static> Viewable for OrderedStore<K, V> {
    type Store = Self;
}

impl<K: OrderedKey, V: 'static> sealed::Find for OrderedStore<K, V> {
    fn index_in(&self, topology: &Topology) -> Result<usize, ViewError> {
        by_name(topology, self.name())
    }
}

impl<K: 'static, V: 'static> Viewable for WindowStore<K, V> {
    type Store = Self;
}

impl<K: 'static, V: 'static> sealed::Find for WindowStore<K, V> {
    fn index_in(&self, topology: &Topology) -> Result<usize, ViewError> {
        by_name(topology, self.name())
    }
}

impl<D: ViewedStore> Viewable for Store<D>
where
    Store<D>: StoreHandle,
{
    type Store = D;
}

impl<D: ViewedStore> sealed::Find for Store<D>
where
    Store<D>: StoreHandle,
{
    fn index_in(&self, topology: &Topology) -> Result<usize, ViewError> {
        by_handle(topology, self)
    }
}

impl<D: ViewedStore> Viewable for Rows<D>
where
    Rows<D>: StoreHandle,
{
    type Store = D;
}

impl<D: ViewedStore> sealed::Find for Rows<D>
where
    Rows<D>: StoreHandle,
{
    fn index_in(&self, topology: &Topology) -> Result<usize, ViewError> {
        by_handle(topology, self)
    }
}

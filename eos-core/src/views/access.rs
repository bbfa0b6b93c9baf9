//! Stores that can be viewed, and the formats of their rows.

use std::any::Any;
use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use eos_protocol::Timestamp;
use eos_state::{KeyRange, due_range, due_row};

use super::error::ViewError;
use super::place::key_bytes;
use crate::codec::{Codec, CodecError, OrderedKey};
use crate::store::{
    Definition, KeyValueStore, OrderedStore, Stamped, WindowStore, window_range, window_row_key,
};
use crate::store_handle::Store;
use crate::store_handle::sealed::Handle;
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
    use super::{Any, Wanted};

    pub trait Find {
        /// Names the store.
        #[doc(hidden)]
        fn wanted(&self) -> Wanted;
    }

    pub trait Kind: 'static {
        #[doc(hidden)]
        type Access: Send + Sync;

        /// Returns the access to a store with this definition. `None` if the definition has other types.
        #[doc(hidden)]
        fn access(definition: &(dyn Any + Send + Sync), is_ordered: bool) -> Option<Self::Access>;
    }
}

/// The store that a caller requested.
#[derive(Debug)]
pub enum Wanted {
    /// By its name.
    Name(String),
    /// By the token of its app, and its index in the app.
    Handle(u64, usize),
}

impl Wanted {
    /// Returns the index of the store in the app.
    pub(super) fn index_in(self, topology: &Topology) -> Result<usize, ViewError> {
        let name = match self {
            Self::Handle(app, index) if app == topology.token() => return Ok(index),
            Self::Handle(..) => return Err(ViewError::OtherApp),
            Self::Name(name) => name,
        };
        let mut stores = topology.stores().iter();
        let index = stores.position(|store| *store.name == *name);
        index.ok_or_else(|| ViewError::UnknownStore {
            store: name,
            stores: names(topology),
        })
    }
}

/// A value, and its timestamp in the store of an operator.
pub(super) type Timed<V> = (V, Option<Timestamp>);

/// The definitions that an app may have for a store: one of closures, or one of an operator.
enum Form<Own, Table> {
    Own(Own),
    Table(Table),
}

impl<Own: Clone + 'static, Table: Clone + 'static> Form<Own, Table> {
    fn of(definition: &(dyn Any + Send + Sync)) -> Option<Self> {
        let own = definition.downcast_ref::<Own>();
        let own = own.map(|definition| Self::Own(definition.clone()));
        own.or_else(|| Some(Self::Table(definition.downcast_ref::<Table>()?.clone())))
    }
}

/// The access to a store without windows.
pub struct KeyValueAccess<K, V>(Form<KeyValueStore<K, V>, KeyValueStore<K, Stamped<V>>>);

/// The access to a store with windows.
pub struct WindowAccess<K, V>(Form<WindowStore<K, V>, WindowStore<K, Stamped<V>>>);

impl<K, V> fmt::Debug for KeyValueAccess<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyValueAccess")
    }
}

impl<K, V> fmt::Debug for WindowAccess<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WindowAccess")
    }
}

impl<K: 'static, V: 'static> KeyValueAccess<K, V> {
    pub(super) fn codec(&self) -> &dyn Codec<K> {
        match &self.0 {
            Form::Own(store) => &*store.key,
            Form::Table(store) => &*store.key,
        }
    }

    fn expires(&self) -> bool {
        matches!(&self.0, Form::Own(store) if store.expire_after.is_some())
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
        match &self.0 {
            Form::Own(store) => store.decode_key(bytes),
            Form::Table(store) => store.decode_key(bytes),
        }
    }

    pub(super) fn decode_value(&self, bytes: &[u8]) -> Result<Timed<V>, CodecError> {
        Ok(match &self.0 {
            Form::Own(store) => (store.decode_value(bytes)?, None),
            Form::Table(store) => unpack(store.decode_value(bytes)?),
        })
    }
}

impl<K: 'static, V: 'static> WindowAccess<K, V> {
    pub(super) fn codec(&self) -> &dyn Codec<K> {
        match &self.0 {
            Form::Own(store) => &*store.key,
            Form::Table(store) => &*store.key,
        }
    }

    /// Returns the rows of the windows that start in this range, without expired ones.
    pub(super) fn range(
        starts: &impl RangeBounds<Timestamp>,
        expired_before: Timestamp,
    ) -> KeyRange {
        window_range(starts, expired_before)
    }

    pub(super) fn decode_key(&self, bytes: &[u8]) -> Result<(Timestamp, K), CodecError> {
        match &self.0 {
            Form::Own(store) => window_row_key(store, bytes),
            Form::Table(store) => window_row_key(store, bytes),
        }
    }

    pub(super) fn decode_value(&self, bytes: &[u8]) -> Result<Timed<V>, CodecError> {
        Ok(match &self.0 {
            Form::Own(store) => (store.decode_value(bytes)?, None),
            Form::Table(store) => unpack(store.decode_value(bytes)?),
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

    fn access(definition: &(dyn Any + Send + Sync), _: bool) -> Option<Self::Access> {
        Form::of(definition).map(KeyValueAccess)
    }
}

impl<K: OrderedKey, V: 'static> sealed::Kind for OrderedStore<K, V> {
    type Access = KeyValueAccess<K, V>;

    fn access(definition: &(dyn Any + Send + Sync), is_ordered: bool) -> Option<Self::Access> {
        let found = Form::of(definition).map(KeyValueAccess);
        found.filter(|_| is_ordered)
    }
}

impl<K: 'static, V: 'static> sealed::Kind for WindowStore<K, V> {
    type Access = WindowAccess<K, V>;

    fn access(definition: &(dyn Any + Send + Sync), _: bool) -> Option<Self::Access> {
        Form::of(definition).map(WindowAccess)
    }
}

impl<K: 'static, V: 'static> Viewable for KeyValueStore<K, V> {
    type Store = Self;
}

impl<K: 'static, V: 'static> sealed::Find for KeyValueStore<K, V> {
    fn wanted(&self) -> Wanted {
        Wanted::Name(self.name().to_owned())
    }
}

impl<K: OrderedKey, V: 'static> Viewable for OrderedStore<K, V> {
    type Store = Self;
}

impl<K: OrderedKey, V: 'static> sealed::Find for OrderedStore<K, V> {
    fn wanted(&self) -> Wanted {
        Wanted::Name(self.name().to_owned())
    }
}

impl<K: 'static, V: 'static> Viewable for WindowStore<K, V> {
    type Store = Self;
}

impl<K: 'static, V: 'static> sealed::Find for WindowStore<K, V> {
    fn wanted(&self) -> Wanted {
        Wanted::Name(self.name().to_owned())
    }
}

impl<D: ViewedStore> Viewable for Store<D> {
    type Store = D;
}

impl<D> sealed::Find for Store<D> {
    fn wanted(&self) -> Wanted {
        Wanted::Handle(self.app(), self.index())
    }
}

impl<D: ViewedStore> Viewable for Rows<D> {
    type Store = D;
}

impl<D> sealed::Find for Rows<D> {
    fn wanted(&self) -> Wanted {
        Wanted::Handle(self.app(), self.index())
    }
}

/// Returns the names of the app's stores.
pub(super) fn names(topology: &Topology) -> Vec<String> {
    topology.store_names()
}

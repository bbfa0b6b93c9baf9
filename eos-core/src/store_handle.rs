//! Handles of stores, for closures.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use eos_protocol::windows::{Expiry, check_retention};
use eos_state::StoreKind;

use crate::codec::OrderedKey;
use crate::ctx::Ctx;
use crate::keys::Colocated;
use crate::store::{
    KeyValueStore, KeyValueView, OrderedStore, OrderedView, StoreSpec, WindowStore, WindowView,
};
use crate::streams::Stream;
use crate::topology::Mistake;

/// The definition of a store for closures: a [`KeyValueStore`], an [`OrderedStore`] or a [`WindowStore`].
/// [`App::store`](crate::App::store) takes it. This trait is sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the definition of a store that closures can use",
    note = "`app.store` takes a `KeyValueStore`, an `OrderedStore` or a `WindowStore`"
)]
pub trait StoreDef: sealed::Define + 'static {
    /// The view that [`Ctx::store`] returns.
    type View<'c>;

    #[doc(hidden)]
    fn view<'c>(ctx: &'c Ctx<'_>, store: &Store<Self>) -> Self::View<'c>
    where
        Self: Sized;
}

/// The handle of a store, for [`Ctx::store`] and [`Stream::with_store`](crate::Stream::with_store). Returned by
/// [`App::store`](crate::App::store). Closures capture the handle by `move`.
pub struct Store<D> {
    app: u64,
    index: usize,
    definition: PhantomData<fn(D) -> D>,
}

impl<D> Store<D> {
    /// The handle of a store of this app.
    pub(crate) fn new(app: u64, index: usize) -> Self {
        Self {
            app,
            index,
            definition: PhantomData,
        }
    }
}

/// A [`Store`], or the [`Rows`](crate::state::Rows) of a table. This trait is sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is a store's definition, and this takes its handle",
    label = "not a handle",
    note = "get the handle from the app: `let store = app.store(&definition);`, or from a table: `let rows = table.rows();`"
)]
pub trait StoreHandle: sealed::Handle {
    /// The view that [`Ctx::store`] returns.
    type View<'c>;

    /// The view for a context.
    #[doc(hidden)]
    fn view<'c>(&self, ctx: &'c Ctx<'_>) -> Self::View<'c>;
}

impl<D: StoreDef> StoreHandle for Store<D> {
    type View<'c> = D::View<'c>;

    fn view<'c>(&self, ctx: &'c Ctx<'_>) -> D::View<'c> {
        D::view(ctx, self)
    }
}

impl Ctx<'_> {
    /// Returns a view of a store for the current record. The stream needs [`with_store`](Stream::with_store).
    ///
    /// # Exactly-once
    /// Changes of the store are part of the transaction that commits the input's offset and writes the outputs.
    pub fn store<S: StoreHandle>(&self, store: &S) -> S::View<'_> {
        store.view(self)
    }
}

impl<K: 'static, V: 'static, P> Stream<K, V, P> {
    /// Lets later steps use a store by [`Ctx::store`], up to the next step that changes the key.
    ///
    /// Several streams may share a store. One task then reads all their topics, and these need equal numbers of
    /// partitions.
    ///
    /// Requires the records of a key in one task. After [`key_by`](Self::key_by), call
    /// [`repartition`](Self::repartition) first.
    pub fn with_store<S: StoreHandle>(self, store: &S) -> Self
    where
        P: Colocated,
    {
        self.give_store(store.app(), store.index())
    }
}

impl<D> Clone for Store<D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for Store<D> {}

impl<D> fmt::Debug for Store<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.index).finish()
    }
}

impl<K: 'static, V: 'static> StoreDef for KeyValueStore<K, V> {
    type View<'c> = KeyValueView<'c, K, V>;

    fn view<'c>(ctx: &'c Ctx<'_>, store: &Store<Self>) -> KeyValueView<'c, K, V> {
        match ctx.usable(store.app, store.index) {
            Ok(index) => ctx.store_at(index),
            Err(error) => KeyValueView::failed(error),
        }
    }
}

impl<K: OrderedKey, V: 'static> StoreDef for OrderedStore<K, V> {
    type View<'c> = OrderedView<'c, K, V>;

    fn view<'c>(ctx: &'c Ctx<'_>, store: &Store<Self>) -> OrderedView<'c, K, V> {
        OrderedView::new(match ctx.usable(store.app, store.index) {
            Ok(index) => ctx.store_at(index),
            Err(error) => KeyValueView::failed(error),
        })
    }
}

impl<K: 'static, V: 'static> StoreDef for WindowStore<K, V> {
    type View<'c> = WindowView<'c, K, V>;

    fn view<'c>(ctx: &'c Ctx<'_>, store: &Store<Self>) -> WindowView<'c, K, V> {
        match ctx.usable(store.app, store.index) {
            Ok(index) => ctx.windows_at(index),
            Err(error) => WindowView::failed(error),
        }
    }
}

pub(crate) mod sealed {
    use super::*;

    /// A store for the graph, and its mistake.
    pub struct Declared {
        pub(crate) store: StoreSpec,
        pub(crate) check: Result<(), Mistake>,
    }

    impl fmt::Debug for Declared {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_tuple("Declared").field(&self.store.name).finish()
        }
    }

    impl Declared {
        fn new(store: StoreSpec, check: Result<(), Mistake>) -> Self {
            Self { store, check }
        }
    }

    pub trait Define {
        /// Returns the store for the graph, and its mistake.
        fn declared(&self) -> Declared;
    }

    impl<K: 'static, V: 'static> Define for KeyValueStore<K, V> {
        fn declared(&self) -> Declared {
            Declared::new(self.spec(StoreKind::Point), check_expiry(self))
        }
    }

    impl<K: 'static, V: 'static> Define for OrderedStore<K, V> {
        fn declared(&self) -> Declared {
            let spec = self.inner.spec(StoreKind::Ordered);
            Declared::new(spec, check_expiry(&self.inner))
        }
    }

    impl<K: 'static, V: 'static> Define for WindowStore<K, V> {
        fn declared(&self) -> Declared {
            let store = self.name().to_owned();
            let retention = self.retention.unwrap_or_default();
            let check = if retention < Duration::from_millis(1) {
                Err(Mistake::NoRetention { store })
            } else {
                check_retention(retention).map_err(|reason| Mistake::Windows { store, reason })
            };
            // Closures decide the size of the windows.
            let spec = self.spec(Expiry::new(retention, Duration::ZERO));
            Declared::new(spec, check)
        }
    }

    pub trait Handle {
        fn app(&self) -> u64;
        fn index(&self) -> usize;
    }

    impl<D> Handle for Store<D> {
        fn app(&self) -> u64 {
            self.app
        }

        fn index(&self) -> usize {
            self.index
        }
    }
}

/// Checks the time after which rows expire.
fn check_expiry<K, V>(store: &KeyValueStore<K, V>) -> Result<(), Mistake> {
    match store.expire_after.filter(|after| after.as_millis() == 0) {
        Some(after) => Err(Mistake::ExpireAfter {
            store: store.name().to_owned(),
            after,
        }),
        None => Ok(()),
    }
}

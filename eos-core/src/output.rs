//! Handles of output topics.

use std::fmt;
use std::marker::PhantomData;

/// A typed handle of an output topic, for [`Ctx::emit`](crate::Ctx::emit). Returned by
/// [`App::output`](crate::App::output).
pub struct Output<K, V> {
    pub(crate) app: u64,
    pub(crate) index: usize,
    pub(crate) types: PhantomData<fn(K, V)>,
}

impl<K, V> Clone for Output<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Output<K, V> {}

impl<K, V> fmt::Debug for Output<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Output").field(&self.index).finish()
    }
}

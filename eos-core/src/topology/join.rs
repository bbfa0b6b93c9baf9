//! The node that looks up a row for each record.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use super::fault::Fault;
use super::node::{Next, Node};
use super::nodes::take;
use crate::ctx::Ctx;
use crate::record::Record;
use crate::store::Stamped;

/// Combines a record's value with the row of its key, if there is one. Forwards the result with the record's own time
/// (`KStreamKTableJoin`). If `f` returns `None`, the record is dropped.
pub(crate) struct Join<K, V, T, R, F> {
    store: usize,
    f: Arc<F>,
    types: PhantomData<fn(K, V, T) -> R>,
}

impl<K, V, T, R, F> Join<K, V, T, R, F> {
    pub(crate) fn new(store: usize, f: Arc<F>) -> Self {
        Self {
            store,
            f,
            types: PhantomData,
        }
    }
}

impl<K, V, T, R, F> Node for Join<K, V, T, R, F>
where
    K: 'static,
    V: 'static,
    T: 'static,
    R: 'static,
    F: Fn(V, Option<T>) -> Option<R> + Send + Sync,
{
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Some(Record {
            key,
            value,
            timestamp,
            headers,
        }) = take::<K, V>(record)
        else {
            return Ok(());
        };
        let store = ctx.store_at::<K, Stamped<T>>(self.store);
        let row = store.read(&key).map_err(Fault::State)?;
        match (self.f)(value, row.map(|row| row.value)) {
            Some(value) => next.forward(
                ctx,
                &mut Some(Record {
                    key,
                    value,
                    timestamp,
                    headers,
                }),
            ),
            None => Ok(()),
        }
    }
}

//! The node that stores a result per key.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use super::changes::ChangesExit;
use super::fault::Fault;
use super::node::{Next, Node};
use super::nodes::take;
use crate::ctx::Ctx;
use crate::record::Record;
use crate::store::Stamped;

/// Combines a record with the current result. Stores and forwards each new result, with the highest timestamp of its
/// records.
pub(crate) struct Aggregate<K, V, A, F> {
    store: usize,
    f: Arc<F>,
    changes: ChangesExit<K, A>,
    types: PhantomData<fn(V)>,
}

impl<K, V, A, F> Aggregate<K, V, A, F> {
    pub(crate) fn new(store: usize, f: Arc<F>, changes: ChangesExit<K, A>) -> Self {
        Self {
            store,
            f,
            changes,
            types: PhantomData,
        }
    }
}

impl<K, V, A, F> Node for Aggregate<K, V, A, F>
where
    K: 'static,
    V: 'static,
    A: 'static,
    F: Fn(&K, V, Option<A>) -> A + Send + Sync,
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
        let store = ctx.store_at::<K, Stamped<A>>(self.store);
        let (old, before) = match store.read(&key).map_err(Fault::State)? {
            Some(stamped) => (Some(stamped.value), stamped.timestamp),
            None => (None, None),
        };
        let copied = self.changes.before(old.as_ref());
        let stamped = Stamped {
            value: (self.f)(&key, value, old),
            timestamp: timestamp.max(before),
        };
        store.write(&key, &stamped).map_err(Fault::State)?;
        if self.changes.is_read() {
            let about = (&key, stamped.timestamp, &headers);
            let values = (copied, Some(&stamped.value));
            self.changes.forward(ctx, next, about, values)?;
        }
        next.forward(
            ctx,
            &mut Some(Record {
                key,
                value: stamped.value,
                timestamp: stamped.timestamp,
                headers,
            }),
        )
    }
}

//! The node of results that may be deleted.

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

/// An [`Aggregate`](super::Aggregate) with deletable results. `None` deletes the key and its time. The deletion is
/// forwarded like any other update, with the highest time so far.
pub(crate) struct AggregateOrDelete<K, V, A, F> {
    store: usize,
    f: Arc<F>,
    changes: ChangesExit<K, A>,
    types: PhantomData<fn(V)>,
}

impl<K, V, A, F> AggregateOrDelete<K, V, A, F> {
    pub(crate) fn new(store: usize, f: Arc<F>, changes: ChangesExit<K, A>) -> Self {
        Self {
            store,
            f,
            changes,
            types: PhantomData,
        }
    }
}

impl<K, V, A, F> Node for AggregateOrDelete<K, V, A, F>
where
    K: 'static,
    V: 'static,
    A: 'static,
    F: Fn(&K, V, Option<A>) -> Option<A> + Send + Sync,
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
        let timestamp = timestamp.max(before);
        let copied = self.changes.before(old.as_ref());
        let value = match (self.f)(&key, value, old) {
            Some(value) => {
                let stamped = Stamped { value, timestamp };
                store.write(&key, &stamped).map_err(Fault::State)?;
                Some(stamped.value)
            }
            None => {
                store.forget(&key).map_err(Fault::State)?;
                None
            }
        };
        let about = (&key, timestamp, &headers);
        self.changes
            .forward(ctx, next, about, (copied, value.as_ref()))?;
        next.forward(
            ctx,
            &mut Some(Record {
                key,
                value,
                timestamp,
                headers,
            }),
        )
    }
}

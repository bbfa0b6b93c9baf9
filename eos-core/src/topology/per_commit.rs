//! The node that holds back results until the commit.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use super::fault::Fault;
use super::node::{Next, Node};
use super::nodes::take;
use crate::client::Headers;
use crate::ctx::Ctx;
use crate::record::Record;
use crate::store::{Definition, Stamped, StateError};

/// Holds back all updates. After intake has ended, it forwards the last result of each key that the transaction changed
/// in the store before it. The results are in the store, so no copy is needed, and an abort has nothing to undo here.
///
/// Kafka Streams' record cache has the same effect (`CachingKeyValueStore`), within the limit of its size.
pub(crate) struct PerCommit<K, A, V> {
    store: usize,
    /// Converts a result, or its absence, into the forwarded value.
    result: fn(Option<A>) -> Option<V>,
    types: PhantomData<fn(K)>,
}

impl<K, A, V> PerCommit<K, A, V> {
    pub(crate) fn new(store: usize, result: fn(Option<A>) -> Option<V>) -> Self {
        Self {
            store,
            result,
            types: PhantomData,
        }
    }
}

impl<K: 'static, A: 'static, V: 'static> Node for PerCommit<K, A, V> {
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        _: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let store = ctx.store_at::<K, Stamped<A>>(self.store);
        if let Some(record) = take::<K, V>(record) {
            let definition = store.definition().map_err(Fault::State)?;
            definition.key.recycle(record.key);
        }
        Ok(())
    }

    fn emits(&self) -> Option<usize> {
        Some(self.store)
    }

    fn emit(
        &mut self,
        ctx: &Ctx<'_>,
        key: &[u8],
        value: Option<&[u8]>,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let store = ctx.store_at::<K, Stamped<A>>(self.store);
        let definition = store.definition().map_err(Fault::State)?;
        let unreadable = |source| {
            Fault::State(StateError::Unreadable {
                store: Arc::clone(&definition.name),
                source,
            })
        };
        let stamped = value.map(|value| definition.decode_value(value));
        let (value, timestamp) = match stamped.transpose().map_err(unreadable)? {
            Some(Stamped { value, timestamp }) => (Some(value), timestamp),
            // The time was deleted with the row.
            None => (None, ctx.stream_time()),
        };
        let Some(value) = (self.result)(value) else {
            return Ok(());
        };
        let key = definition.decode_key(key).map_err(unreadable)?;
        next.forward(
            &ctx.at(timestamp),
            &mut Some(Record {
                key,
                value,
                timestamp,
                headers: Headers::new(),
            }),
        )
    }
}

//! Nodes of tables that are derived from one other table.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use super::changes::ChangesExit;
use super::fault::Fault;
use super::node::{Next, Node};
use super::nodes::take;
use crate::change::Change;
use crate::ctx::Ctx;
use crate::record::Record;
use crate::store::Stamped;

/// Computes each row from a row of another table, or drops it (`filter` and `map`).
///
/// If a row existed neither before nor after an update, nothing is forwarded. Kafka Streams forwards a tombstone in
/// this case (`KTableMapValues`). Its filter does so only if the previous table can't send old values (`KTableFilter`,
/// KAFKA-10077).
pub(crate) struct TableStep<K, V, W, F> {
    f: Arc<F>,
    changes: ChangesExit<K, W>,
    types: PhantomData<fn(V)>,
}

impl<K, V, W, F> TableStep<K, V, W, F> {
    pub(crate) fn new(f: Arc<F>, changes: ChangesExit<K, W>) -> Self {
        Self {
            f,
            changes,
            types: PhantomData,
        }
    }
}

impl<K, V, W, F> Node for TableStep<K, V, W, F>
where
    K: 'static,
    V: 'static,
    W: 'static,
    F: Fn(&K, V) -> Option<W> + Send + Sync,
{
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Some(record) = take::<K, Change<V>>(record) else {
            return Ok(());
        };
        let Record {
            key,
            value: Change { old, new },
            timestamp,
            headers,
        } = record;
        let old = old.and_then(|old| (self.f)(&key, old));
        let new = new.and_then(|new| (self.f)(&key, new));
        if old.is_none() && new.is_none() {
            return Ok(());
        }
        let record = Record {
            key,
            value: Change { old, new },
            timestamp,
            headers,
        };
        self.changes.forward_both(ctx, next, record)
    }
}

/// Stores the rows of a table.
pub(crate) struct KeepChanges<K, V> {
    store: usize,
    /// Whether the old values are unknown and must be read from the store.
    reads_old: bool,
    changes: ChangesExit<K, V>,
}

impl<K, V> KeepChanges<K, V> {
    pub(crate) fn new(store: usize, reads_old: bool, changes: ChangesExit<K, V>) -> Self {
        Self {
            store,
            reads_old,
            changes,
        }
    }
}

impl<K: 'static, V: 'static> Node for KeepChanges<K, V> {
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Some(Record {
            key,
            value: Change { mut old, new },
            timestamp,
            headers,
        }) = take::<K, Change<V>>(record)
        else {
            return Ok(());
        };
        let store = ctx.store_at::<K, Stamped<V>>(self.store);
        if self.reads_old {
            let row = store.read(&key).map_err(Fault::State)?;
            old = row.map(|row| row.value);
        }
        let new = match new {
            Some(value) => {
                let row = Stamped { value, timestamp };
                store.write(&key, &row).map_err(Fault::State)?;
                Some(row.value)
            }
            None if old.is_none() => return Ok(()),
            None => {
                store.forget(&key).map_err(Fault::State)?;
                None
            }
        };
        let record = Record {
            key,
            value: Change { old, new },
            timestamp,
            headers,
        };
        self.changes.forward_both(ctx, next, record)
    }
}

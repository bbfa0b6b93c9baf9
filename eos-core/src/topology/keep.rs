//! The node that keeps the rows of a topic.

use std::any::Any;

use super::changes::ChangesExit;
use super::fault::Fault;
use super::node::{Next, Node};
use super::nodes::take;
use crate::ctx::Ctx;
use crate::record::Record;
use crate::rules;
use crate::store::Stamped;

/// Keeps the last value of each key with the time of its record, and forwards each update.
///
/// The last record to arrive wins, whatever its time. The same holds for a tombstone (`KTableSource`).
pub(crate) struct Keep<K, V> {
    store: usize,
    changes: ChangesExit<K, V>,
}

impl<K, V> Keep<K, V> {
    pub(crate) fn new(store: usize, changes: ChangesExit<K, V>) -> Self {
        Self { store, changes }
    }
}

impl<K: 'static, V: 'static> Node for Keep<K, V> {
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
        }) = take::<K, Option<V>>(record)
        else {
            return Ok(());
        };
        let store = ctx.store_at::<K, Stamped<V>>(self.store);
        let read = || match self.changes.reads_old() {
            true => store.read(&key).map_err(Fault::State),
            false => Ok(None),
        };
        let mut old = read()?;
        let value = match value {
            Some(value) => {
                let row = Stamped { value, timestamp };
                store.write(&key, &row).map_err(Fault::State)?;
                Some(row.value)
            }
            None => {
                store.forget(&key).map_err(Fault::State)?;
                None
            }
        };
        if !rules::reads_old_rows_first() {
            old = read()?;
        }
        let old = old.map(|row| row.value);
        // A tombstone of a missing row, too: a left join emits its result again, as in Kafka Streams.
        let about = (&key, timestamp, &headers);
        self.changes
            .forward(ctx, next, about, (old, value.as_ref()))?;
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

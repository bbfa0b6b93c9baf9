//! The node that looks up a row for each record.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use super::fault::Fault;
use super::node::{Next, Node};
use super::nodes::take;
use super::rows_of::RowsOf;
use crate::ctx::Ctx;
use crate::record::Record;
use crate::store::StateError;

/// Combines a record's value with the row of its key, if there is one. Forwards the result with the record's own time
/// (`KStreamKTableJoin`). If `f` returns `None`, the record is dropped.
pub(crate) struct Join<K, V, T, R, F> {
    rows: RowsOf<K, T>,
    f: Arc<F>,
    types: PhantomData<fn(V) -> R>,
}

impl<K, V, T, R, F> Join<K, V, T, R, F> {
    pub(crate) fn new(rows: RowsOf<K, T>, f: Arc<F>) -> Self {
        Self {
            rows,
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
        let row = self.rows.get(ctx, &key).map_err(to_join_fault)?;
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

/// Replaces the fault of a null key by one with the fix for a join.
fn to_join_fault(fault: Fault) -> Fault {
    match fault {
        Fault::State(StateError::NullKey { store }) => {
            Fault::State(StateError::NoJoinKey { store })
        }
        fault => fault,
    }
}

//! Nodes of joins of two tables.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use super::changes::ChangesExit;
use super::fault::Fault;
use super::node::{Next, Node};
use super::nodes::take;
use super::rows_of::RowsOf;
use crate::change::Change;
use crate::ctx::Ctx;
use crate::record::Record;
use crate::rules;

/// Joins each update of one table with the row of the other. Each of the two tables has such a node, and both nodes
/// have the same exits (`KTableKTableInnerJoin` and its siblings). A result has the later timestamp of its two rows.
pub(crate) struct TableJoin<K, V, W, R, F> {
    other: RowsOf<K, W>,
    f: Arc<F>,
    /// Whether both tables are derived from a common table. An update of the common table may already have changed the
    /// other row. The previous result is then unknown here, and a store behind this node has it.
    is_related: bool,
    changes: ChangesExit<K, R>,
    types: PhantomData<fn(V)>,
}

impl<K, V, W, R, F> TableJoin<K, V, W, R, F> {
    pub(crate) fn new(
        other: RowsOf<K, W>,
        f: Arc<F>,
        is_related: bool,
        changes: ChangesExit<K, R>,
    ) -> Self {
        Self {
            other,
            f,
            is_related,
            changes,
            types: PhantomData,
        }
    }
}

impl<K, V, W, R, F> Node for TableJoin<K, V, W, R, F>
where
    K: 'static,
    V: 'static,
    W: 'static,
    R: 'static,
    F: Fn(Option<&V>, Option<&W>) -> Option<R> + Send + Sync,
{
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Some(Record {
            key,
            value: Change { old, new },
            timestamp,
            headers,
        }) = take::<K, Change<V>>(record)
        else {
            return Ok(());
        };
        let (row, time) = match self.other.get(ctx, &key)? {
            Some(row) => (Some(row.value), row.timestamp),
            None => (None, None),
        };
        let old = (self.f)(old.as_ref(), row.as_ref());
        let new = (self.f)(
            new.as_ref(),
            row.as_ref().filter(|_| rules::joins_other_rows()),
        );
        if old.is_none() && new.is_none() && !self.is_related {
            return Ok(());
        }
        let timestamp = timestamp.max(time);
        let record = Record {
            key,
            value: Change { old, new },
            timestamp,
            headers,
        };
        self.changes.forward_both(ctx, next, record)
    }
}

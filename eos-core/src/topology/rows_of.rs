//! The rows of a table, from its store or from those of the tables before it.

use std::sync::Arc;

use eos_protocol::joins::JoinKind;

use super::fault::Fault;
use super::follower::MadeOf;
use crate::ctx::Ctx;
use crate::rules;
use crate::store::Stamped;

/// Reads the row of a key.
type Get<K, V> = Arc<dyn Fn(&Ctx<'_>, &K) -> Result<Option<Stamped<V>>, Fault> + Send + Sync>;

/// The rows of a table.
pub(crate) struct RowsOf<K, V> {
    from: Place<K, V>,
    made_of: MadeOf,
    /// The stores that a read may need.
    reads: Vec<usize>,
    /// The stores of this table and of all tables that it is made of.
    lineage: Vec<usize>,
    /// The join that made this table of two tables which are made of a common one. The row before an update is unknown
    /// then.
    related_by: Option<&'static str>,
}

enum Place<K, V> {
    Store(usize),
    Parents(Get<K, V>),
}

impl<K: 'static, V: 'static> RowsOf<K, V> {
    /// The rows are in this store.
    pub(crate) fn stored(store: usize) -> Self {
        Self {
            from: Place::Store(store),
            made_of: MadeOf::Store(store),
            reads: vec![store],
            lineage: vec![store],
            related_by: None,
        }
    }

    /// The rows are in this store, and made of those of another table.
    pub(crate) fn stored_from<L, W>(store: usize, parent: &RowsOf<L, W>) -> Self {
        let mut rows = Self::stored(store);
        rows.lineage.extend(&parent.lineage);
        rows
    }

    /// The rows are in a store of a join, and made of those of another table.
    pub(crate) fn read_from<L, W>(
        store: usize,
        parent: &RowsOf<L, W>,
        get: impl Fn(&Ctx<'_>, &K) -> Result<Option<Stamped<V>>, Fault> + Send + Sync + 'static,
    ) -> Self {
        Self {
            from: Place::Parents(Arc::new(get)),
            made_of: MadeOf::Store(store),
            reads: vec![store],
            lineage: [&[store][..], &parent.lineage].concat(),
            related_by: None,
        }
    }

    /// Each row is made of the row of another table.
    pub(crate) fn mapped<W: 'static>(
        parent: &RowsOf<K, W>,
        f: impl Fn(&K, W) -> Option<V> + Send + Sync + 'static,
    ) -> Self {
        let get = parent.clone();
        Self {
            from: Place::Parents(Arc::new(move |ctx, key| {
                let Some(Stamped { value, timestamp }) = get.get(ctx, key)? else {
                    return Ok(None);
                };
                Ok(f(key, value).map(|value| Stamped { value, timestamp }))
            })),
            made_of: parent.made_of.clone(),
            reads: parent.reads.clone(),
            lineage: parent.lineage.clone(),
            related_by: parent.related_by,
        }
    }

    /// Each row is made of the rows of two tables.
    pub(crate) fn joined<L: 'static, R: 'static>(
        (method, kind): (&'static str, JoinKind),
        left: &RowsOf<K, L>,
        right: &RowsOf<K, R>,
        f: impl Fn(Option<&L>, Option<&R>) -> Option<V> + Send + Sync + 'static,
    ) -> Self {
        let is_related = left.lineage.iter().any(|at| right.lineage.contains(at));
        let both = |one: &[usize], other: &[usize]| [one, other].concat();
        let made_of = MadeOf::joined(kind, &left.made_of, &right.made_of);
        let (reads, lineage) = (
            both(&left.reads, &right.reads),
            both(&left.lineage, &right.lineage),
        );
        let (left, right) = (left.clone(), right.clone());
        Self {
            from: Place::Parents(Arc::new(move |ctx, key| {
                let (left, right) = (left.get(ctx, key)?, right.get(ctx, key)?);
                let times = (
                    left.as_ref().and_then(|row| row.timestamp),
                    right.as_ref().and_then(|row| row.timestamp),
                );
                let timestamp = times.0.max(times.1);
                let (left, right) = (left.map(|row| row.value), right.map(|row| row.value));
                let right = right.filter(|_| rules::reads_both_rows_of_joins());
                let value = f(left.as_ref(), right.as_ref());
                Ok(value.map(|value| Stamped { value, timestamp }))
            })),
            made_of,
            reads,
            lineage,
            related_by: is_related.then_some(method),
        }
    }

    /// The same rows, made of the tables with these stores, too.
    pub(crate) fn made_of(mut self, lineage: &[usize]) -> Self {
        self.lineage.extend(lineage);
        self
    }

    /// Returns the stores of this table and of all tables that it is made of.
    pub(crate) fn lineage(&self) -> &[usize] {
        &self.lineage
    }

    /// Returns the store, if the table has one.
    pub(crate) fn store(&self) -> Option<usize> {
        match self.from {
            Place::Store(store) => Some(store),
            Place::Parents(_) => None,
        }
    }

    /// Returns the stores whose rows make the rows.
    pub(crate) fn made_of_stores(&self) -> &MadeOf {
        &self.made_of
    }

    /// Returns the stores that a read may need.
    pub(crate) fn reads(&self) -> &[usize] {
        &self.reads
    }

    /// Returns the join that made this table of two tables which are made of a common one. An update of that one changes
    /// both rows at once, so the row before it is known only to a store.
    pub(crate) fn related_by(&self) -> Option<&'static str> {
        self.related_by
    }

    /// Reads the row of a key.
    #[inline]
    pub(crate) fn get(&self, ctx: &Ctx<'_>, key: &K) -> Result<Option<Stamped<V>>, Fault> {
        match &self.from {
            Place::Store(store) => {
                let store = ctx.store_at::<K, Stamped<V>>(*store);
                store.read(key).map_err(Fault::State)
            }
            Place::Parents(get) => get(ctx, key),
        }
    }
}

impl<K, V> Clone for RowsOf<K, V> {
    fn clone(&self) -> Self {
        Self {
            from: match &self.from {
                Place::Store(store) => Place::Store(*store),
                Place::Parents(get) => Place::Parents(Arc::clone(get)),
            },
            made_of: self.made_of.clone(),
            reads: self.reads.clone(),
            lineage: self.lineage.clone(),
            related_by: self.related_by,
        }
    }
}

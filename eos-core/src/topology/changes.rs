//! Changes of tables' rows, for the steps that read them.

use std::sync::{Arc, OnceLock};

use eos_protocol::Timestamp;

use super::fault::Fault;
use super::node::Next;
use crate::change::Change;
use crate::client::Headers;
use crate::ctx::Ctx;
use crate::record::Record;

/// Copies keys and values. A table has these functions only if a step reads its changes, because other tables need no
/// `Clone`.
struct Copies<K, V> {
    key: fn(&K) -> K,
    value: fn(&V) -> V,
}

impl<K, V> Clone for Copies<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Copies<K, V> {}

/// Records whether steps read the changes of a table, and whether they read the rows before the updates. The declaration of
/// the table and its nodes share this value.
pub(crate) struct Readers<K, V>(Arc<Reads<K, V>>);

struct Reads<K, V> {
    /// Present if a step reads the changes.
    copies: OnceLock<Copies<K, V>>,
    /// Present if a step reads the rows before the updates.
    old: OnceLock<()>,
}

impl<K, V> Readers<K, V> {
    pub(crate) fn none() -> Self {
        Self(Arc::new(Reads {
            copies: OnceLock::new(),
            old: OnceLock::new(),
        }))
    }

    /// Declares that a step reads the changes, including the rows before the updates.
    pub(crate) fn add(&self)
    where
        K: Clone,
        V: Clone,
    {
        self.add_without_old();
        self.0.old.get_or_init(|| ());
    }

    /// Declares that a step reads the changes but ignores the rows before the updates. These rows may be missing.
    pub(crate) fn add_without_old(&self)
    where
        K: Clone,
        V: Clone,
    {
        self.0.copies.get_or_init(|| Copies {
            key: K::clone,
            value: V::clone,
        });
    }

    /// Returns the exit of a node of the table. Call it when the graph is complete.
    pub(crate) fn exit(&self) -> ChangesExit<K, V> {
        ChangesExit {
            copies: self.0.copies.get().copied(),
            reads_old: self.0.old.get().is_some(),
        }
    }
}

impl<K, V> Clone for Readers<K, V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// The second exit of a table's node, which forwards changes if a step reads them.
pub(crate) struct ChangesExit<K, V> {
    copies: Option<Copies<K, V>>,
    reads_old: bool,
}

impl<K: 'static, V: 'static> ChangesExit<K, V> {
    /// Whether a step reads the changes.
    pub(super) fn is_read(&self) -> bool {
        self.copies.is_some()
    }

    /// Whether a step reads the row before an update. Only then does a node need that row.
    pub(super) fn reads_old(&self) -> bool {
        self.reads_old
    }

    /// Copies the value before an update, if a step reads it.
    pub(super) fn before(&self, old: Option<&V>) -> Option<V> {
        let copies = self.copies.filter(|_| self.reads_old);
        old.zip(copies).map(|(old, copies)| (copies.value)(old))
    }

    /// Forwards a change, if a step reads it. It comes before the update itself: a join of two tables that come from one
    /// topic then finds the other table as it was.
    pub(super) fn forward(
        &self,
        ctx: &Ctx<'_>,
        next: &mut Next<'_>,
        (key, timestamp, headers): (&K, Option<Timestamp>, &Headers),
        (old, new): (Option<V>, Option<&V>),
    ) -> Result<(), Fault> {
        let Some(copies) = self.copies else {
            return Ok(());
        };
        let new = new.map(copies.value);
        next.forward_rest(
            ctx,
            &mut Some(Record {
                key: (copies.key)(key),
                value: Change { old, new },
                timestamp,
                headers: headers.clone(),
            }),
        )
    }

    /// Forwards a change of a table that may have no store: by both exits.
    pub(super) fn forward_both(
        &self,
        ctx: &Ctx<'_>,
        next: &mut Next<'_>,
        record: Record<K, Change<V>>,
    ) -> Result<(), Fault> {
        let Record {
            key,
            value: Change { old, new },
            timestamp,
            headers,
        } = record;
        self.forward(ctx, next, (&key, timestamp, &headers), (old, new.as_ref()))?;
        next.forward(
            ctx,
            &mut Some(Record {
                key,
                value: new,
                timestamp,
                headers,
            }),
        )
    }
}

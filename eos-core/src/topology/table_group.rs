//! The nodes of tables that are grouped by a new key.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use super::changes::ChangesExit;
use super::fault::{EncodeError, Fault};
use super::node::{Next, Node};
use super::nodes::take;
use crate::change::Change;
use crate::codec::Encoded;
use crate::ctx::Ctx;
use crate::record::Record;
use crate::rules;
use crate::store::Stamped;
use crate::topic::{TopicOfChanges, WritableTopic};

/// The indexes of the encoded keys.
const OLD: usize = 0;
const NEW: usize = 1;

/// Assigns new keys to rows (`KTableRepartitionMap`). A row whose new key is null is left out. If an update does not
/// change the new key, one record contains both values (KIP-904), so the group always has the row. Otherwise, the old
/// value is removed from its group first.
pub(crate) struct Regroup<K, V, L, W, F> {
    topic: TopicOfChanges<L, W>,
    f: Arc<F>,
    /// The buffers of the two encoded keys.
    keys: [Vec<u8>; 2],
    types: PhantomData<fn(K, V)>,
}

impl<K, V, L: 'static, W: 'static, F> Regroup<K, V, L, W, F> {
    pub(crate) fn new(topic: TopicOfChanges<L, W>, f: Arc<F>) -> Self {
        Self {
            topic,
            f,
            keys: Default::default(),
            types: PhantomData,
        }
    }

    /// Returns the new key and value of a row, unless the key is null. Stores the encoded key in `keys`.
    fn regroup(
        &mut self,
        ctx: &Ctx<'_>,
        at: usize,
        (key, value): (&K, Option<&V>),
    ) -> Result<Option<(L, W)>, Fault>
    where
        F: Fn(&K, &V) -> (L, W),
    {
        let Some((key, value)) = value.map(|value| (self.f)(key, value)) else {
            return Ok(None);
        };
        let Some(into) = self.keys.get_mut(at) else {
            return Ok(None);
        };
        into.clear();
        let encoded = self.topic.encode_key(&key, into, ctx.headers());
        let encoded = encoded.map_err(|source| {
            let topic = self.topic.name.clone();
            Fault::Encode(EncodeError { topic, source })
        })?;
        Ok((!matches!(encoded, Encoded::Null)).then_some((key, value)))
    }
}

impl<K, V, L, W, F> Node for Regroup<K, V, L, W, F>
where
    K: 'static,
    V: 'static,
    L: 'static,
    W: 'static,
    F: Fn(&K, &V) -> (L, W) + Send + Sync,
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
        let old = self.regroup(ctx, OLD, (&key, old.as_ref()))?;
        let new = self.regroup(ctx, NEW, (&key, new.as_ref()))?;
        let mut forward = |key: L, old: Option<W>, new: Option<W>| {
            let headers = headers.clone();
            next.forward(
                ctx,
                &mut Some(Record {
                    key,
                    value: Change { old, new },
                    timestamp,
                    headers,
                }),
            )
        };
        match (old, new) {
            (None, None) => Ok(()),
            (Some((key, old)), None) => forward(key, Some(old), None),
            (None, Some((key, new))) => forward(key, None, Some(new)),
            (Some((from, old)), Some((to, new))) => {
                let [one, other] = &self.keys;
                if one == other {
                    return forward(to, Some(old), Some(new));
                }
                forward(from, Some(old), None)?;
                forward(to, None, Some(new))
            }
        }
    }
}

/// Combines the changes of a group's rows with its result. Subtracts the old value, then adds the new one
/// (`KTableAggregate`).
pub(crate) struct AggregateChanges<K, V, A, U, F> {
    store: usize,
    f: Arc<F>,
    /// Converts a result, or its absence, into the forwarded value.
    update: fn(Option<A>) -> Option<U>,
    changes: ChangesExit<K, A>,
    types: PhantomData<fn(V)>,
}

impl<K, V, A, U, F> AggregateChanges<K, V, A, U, F> {
    pub(crate) fn new(
        store: usize,
        f: Arc<F>,
        update: fn(Option<A>) -> Option<U>,
        changes: ChangesExit<K, A>,
    ) -> Self {
        Self {
            store,
            f,
            update,
            changes,
            types: PhantomData,
        }
    }
}

/// The group has no result from which a value could be subtracted.
#[derive(Debug)]
pub(crate) struct NothingToSubtract;

impl<K, V, A, U, F> Node for AggregateChanges<K, V, A, U, F>
where
    K: 'static,
    V: 'static,
    A: 'static,
    U: 'static,
    F: Fn(&K, Change<V>, Option<A>) -> Result<Option<A>, NothingToSubtract> + Send + Sync,
{
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Some(Record {
            key,
            value: mut change,
            timestamp,
            headers,
        }) = take::<K, Change<V>>(record)
        else {
            return Ok(());
        };
        if change.old.is_some() && !rules::adds_to_the_same_group() {
            change.new = None;
        }
        let store = ctx.store_at::<K, Stamped<A>>(self.store);
        let (result, before) = match store.read(&key).map_err(Fault::State)? {
            Some(row) => (Some(row.value), row.timestamp),
            None => (None, None),
        };
        let old = self.changes.before(result.as_ref());
        let timestamp = timestamp.max(before);
        let result = (self.f)(&key, change, result).map_err(|NothingToSubtract| {
            let spec = ctx.state().specs.get(self.store);
            Fault::NothingToSubtract {
                store: spec.map_or_else(|| "?".into(), |spec| Arc::clone(&spec.name)),
            }
        })?;
        let result = match result {
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
        let about = (&key, timestamp, &headers);
        self.changes
            .forward(ctx, next, about, (old, result.as_ref()))?;
        match (self.update)(result) {
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

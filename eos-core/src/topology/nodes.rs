//! The stateless nodes: what the methods of [`Stream`](crate::Stream) compile down to.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use super::fault::Fault;
use super::node::{Entry, Next, Node, Raw};
use crate::ctx::Ctx;
use crate::failure::Failure;
use crate::record::Record;
use crate::topic::Topic;

/// The record of this node's types; `None` if another node took it, which none does.
pub(super) fn take<K: 'static, V: 'static>(record: &mut dyn Any) -> Option<Record<K, V>> {
    record.downcast_mut::<Option<Record<K, V>>>()?.take()
}

pub(crate) struct Decode<K, V>(pub(crate) Topic<K, V>);

impl<K: 'static, V: 'static> Entry for Decode<K, V> {
    fn enter(&mut self, ctx: &Ctx<'_>, raw: &Raw<'_>, next: &mut Next<'_>) -> Result<(), Fault> {
        let key = self.0.key.decode(raw.key).map_err(Fault::Key)?;
        let value = self.0.value.decode(raw.value).map_err(Fault::Value)?;
        let (timestamp, headers) = (raw.timestamp, raw.headers.clone());
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

/// A type that is named but not held.
type Types<K, V, U> = PhantomData<fn(K, V) -> U>;

pub(crate) struct Map<K, V, U, F> {
    f: Arc<F>,
    types: Types<K, V, U>,
}

impl<K, V, U, F> Map<K, V, U, F> {
    pub(crate) fn new(f: Arc<F>) -> Self {
        Self {
            f,
            types: PhantomData,
        }
    }
}

impl<K, V, U, F> Node for Map<K, V, U, F>
where
    K: 'static,
    V: 'static,
    U: 'static,
    F: Fn(V) -> Result<Option<U>, Failure> + Send + Sync,
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
        match (self.f)(value).map_err(Fault::user)? {
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

pub(crate) struct FlatMap<K, V, I, F> {
    f: Arc<F>,
    types: Types<K, V, I>,
}

impl<K, V, I, F> FlatMap<K, V, I, F> {
    pub(crate) fn new(f: Arc<F>) -> Self {
        Self {
            f,
            types: PhantomData,
        }
    }
}

impl<K, V, I, F> Node for FlatMap<K, V, I, F>
where
    K: Clone + 'static,
    V: 'static,
    I: IntoIterator<Item: 'static>,
    F: Fn(V) -> Result<I, Failure> + Send + Sync,
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
        for value in (self.f)(value).map_err(Fault::user)? {
            let (key, headers) = (key.clone(), headers.clone());
            next.forward(
                ctx,
                &mut Some(Record {
                    key,
                    value,
                    timestamp,
                    headers,
                }),
            )?;
        }
        Ok(())
    }
}

pub(crate) struct KeyBy<K, V, U, F> {
    f: Arc<F>,
    types: Types<K, V, U>,
}

impl<K, V, U, F> KeyBy<K, V, U, F> {
    pub(crate) fn new(f: Arc<F>) -> Self {
        Self {
            f,
            types: PhantomData,
        }
    }
}

impl<K, V, U, F> Node for KeyBy<K, V, U, F>
where
    K: 'static,
    V: 'static,
    U: 'static,
    F: Fn(&V) -> U + Send + Sync,
{
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Some(Record {
            value,
            timestamp,
            headers,
            ..
        }) = take::<K, V>(record)
        else {
            return Ok(());
        };
        let key = (self.f)(&value);
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

pub(crate) struct Peek<K, V, F> {
    f: Arc<F>,
    types: Types<K, V, ()>,
}

impl<K, V, F> Peek<K, V, F> {
    pub(crate) fn new(f: Arc<F>) -> Self {
        Self {
            f,
            types: PhantomData,
        }
    }
}

impl<K: 'static, V: 'static, F: Fn(&Record<K, V>) + Send + Sync> Node for Peek<K, V, F> {
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let seen = record.downcast_ref::<Option<Record<K, V>>>();
        if let Some(record) = seen.and_then(Option::as_ref) {
            (self.f)(record);
        }
        next.forward(ctx, record)
    }
}

/// Two ways out: for those that pass, and for the rest. Where nothing stands behind the second one,
/// the rest is dropped: a filter.
pub(crate) struct Branch<K, V, F> {
    f: Arc<F>,
    types: Types<K, V, ()>,
}

impl<K, V, F> Branch<K, V, F> {
    pub(crate) fn new(f: Arc<F>) -> Self {
        Self {
            f,
            types: PhantomData,
        }
    }
}

impl<K: 'static, V: 'static, F: Fn(&V) -> bool + Send + Sync> Node for Branch<K, V, F> {
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let passes = record
            .downcast_ref::<Option<Record<K, V>>>()
            .and_then(Option::as_ref)
            .is_some_and(|r| (self.f)(&r.value));
        if passes {
            next.forward(ctx, record)
        } else {
            next.forward_rest(ctx, record)
        }
    }
}

pub(crate) struct Tee<K, V>(pub(crate) PhantomData<fn(K, V)>);

impl<K: Clone + 'static, V: Clone + 'static> Node for Tee<K, V> {
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        if let Some(seen) = record.downcast_ref::<Option<Record<K, V>>>() {
            next.forward(ctx, &mut seen.clone())?;
        }
        next.forward_rest(ctx, record)
    }
}

pub(crate) struct Write<K, V> {
    pub(crate) output: usize,
    pub(crate) topic: Topic<K, V>,
}

impl<K: 'static, V: 'static> Node for Write<K, V> {
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        _: &mut Next<'_>,
    ) -> Result<(), Fault> {
        // Encoded where it lies: a record is large to move.
        let record = record.downcast_mut::<Option<Record<K, V>>>();
        let Some(record) = record else {
            return Ok(());
        };
        if let Some(r) = record {
            let headers = std::mem::take(&mut r.headers);
            let written = ctx.write(
                self.output,
                &self.topic,
                &r.key,
                &r.value,
                r.timestamp,
                headers,
            );
            written.map_err(Fault::Encode)?;
        }
        if let Some(r) = record.take() {
            self.topic.key.recycle(r.key);
            self.topic.value.recycle(r.value);
        }
        Ok(())
    }
}

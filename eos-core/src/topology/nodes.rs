//! The stateless nodes: what the methods of [`Stream`](crate::Stream) compile down to.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use super::node::{Entry, Fault, Next, Node, Raw};
use crate::ctx::Ctx;
use crate::failure::Failure;
use crate::record::Record;
use crate::topic::Topic;

/// The record of this node's types; `None` if another node took it, which none does.
fn take<K: 'static, V: 'static>(record: &mut dyn Any) -> Option<Record<K, V>> {
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
        match (self.f)(value).map_err(Fault::User)? {
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

pub(crate) struct Filter<K, V, F> {
    f: Arc<F>,
    types: Types<K, V, ()>,
}

impl<K, V, F> Filter<K, V, F> {
    pub(crate) fn new(f: Arc<F>) -> Self {
        Self {
            f,
            types: PhantomData,
        }
    }
}

impl<K: 'static, V: 'static, F: Fn(&V) -> bool + Send + Sync> Node for Filter<K, V, F> {
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
            Ok(())
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
        for value in (self.f)(value).map_err(Fault::User)? {
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

pub(crate) struct Process<K, V, F> {
    f: Arc<F>,
    types: Types<K, V, ()>,
}

impl<K, V, F> Process<K, V, F> {
    pub(crate) fn new(f: Arc<F>) -> Self {
        Self {
            f,
            types: PhantomData,
        }
    }
}

impl<K, V, F> Node for Process<K, V, F>
where
    K: 'static,
    V: 'static,
    F: for<'c> Fn(&Ctx<'c>, Record<K, V>) -> Result<(), Failure> + Send + Sync,
{
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        _: &mut Next<'_>,
    ) -> Result<(), Fault> {
        match take::<K, V>(record) {
            Some(record) => (self.f)(ctx, record).map_err(Fault::User),
            None => Ok(()),
        }
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
            written.map_err(|source| Fault::Encode {
                topic: self.topic.name().to_owned(),
                source,
            })?;
        }
        if let Some(r) = record.take() {
            self.topic.key.recycle(r.key);
            self.topic.value.recycle(r.value);
        }
        Ok(())
    }
}

//! The stateless nodes behind the methods of [`Stream`](crate::Stream).

use std::any::Any;
use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;

use eos_protocol::Timestamp;

use super::fault::Fault;
use super::node::{Entry, Forward, Next, Node, Raw};
use crate::codec::{Decode, Encode};
use crate::ctx::Ctx;
use crate::record::Record;
use crate::topic::Topic;

/// Takes the record of this node's types. `None` if another node has taken it, which never happens.
pub(super) fn take<K: 'static, V: 'static>(record: &mut dyn Any) -> Option<Record<K, V>> {
    record.downcast_mut::<Option<Record<K, V>>>()?.take()
}

/// Reads a record of a topic.
pub(crate) struct Read<K, V, KC, VC>(pub(crate) Topic<K, V, KC, VC>);

impl<K, V, KC, VC> Entry for Read<K, V, KC, VC>
where
    K: 'static,
    V: 'static,
    KC: Decode<K>,
    VC: Decode<V>,
{
    fn enter(&mut self, ctx: &Ctx<'_>, raw: &Raw<'_>, next: &mut Next<'_>) -> Result<(), Fault> {
        let key = self
            .0
            .decode_key(raw.key, raw.headers)
            .map_err(Fault::Key)?;
        let value = self
            .0
            .decode_value(raw.value, raw.headers)
            .map_err(Fault::Value)?;
        let timestamp = match self.0.time_of(&key, &value) {
            Some(None) => return Err(Fault::NoOwnTime),
            Some(own) => own,
            None => raw.timestamp,
        };
        let headers = raw.headers.clone();
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

    fn has_own_time(&self) -> bool {
        self.0.time_id().is_some()
    }

    fn own_time(&self, raw: &Raw<'_>) -> Option<Timestamp> {
        self.0.read_time((raw.key, raw.value), raw.headers)
    }
}

/// A type that is named, but has no value here.
type Types<K, V> = PhantomData<fn(K, V)>;

/// A node with one function of the record and the next nodes.
pub(crate) struct Apply<K, V, F> {
    f: Arc<F>,
    types: Types<K, V>,
}

impl<K, V, F> Apply<K, V, F> {
    pub(crate) fn new(f: Arc<F>) -> Self {
        Self {
            f,
            types: PhantomData,
        }
    }
}

impl<K, V, F> Node for Apply<K, V, F>
where
    K: 'static,
    V: 'static,
    F: Fn(Record<K, V>, &mut Forward<'_, '_, '_>) -> Result<(), Fault> + Send + Sync,
{
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        match take::<K, V>(record) {
            Some(record) => (self.f)(record, &mut Forward { ctx, next }),
            None => Ok(()),
        }
    }
}

/// Drops every record.
pub(crate) struct Ignore;

impl Node for Ignore {
    fn process(&mut self, _: &Ctx<'_>, _: &mut dyn Any, _: &mut Next<'_>) -> Result<(), Fault> {
        Ok(())
    }
}

/// Forwards each record unchanged.
pub(crate) struct Pass;

impl Node for Pass {
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        next.forward(ctx, record)
    }
}

pub(crate) struct Look<K, V, F> {
    f: Arc<F>,
    types: Types<K, V>,
}

impl<K, V, F> Look<K, V, F> {
    pub(crate) fn new(f: Arc<F>) -> Self {
        Self {
            f,
            types: PhantomData,
        }
    }
}

impl<K: 'static, V: 'static, F: Fn(&Record<K, V>) + Send + Sync> Node for Look<K, V, F> {
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

/// Has two exits: for matching records and for the rest. Without a node behind the second exit, it is a filter.
pub(crate) struct Branch<K, V, F> {
    f: Arc<F>,
    types: Types<K, V>,
}

impl<K, V, F> Branch<K, V, F> {
    pub(crate) fn new(f: Arc<F>) -> Self {
        Self {
            f,
            types: PhantomData,
        }
    }
}

impl<K: 'static, V: 'static, F: Fn(&Record<K, V>) -> bool + Send + Sync> Node for Branch<K, V, F> {
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let passes = record
            .downcast_ref::<Option<Record<K, V>>>()
            .and_then(Option::as_ref)
            .is_some_and(|record| (self.f)(record));
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

/// Writes to one of several topics, depending on the record.
pub(crate) struct Route<K, V, KC, VC, F> {
    /// The output of the first topic. The other outputs follow it.
    first: usize,
    topics: Arc<[Topic<K, V, KC, VC>]>,
    name: Arc<F>,
}

impl<K, V, KC, VC, F> Route<K, V, KC, VC, F> {
    pub(crate) fn new(first: usize, topics: Arc<[Topic<K, V, KC, VC>]>, name: Arc<F>) -> Self {
        Self {
            first,
            topics,
            name,
        }
    }
}

impl<K, V, KC, VC, F> Node for Route<K, V, KC, VC, F>
where
    K: 'static,
    V: 'static,
    KC: Encode<K>,
    VC: Encode<V>,
    F: for<'a> Fn(&'a Record<K, V>) -> Cow<'a, str> + Send + Sync,
{
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        _: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Some(record) = take::<K, V>(record) else {
            return Ok(());
        };
        let name = (self.name)(&record);
        let mut topics = self.topics.iter().enumerate();
        let Some((at, topic)) = topics.find(|(_, topic)| topic.name.as_str() == name) else {
            let topics: Vec<&str> = self
                .topics
                .iter()
                .map(|topic| topic.name.as_str())
                .collect();
            return Err(Fault::Route {
                name: name.into_owned(),
                topics: topics.join(", "),
            });
        };
        drop(name);
        write(self.first + at, topic, ctx, record)
    }
}

/// Writes a record to a topic.
fn write<K, V, KC, VC>(
    output: usize,
    topic: &Topic<K, V, KC, VC>,
    ctx: &Ctx<'_>,
    record: Record<K, V>,
) -> Result<(), Fault>
where
    K: 'static,
    V: 'static,
    KC: Encode<K>,
    VC: Encode<V>,
{
    let Record {
        key,
        value,
        timestamp,
        headers,
    } = record;
    ctx.write(output, topic, &key, &value, timestamp, headers)?;
    topic.recycle(key, value);
    Ok(())
}

pub(crate) struct Write<K, V, KC, VC> {
    pub(crate) output: usize,
    pub(crate) topic: Topic<K, V, KC, VC>,
}

impl<K, V, KC, VC> Node for Write<K, V, KC, VC>
where
    K: 'static,
    V: 'static,
    KC: Encode<K>,
    VC: Encode<V>,
{
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        _: &mut Next<'_>,
    ) -> Result<(), Fault> {
        // Encoded in place, because a record is expensive to move.
        let record = record.downcast_mut::<Option<Record<K, V>>>();
        let Some(record) = record else {
            return Ok(());
        };
        if let Some(r) = record {
            let headers = std::mem::take(&mut r.headers);
            ctx.write(
                self.output,
                &self.topic,
                &r.key,
                &r.value,
                r.timestamp,
                headers,
            )?;
        }
        if let Some(r) = record.take() {
            self.topic.recycle(r.key, r.value);
        }
        Ok(())
    }
}

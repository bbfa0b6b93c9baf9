//! The node that joins two streams.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use eos_protocol::Timestamp;
use eos_protocol::joins::{Arrival, Arrived, Stored, key_of_head};
use eos_state::StoreError;

use super::fault::Fault;
use super::node::{Moment, Next, Node};
use super::nodes::take;
use crate::client::Headers;
use crate::codec::CodecError;
use crate::ctx::Ctx;
use crate::joins::{JoinRows, JoinStore};
use crate::record::Record;
use crate::sides::{Sided, Sides};
use crate::store::StateError;

/// Stores each record, and forwards its pairs (`KStreamKStreamJoin`). Forwards late records unchanged to the second
/// exit. If a side has unpaired results, forwards its records without a pair when they close.
pub(crate) struct JoinWithin<K, V, W, U, F> {
    rows: usize,
    /// The store of the moments of unpaired results.
    alone: Option<usize>,
    f: Arc<F>,
    types: PhantomData<fn(K, V, W) -> U>,
}

impl<K, V, W, U, F> JoinWithin<K, V, W, U, F> {
    pub(crate) fn new(rows: usize, alone: Option<usize>, f: Arc<F>) -> Self {
        Self {
            rows,
            alone,
            f,
            types: PhantomData,
        }
    }
}

/// The stores of a join, for the current record.
struct View<'c, K, V, W> {
    definition: &'c JoinStore<K, V, W>,
    rows: JoinRows<'c>,
}

impl<'c, K: 'static, V: 'static, W: 'static> View<'c, K, V, W> {
    fn new(ctx: &'c Ctx<'_>, store: usize, now: Option<Timestamp>) -> Result<Self, Fault> {
        let state = ctx.state();
        let spec = state.specs.get(store);
        let definition = spec.and_then(|spec| spec.definition.downcast_ref::<JoinStore<K, V, W>>());
        let declared = || spec.and_then(|spec| spec.expiry);
        let its = spec.and_then(|spec| state.windows.iter().find(|(id, _)| *id == spec.id));
        let expiry = its.map(|(_, expiry)| *expiry).or_else(declared);
        match (definition, expiry, state.task) {
            (Some(definition), Some(expiry), Some(task)) => Ok(Self {
                definition,
                rows: JoinRows::new(task, definition.shared_name(), &expiry, now),
            }),
            _ => Err(Fault::State(StateError::OtherApp)),
        }
    }

    fn failed(&self, source: StoreError) -> Fault {
        let store = Arc::clone(self.definition.shared_name());
        Fault::State(StateError::Store { store, source })
    }

    /// Returns the error of stored bytes that can't be decoded. The bytes belong to other records than the current one,
    /// so the error stops the worker under every error policy. An unavailable codec may be available later, so its
    /// error only fails the record.
    fn unreadable(&self, source: CodecError) -> Fault {
        if !matches!(source, CodecError::Unavailable { .. }) {
            return self.failed(self.rows.unreadable(&source));
        }
        let store = Arc::clone(self.definition.shared_name());
        Fault::State(StateError::Unreadable { store, source })
    }

    fn key(&self, bytes: &[u8]) -> Result<K, Fault> {
        let key = self.definition.decode_key(bytes);
        key.map_err(|e| self.unreadable(e))
    }

    fn value(&self, stored: &Stored) -> Result<Sided<V, W>, Fault> {
        let value = self.definition.decode_value(stored.side, &stored.value);
        value.map_err(|e| self.unreadable(e))
    }
}

impl<K, V, W, U, F> Node for JoinWithin<K, V, W, U, F>
where
    K: 'static,
    V: 'static,
    W: 'static,
    U: 'static,
    F: Fn(Sides<&V, &W>) -> Option<U> + Send + Sync,
{
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Some(record) = take::<K, Sided<V, W>>(record) else {
            return Ok(());
        };
        let Some(time) = record.timestamp.filter(|time| time.0 >= 0) else {
            return Err(Fault::NoTime(record.timestamp));
        };
        ctx.check_ahead(self.rows, time)?;
        let stream_time = ctx.stream_time().map_or(time, |seen| seen.max(time));
        let view = View::<K, V, W>::new(ctx, self.rows, Some(stream_time))?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let store = view.definition;
        store
            .encode_key(&record.key, &mut key)
            .map_err(Fault::State)?;
        store
            .encode_value(&record.value, &mut value)
            .map_err(Fault::State)?;
        let side = record.value.side();
        let arrival = Arrival {
            side,
            time,
            key: &key,
            value: &value,
        };
        let arrived = view.rows.arrive(arrival, stream_time, ctx.handled_to());
        match arrived.map_err(|e| view.failed(e))? {
            Arrived::Late => {
                ctx.came_late();
                next.forward_rest(ctx, &mut Some(record))
            }
            Arrived::Taken { partners, missed } => {
                ctx.missed_closed_partners(missed);
                let has_no_pair = partners.is_empty() && missed > 0;
                match has_no_pair && !view.rows.kind().emits_alone(side) {
                    true => next.forward_rest(ctx, &mut Some(record)),
                    false => self.forward_pairs(ctx, &view, (record, time, &key), &partners, next),
                }
            }
        }
    }

    fn due_stores(&self) -> &[usize] {
        self.alone.as_slice()
    }

    /// Forwards the records that have closed without a partner.
    fn due(&mut self, ctx: &Ctx<'_>, moment: Moment<'_>, next: &mut Next<'_>) -> Result<(), Fault> {
        let view = View::<K, V, W>::new(ctx, self.rows, Some(moment.at))?;
        let alone = view.rows.take_alone(moment.key, moment.at);
        let key = key_of_head(moment.key).map_or(moment.key, |(key, _)| key);
        for stored in alone.map_err(|e| view.failed(e))? {
            ctx.went_out_alone();
            let Some(value) = (self.f)(view.value(&stored)?.alone()) else {
                continue;
            };
            let timestamp = Some(stored.time);
            let record = Record {
                key: view.key(key)?,
                value,
                timestamp,
                headers: Headers::new(),
            };
            next.forward(&ctx.at(timestamp), &mut Some(record))?;
        }
        Ok(())
    }
}

impl<K, V, W, U, F> JoinWithin<K, V, W, U, F>
where
    K: 'static,
    V: 'static,
    W: 'static,
    U: 'static,
    F: Fn(Sides<&V, &W>) -> Option<U> + Send + Sync,
{
    /// Forwards the pairs of a record with its partners.
    fn forward_pairs(
        &self,
        ctx: &Ctx<'_>,
        view: &View<'_, K, V, W>,
        (record, time, key): (Record<K, Sided<V, W>>, Timestamp, &[u8]),
        partners: &[Stored],
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let (value, rest) = record.split();
        let mut own = Some(rest.key);
        for (at, partner) in partners.iter().enumerate() {
            let other = view.value(partner)?;
            let Some(result) = value.with(&other).and_then(|sides| (self.f)(sides)) else {
                continue;
            };
            let is_last = at + 1 == partners.len();
            let key = match own.take_if(|_| is_last) {
                Some(key) => key,
                None => view.key(key)?,
            };
            let timestamp = Some(time.max(partner.time));
            let record = Record {
                key,
                value: result,
                timestamp,
                headers: rest.headers.clone(),
            };
            next.forward(&ctx.at(timestamp), &mut Some(record))?;
        }
        if let Some(key) = own {
            view.definition.key.recycle(key);
        }
        Ok(())
    }
}

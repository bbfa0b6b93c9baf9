//! The nodes that keep state per key and window.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use eos_protocol::Timestamp;
use eos_protocol::windows::{Hopping, Window};

use super::fault::Fault;
use super::node::{Moment, Next, Node};
use super::nodes::take;
use crate::client::Headers;
use crate::ctx::Ctx;
use crate::record::Record;
use crate::store::{Stamped, WindowView};
use crate::windowed_key::Windowed;

/// Combines a record with the current result of its window, and keeps and forwards each new result, with the highest
/// time of its records (`KStreamWindowAggregate`). `None` deletes the key and its time from the window. A record of a
/// closed window leaves unchanged by the second exit.
pub(crate) struct WindowedAggregate<K, V, P, A, U, F> {
    pub(crate) store: usize,
    pub(crate) windows: Hopping,
    /// Returns the part of a value that `f` takes.
    pub(crate) part: fn(V) -> P,
    /// Copies key and part for windows that overlap.
    pub(crate) copy: Option<CopyBoth<K, P>>,
    pub(crate) f: Arc<F>,
    /// Converts a result, or its absence, into the forwarded update.
    pub(crate) update: fn(Option<A>) -> Option<U>,
}

/// Copies a key and a value.
pub(crate) type CopyBoth<K, V> = fn(&K, &V) -> (K, V);

impl<K, V, P, A, U, F> Node for WindowedAggregate<K, V, P, A, U, F>
where
    K: 'static,
    V: 'static,
    P: 'static,
    A: 'static,
    U: 'static,
    F: Fn(&K, P, Option<A>) -> Option<A> + Send + Sync,
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
        let Some(time) = timestamp.filter(|time| time.0 >= 0) else {
            return Err(Fault::NoTime(timestamp));
        };
        let stream_time = ctx.stream_time().map_or(time, |seen| seen.max(time));
        let store = ctx.windows_at::<K, Stamped<A>>(self.store);
        // If an earlier program had a shorter grace, a window that is open now may have expired, or its final result may
        // be emitted. In other stores, no open window is expired: the checks of the graph refuse a shorter retention.
        let is_closed = |window: &Window| {
            self.windows.is_closed(*window, stream_time) || store.is_closed(window.start)
        };
        // Windows come in the order of their starts, so the closed ones come first.
        let mut open = self.windows.windows(time);
        let mut closed = 0;
        let first = open.by_ref().find(|window| {
            let is_closed = is_closed(window);
            closed += u64::from(is_closed);
            !is_closed
        });
        ctx.missed_windows(closed);
        let Some(mut window) = first else {
            ctx.came_late();
            return next.forward_rest(
                ctx,
                &mut Some(Record {
                    key,
                    value,
                    timestamp,
                    headers,
                }),
            );
        };
        let value = (self.part)(value);
        for later in open {
            // Windows that do not overlap have no later one.
            if let Some(copy) = self.copy {
                let copied = copy(&key, &value);
                let record = (copied, timestamp, headers.clone());
                self.update(
                    ctx,
                    &store,
                    std::mem::replace(&mut window, later),
                    record,
                    next,
                )?;
            }
        }
        self.update(
            ctx,
            &store,
            window,
            ((key, value), timestamp, headers),
            next,
        )
    }
}

impl<K, V, P, A, U, F> WindowedAggregate<K, V, P, A, U, F>
where
    K: 'static,
    V: 'static,
    P: 'static,
    A: 'static,
    U: 'static,
    F: Fn(&K, P, Option<A>) -> Option<A> + Send + Sync,
{
    /// Adds a record to one window, and forwards the result.
    fn update(
        &self,
        ctx: &Ctx<'_>,
        store: &WindowView<'_, K, Stamped<A>>,
        window: Window,
        ((key, value), timestamp, headers): ((K, P), Option<Timestamp>, Headers),
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        // A step may have set a time ahead of the records.
        store.check_start(window.start).map_err(Fault::State)?;
        let kept = store.read(&key, window.start).map_err(Fault::State)?;
        let (old, before) = match kept {
            Some(stamped) => (Some(stamped.value), stamped.timestamp),
            None => (None, None),
        };
        let timestamp = timestamp.max(before);
        let value = match (self.f)(&key, value, old) {
            Some(value) => {
                let stamped = Stamped { value, timestamp };
                store
                    .write(&key, window.start, &stamped)
                    .map_err(Fault::State)?;
                Some(stamped.value)
            }
            None => {
                store.forget(&key, window.start).map_err(Fault::State)?;
                None
            }
        };
        let Some(value) = (self.update)(value) else {
            return Ok(());
        };
        next.forward(
            ctx,
            &mut Some(Record {
                key: Windowed { key, window },
                value,
                timestamp,
                headers,
            }),
        )
    }
}

/// [`PerCommit`](super::PerCommit) for results per key and window.
pub(crate) struct WindowedPerCommit<K, A, U> {
    store: usize,
    windows: Hopping,
    /// Converts a result, or its absence, into the forwarded update.
    update: fn(Option<A>) -> Option<U>,
    types: PhantomData<fn(K)>,
}

impl<K, A, U> WindowedPerCommit<K, A, U> {
    pub(crate) fn new(store: usize, windows: Hopping, update: fn(Option<A>) -> Option<U>) -> Self {
        Self {
            store,
            windows,
            update,
            types: PhantomData,
        }
    }
}

impl<K: 'static, A: 'static, U: 'static> Node for WindowedPerCommit<K, A, U> {
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        _: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let store = ctx.windows_at::<K, Stamped<A>>(self.store);
        if let Some(record) = take::<Windowed<K>, U>(record) {
            let definition = store.definition().map_err(Fault::State)?;
            definition.key.recycle(record.key.key);
        }
        Ok(())
    }

    fn emits(&self) -> Option<usize> {
        Some(self.store)
    }

    /// A window that this transaction has closed emits its last result here like any other window.
    fn emit(
        &mut self,
        ctx: &Ctx<'_>,
        key: &[u8],
        value: Option<&[u8]>,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let store = ctx.windows_at::<K, Stamped<A>>(self.store);
        let (start, key) = store.decode(key).map_err(Fault::State)?;
        let stamped = value.map(|value| store.decode_value(value)).transpose();
        let (value, timestamp) = match stamped.map_err(Fault::State)? {
            Some(Stamped { value, timestamp }) => (Some(value), timestamp),
            // The time was deleted with the result.
            None => (None, ctx.stream_time()),
        };
        let Some(value) = (self.update)(value) else {
            return Ok(());
        };
        let window = self.windows.at(start);
        next.forward(
            &ctx.at(timestamp),
            &mut Some(Record {
                key: Windowed { key, window },
                value,
                timestamp,
                headers: Headers::new(),
            }),
        )
    }
}

/// Holds back all updates, and forwards the result of each key and window once, after the window has closed. The results
/// are in the store before it, behind a cursor (`KTableSuppressProcessor` with `untilWindowCloses` keeps them in memory).
pub(crate) struct OnClose<K, A, U> {
    store: usize,
    windows: Hopping,
    types: PhantomData<fn(K, A, U)>,
}

impl<K, A, U> OnClose<K, A, U> {
    pub(crate) fn new(store: usize, windows: Hopping) -> Self {
        Self {
            store,
            windows,
            types: PhantomData,
        }
    }
}

impl<K: 'static, A: 'static, U: 'static> Node for OnClose<K, A, U> {
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        _: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let store = ctx.windows_at::<K, Stamped<A>>(self.store);
        if let Some(record) = take::<Windowed<K>, U>(record) {
            let definition = store.definition().map_err(Fault::State)?;
            definition.key.recycle(record.key.key);
        }
        Ok(())
    }

    fn due_stores(&self) -> &[usize] {
        std::slice::from_ref(&self.store)
    }

    /// Emits the final result of a row.
    fn due(&mut self, ctx: &Ctx<'_>, moment: Moment<'_>, next: &mut Next<'_>) -> Result<(), Fault> {
        let store = ctx.windows_at::<K, Stamped<A>>(self.store);
        let (start, key) = store.decode(moment.key).map_err(Fault::State)?;
        let kept = store.decode_value(moment.value).map_err(Fault::State)?;
        let window = self.windows.at(start);
        next.forward(
            &ctx.at(kept.timestamp),
            &mut Some(Record {
                key: Windowed { key, window },
                value: kept.value,
                timestamp: kept.timestamp,
                headers: Headers::new(),
            }),
        )
    }
}

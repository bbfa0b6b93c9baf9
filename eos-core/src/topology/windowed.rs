//! The node that keeps something per key and window.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use eos_protocol::windows::Tumbling;

use super::node::{Fault, Next, Node};
use super::nodes::take;
use crate::ctx::Ctx;
use crate::record::Record;
use crate::store::Stamped;
use crate::windowed::Windowed;

/// Makes a new result of a record and what its window has so far, keeps it, and hands it on: each
/// update, with the highest time of the records behind it (`KStreamWindowAggregate`). A record of a
/// window that is closed leaves by the second way out, as it came.
pub(crate) struct WindowedAggregate<K, V, A, F> {
    store: usize,
    windows: Tumbling,
    f: Arc<F>,
    types: PhantomData<fn(K, V) -> A>,
}

impl<K, V, A, F> WindowedAggregate<K, V, A, F> {
    pub(crate) fn new(store: usize, windows: Tumbling, f: Arc<F>) -> Self {
        Self {
            store,
            windows,
            f,
            types: PhantomData,
        }
    }
}

impl<K, V, A, F> Node for WindowedAggregate<K, V, A, F>
where
    K: 'static,
    V: 'static,
    A: 'static,
    F: Fn(&K, V, Option<A>) -> A + Send + Sync,
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
        let found = timestamp.and_then(|time| Some((time, self.windows.window(time)?)));
        let Some((time, window)) = found else {
            return Err(Fault::NoTime(timestamp));
        };
        let stream_time = ctx.stream_time().map_or(time, |seen| seen.max(time));
        if self.windows.is_closed(window, stream_time) {
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
        }
        let store = ctx.windows_at::<K, Stamped<A>>(self.store);
        let kept = store.read(&key, window.start).map_err(Fault::State)?;
        let (old, before) = match kept {
            Some(stamped) => (Some(stamped.value), stamped.timestamp),
            None => (None, None),
        };
        let stamped = Stamped {
            value: (self.f)(&key, value, old),
            timestamp: timestamp.max(before),
        };
        // An open window is never over: the graph is checked for that.
        store
            .write(&key, window.start, &stamped)
            .map_err(Fault::State)?;
        next.forward(
            ctx,
            &mut Some(Record {
                key: Windowed { key, window },
                value: stamped.value,
                timestamp: stamped.timestamp,
                headers,
            }),
        )
    }
}

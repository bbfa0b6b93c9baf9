//! The node that keeps state per key and session.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use eos_protocol::windows::{OpenSession, OpenSessions, Session};

use super::fault::Fault;
use super::node::{Moment, Next, Node};
use super::nodes::take;
use super::row_store::RowStore;
use crate::client::Headers;
use crate::ctx::Ctx;
use crate::record::Record;
use crate::store::session_window;
use crate::windowed_key::Windowed;

/// Combines a record with the sessions of its key that it joins, and keeps and forwards the result
/// (`KStreamSessionWindowAggregate`). A record whose session would be closed leaves unchanged by the second exit.
///
/// A row has all open sessions of a key, and closed sessions that are not removed yet. With final results, the row is due
/// when its first session closes, and the node forwards results only then. Without final results, it is due later.
pub(crate) struct SessionAggregate<K, V, A, F> {
    store: usize,
    windows: Session,
    f: Arc<F>,
    types: PhantomData<fn(K, V, A)>,
}

impl<K, V, A, F> SessionAggregate<K, V, A, F> {
    /// `f` combines the results of all joined sessions with the record.
    pub(crate) fn new(store: usize, windows: Session, f: Arc<F>) -> Self {
        Self {
            store,
            windows,
            f,
            types: PhantomData,
        }
    }
}

impl<K, V, A, F> SessionAggregate<K, V, A, F>
where
    K: 'static,
    A: 'static,
{
    fn sessions<'r>(
        &self,
        store: &RowStore<'_, K, A>,
        row: &'r [u8],
    ) -> Result<OpenSessions<'r>, Fault> {
        OpenSessions::decode(row).map_err(|error| store.unreadable_row(&error))
    }

    /// Writes the sessions of a key with the next moment at which the row is due.
    fn write(
        &self,
        store: &RowStore<'_, K, A>,
        key: &[u8],
        sessions: &OpenSessions<'_>,
    ) -> Result<(), Fault> {
        let Some(due) = sessions.next_due(&self.windows, store.visits_at_close) else {
            return store.delete(key);
        };
        let mut row = Vec::new();
        sessions.encode(&mut row);
        store.put(key, due, &row)
    }
}

impl<K, V, A, F> Node for SessionAggregate<K, V, A, F>
where
    K: 'static,
    V: 'static,
    A: 'static,
    F: Fn(&K, V, Vec<A>) -> A + Send + Sync,
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
        ctx.check_ahead(self.store, time)?;
        let stream_time = ctx.stream_time().map_or(time, |seen| seen.max(time));
        let store = RowStore::<K, A>::new(ctx, self.store)?;
        let (mut encoded, mut row) = (Vec::new(), Vec::new());
        store.encode_key(&key, &mut encoded)?;
        let mut sessions = match store.get(&encoded, &mut row)? {
            true => self.sessions(&store, &row)?,
            false => OpenSessions::default(),
        };
        // Only up to the handled time, because records at an earlier stream time may still arrive.
        if !store.is_final
            && let Some(handled) = ctx.handled_to()
        {
            sessions.take_closed(&self.windows, handled);
        }
        let open = (stream_time, store.closed_before);
        let joined = sessions.take_joined(&self.windows, time, open);
        let is_closed = self.windows.is_closed(time, stream_time) || time < store.closed_before;
        if joined.is_empty() && is_closed {
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
        let (mut first, mut last) = (time, time);
        let mut results = Vec::with_capacity(joined.len());
        for session in &joined {
            (first, last) = (first.min(session.first), last.max(session.last));
            results.push(store.decode_result(&session.result)?);
        }
        let result = (self.f)(&key, value, results);
        sessions.insert(OpenSession {
            first,
            last,
            result: store.encode_result(&result)?.into(),
        });
        self.write(&store, &encoded, &sessions)?;
        if store.is_final {
            store.recycle(key);
            return Ok(());
        }
        for session in joined {
            if (session.first, session.last) == (first, last) {
                continue;
            }
            let key = store.decode_key(&encoded)?;
            let time = Some(session.last);
            let window = session_window(session.first, session.last);
            next.forward(
                ctx,
                &mut Some(Record {
                    key: Windowed { key, window },
                    value: None::<A>,
                    timestamp: time,
                    headers: headers.clone(),
                }),
            )?;
        }
        let window = session_window(first, last);
        next.forward(
            ctx,
            &mut Some(Record {
                key: Windowed { key, window },
                value: Some(result),
                timestamp: Some(last),
                headers,
            }),
        )
    }

    fn due_stores(&self) -> &[usize] {
        std::slice::from_ref(&self.store)
    }

    /// Removes the sessions that have closed, and forwards their results if these are final.
    fn due(&mut self, ctx: &Ctx<'_>, moment: Moment<'_>, next: &mut Next<'_>) -> Result<(), Fault> {
        let store = RowStore::<K, A>::new(ctx, self.store)?;
        let mut sessions = self.sessions(&store, moment.value)?;
        let closed = sessions.take_closed(&self.windows, moment.at);
        if !sessions.is_empty() {
            self.write(&store, moment.key, &sessions)?;
        }
        if !store.is_final {
            return Ok(());
        }
        for session in closed {
            let window = session_window(session.first, session.last);
            let time = Some(session.last);
            next.forward(
                &ctx.at(time),
                &mut Some(Record {
                    key: Windowed {
                        key: store.decode_key(moment.key)?,
                        window,
                    },
                    value: Some(store.decode_result(&session.result)?),
                    timestamp: time,
                    headers: Headers::new(),
                }),
            )?;
        }
        Ok(())
    }
}

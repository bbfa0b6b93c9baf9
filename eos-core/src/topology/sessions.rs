//! The node that keeps state per key and session.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use eos_protocol::state::StoreId;
use eos_protocol::windows::{OpenSession, OpenSessions, Session};
use eos_state::{StoreError, TaskStore};

use super::fault::Fault;
use super::node::{Moment, Next, Node};
use super::nodes::take;
use crate::client::Headers;
use crate::codec::{CodecError, Encoded, Part};
use crate::ctx::Ctx;
use crate::record::Record;
use crate::store::{SessionStore, StateError, session_window};
use crate::windowed_key::Windowed;

/// Combines a record with the sessions of its key that it joins, and keeps and forwards the result
/// (`KStreamSessionWindowAggregate`). A record whose session would be closed leaves unchanged by the second exit.
///
/// A row has all sessions of a key that are open, and those that are closed and not handled yet. It is due when its first
/// session closes. If results are final, they are forwarded only then.
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

/// The session store of a task.
struct Kept<'c, K, A> {
    definition: &'c SessionStore<K, A>,
    id: StoreId,
    is_final: bool,
    task: &'c TaskStore,
}

impl<'c, K: 'static, A: 'static> Kept<'c, K, A> {
    fn new(ctx: &'c Ctx<'_>, store: usize) -> Result<Self, Fault> {
        let state = ctx.state();
        let spec = state.specs.get(store);
        let definition = spec.and_then(|spec| spec.definition.downcast_ref());
        match (spec, definition, state.task) {
            (Some(spec), Some(definition), Some(task)) => Ok(Self {
                definition,
                id: spec.id,
                is_final: spec.is_final,
                task,
            }),
            _ => Err(Fault::State(StateError::OtherApp)),
        }
    }

    fn name(&self) -> Arc<str> {
        self.definition.name().into()
    }

    fn failed(&self, source: StoreError) -> Fault {
        let store = self.name();
        Fault::State(StateError::Store { store, source })
    }

    fn unreadable(&self, source: CodecError) -> Fault {
        let store = self.name();
        Fault::State(StateError::Unreadable { store, source })
    }

    fn encode_key(&self, key: &K, into: &mut Vec<u8>) -> Result<(), Fault> {
        into.clear();
        let definition = self.definition;
        let encoded = definition
            .key
            .encode(key, into, &definition.field(Part::Key));
        let store = self.name();
        match encoded {
            Ok(Encoded::Bytes) => Ok(()),
            Ok(Encoded::Null) => {
                let what = "a key";
                Err(Fault::State(StateError::Null { store, what }))
            }
            Err(source) => Err(Fault::State(StateError::Key { store, source })),
        }
    }

    fn encode_result(&self, result: &A) -> Result<Vec<u8>, Fault> {
        let (definition, mut bytes) = (self.definition, Vec::new());
        let field = definition.field(Part::Value);
        let store = self.name();
        match definition.result.encode(result, &mut bytes, &field) {
            Ok(Encoded::Bytes) => Ok(bytes),
            Ok(Encoded::Null) => {
                let what = "a value";
                Err(Fault::State(StateError::Null { store, what }))
            }
            Err(source) => Err(Fault::State(StateError::Value { store, source })),
        }
    }

    fn sessions<'r>(&self, row: &'r [u8]) -> Result<OpenSessions<'r>, Fault> {
        OpenSessions::decode(row)
            .map_err(|error| self.unreadable(CodecError::invalid("sessions of a key", error)))
    }

    /// Writes the sessions of a key, due when the first of them closes.
    fn write(
        &self,
        key: &[u8],
        sessions: &OpenSessions<'_>,
        windows: &Session,
    ) -> Result<(), Fault> {
        let Some(due) = sessions.first_close(windows) else {
            let deleted = self.task.delete_due(self.id, key);
            return deleted.map(drop).map_err(|e| self.failed(e));
        };
        let mut row = Vec::new();
        sessions.encode(&mut row);
        let put = self.task.put_due(self.id, key, due, &row);
        put.map_err(|e| self.failed(e))
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
        let stream_time = ctx.stream_time().map_or(time, |seen| seen.max(time));
        let store = Kept::<K, A>::new(ctx, self.store)?;
        let (mut encoded, mut row) = (Vec::new(), Vec::new());
        store.encode_key(&key, &mut encoded)?;
        let found = store.task.get_due(store.id, &encoded, &mut row);
        let mut sessions = match found.map_err(|e| store.failed(e))? {
            Some(_) => store.sessions(&row)?,
            None => OpenSessions::default(),
        };
        if !store.is_final {
            sessions.take_closed(&self.windows, stream_time);
        }
        let joined = sessions.take_joined(&self.windows, time, stream_time);
        if joined.is_empty() && self.windows.is_closed(time, stream_time) {
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
            let result = store.definition.decode_result(&session.result);
            results.push(result.map_err(|e| store.unreadable(e))?);
        }
        let result = (self.f)(&key, value, results);
        sessions.insert(OpenSession {
            first,
            last,
            result: store.encode_result(&result)?.into(),
        });
        store.write(&encoded, &sessions, &self.windows)?;
        if store.is_final {
            store.definition.key.recycle(key);
            return Ok(());
        }
        for session in joined {
            if (session.first, session.last) == (first, last) {
                continue;
            }
            let key = store.definition.decode_key(&encoded);
            let key = key.map_err(|e| store.unreadable(e))?;
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
        let store = Kept::<K, A>::new(ctx, self.store)?;
        let mut sessions = store.sessions(moment.value)?;
        let closed = sessions.take_closed(&self.windows, moment.at);
        if !sessions.is_empty() {
            store.write(moment.key, &sessions, &self.windows)?;
        }
        if !store.is_final {
            return Ok(());
        }
        for session in closed {
            let key = store.definition.decode_key(moment.key);
            let result = store.definition.decode_result(&session.result);
            let window = session_window(session.first, session.last);
            let time = Some(session.last);
            next.forward(
                &ctx.at(time),
                &mut Some(Record {
                    key: Windowed {
                        key: key.map_err(|e| store.unreadable(e))?,
                        window,
                    },
                    value: Some(result.map_err(|e| store.unreadable(e))?),
                    timestamp: time,
                    headers: Headers::new(),
                }),
            )?;
        }
        Ok(())
    }
}

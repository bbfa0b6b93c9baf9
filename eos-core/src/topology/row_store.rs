//! A store with one row of windows per key.

use std::sync::Arc;

use eos_protocol::Timestamp;
use eos_protocol::state::StoreId;
use eos_protocol::windows::SessionsError;
use eos_state::{StoreError, TaskStore};

use super::fault::Fault;
use crate::codec::{CodecError, Encoded, Part};
use crate::ctx::Ctx;
use crate::store::{SessionStore, StateError};

/// A store of a task with one row of windows per key.
pub(super) struct RowStore<'c, K, A> {
    definition: &'c SessionStore<K, A>,
    id: StoreId,
    /// Whether results are forwarded only when their windows close.
    pub(super) is_final: bool,
    /// See [`StoreSpec::visits_at_close`](crate::store::StoreSpec::visits_at_close).
    pub(super) visits_at_close: bool,
    /// Sessions whose last record is before this time, and sliding windows that start before it, are closed.
    pub(super) closed_before: Timestamp,
    task: &'c TaskStore,
}

impl<'c, K: 'static, A: 'static> RowStore<'c, K, A> {
    pub(super) fn new(ctx: &'c Ctx<'_>, store: usize) -> Result<Self, Fault> {
        let state = ctx.state();
        let spec = state.specs.get(store);
        let definition = spec.and_then(|spec| spec.definition.downcast_ref());
        match (spec, definition, state.task) {
            (Some(spec), Some(definition), Some(task)) => {
                let closed = state.closed.iter().find(|(id, _)| *id == spec.id);
                Ok(Self {
                    definition,
                    id: spec.id,
                    is_final: spec.is_final,
                    visits_at_close: spec.visits_at_close(),
                    closed_before: closed.map_or(Timestamp(i64::MIN), |(_, time)| *time),
                    task,
                })
            }
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

    /// Returns the fault of a row that can't be read. It stops the worker, whatever the error policy: the row has results
    /// of other records.
    pub(super) fn unreadable_row(&self, source: &SessionsError) -> Fault {
        self.failed(self.task.unreadable(&self.name(), source.to_string()))
    }

    pub(super) fn encode_key(&self, key: &K, into: &mut Vec<u8>) -> Result<(), Fault> {
        into.clear();
        let definition = self.definition;
        let encoded = definition
            .key
            .encode(key, into, &definition.field(Part::Key));
        let store = self.name();
        match encoded {
            Ok(Encoded::Bytes) => Ok(()),
            Ok(Encoded::Null) => Err(Fault::State(StateError::NullKey { store })),
            Err(source) => Err(Fault::State(StateError::Key { store, source })),
        }
    }

    pub(super) fn encode_result(&self, result: &A) -> Result<Vec<u8>, Fault> {
        let (definition, mut bytes) = (self.definition, Vec::new());
        let field = definition.field(Part::Value);
        let store = self.name();
        match definition.result.encode(result, &mut bytes, &field) {
            Ok(Encoded::Bytes) => Ok(bytes),
            Ok(Encoded::Null) => Err(Fault::State(StateError::NullValue { store })),
            Err(source) => Err(Fault::State(StateError::Value { store, source })),
        }
    }

    pub(super) fn decode_key(&self, bytes: &[u8]) -> Result<K, Fault> {
        let key = self.definition.decode_key(bytes);
        key.map_err(|e| self.unreadable(e))
    }

    pub(super) fn decode_result(&self, bytes: &[u8]) -> Result<A, Fault> {
        let result = self.definition.decode_result(bytes);
        result.map_err(|e| self.unreadable(e))
    }

    /// Takes back the buffers of a key.
    pub(super) fn recycle(&self, key: K) {
        self.definition.key.recycle(key);
    }

    /// Reads the row of a key. Returns whether there is one.
    pub(super) fn get(&self, key: &[u8], row: &mut Vec<u8>) -> Result<bool, Fault> {
        let due = self.task.get_due(self.id, key, row);
        Ok(due.map_err(|e| self.failed(e))?.is_some())
    }

    pub(super) fn put(&self, key: &[u8], due: Timestamp, row: &[u8]) -> Result<(), Fault> {
        let put = self.task.put_due(self.id, key, due, row);
        put.map_err(|e| self.failed(e))
    }

    pub(super) fn delete(&self, key: &[u8]) -> Result<(), Fault> {
        let deleted = self.task.delete_due(self.id, key);
        deleted.map(drop).map_err(|e| self.failed(e))
    }
}

/// Returns the fault of a row of an operator's store that can't be read. It stops the worker, whatever the error policy: a
/// policy would drop each record that needs the row.
pub(super) fn unreadable_row(ctx: &Ctx<'_>, store: &Arc<str>, error: impl ToString) -> Fault {
    let Some(task) = ctx.state().task else {
        return Fault::State(StateError::OtherApp);
    };
    let source = task.unreadable(store, error.to_string());
    let store = Arc::clone(store);
    Fault::State(StateError::Store { store, source })
}

/// The same for a codec of the program. One that is not available is tried again, if the policy retries.
pub(super) fn codec_fault(ctx: &Ctx<'_>, store: &Arc<str>, source: CodecError) -> Fault {
    if matches!(source, CodecError::Unavailable { .. }) {
        let store = Arc::clone(store);
        return Fault::State(StateError::Unreadable { store, source });
    }
    unreadable_row(ctx, store, source)
}

/// The same for a read of typed rows.
pub(super) fn row_fault(ctx: &Ctx<'_>, error: StateError) -> Fault {
    match error {
        StateError::Unreadable { store, source } => codec_fault(ctx, &store, source),
        error => Fault::State(error),
    }
}

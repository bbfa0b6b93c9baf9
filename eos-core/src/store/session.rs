//! A store of sessions.

use std::fmt;
use std::sync::Arc;

use eos_protocol::state::{OwnRows, StoreId};
use eos_protocol::windows::{AnyWindows, OpenSessions, Window};
use eos_protocol::{Clock, Timestamp};
use eos_state::{StoreBackend, StoreKind, due_row};

use super::StoreSpec;
use super::rows::{RowsError, RowsOf, StoreRows, live_rows};
use crate::codec::{Codec, CodecError, Field, Json, Part, Plain, PlainType};

/// A store of the open sessions of each key, for
/// [`windowed_by(Session::gap(..))`](crate::stream::Grouped::windowed_by).
///
/// It has one row per key. The row has all open sessions of the key, and closed sessions that are not removed yet. The next
/// record of the key that is not late removes them. Without such a record, a closed session leaves the store once stream
/// time is three times the sum of gap and grace after its close. With final results, or with
/// [`close_when_idle`](crate::Stream::close_when_idle), it leaves when it closes.
///
/// ```
/// # use eos_core::state::SessionStore;
/// let visits = SessionStore::<String, u64>::plain("visits");
/// ```
pub struct SessionStore<K, A> {
    name: Arc<str>,
    pub(crate) key: Arc<dyn Codec<K>>,
    pub(crate) result: Arc<dyn Codec<A>>,
}

impl<K, A> SessionStore<K, A> {
    /// Results are JSON; keys are plain (text, bytes, integers).
    pub fn json(name: &str) -> Self
    where
        K: PlainType,
        Json: Codec<A>,
    {
        Self::with(name, Plain, Json)
    }

    /// Keys and results are plain: text (UTF-8), bytes, integers.
    pub fn plain(name: &str) -> Self
    where
        K: PlainType,
        A: PlainType,
    {
        Self::with(name, Plain, Plain)
    }

    /// Creates a store with codecs of your choice. Equal keys must have equal bytes.
    pub fn with(name: &str, key: impl Codec<K>, result: impl Codec<A>) -> Self {
        Self {
            name: name.into(),
            key: Arc::new(key),
            result: Arc::new(result),
        }
    }

    /// The name of the store.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn field(&self, part: Part) -> Field<'_> {
        Field::bare(&self.name, part)
    }
}

impl<K: 'static, A: 'static> SessionStore<K, A> {
    pub(crate) fn spec(&self, windows: AnyWindows) -> StoreSpec {
        let rows = match windows {
            AnyWindows::Sliding(_) => OwnRows::Sliding,
            AnyWindows::Session(_) | AnyWindows::Fixed(_) => OwnRows::Sessions,
        };
        StoreSpec {
            name: Arc::clone(&self.name),
            id: StoreId::own(&self.name, rows),
            kind: StoreKind::Point,
            expiry: None,
            windows: Some(windows),
            is_final: false,
            closes_when_idle: false,
            clock: Some(Clock::Background),
            period: None,
            trusts_times: false,
            definition: Box::new(self.clone()),
        }
    }

    pub(crate) fn decode_key(&self, bytes: &[u8]) -> Result<K, CodecError> {
        self.key.decode(Some(bytes), &self.field(Part::Key))
    }

    pub(crate) fn decode_result(&self, bytes: &[u8]) -> Result<A, CodecError> {
        self.result.decode(Some(bytes), &self.field(Part::Value))
    }
}

/// Returns the window of a session. The window does not include its end.
pub(crate) fn window_of(first: Timestamp, last: Timestamp) -> Window {
    Window {
        start: first,
        end: Timestamp(last.0.saturating_add(1)),
    }
}

impl<K: 'static, A: 'static> StoreRows for SessionStore<K, A> {
    type Key = (K, Window);
    type Value = A;

    fn store_name(&self) -> &str {
        &self.name
    }

    fn rows(&self, database: &dyn StoreBackend) -> Result<RowsOf<Self>, RowsError> {
        let rows = live_rows(database, StoreId::own(&self.name, OwnRows::Sessions))?;
        let unreadable = |source| RowsError::Row {
            store: self.name.to_string(),
            source,
        };
        let mut found = Vec::new();
        for (key, _, row) in rows.iter().filter_map(|(key, row)| due_row(key, row)) {
            let sessions = OpenSessions::decode(row);
            let sessions =
                sessions.map_err(|e| unreadable(CodecError::invalid("sessions of a key", e)))?;
            for session in sessions.iter() {
                let key = self.decode_key(key).map_err(unreadable)?;
                let result = self.decode_result(&session.result).map_err(unreadable)?;
                found.push(((key, window_of(session.first, session.last)), result));
            }
        }
        Ok(found)
    }
}

impl<K, A> Clone for SessionStore<K, A> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            key: Arc::clone(&self.key),
            result: Arc::clone(&self.result),
        }
    }
}

impl<K, A> fmt::Debug for SessionStore<K, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionStore")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

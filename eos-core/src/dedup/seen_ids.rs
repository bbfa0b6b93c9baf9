//! Definitions of known ids.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::identity::{IdScope, SeenKind, SeenWindow};
use eos_protocol::state::StoreId;
use eos_state::StoreKind;

use crate::codec::{Codec, Encoded, Field, Part, Plain, PlainType};
use crate::store::{KeyValueStore, StateError, StoreSpec, WindowStore};
use crate::topology::Fault;

/// The known ids of a stream: a store, and how long an id counts as seen.
///
/// `K` is the type of the stream's keys. An id counts within the key of its record, unless
/// [`per_partition`](Self::per_partition) is set. The name identifies the store, as that of a
/// [`KeyValueStore`](crate::KeyValueStore) does.
///
/// Time is event time: the timestamps of the records. A topic with `message.timestamp.type=LogAppendTime` has the
/// brokers' times.
///
/// | | a record is a duplicate if its id was seen |
/// |---|---|
/// | [`fixed`](Self::fixed) | less than the window before or after it, counted from the first record |
/// | [`sliding`](Self::sliding) | less than the window before or after it, counted from the last record |
/// | [`for_ever`](Self::for_ever) | at any time |
///
/// # Changes
/// The next program may change the lateness. The kind and the length of the window and the scope of the ids can't change,
/// because the ids in the store have keys of the former ones. Such an app does not start. Restore them, or start under
/// another app name, without ids.
///
/// ```
/// # use eos_core::identity::SeenIds;
/// # use std::time::Duration;
/// let five_minutes = SeenIds::<String>::fixed("seen-payments", Duration::from_secs(300));
/// let per_partition = SeenIds::<Vec<u8>>::for_ever("seen-mails").per_partition();
/// ```
pub struct SeenIds<K> {
    name: Arc<str>,
    pub(crate) seen_for: SeenFor,
    pub(crate) key: Arc<dyn Codec<K>>,
    /// The part of the stream in which an id is unique.
    pub(crate) scope: IdScope,
    /// Whether records may be ahead of the machine's clock.
    pub(crate) trusts_times: bool,
    /// The time for which senders repeat a record.
    horizon: Option<Duration>,
}

/// How long an id counts as seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeenFor {
    Window(SeenWindow),
    Ever,
}

impl<K> SeenIds<K> {
    /// An id counts as seen for this time after its first record. Repetitions don't extend it: exactly `window` after
    /// the first record, the id is new again. For streams with plain keys (text, bytes, integers).
    pub fn fixed(name: &str, window: Duration) -> Self
    where
        K: PlainType,
    {
        Self::new(name, SeenFor::Window(SeenWindow::fixed(window)))
    }

    /// An id counts as seen for this time after its last record: each repetition extends it. For streams with plain keys.
    ///
    /// A sender that repeats a record again and again extends it without end. [`at_most`](Self::at_most) sets a limit.
    pub fn sliding(name: &str, window: Duration) -> Self
    where
        K: PlainType,
    {
        Self::new(name, SeenFor::Window(SeenWindow::sliding(window)))
    }

    /// An id counts as seen for ever. The store grows by each new id. For streams with plain keys.
    pub fn for_ever(name: &str) -> Self
    where
        K: PlainType,
    {
        Self::new(name, SeenFor::Ever)
    }

    fn new(name: &str, seen_for: SeenFor) -> Self
    where
        K: PlainType,
    {
        Self {
            name: name.into(),
            seen_for,
            key: Arc::new(Plain),
            scope: IdScope::Key,
            trusts_times: false,
            horizon: None,
        }
    }

    /// Sets how far behind stream time a record may be. The default is the window, and at most an hour.
    ///
    /// The id of an older record may have been forgotten. If it is not found, the record fails, or goes where
    /// [`Dedup::too_old_to`](super::Dedup::too_old_to) says. The store keeps ids for one and a half times the window, and
    /// for the lateness in addition. Without effect on [`for_ever`](Self::for_ever).
    #[must_use]
    pub fn lateness(self, lateness: Duration) -> Self {
        self.windowed(|window| window.lateness(lateness))
    }

    /// Limits how long repetitions extend a sliding window, counted from the first record. Without effect on other
    /// windows.
    #[must_use]
    pub fn at_most(self, at_most: Duration) -> Self {
        self.windowed(|window| match window.kind() {
            SeenKind::Sliding => window.at_most(at_most),
            _ => window,
        })
    }

    fn windowed(mut self, change: impl FnOnce(SeenWindow) -> SeenWindow) -> Self {
        if let SeenFor::Window(window) = self.seen_for {
            self.seen_for = SeenFor::Window(change(window));
        }
        self
    }

    /// Lets an id count within the partition of the input, whatever the key.
    #[must_use]
    pub fn per_partition(self) -> Self {
        Self {
            scope: IdScope::Partition,
            ..self
        }
    }

    /// Declares for how long senders repeat a record, including their retries and replays. With a shorter window, the app
    /// does not start.
    #[must_use]
    pub fn redelivered_within(self, horizon: Duration) -> Self {
        Self {
            horizon: Some(horizon),
            ..self
        }
    }

    /// Accepts records from the future.
    ///
    /// By default, a record more than an hour ahead of the machine's clock fails before it moves stream time. Otherwise,
    /// one wrong timestamp would make all current records too old.
    #[must_use]
    pub fn trust_times(self) -> Self {
        Self {
            trusts_times: true,
            ..self
        }
    }

    /// The name of the store.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    /// Checks the durations.
    pub(crate) fn check(&self) -> Result<(), super::SeenWindowError> {
        match self.seen_for {
            SeenFor::Window(window) => window.check(self.horizon),
            SeenFor::Ever => Ok(()),
        }
    }

    pub(crate) fn spec(&self) -> StoreSpec {
        let (kind, base) = match self.seen_for {
            SeenFor::Window(window) => {
                let store = WindowStore::<Vec<u8>, Vec<u8>>::plain(&self.name);
                (window.kind(), store.spec(window.expiry()))
            }
            SeenFor::Ever => {
                let store = KeyValueStore::<Vec<u8>, i64>::plain(&self.name);
                (SeenKind::Ever, store.spec(StoreKind::Point))
            }
        };
        StoreSpec {
            id: StoreId::seen(&self.name, kind, self.scope),
            kind: StoreKind::Point,
            reads_wall_clock: !self.trusts_times,
            ..base
        }
    }
}

impl<K> Clone for SeenIds<K> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            seen_for: self.seen_for,
            key: Arc::clone(&self.key),
            scope: self.scope,
            trusts_times: self.trusts_times,
            horizon: self.horizon,
        }
    }
}

/// Appends the bytes of a record's key.
pub(crate) fn encode_key<K: 'static>(
    codec: &dyn Codec<K>,
    store: &Arc<str>,
    key: &K,
    into: &mut Vec<u8>,
) -> Result<(), Fault> {
    match codec.encode(key, into, &Field::bare(store, Part::Key)) {
        // A null key has an empty scope.
        Ok(Encoded::Bytes | Encoded::Null) => Ok(()),
        Err(source) => Err(Fault::State(StateError::Key {
            store: Arc::clone(store),
            source,
        })),
    }
}

impl<K> fmt::Debug for SeenIds<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeenIds")
            .field("name", &self.name)
            .field("seen_for", &self.seen_for)
            .finish_non_exhaustive()
    }
}

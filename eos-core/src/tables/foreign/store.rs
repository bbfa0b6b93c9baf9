//! The names and codecs of a foreign-key join.

use std::fmt;
use std::sync::Arc;

use eos_protocol::Clock;
use eos_protocol::state::{OwnRows, StoreId};
use eos_state::StoreKind;

use crate::codec::{Codec, CodecError, Encoded, Field, Json, Part, Plain, PlainType};
use crate::store::{KeyValueStore, StateError, StoreSpec};

/// The answers that one update of a right row sends in its own transaction.
const AT_ONCE: usize = 10_000;
/// The longest right value that a left row keeps, in bytes.
const MAX_KEPT_BYTES: usize = 512;

/// The name and the codecs of a join by foreign key: see [`Table::join_by`](crate::Table::join_by).
///
/// `K` is the key of the left table, `L` that of the right one, `W` the value of the right table, and `R` the result.
/// The name is part of the names of two internal topics, and of the stores of both sides. No other store may have this
/// name.
///
/// The codec of `L` must write the same bytes as the codec of the right table's topic, because these bytes determine
/// the partition.
///
/// ```
/// # use eos_core::state::ForeignJoin;
/// # use eos_core::codec::{Json, Plain};
/// // Keys are plain, right values and results are JSON.
/// let by_customer = ForeignJoin::<u64, String, Vec<String>, Vec<String>>::json("orders-customers");
/// // The right table's topic has JSON keys.
/// let by_place = ForeignJoin::<u64, (i32, i32), String, String>::with("orders-places", Plain, Json, Plain, Plain);
/// ```
pub struct ForeignJoin<K, L, W, R> {
    name: Arc<str>,
    key: Arc<dyn Codec<K>>,
    foreign: Arc<dyn Codec<L>>,
    right: Arc<dyn Codec<W>>,
    result: Arc<dyn Codec<R>>,
    at_once: usize,
    max_kept_bytes: usize,
}

impl<K, L, W, R> ForeignJoin<K, L, W, R> {
    /// Right values and results are JSON; keys are plain (text, bytes, integers).
    pub fn json(name: &str) -> Self
    where
        K: PlainType,
        L: PlainType,
        Json: Codec<W> + Codec<R>,
    {
        Self::with(name, Plain, Plain, Json, Json)
    }

    /// Keys, right values and results are plain: text (UTF-8), bytes, integers.
    pub fn plain(name: &str) -> Self
    where
        K: PlainType,
        L: PlainType,
        W: PlainType,
        R: PlainType,
    {
        Self::with(name, Plain, Plain, Plain, Plain)
    }

    /// Creates a join with codecs of your choice, for left keys, right keys, right values and results. Equal keys must have
    /// equal bytes.
    pub fn with(
        name: &str,
        key: impl Codec<K>,
        foreign: impl Codec<L>,
        right: impl Codec<W>,
        result: impl Codec<R>,
    ) -> Self {
        Self {
            name: name.into(),
            key: Arc::new(key),
            foreign: Arc::new(foreign),
            right: Arc::new(right),
            result: Arc::new(result),
            at_once: AT_ONCE,
            max_kept_bytes: MAX_KEPT_BYTES,
        }
    }

    /// Sets the maximum number of left rows to which an update of a right row sends answers in its own transaction. The
    /// default is 10,000. Answers to the other rows follow between later records, a tenth of this number each time. Each
    /// time also ends after 1 MiB of answers. If the right row is updated again in the meantime, answers with the newer
    /// value go to all left rows once more, beginning behind the last row with an answer. So frequent updates reach all
    /// rows.
    #[must_use]
    pub fn at_once(mut self, rows: usize) -> Self {
        self.at_once = rows.max(1);
        self
    }

    /// Sets the maximum length of an encoded right value that a left row keeps, in bytes. The default is 512. With a kept value,
    /// an update with the same foreign key has its result at once. Without one, the update subscribes again at the task of the
    /// right row, which takes two more transactions and four more records. A smaller limit applies to a row from its next answer
    /// on. With 0, left rows keep nothing, and the join ignores values that they have kept.
    ///
    /// Left rows keep no values of a computed right table without [`stored`](crate::Table::stored), because a new version of its
    /// closures may return other values.
    ///
    /// Each left row has a copy of its right value in the state and in the changelog.
    #[must_use]
    pub fn keep_right(mut self, bytes: usize) -> Self {
        self.max_kept_bytes = bytes;
        self
    }

    /// The name of the join.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    /// The number of answers in the transaction of an update.
    pub(crate) fn first_answers(&self) -> usize {
        self.at_once
    }

    /// The longest right value that a left row keeps, in bytes.
    pub(crate) fn max_kept_bytes(&self) -> usize {
        self.max_kept_bytes
    }

    /// The number of answers of each later step.
    pub(crate) fn later_answers(&self) -> usize {
        self.at_once.div_ceil(10)
    }
}

impl<K: 'static, L: 'static, W: 'static, R: 'static> ForeignJoin<K, L, W, R> {
    fn spec(&self, rows: OwnRows, kind: StoreKind) -> StoreSpec {
        let store = KeyValueStore::<Vec<u8>, Vec<u8>>::plain(&self.name);
        StoreSpec {
            id: StoreId::own(&self.name, rows),
            definition: Box::new(self.clone()),
            ..store.spec(kind)
        }
    }

    /// The store of the left rows.
    pub(crate) fn left_spec(&self) -> StoreSpec {
        self.spec(OwnRows::ForeignLeft, StoreKind::Point)
    }

    /// The store of the subscribers. The subscribers of one foreign key are read as a range. A single subscriber is read
    /// only for an unsubscription or a replayed message.
    pub(crate) fn right_spec(&self) -> StoreSpec {
        self.spec(OwnRows::ForeignRight, StoreKind::Scanned)
    }

    /// The store of the updates that were not sent to all subscribers yet.
    pub(crate) fn fan_out_spec(&self) -> StoreSpec {
        StoreSpec {
            clock: Some(Clock::Background),
            ..self.spec(OwnRows::ForeignFanOut, StoreKind::Point)
        }
    }

    fn field(&self, part: Part) -> Field<'_> {
        Field::bare(&self.name, part)
    }

    fn encode<T: 'static>(
        &self,
        codec: &dyn Codec<T>,
        part: Part,
        of: &T,
    ) -> Result<Vec<u8>, StateError> {
        let mut bytes = Vec::new();
        let encoded = codec.encode(of, &mut bytes, &self.field(part));
        let store = Arc::clone(&self.name);
        match (encoded, part) {
            (Ok(Encoded::Bytes), _) => Ok(bytes),
            (Ok(Encoded::Null), Part::Key) => Err(StateError::NullKey { store }),
            (Ok(Encoded::Null), Part::Value) => Err(StateError::NullValue { store }),
            (Err(source), Part::Key) => Err(StateError::Key { store, source }),
            (Err(source), Part::Value) => Err(StateError::Value { store, source }),
        }
    }

    pub(crate) fn encode_key(&self, key: &K) -> Result<Vec<u8>, StateError> {
        self.encode(&*self.key, Part::Key, key)
    }

    pub(crate) fn encode_foreign(&self, key: &L) -> Result<Vec<u8>, StateError> {
        let bytes = self.encode(&*self.foreign, Part::Key, key);
        bytes.map_err(|error| match error {
            StateError::NullKey { store } => StateError::NullForeignKey { join: store },
            other => other,
        })
    }

    pub(crate) fn encode_right(&self, value: &W) -> Result<Vec<u8>, StateError> {
        self.encode(&*self.right, Part::Value, value)
    }

    pub(crate) fn encode_result(&self, value: &R) -> Result<Vec<u8>, StateError> {
        self.encode(&*self.result, Part::Value, value)
    }

    pub(crate) fn decode_key(&self, bytes: &[u8]) -> Result<K, CodecError> {
        self.key.decode(Some(bytes), &self.field(Part::Key))
    }

    pub(crate) fn decode_foreign(&self, bytes: &[u8]) -> Result<L, CodecError> {
        self.foreign.decode(Some(bytes), &self.field(Part::Key))
    }

    pub(crate) fn decode_right(&self, bytes: &[u8]) -> Result<W, CodecError> {
        self.right.decode(Some(bytes), &self.field(Part::Value))
    }

    pub(crate) fn decode_result(&self, bytes: &[u8]) -> Result<R, CodecError> {
        self.result.decode(Some(bytes), &self.field(Part::Value))
    }

    pub(crate) fn foreign_codec(&self) -> &dyn Codec<L> {
        &*self.foreign
    }
}

impl<K, L, W, R> Clone for ForeignJoin<K, L, W, R> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            key: Arc::clone(&self.key),
            foreign: Arc::clone(&self.foreign),
            right: Arc::clone(&self.right),
            result: Arc::clone(&self.result),
            at_once: self.at_once,
            max_kept_bytes: self.max_kept_bytes,
        }
    }
}

impl<K, L, W, R> fmt::Debug for ForeignJoin<K, L, W, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignJoin")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

//! Deduplication by sequence numbers, and the guard of versions.

mod newest;
mod operator;
pub(crate) mod presets;
mod versions;
mod watermarks;

use std::sync::Arc;

use eos_protocol::identity::Seen;
use eos_protocol::state::{OwnRows, StoreId};
use eos_state::StoreKind;

pub use newest::Newest;
pub use operator::BySequence;
pub use versions::Versions;
pub use watermarks::{Gaps, HighWatermarks, Sequence};

use crate::codec::Encode;
use crate::dedup::Judged;
use crate::store::{KeyValueStore, StoreSpec};
use crate::streams::Stream;
use crate::topic::Topic;

/// Ends a stream of dropped or diverted records.
pub(crate) type End<K, V> = Box<dyn FnOnce(Stream<K, V>) + Send + Sync>;

/// Returns the end of records that go to a topic.
pub(crate) fn end_in<K: 'static, V: 'static>(
    topic: &Topic<K, V, impl Encode<K>, impl Encode<V>>,
) -> End<K, V> {
    let topic = topic.clone();
    Box::new(move |stream| stream.to(&topic))
}

/// Moves the records with this status out of a stream, if they have their own end.
fn divert<K: 'static, V: 'static>(
    stream: Stream<K, Judged<V>>,
    end: Option<End<K, V>>,
    leaves: fn(Seen) -> bool,
) -> Stream<K, Judged<V>> {
    let Some(end) = end else {
        return stream;
    };
    let (left, others) = stream.branch(move |record| leaves(record.seen));
    end(left.map(|record| record.value));
    others
}

/// The store of an operator with rows of this kind.
fn spec(name: &Arc<str>, rows: OwnRows) -> StoreSpec {
    let store = KeyValueStore::<Vec<u8>, Vec<u8>>::plain(name);
    StoreSpec {
        id: StoreId::own(name, rows),
        ..store.spec(StoreKind::Point)
    }
}

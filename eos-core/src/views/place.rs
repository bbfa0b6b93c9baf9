//! The partition of a key.

use std::any::Any;

use eos_protocol::{Partition, partition_for};

use crate::client::Headers;
use crate::codec::{Decode, Encode, Encoded, Field, Part};
use crate::topic::{Topic, chosen_partition};

/// The keys of a source, with their type erased.
pub(crate) trait SourceKeys: Send + Sync {
    /// The name of the topic.
    fn topic(&self) -> &str;

    /// Returns the partition that the topic's own partitioner chooses. `None` without such a partitioner, or for a key
    /// of another type.
    fn choose(&self, key: &dyn Any, partitions: u32) -> Option<u32>;

    /// Decodes a key of a record.
    fn decode(&self, bytes: &[u8]) -> Option<Box<dyn Any>>;

    fn has_partitioner(&self) -> bool;

    /// Returns the partition of a key's bytes. `None` if it is unknown.
    fn partition(&self, bytes: &[u8], partitions: u32) -> Option<Partition>;
}

impl<K, V, KC, VC> SourceKeys for Topic<K, V, KC, VC>
where
    K: 'static,
    V: 'static,
    KC: Decode<K>,
    VC: Send + Sync + 'static,
{
    fn topic(&self) -> &str {
        self.name()
    }

    fn choose(&self, key: &dyn Any, partitions: u32) -> Option<u32> {
        chosen_partition(self, key.downcast_ref()?, partitions)
    }

    fn decode(&self, bytes: &[u8]) -> Option<Box<dyn Any>> {
        let key = self.decode_key(Some(bytes), &Headers::new()).ok()?;
        Some(Box::new(key))
    }

    fn has_partitioner(&self) -> bool {
        self.partitioner().is_some()
    }

    fn partition(&self, bytes: &[u8], partitions: u32) -> Option<Partition> {
        if self.has_partitioner() {
            let key = SourceKeys::decode(self, bytes)?;
            let chosen = self.choose(&*key, partitions)?;
            return Partition::new(i32::try_from(chosen).ok()?).ok();
        }
        // The window of a windowed key does not decide the partition.
        (!is_windowed::<K>()).then(|| partition_for(bytes, partitions))
    }
}

fn is_windowed<K>() -> bool {
    // Also in an `Option` or another wrapper.
    std::any::type_name::<K>().contains("::windowed_key::Windowed<")
}

/// Returns the bytes of a key. `None` if the key is null.
pub(super) fn key_bytes<K: 'static>(
    codec: &dyn Encode<K>,
    key: &K,
    store: &str,
) -> Result<Option<Vec<u8>>, crate::codec::CodecError> {
    let mut bytes = Vec::new();
    let encoded = codec.encode(key, &mut bytes, &Field::bare(store, Part::Key))?;
    Ok((encoded == Encoded::Bytes).then_some(bytes))
}

/// Returns the partition of a key. It is chosen by the topics' own partitioner, or from the key's bytes, as by Kafka's
/// partitioner.
///
/// A source only decodes keys, so the bytes come from `codec`, for example the codec of a store. They are used only if
/// the topic decodes them to the same key. Otherwise the partition is unknown.
pub(crate) fn partition_of<'s, K: 'static>(
    mut sources: impl Iterator<Item = &'s dyn SourceKeys>,
    codec: &dyn Encode<K>,
    key: &K,
    bytes: &[u8],
    partitions: u32,
) -> Option<u32> {
    sources.find_map(|source| {
        if source.has_partitioner() {
            return source.choose(key, partitions);
        }
        let decoded = source.decode(bytes)?.downcast::<K>().ok()?;
        let again = key_bytes(codec, &*decoded, "").ok().flatten()?;
        let deciding = codec.deciding_bytes(bytes).min(bytes.len());
        let partition = partition_for(bytes.get(..deciding)?, partitions);
        (again == bytes).then_some(partition.get().unsigned_abs())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Json, Plain, PlainType};

    fn of<K: PlainType>(source: &dyn SourceKeys, key: &K) -> Option<u32> {
        let codec: &dyn Encode<K> = &Plain;
        let bytes = key_bytes(codec, key, "s").unwrap().unwrap();
        partition_of(std::iter::once(source), codec, key, &bytes, 10)
    }

    fn kafkas(bytes: &[u8]) -> Option<u32> {
        Some(partition_for(bytes, 10).get().unsigned_abs())
    }

    #[test]
    fn a_key_is_where_the_producer_of_its_topic_puts_it() {
        let plain = Topic::<String, u64>::json("t");
        assert_eq!(of(&plain, &"ada".to_owned()), kafkas(b"ada"));
        let own = plain
            .clone()
            .partition_by("length", |key, _| key.len() as u32);
        assert_eq!(of(&own, &"ada".to_owned()), Some(3));
    }

    #[test]
    fn the_partition_of_bytes_is_that_of_their_key() {
        let of = |source: &dyn SourceKeys| source.partition(b"ada", 10).map(Partition::get);
        let plain = Topic::<String, u64>::json("t");
        assert_eq!(of(&plain), Some(partition_for(b"ada", 10).get()));
        let own = plain
            .clone()
            .partition_by("length", |key, _| key.len() as u32);
        assert_eq!(of(&own), Some(3));
        let windowed = crate::codec::TimeWindowed::of(std::time::Duration::from_secs(1));
        let windows = Topic::<crate::windows::Windowed<String>, u64>::with("t", windowed, Json);
        assert_eq!(of(&windows), None);
    }

    /// Otherwise the view would read the wrong partition and find no row.
    #[test]
    fn the_partition_of_another_key_is_unknown() {
        let numbers = Topic::<u64, u64>::json("t");
        assert_eq!(of(&numbers, &"ada".to_owned()), None);
        let as_json = Topic::<String, u64>::with("t", Json, Json);
        assert_eq!(
            of(&as_json, &"ada".to_owned()),
            None,
            "the bytes are \"ada\""
        );
        let own = numbers.partition_by("own", |_, _| 1);
        assert_eq!(of(&own, &"ada".to_owned()), None);
        // These bytes are a number in both formats, but not the same one.
        let text = Topic::<u64, u64>::with("t", Json, Json);
        assert_eq!(of(&text, &u64::from_be_bytes(*b"12345678")), None);
    }
}

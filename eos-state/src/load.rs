//! Changelog records, collected for one write.

use eos_protocol::state::StoreId;

use crate::batch::Batch;

/// The length of a value that marks its key as deleted.
const DELETED: u32 = u32::MAX;
/// The length of a store's id in a key, in bytes.
const ID: usize = 4;

/// Writes of a restore, in the order of the changelog. Of several writes to one key, the last counts.
#[derive(Debug, Default)]
pub struct Load {
    /// Store id, key and value of each write.
    bytes: Vec<u8>,
    writes: Vec<Place>,
    windowed: bool,
}

/// The place of a write in the bytes.
#[derive(Debug, Clone, Copy)]
struct Place {
    start: usize,
    /// The length of id and key, in bytes.
    key: u32,
    value: u32,
}

impl Load {
    /// The minimum memory of a load that is written as a table of its own, in bytes. The write buffer of RocksDB
    /// collects smaller loads.
    pub const LEAST_TABLE: usize = 512 << 10;

    /// The memory of a write in addition to its bytes: its place, and a copy of the place for the sort.
    const BESIDE: usize = 2 * size_of::<Place>();

    /// Creates an empty load.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            writes: Vec::new(),
            windowed: false,
        }
    }

    /// Creates an empty load with room for as many writes as another load has, and an eighth more: a load ends after a
    /// batch of records, and a full vector would double.
    #[must_use]
    pub fn like(other: &Self) -> Self {
        let room = |len: usize| len + len / 8;
        Self {
            bytes: Vec::with_capacity(room(other.bytes.len())),
            writes: Vec::with_capacity(room(other.writes.len())),
            windowed: false,
        }
    }

    /// Adds a write; `None` deletes the key. Key and value are those of a Kafka record, so that each is shorter than
    /// 2 GiB.
    pub fn write(&mut self, store: StoreId, key: &[u8], value: Option<&[u8]>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&store.to_be_bytes());
        self.bytes.extend_from_slice(key);
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(DELETED - 1);
        let place = Place {
            start,
            key: length(&self.bytes[start..]),
            value: value.map_or(DELETED, length),
        };
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.writes.push(place);
        self.windowed |= store.is_windowed();
    }

    /// Returns the memory that the writes need, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.bytes.len() + self.writes.len() * Self::BESIDE
    }

    /// Returns whether there are no writes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Returns whether there is a write to a windowed store.
    #[must_use]
    pub const fn has_windowed(&self) -> bool {
        self.windowed
    }

    /// Returns the last write to each key, in order: the store's id and the key, and the value if there is one.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let mut places = self.writes.clone();
        // A stable sort keeps the last of equal keys last. It is fast here, because each transaction is in order.
        places.sort_by(|a, b| self.key(a).cmp(self.key(b)));
        let mut places = places.into_iter().peekable();
        std::iter::from_fn(move || {
            let mut place = places.next()?;
            while let Some(later) = places.next_if(|next| self.key(next) == self.key(&place)) {
                place = later;
            }
            Some((self.key(&place), self.value(&place)))
        })
    }

    /// Returns the last write to each key, in order.
    pub(crate) fn batch(&self) -> Batch<'_> {
        let mut batch = Batch::with_capacity(self.writes.len());
        for (key, value) in self.sorted() {
            if let Some((id, key)) = key.split_first_chunk::<ID>() {
                batch.write(StoreId::from_be_bytes(*id), key, value);
            }
        }
        batch
    }

    fn key(&self, place: &Place) -> &[u8] {
        let rest = self.bytes.get(place.start..).unwrap_or_default();
        rest.get(..place.key as usize).unwrap_or_default()
    }

    fn value(&self, place: &Place) -> Option<&[u8]> {
        let from = place.start + place.key as usize;
        let rest = self.bytes.get(from..).unwrap_or_default();
        (place.value != DELETED).then(|| rest.get(..place.value as usize).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Write;

    #[test]
    fn a_batch_has_the_last_write_of_each_key() {
        let (a, b) = (StoreId::plain("a"), StoreId::windowed("b"));
        let mut load = Load::new();
        load.write(b, b"k", Some(b"1"));
        load.write(a, b"z", Some(b"2"));
        load.write(a, b"", Some(b""));
        load.write(a, b"k", Some(b"3"));
        load.write(a, b"z", None);
        load.write(a, b"k", Some(b"4"));
        let write = |store, key: &'static [u8], value| Write { store, key, value };
        assert_eq!(
            load.batch().writes(),
            [
                write(a, b"", Some(&b""[..])),
                write(a, b"k", Some(&b"4"[..])),
                write(a, b"z", None),
                write(b, b"k", Some(&b"1"[..])),
            ]
        );
        assert!(!load.is_empty());
        assert_eq!(load.memory(), 6 * (4 + 32) + 5 + 4);
    }
}

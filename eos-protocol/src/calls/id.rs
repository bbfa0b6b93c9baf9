//! The id of a call.

use std::fmt;

use crate::identity::ContentHash;
use crate::ids::{AppId, Offset, TopicPartition};

/// The version of the derivation. Another one gives every call another id.
const VERSION: &str = "eos-call-1";

/// The place of a call: everything that its id is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallPlace<'a> {
    /// The app.
    pub app: &'a AppId,
    /// The partition of the record, or of the record that it repeats.
    pub partition: &'a TopicPartition,
    /// The offset of the record, or of the record that it repeats.
    pub offset: Offset,
    /// The number of the replay.
    pub generation: u64,
    /// The name of the calls.
    pub name: &'a str,
    /// The number of the call among those of its record.
    pub ordinal: u32,
}

/// The id of a call, which stays the same whenever the call is repeated.
///
/// It is derived from the place of the call. As text it is a UUID (version 8, RFC 9562).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId([u8; 16]);

impl CallId {
    /// Derives the id.
    #[must_use]
    pub fn of(place: &CallPlace<'_>) -> Self {
        let mut hash = ContentHash::new(VERSION);
        hash.add(place.app.as_str().as_bytes());
        hash.add(place.partition.topic.as_str().as_bytes());
        hash.add(&place.partition.partition.get().to_be_bytes());
        hash.add(&place.offset.get().to_be_bytes());
        hash.add(&place.generation.to_be_bytes());
        hash.add(place.name.as_bytes());
        hash.add(&place.ordinal.to_be_bytes());
        let mut id = [0; 16];
        for (to, from) in id.iter_mut().zip(hash.finish()) {
            *to = from;
        }
        id[6] = id[6] & 0x0f | 0x80;
        id[8] = id[8] & 0x3f | 0x80;
        Self(id)
    }

    /// The 16 bytes of the id.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Partition;

    fn id(
        (app, topic, partition): (&str, &str, i32),
        (offset, generation): (i64, u64),
        (name, ordinal): (&str, u32),
    ) -> CallId {
        CallId::of(&CallPlace {
            app: &AppId::new(app),
            partition: &TopicPartition::new(topic, Partition::new(partition).unwrap()),
            offset: Offset::new(offset).unwrap(),
            generation,
            name,
            ordinal,
        })
    }

    #[test]
    fn every_part_of_the_place_is_part_of_the_id() {
        let ids = [
            id(("a", "t", 0), (0, 0), ("n", 0)),
            id(("b", "t", 0), (0, 0), ("n", 0)),
            id(("a", "u", 0), (0, 0), ("n", 0)),
            id(("a", "t", 1), (0, 0), ("n", 0)),
            id(("a", "t", 0), (1, 0), ("n", 0)),
            id(("a", "t", 0), (0, 1), ("n", 0)),
            id(("a", "t", 0), (0, 0), ("m", 0)),
            id(("a", "t", 0), (0, 0), ("n", 1)),
            id(("at", "", 0), (0, 0), ("n", 0)),
        ];
        for (at, one) in ids.iter().enumerate() {
            assert!(!ids[..at].contains(one), "{at}");
        }
        assert_eq!(ids[0], id(("a", "t", 0), (0, 0), ("n", 0)));
    }

    /// A service may know the ids of a former version: another derivation would repeat its effects.
    #[test]
    fn the_derivation_is_pinned() {
        let text = id(("app", "orders", 3), (42, 0), ("score", 0)).to_string();
        assert_eq!(text, "2ab9afdf-bdac-8973-bd85-bd1c56d1e5a8");
        assert_eq!((text.len(), &text[14..15]), (36, "8"));
    }
}

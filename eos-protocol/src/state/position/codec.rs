//! The encoding of a position.
//!
//! ```text
//! version (1 byte) · identity · standing · changelogs · FNV-1a of all before (8 bytes)
//! ```
//!
//! Numbers are big-endian. A text is its length (4 bytes) and its UTF-8. An optional value is 0, or 1 and the value.
//! The checksum has the same place in every version, so that damage differs from a newer format. It supplements the
//! database's own checksums: a copy of the files may mix different points in time.

use super::{Position, Standing};
use crate::fnv::Fnv;
use crate::ids::{
    AppId, Nonce, Offset, Partition, Seq, StageId, TaskId, Timestamp, TopicName, TopicPartition,
};
use crate::state::{Identity, PerFamily, StoresHash, TopicIdentity, TopicUuid};

/// The format that this version writes, and the newest that it reads.
const VERSION: u8 = 1;

/// The reason why bytes are not a position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PositionError {
    /// Written by a newer version of this library.
    #[error(
        "the position has format {version}, this version reads up to {VERSION}: run the newest \
         version that ever used this state"
    )]
    Newer {
        /// The format's number.
        version: u8,
    },
    /// The bytes are damaged.
    #[error("the position is damaged ({len} bytes): {reason}")]
    Damaged {
        /// The number of bytes.
        len: usize,
        /// The damage.
        reason: &'static str,
    },
}

impl Position {
    /// Appends the encoded position.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(VERSION);
        identity(out, &self.identity);
        standing(out, &self.standing);
        for (_, offset) in self.changelogs.iter() {
            optional(out, offset.as_ref(), |out, o| number(out, o.get()));
        }
        let mut sum = Fnv::new();
        sum.write(out.get(start..).unwrap_or_default());
        out.extend(sum.finish().to_be_bytes());
    }

    /// Reads the bytes of [`encode`](Self::encode).
    ///
    /// # Errors
    /// If the bytes are damaged or have a newer format.
    pub fn decode(bytes: &[u8]) -> Result<Self, PositionError> {
        let damaged = |reason| PositionError::Damaged {
            len: bytes.len(),
            reason,
        };
        let (body, sum) = bytes
            .split_last_chunk::<8>()
            .ok_or_else(|| damaged("it is too short"))?;
        let mut found = Fnv::new();
        found.write(body);
        if found.finish().to_be_bytes() != *sum {
            return Err(damaged("its checksum does not match"));
        }
        let mut reader = Reader(body);
        match reader.byte() {
            Some(VERSION) => {}
            Some(version) if version > VERSION => return Err(PositionError::Newer { version }),
            _ => return Err(damaged("it has no format")),
        }
        let position = reader.position();
        position
            .filter(|_| reader.0.is_empty())
            .ok_or_else(|| damaged("its fields can't be read"))
    }
}

pub(crate) trait Number {
    fn put(self, out: &mut Vec<u8>);
}

macro_rules! numbers {
    ($($int:ty)*) => {$(
        impl Number for $int {
            fn put(self, out: &mut Vec<u8>) {
                out.extend(self.to_be_bytes());
            }
        }
    )*};
}
numbers!(u16 u32 u64 u128 i32 i64);

pub(crate) fn number(out: &mut Vec<u8>, number: impl Number) {
    number.put(out);
}

/// The number of elements. More than four thousand million don't fit into a batch.
pub(crate) fn length(out: &mut Vec<u8>, len: usize) {
    number(out, u32::try_from(len).unwrap_or(u32::MAX));
}

pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    length(out, text.len());
    out.extend(text.as_bytes());
}

pub(crate) fn optional<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

fn identity(out: &mut Vec<u8>, identity: &Identity) {
    text(out, &identity.cluster);
    text(out, identity.app.as_str());
    number(out, identity.task.stage.0);
    number(out, identity.task.partition.get());
    length(out, identity.topics.len());
    for topic in &identity.topics {
        text(out, topic.name.as_str());
        number(out, topic.id.0);
        number(out, topic.partitions);
    }
    number(out, identity.stores.0);
}

fn standing(out: &mut Vec<u8>, standing: &Standing) {
    match standing {
        Standing::Restoring { since, seen } => {
            out.push(0);
            number(out, since.0);
            for (_, seq) in seen.iter() {
                optional(out, seq.as_ref(), |out, seq| number(out, seq.0));
            }
        }
        Standing::At {
            seq,
            nonce,
            inputs,
            commit_records,
            stream_time,
            wall_time,
        } => {
            out.push(1);
            number(out, seq.0);
            number(out, nonce.0);
            length(out, inputs.len());
            for (input, offset) in inputs {
                text(out, input.topic.as_str());
                number(out, input.partition.get());
                number(out, offset.get());
            }
            for (_, seq) in commit_records.iter() {
                optional(out, seq.as_ref(), |out, seq| number(out, seq.0));
            }
            optional(out, stream_time.as_ref(), |out, time| number(out, time.0));
            number(out, wall_time.0);
        }
    }
}

/// The remaining bytes. All methods return `None` at the first byte that does not fit.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    pub(crate) fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*chunk)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.chunk::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.chunk().map(i64::from_be_bytes)
    }

    pub(crate) fn offset(&mut self) -> Option<Offset> {
        Offset::new(self.i64()?).ok()
    }

    pub(crate) fn partition(&mut self) -> Option<Partition> {
        Partition::new(self.chunk().map(i32::from_be_bytes)?).ok()
    }

    pub(crate) fn text(&mut self) -> Option<&str> {
        let len = usize::try_from(self.u32()?).ok()?;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    pub(crate) fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<Option<T>> {
        match self.byte()? {
            0 => Some(None),
            1 => read(self).map(Some),
            _ => None,
        }
    }

    pub(crate) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        // Reserves no memory by this count, since the bytes may be damaged.
        (0..self.u32()?).map(|_| read(self)).collect()
    }

    fn per_family<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<PerFamily<Option<T>>> {
        Some(PerFamily {
            plain: self.optional(&mut read)?,
            windowed: self.optional(&mut read)?,
        })
    }

    fn position(&mut self) -> Option<Position> {
        Some(Position {
            identity: self.identity()?,
            standing: self.standing()?,
            changelogs: self.per_family(Self::offset)?,
        })
    }

    fn identity(&mut self) -> Option<Identity> {
        Some(Identity {
            cluster: self.text()?.to_owned(),
            app: AppId::from(self.text()?),
            task: TaskId {
                stage: StageId(self.chunk().map(u16::from_be_bytes)?),
                partition: self.partition()?,
            },
            topics: self.list(|r| {
                Some(TopicIdentity {
                    name: TopicName::from(r.text()?),
                    id: TopicUuid(r.chunk().map(u128::from_be_bytes)?),
                    partitions: r.u32()?,
                })
            })?,
            stores: StoresHash(self.u64()?),
        })
    }

    fn standing(&mut self) -> Option<Standing> {
        match self.byte()? {
            0 => Some(Standing::Restoring {
                since: Timestamp(self.i64()?),
                seen: self.per_family(|r| r.u64().map(Seq))?,
            }),
            1 => Some(Standing::At {
                seq: Seq(self.u64()?),
                nonce: Nonce(self.u64()?),
                inputs: self.list(|r| {
                    let topic = TopicName::from(r.text()?);
                    Some((TopicPartition::new(topic, r.partition()?), r.offset()?))
                })?,
                commit_records: self.per_family(|r| r.u64().map(Seq))?,
                stream_time: self.optional(|r| r.i64().map(Timestamp))?,
                wall_time: Timestamp(self.i64()?),
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "codec_test.rs"]
mod tests;

//! The effects of one record, before they count.

use std::ops::Range;

use eos_protocol::{Partition, Timestamp, partition_for};

use super::fault::Fault;
use crate::client::{Headers, Outgoing};
use crate::codec::{CodecError, Encoded};
use crate::topic::WritableTopic;

/// A batch's own fields, and the most that the length fields of a record take
/// (`DefaultRecordBatch.RECORD_BATCH_OVERHEAD`, `DefaultRecord.MAX_RECORD_OVERHEAD`).
const OVERHEAD: usize = 61 + 21;

/// Everything that one record wants to write. It merges into the transaction when the record is
/// done; a failed record leaves no trace, because this is simply cleared.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    bytes: Vec<u8>,
    outputs: Vec<Output>,
    /// How often the record came too late for a window.
    late: u64,
    /// Why the record fails, whatever user code does with the error that it was given.
    pub(crate) fault: Option<Fault>,
    /// The buffer that codecs write to. A codec that clears it does no harm.
    encoded: Vec<u8>,
}

#[derive(Debug)]
struct Output {
    /// Index into the topology's outputs, and so into the producer's topics.
    topic: usize,
    /// The partition that the topic's own partitioner chose.
    chosen: Option<Partition>,
    key: Option<Range<usize>>,
    /// The key's bytes that decide the partition.
    decides: Range<usize>,
    value: Option<Range<usize>>,
    timestamp: Option<Timestamp>,
    headers: Headers,
}

fn partition(number: u32) -> Option<Partition> {
    Partition::new(i32::try_from(number).ok()?).ok()
}

impl Scratch {
    /// Encodes a record for an output. On an error nothing of it stays.
    pub(crate) fn write<K, V>(
        &mut self,
        output: usize,
        topic: &(impl WritableTopic<K, V> + ?Sized),
        (key, chosen): (&K, Option<u32>),
        value: &V,
        timestamp: Option<Timestamp>,
        headers: Headers,
    ) -> Result<(), CodecError> {
        let start = self.bytes.len();
        let key = self.append(|bytes| topic.encode_key(key, bytes, &headers));
        let key = key.inspect_err(|_| self.bytes.truncate(start))?;
        let written = key.clone().and_then(|key| self.bytes.get(key));
        let deciding = |key: &[u8]| topic.deciding_bytes(key).min(key.len());
        let decides = start..start + written.map_or(0, deciding);
        let value = self.append(|bytes| topic.encode_value(value, bytes, &headers));
        let value = value.inspect_err(|_| self.bytes.truncate(start))?;
        self.outputs.push(Output {
            topic: output,
            chosen: chosen.and_then(partition),
            decides,
            key,
            value,
            timestamp,
            headers,
        });
        Ok(())
    }

    fn append(
        &mut self,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<Encoded, CodecError>,
    ) -> Result<Option<Range<usize>>, CodecError> {
        self.encoded.clear();
        Ok(match encode(&mut self.encoded)? {
            Encoded::Bytes => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(&self.encoded);
                Some(start..self.bytes.len())
            }
            Encoded::Null => None,
        })
    }

    /// Takes a record that is bytes already.
    pub(crate) fn write_raw(
        &mut self,
        output: usize,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        timestamp: Option<Timestamp>,
        headers: Headers,
    ) {
        let mut copy = |bytes: Option<&[u8]>| {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(bytes?);
            Some(start..self.bytes.len())
        };
        let (key, value) = (copy(key), copy(value));
        self.outputs.push(Output {
            topic: output,
            chosen: None,
            decides: key.clone().unwrap_or_default(),
            key,
            value,
            timestamp,
            headers,
        });
    }

    /// Whether all outputs together are smaller than this, for sure: most records of most topics.
    #[inline]
    pub(crate) fn is_surely_below(&self, bytes: usize) -> bool {
        self.bytes.len() + OVERHEAD <= bytes && self.outputs.iter().all(|o| o.headers.is_empty())
    }

    /// The first output from number `from` on that is larger than its topic takes: its topic, its
    /// size in a batch of its own, and the limit.
    pub(crate) fn oversize(
        &self,
        from: usize,
        limits: &[Option<usize>],
    ) -> Option<(usize, usize, usize)> {
        let outputs = self.outputs.iter().skip(from);
        outputs
            .filter_map(|output| {
                let limit = limits.get(output.topic).copied().flatten()?;
                let length = |range: &Option<Range<usize>>| range.as_ref().map_or(0, Range::len);
                let headers = output
                    .headers
                    .iter()
                    .map(|header| 10 + header.name().len() + header.value().map_or(0, <[u8]>::len));
                let own = length(&output.key) + length(&output.value);
                let bytes = OVERHEAD + own + headers.sum::<usize>();
                (bytes > limit).then_some((output.topic, bytes, limit))
            })
            .next()
    }

    /// How many outputs there are.
    pub(crate) fn len(&self) -> usize {
        self.outputs.len()
    }

    /// How many bytes the outputs have.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Output number `at`, with its partition decided.
    ///
    /// A key goes where Java's default partitioner puts it. Without a key the input's partition
    /// number decides, so that the order of an input partition is kept.
    pub(crate) fn get(&self, at: usize, counts: &[u32], input: Partition) -> Option<Outgoing<'_>> {
        let output = self.outputs.get(at)?;
        let bytes = |range: &Option<Range<usize>>| self.bytes.get(range.clone()?);
        let key = bytes(&output.key);
        let count = counts.get(output.topic).copied().unwrap_or(1).max(1);
        let decides = key.and_then(|_| self.bytes.get(output.decides.clone()));
        let partition = match (output.chosen, decides) {
            (Some(chosen), _) => chosen,
            (None, Some(key)) => partition_for(key, count),
            (None, None) => Partition::new(input.get() % i32::try_from(count).unwrap_or(i32::MAX))
                .unwrap_or(Partition::ZERO),
        };
        Some(Outgoing {
            topic: output.topic,
            partition,
            timestamp: output.timestamp,
            key,
            value: bytes(&output.value),
            headers: &output.headers,
        })
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.outputs.clear();
        self.late = 0;
        self.fault = None;
    }

    /// The record came too late for a window.
    pub(crate) fn came_late(&mut self) {
        self.late += 1;
    }

    /// How often it did; forgotten afterwards.
    pub(crate) fn take_late(&mut self) -> u64 {
        std::mem::take(&mut self.late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Encode, Field, Plain};
    use crate::topic::Topic;

    struct Refuses;
    impl Encode<String> for Refuses {
        fn encode(
            &self,
            _: &String,
            into: &mut Vec<u8>,
            _: &Field<'_>,
        ) -> Result<Encoded, CodecError> {
            into.extend_from_slice(b"half of it");
            Err(CodecError::invalid("encodable", "no"))
        }
    }

    #[test]
    fn a_value_that_can_not_be_encoded_leaves_nothing_behind() {
        let mut scratch = Scratch::default();
        let topic = Topic::<String, String>::with("t", Plain, Refuses);
        let result = scratch.write(
            0,
            &topic,
            (&"k".into(), None),
            &"v".into(),
            None,
            Headers::new(),
        );
        assert!(result.is_err());
        assert_eq!((scratch.len(), scratch.size()), (0, 0));
    }

    #[test]
    fn a_key_decides_the_partition_as_in_java_and_its_absence_keeps_the_inputs() {
        let mut scratch = Scratch::default();
        let topic = Topic::<Option<String>, String>::plain("t");
        for key in [Some("foobar".to_owned()), None] {
            scratch
                .write(0, &topic, (&key, None), &"v".into(), None, Headers::new())
                .unwrap();
        }
        let partition = |at| {
            scratch
                .get(at, &[6], Partition::new(9).unwrap())
                .unwrap()
                .partition
        };
        assert_eq!(partition(0), partition_for(b"foobar", 6));
        assert_eq!(partition(1).get(), 3);
        let tombstone = Topic::<String, Option<String>>::plain("t");
        scratch
            .write(
                0,
                &tombstone,
                (&"k".into(), None),
                &None,
                None,
                Headers::new(),
            )
            .unwrap();
        assert_eq!(scratch.get(2, &[6], Partition::ZERO).unwrap().value, None);
    }
}

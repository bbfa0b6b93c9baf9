//! The effects of one record, before they are merged.

use std::ops::Range;

use eos_protocol::{Partition, Timestamp, partition_for};

use super::fault::Fault;
use super::prepared_call::PreparedCall;
use crate::client::{Headers, Outgoing};
use crate::codec::{CodecError, Encoded};
use crate::topic::WritableTopic;

/// The fields of a batch, and the maximum size of a record's length fields, in bytes
/// (`DefaultRecordBatch.RECORD_BATCH_OVERHEAD`, `DefaultRecord.MAX_RECORD_OVERHEAD`).
const OVERHEAD: usize = 61 + 21;

/// The outputs of one record. They merge into the transaction when the record is done. After a failed record the
/// scratch is cleared, so the record has no effects.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    bytes: Vec<u8>,
    outputs: Vec<Output>,
    /// Whether an output has headers.
    has_headers: bool,
    /// What the operators counted; most records count nothing.
    counts: Option<Counts>,
    /// The store and the key of each number that `reorder_by` forwards. If the record is given up, its numbers are
    /// passed over.
    pub(crate) numbers: Vec<(usize, Vec<u8>)>,
    /// The calls of a record at its admission. They are taken before the next record.
    pub(crate) calls: Vec<PreparedCall>,
    /// The reason why the record fails, even if user code ignores the error.
    pub(crate) fault: Option<Fault>,
    /// The size limit of each output topic, in bytes.
    limits: Vec<Option<usize>>,
    /// The buffer of the codecs. A codec may clear it.
    encoded: Vec<u8>,
}

/// What the operators count of one record.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Operators that left the record out as late.
    pub(crate) late: u64,
    /// The number of closed windows that would contain the record.
    pub(crate) late_windows: u64,
    /// New ids.
    pub(crate) new_ids: u64,
    pub(crate) duplicates: u64,
    /// Records that are too old to be judged by their ids.
    pub(crate) too_old: u64,
    pub(crate) without_id: u64,
    /// Records of a former epoch, or with a version that is not higher.
    pub(crate) stale: u64,
    /// Gaps in sequences.
    pub(crate) gaps: u64,
    /// Gaps that an order has given up.
    pub(crate) given_up: u64,
    /// Records of joins that went out alone.
    pub(crate) alone: u64,
    /// Pairs of joins that were missed, because one of the records was closed.
    pub(crate) too_late_pairs: u64,
    /// Answers of foreign-key joins that belong to former subscriptions.
    pub(crate) stale_answers: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.late += other.late;
        self.late_windows += other.late_windows;
        self.new_ids += other.new_ids;
        self.duplicates += other.duplicates;
        self.too_old += other.too_old;
        self.without_id += other.without_id;
        self.stale += other.stale;
        self.gaps += other.gaps;
        self.given_up += other.given_up;
        self.alone += other.alone;
        self.too_late_pairs += other.too_late_pairs;
        self.stale_answers += other.stale_answers;
    }
}

#[derive(Debug)]
struct Output {
    /// The index into the topology's outputs, and so into the producer's topics.
    topic: usize,
    /// The partition that the topic's own partitioner chose.
    chosen: Option<Partition>,
    key: Option<Range<usize>>,
    /// The bytes of the key that determine the partition.
    decides: Range<usize>,
    value: Option<Range<usize>>,
    timestamp: Option<Timestamp>,
    headers: Headers,
}

fn partition(number: u32) -> Option<Partition> {
    Partition::new(i32::try_from(number).ok()?).ok()
}

impl Scratch {
    /// An empty scratch. `limits`: the size limit of each output topic, in bytes.
    pub(crate) fn with_limits(limits: &[Option<usize>]) -> Self {
        Self {
            limits: limits.to_vec(),
            ..Self::default()
        }
    }

    /// Encodes a record for an output. An error leaves no partial output.
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
        self.has_headers |= !headers.is_empty();
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

    /// Adds a record that is already encoded.
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
        self.has_headers |= !headers.is_empty();
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

    /// Adds an encoded record with a key, for a partition.
    pub(crate) fn write_to(
        &mut self,
        (output, partition): (usize, Partition),
        (key, value): (&[u8], &[u8]),
        timestamp: Option<Timestamp>,
        headers: Headers,
    ) {
        self.write_raw(output, Some(key), Some(value), timestamp, headers);
        if let Some(output) = self.outputs.last_mut() {
            output.chosen = Some(partition);
        }
    }

    /// Whether all outputs together are certainly smaller than this, as most records of most topics are.
    #[inline]
    pub(crate) fn is_surely_below(&self, bytes: usize) -> bool {
        self.bytes.len() + OVERHEAD <= bytes && !self.has_headers
    }

    /// Returns the topic of the first output from number `from` on that is too large for its topic, its size in a batch of
    /// its own, and the limit.
    pub(crate) fn oversize(&self, from: usize) -> Option<(usize, usize, usize)> {
        let outputs = self.outputs.iter().skip(from);
        outputs
            .filter_map(|output| {
                let limit = self.limits.get(output.topic).copied().flatten()?;
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

    /// The number of outputs.
    pub(crate) fn len(&self) -> usize {
        self.outputs.len()
    }

    /// The size of the outputs, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns output number `at`, with its partition.
    ///
    /// The partition of a key is that of Java's default partitioner. Without a key it is the input's partition number,
    /// which keeps the order of an input partition.
    pub(crate) fn get(&self, at: usize, counts: &[u32], input: Partition) -> Option<Outgoing<'_>> {
        let output = self.outputs.get(at)?;
        let bytes = |range: &Option<Range<usize>>| self.bytes.get(range.clone()?);
        let key = bytes(&output.key);
        let count = || counts.get(output.topic).copied().unwrap_or(1).max(1);
        let partition = match (output.chosen, key) {
            (Some(chosen), _) => chosen,
            (None, Some(_)) => {
                let decides = self.bytes.get(output.decides.clone());
                partition_for(decides.unwrap_or_default(), count())
            }
            (None, None) => {
                let count = i32::try_from(count()).unwrap_or(i32::MAX);
                Partition::new(input.get() % count).unwrap_or(Partition::ZERO)
            }
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

    /// Removes the last output if it is too large for its topic. Returns the limit in bytes.
    pub(crate) fn remove_oversize(&mut self) -> Option<usize> {
        let last = self.outputs.len().checked_sub(1)?;
        let (_, _, limit) = self.oversize(last)?;
        self.remove_outputs_from(last);
        Some(limit)
    }

    /// Removes the outputs from index `first` on.
    pub(crate) fn remove_outputs_from(&mut self, first: usize) {
        for output in self.outputs.drain(first.min(self.outputs.len())..).rev() {
            let ranges = [output.key, output.value].into_iter().flatten();
            if let Some(start) = ranges.map(|range| range.start).min() {
                self.bytes.truncate(start);
            }
        }
    }

    /// Clears the scratch.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.outputs.clear();
        self.has_headers = false;
        self.counts = None;
        self.numbers.clear();
        self.fault = None;
    }

    /// The counts of the record.
    pub(crate) fn counts(&mut self) -> &mut Counts {
        self.counts.get_or_insert_default()
    }

    /// Returns the counts of the record, if an operator counted, and resets them.
    pub(crate) fn take_counts(&mut self) -> Option<Counts> {
        let counts = self.counts.take()?;
        self.numbers.clear();
        Some(counts)
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

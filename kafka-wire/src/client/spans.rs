//! The producer and outcome of each part of a log.
//!
//! This module uses the markers alone. A leader's list of aborted transactions ([`Aborted`](crate::batch::Aborted)) is
//! an index that it keeps beside the log. A check of the records that readers receive must not depend on it.

use std::collections::HashMap;

use crate::history::{Marker, Span};
use anyhow::Result;
use kafka_protocol::messages::fetch_response::PartitionData;

use super::Client;
use super::fetch::Isolation;
use crate::batch::{Batch, Batches};

impl Client {
    /// Returns the batches of each partition of a topic, in order, up to the end at the time of the call.
    ///
    /// # Errors
    /// See [`Client::read_all`].
    pub fn spans(&mut self, topic: &str) -> Result<Vec<Vec<Span>>> {
        let isolation = Isolation::ReadUncommitted;
        let starts = self.start_offsets(topic)?;
        let ends = self.end_offsets(topic, isolation)?;
        let mut topic_spans = Vec::new();
        for (partition, (start, end)) in (0..).zip(starts.into_iter().zip(ends)) {
            let mut spans = Spans::default();
            self.walk(topic, partition, start..end, isolation, |data, from| {
                spans.take(data, from)
            })?;
            topic_spans.push(spans.all);
        }
        Ok(topic_spans)
    }
}

/// The spans of a partition while its log is read.
#[derive(Debug, Default)]
struct Spans {
    all: Vec<Span>,
    /// The spans without a marker yet, by producer.
    open: HashMap<i64, Vec<usize>>,
}

impl Spans {
    /// Handles a response to a fetch, and returns the next offset.
    fn take(&mut self, data: PartitionData, from: i64) -> Result<i64> {
        let mut next = from;
        for batch in Batches(data.records.unwrap_or_default()) {
            let batch = batch?;
            if batch.last_offset() >= next {
                self.add(&batch)?;
                next = batch.last_offset() + 1;
            }
        }
        Ok(next)
    }

    fn add(&mut self, batch: &Batch) -> Result<()> {
        if batch.is_control() {
            let Some(commits) = batch.marker()? else {
                return Ok(());
            };
            let end = Marker {
                offset: batch.base_offset,
                producer_epoch: batch.producer_epoch,
                commits,
            };
            for nth in self.open.remove(&batch.producer_id).unwrap_or_default() {
                self.all[nth].end = Some(end);
            }
            return Ok(());
        }
        if batch.is_transactional() {
            let waiting = self.open.entry(batch.producer_id).or_default();
            waiting.push(self.all.len());
        }
        self.all.push(Span {
            first: batch.base_offset,
            last: batch.last_offset(),
            records: batch.count.unsigned_abs(),
            producer_id: batch.producer_id,
            producer_epoch: batch.producer_epoch,
            transactional: batch.is_transactional(),
            end: None,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::logged::{bytes, marker, records};
    use crate::batch::{BatchBuilder, CONTROL, Header, ProducerIdentity, TRANSACTIONAL};

    /// Returns a control batch of the broker that ends no transaction.
    fn other_marker(offset: i64) -> Batch {
        let mut builder = BatchBuilder::new(100);
        builder.push(0, Some(&[0, 0, 0, 2]), None, std::iter::empty());
        let plain = builder.close(ProducerIdentity { id: 7, epoch: 5 }, -1, true);
        plain.with(Header {
            base_offset: offset,
            attributes: TRANSACTIONAL | CONTROL,
            ..plain.header()
        })
    }

    #[test]
    fn the_next_marker_of_its_producer_ends_a_span() {
        let log = [
            records(0, (7, 4), 2, true),
            records(2, (8, 0), 1, true),
            records(3, (7, 4), 1, true),
            marker(4, (7, 4), true),
            records(5, (7, 4), 1, true),
            marker(6, (7, 5), false),
            other_marker(7),
        ];
        let data = PartitionData::default().with_records(Some(bytes(&log)));
        let mut spans = Spans::default();
        // From offset 1 on, because the leader returns the whole batch that contains it.
        assert_eq!(spans.take(data, 1).unwrap(), 8);
        let ends = spans.all.iter().map(|span| (span.first, span.end));
        let end = |offset, producer_epoch, commits| {
            Some(Marker {
                offset,
                producer_epoch,
                commits,
            })
        };
        let expected = [
            (0, end(4, 4, true)),
            (2, None),
            (3, end(4, 4, true)),
            (5, end(6, 5, false)),
        ];
        assert_eq!(ends.collect::<Vec<_>>(), expected);
        assert_eq!((spans.all[0].last, spans.all[0].records), (1, 2));
    }
}

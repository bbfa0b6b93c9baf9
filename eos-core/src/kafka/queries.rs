//! Questions and orders to the brokers that a source has under way while its worker goes on.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use eos_protocol::{CallSite, Offset, TopicPartition, code};

use super::ffi::{Client, Entry, Failure, OffsetSpec, PartitionList, Queue};
use super::lookups::{Lookup, Lookups};
use super::wake::Wake;
use crate::client::{ClientError, OffsetBounds, OffsetToCommit, Result};

/// How long the brokers may take for one answer.
const ANSWER: Duration = Duration::from_secs(10);

/// Where some partitions begin and end.
#[derive(Debug)]
pub(super) struct BoundsQuery {
    of: Vec<TopicPartition>,
    first: OffsetsQuery,
    end: OffsetsQuery,
}

#[derive(Debug)]
struct OffsetsQuery {
    lookup: Lookup,
    answer: Option<Vec<Entry>>,
}

impl BoundsQuery {
    pub(super) fn start(lookups: &Lookups, of: &[TopicPartition]) -> Self {
        let ask = |spec| OffsetsQuery {
            lookup: lookups.ask(of, spec, ANSWER),
            answer: None,
        };
        Self {
            of: of.to_vec(),
            first: ask(OffsetSpec::First),
            end: ask(OffsetSpec::End),
        }
    }

    pub(super) fn of(&self) -> &[TopicPartition] {
        &self.of
    }

    pub(super) fn poll(&mut self, slice: Duration) -> Poll<Result<Vec<OffsetBounds>>> {
        let failed = |failure: Failure| failure.at(CallSite::Bounds);
        self.first.poll(slice).map_err(failed)?;
        self.end
            .poll(if self.first.answer.is_some() {
                slice
            } else {
                Duration::ZERO
            })
            .map_err(failed)?;
        let (Some(first), Some(end)) = (&self.first.answer, &self.end.answer) else {
            return Poll::Pending;
        };
        let of = |entries: &[Entry], partition: &TopicPartition| {
            let entry = entries.iter().find(|e| e.partition == *partition);
            entry
                .and_then(|e| Offset::new(e.offset).ok())
                .ok_or_else(|| {
                    let text = format!("no answer for {partition}");
                    ClientError::new(CallSite::Bounds, code::LOCAL_UNKNOWN_PARTITION, text)
                })
        };
        let bounds = self.of.iter().map(|partition| {
            let (first, end) = (of(first, partition)?, of(end, partition)?);
            Ok(OffsetBounds {
                partition: partition.clone(),
                first,
                end,
            })
        });
        Poll::Ready(bounds.collect())
    }
}

impl OffsetsQuery {
    fn poll(&mut self, slice: Duration) -> Result<(), Failure> {
        if self.answer.is_none()
            && let Poll::Ready(answer) = self.lookup.poll(slice)
        {
            let entries = answer?;
            check_each(&entries)?;
            self.answer = Some(entries);
        }
        Ok(())
    }
}

/// A commit through the consumer.
#[derive(Debug)]
pub(super) struct CommitQuery {
    offsets: Vec<OffsetToCommit>,
    queue: Queue,
}

impl CommitQuery {
    pub(super) fn start(
        client: &Arc<Client>,
        offsets: &[OffsetToCommit],
        wake: &Arc<Wake>,
    ) -> Result<Self> {
        let failed = |failure: Failure| failure.at(CallSite::ConsumerCommit);
        let queue = Queue::fresh(client).waking(wake);
        let list = to_commit(offsets).map_err(failed)?;
        client.commit(&list, &queue).map_err(failed)?;
        Ok(Self {
            offsets: offsets.to_vec(),
            queue,
        })
    }

    pub(super) fn offsets(&self) -> &[OffsetToCommit] {
        &self.offsets
    }

    pub(super) fn poll(&mut self, client: &Client, slice: Duration) -> Poll<Result<()>> {
        let Some(event) = self.queue.poll(slice) else {
            return Poll::Pending;
        };
        let outcome = event.check().and_then(|()| check_each(&event.partitions()));
        Poll::Ready(outcome.map_err(|e| client.cause(e).at(CallSite::ConsumerCommit)))
    }
}

/// Offsets with their metadata.
pub(super) fn to_commit(offsets: &[OffsetToCommit]) -> Result<PartitionList, Failure> {
    let mut list = PartitionList::new(offsets.len());
    for offset in offsets {
        list.push(
            &offset.partition,
            offset.offset.get(),
            Some(&offset.metadata),
        )?;
    }
    Ok(list)
}

/// The first partition's error, if one has any.
pub(super) fn check_each(entries: &[Entry]) -> Result<(), Failure> {
    let Some(entry) = entries.iter().find(|entry| entry.code != 0) else {
        return Ok(());
    };
    let mut failure = Failure::of(entry.code);
    failure.text = format!("{}: {}", entry.partition, failure.text);
    Err(failure)
}

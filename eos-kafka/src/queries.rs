//! The requests of a source that are in flight.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use eos_client::{ClientError, LogEnds, OffsetBounds, OffsetToCommit, Result};
use eos_protocol::{CallSite, Offset, TopicPartition, code};

use super::ffi::{Client, Entry, Failure, OffsetSpec, PartitionList, Queue};
use super::lookups::{Lookup, Lookups};
use super::wake::Wake;

/// The time limit of one response.
const ANSWER: Duration = Duration::from_secs(10);

/// A query of the beginning and the end of partitions.
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
        Self {
            of: of.to_vec(),
            first: OffsetsQuery::start(lookups, of, OffsetSpec::First),
            end: OffsetsQuery::start(lookups, of, OffsetSpec::End),
        }
    }

    pub(super) fn of(&self) -> &[TopicPartition] {
        &self.of
    }

    pub(super) fn poll(&mut self, slice: Duration) -> Poll<Result<Vec<OffsetBounds>>> {
        let Some([first, end]) = answers([&mut self.first, &mut self.end], slice)? else {
            return Poll::Pending;
        };
        let bounds = self.of.iter().map(|partition| {
            Ok(OffsetBounds {
                partition: partition.clone(),
                first: offset_of(first, partition)?,
                end: offset_of(end, partition)?,
            })
        });
        Poll::Ready(bounds.collect())
    }
}

/// A query of the beginning and the end of partitions, for a restore.
#[derive(Debug)]
pub(super) struct EndsQuery {
    of: Vec<TopicPartition>,
    first: OffsetsQuery,
    stable: OffsetsQuery,
    end: OffsetsQuery,
}

impl EndsQuery {
    /// Starts the query. `uncommitted` queries as a reader of all records.
    pub(super) fn start(committed: &Lookups, uncommitted: &Lookups, of: &[TopicPartition]) -> Self {
        Self {
            of: of.to_vec(),
            first: OffsetsQuery::start(committed, of, OffsetSpec::First),
            stable: OffsetsQuery::start(committed, of, OffsetSpec::End),
            end: OffsetsQuery::start(uncommitted, of, OffsetSpec::End),
        }
    }

    pub(super) fn of(&self) -> &[TopicPartition] {
        &self.of
    }

    pub(super) fn poll(&mut self, slice: Duration) -> Poll<Result<Vec<LogEnds>>> {
        let queries = [&mut self.first, &mut self.stable, &mut self.end];
        let Some([first, stable, end]) = answers(queries, slice)? else {
            return Poll::Pending;
        };
        let ends = self.of.iter().map(|partition| {
            let stable = offset_of(stable, partition)?;
            Ok(LogEnds {
                partition: partition.clone(),
                first: offset_of(first, partition)?,
                stable,
                // The stable offset was below the high watermark, at an equally valid moment.
                end: offset_of(end, partition)?.max(stable),
            })
        });
        Poll::Ready(ends.collect())
    }
}

/// Returns the responses, once all of them have arrived.
fn answers<const N: usize>(
    queries: [&mut OffsetsQuery; N],
    slice: Duration,
) -> Result<Option<[&[Entry]; N]>> {
    let mut slice = slice;
    let mut answers = [&[][..]; N];
    let mut complete = true;
    for (query, place) in queries.into_iter().zip(&mut answers) {
        query.poll(slice).map_err(|e| e.at(CallSite::Bounds))?;
        match &query.answer {
            Some(answer) => *place = answer,
            None => (complete, slice) = (false, Duration::ZERO),
        }
    }
    Ok(complete.then_some(answers))
}

fn offset_of(entries: &[Entry], partition: &TopicPartition) -> Result<Offset> {
    let entry = entries.iter().find(|e| e.partition == *partition);
    let offset = entry.and_then(|e| Offset::new(e.offset).ok());
    offset.ok_or_else(|| {
        let text = format!("no response for {partition}");
        ClientError::new(CallSite::Bounds, code::LOCAL_UNKNOWN_PARTITION, text)
    })
}

impl OffsetsQuery {
    fn start(lookups: &Lookups, of: &[TopicPartition], spec: OffsetSpec) -> Self {
        Self {
            lookup: lookups.ask(of, spec, ANSWER),
            answer: None,
        }
    }

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

/// Returns offsets with their metadata.
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

/// Returns the first partition's error, if there is one.
pub(super) fn check_each(entries: &[Entry]) -> Result<(), Failure> {
    let Some(entry) = entries.iter().find(|entry| entry.code != 0) else {
        return Ok(());
    };
    let mut failure = Failure::of(entry.code);
    failure.text = format!("{}: {}", entry.partition, failure.text);
    Err(failure)
}

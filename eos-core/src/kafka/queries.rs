//! Questions and orders to the brokers that a source has under way while its worker goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::task::Poll;
use std::time::Duration;

use eos_protocol::{CallSite, Offset, TopicPartition, code};

use super::ffi::{Client, Entry, Failure, OffsetSpec, PartitionList, Queue};
use super::lookups::{Lookup, Lookups};
use super::wake::Wake;
use crate::client::{ClientError, CommittedOffset, OffsetBounds, OffsetToCommit, Result};

/// How long the first look at the committed offsets may take. librdkafka answers a look only when
/// all its offsets are stable.
const LOOK: Duration = Duration::from_millis(250);
/// Later looks may take longer: the broker may be slow.
const LONGEST_LOOK: Duration = Duration::from_secs(2);
/// How many partitions that have no answer in time are waited for in a row, each on its own.
const WAITED_FOR: usize = 2;

/// How long the brokers may take for one answer.
const ANSWER: Duration = Duration::from_secs(10);

/// The stable committed offsets of some partitions.
///
/// `rd_kafka_committed` blocks, so a thread of its own asks. (The admin call that answers on a
/// queue, ListConsumerGroupOffsets, remembers the group's coordinator for ten minutes and keeps
/// asking the old one after it moved.)
#[derive(Debug)]
pub(super) struct CommittedQuery {
    of: Vec<TopicPartition>,
    answer: Receiver<Result<Vec<CommittedOffset>>>,
    abandoned: Arc<AtomicBool>,
}

impl CommittedQuery {
    pub(super) fn start(
        client: &Arc<Client>,
        of: &[TopicPartition],
        wake: &Arc<Wake>,
    ) -> Result<Self> {
        let (sender, answer) = channel();
        let abandoned = Arc::new(AtomicBool::new(false));
        let asker = Asker {
            of: of.to_vec(),
            abandoned: Arc::clone(&abandoned),
            answer: sender,
            wake: Arc::clone(wake),
            client: Arc::clone(client),
        };
        std::thread::Builder::new()
            .name("eos-committed".into())
            .spawn(move || asker.run())
            .map_err(|e| Failure::no_thread(&e).at(CallSite::Committed))?;
        Ok(Self {
            of: of.to_vec(),
            answer,
            abandoned,
        })
    }

    pub(super) fn of(&self) -> &[TopicPartition] {
        &self.of
    }

    pub(super) fn poll(&mut self, slice: Duration) -> Poll<Result<Vec<CommittedOffset>>> {
        match self.answer.recv_timeout(slice) {
            Ok(answer) => Poll::Ready(answer),
            Err(RecvTimeoutError::Timeout) => Poll::Pending,
            Err(RecvTimeoutError::Disconnected) => Poll::Ready(Err(ClientError::new(
                CallSite::Committed,
                code::LOCAL_STATE,
                "the asking thread ended without an answer",
            ))),
        }
    }
}

impl Drop for CommittedQuery {
    fn drop(&mut self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }
}

/// The thread behind a [`CommittedQuery`]. It holds the client, so that it may end after the
/// source did.
struct Asker {
    of: Vec<TopicPartition>,
    abandoned: Arc<AtomicBool>,
    answer: Sender<Result<Vec<CommittedOffset>>>,
    wake: Arc<Wake>,
    client: Arc<Client>,
}

impl Asker {
    fn run(mut self) {
        let mut within = LOOK;
        while !self.abandoned.load(Ordering::Relaxed) {
            let all = self.look(&self.of, within);
            let answer = if all.is_pending() && self.of.len() > 1 {
                self.look_at_each(within)
            } else {
                all
            };
            if let Poll::Ready(answer) = answer {
                // Nobody listens if the query was abandoned just now.
                let _ = self
                    .answer
                    .send(answer.map_err(|e| e.at(CallSite::Committed)));
                self.wake.signal();
                return;
            }
            within = (within * 2).min(LONGEST_LOOK);
        }
    }

    /// Those that have an answer of their own; pending if none has.
    fn look_at_each(&mut self, within: Duration) -> Poll<Result<Vec<CommittedOffset>, Failure>> {
        let mut found = Vec::new();
        let mut waited_for = Vec::new();
        for partition in &self.of {
            if waited_for.len() == WAITED_FOR || self.abandoned.load(Ordering::Relaxed) {
                break;
            }
            match self.look(std::slice::from_ref(partition), within) {
                Poll::Ready(answer) => found.extend(answer?),
                Poll::Pending => waited_for.push(partition.clone()),
            }
        }
        // Others get their turn first next time.
        self.of.retain(|partition| !waited_for.contains(partition));
        self.of.extend(waited_for);
        if found.is_empty() {
            Poll::Pending
        } else {
            Poll::Ready(Ok(found))
        }
    }

    /// Looks once. Pending while an open transaction holds an offset, or no broker answers.
    fn look(
        &self,
        of: &[TopicPartition],
        within: Duration,
    ) -> Poll<Result<Vec<CommittedOffset>, Failure>> {
        let list = PartitionList::of(of)?;
        let entries = match self.client.committed(&list, within) {
            Err(failure) if failure.is_time_out() => return Poll::Pending,
            answer => answer?,
        };
        // librdkafka has waited between its own looks already.
        if entries
            .iter()
            .any(|entry| entry.code == code::UNSTABLE_OFFSET_COMMIT)
        {
            return Poll::Pending;
        }
        check_each(&entries)?;
        Poll::Ready(Ok(entries.into_iter().map(committed).collect()))
    }
}

fn committed(entry: Entry) -> CommittedOffset {
    CommittedOffset {
        partition: entry.partition,
        offset: Offset::new(entry.offset).ok(),
        metadata: entry.metadata,
    }
}

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
fn check_each(entries: &[Entry]) -> Result<(), Failure> {
    let Some(entry) = entries.iter().find(|entry| entry.code != 0) else {
        return Ok(());
    };
    let mut failure = Failure::of(entry.code);
    failure.text = format!("{}: {}", entry.partition, failure.text);
    Err(failure)
}

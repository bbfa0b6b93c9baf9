//! Reads the group's committed offsets in the background.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::task::Poll;
use std::time::Duration;

use eos_client::{ClientError, CommittedOffset, Result};
use eos_protocol::{CallSite, Offset, TopicPartition, code};

use super::ffi::{Client, Entry, Failure, PartitionList};
use super::queries::check_each;
use super::wake::Wake;

/// The time limit of the first query. librdkafka returns only when all requested offsets are stable.
const LOOK: Duration = Duration::from_millis(250);
/// The time limit of later queries, because the broker may be slow.
const LONGEST_LOOK: Duration = Duration::from_secs(2);
/// The maximum number of late partitions that are queried individually in a row.
const WAITED_FOR: usize = 2;

/// A query of the stable committed offsets of some partitions.
///
/// `rd_kafka_committed` blocks, so it runs on a separate thread. (The admin call ListConsumerGroupOffsets returns its
/// result on a queue, but caches the group's coordinator for ten minutes, and queries the old one after it moved.)
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
                "the query thread ended without a result",
            ))),
        }
    }
}

impl Drop for CommittedQuery {
    fn drop(&mut self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }
}

/// The thread behind a [`CommittedQuery`]. It holds the client, because it may outlive the source.
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
                // Fails if the query, and with it the receiver, was just abandoned.
                let _ = self
                    .answer
                    .send(answer.map_err(|e| e.at(CallSite::Committed)));
                self.wake.signal();
                return;
            }
            within = (within * 2).min(LONGEST_LOOK);
        }
    }

    /// Queries partitions individually, and returns the offsets found. Pending if there is none.
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
        // The other partitions come first next time.
        self.of.retain(|partition| !waited_for.contains(partition));
        self.of.extend(waited_for);
        if found.is_empty() {
            Poll::Pending
        } else {
            Poll::Ready(Ok(found))
        }
    }

    /// Sends one query. Pending while an open transaction holds an offset, or no broker responds.
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
        // librdkafka has already waited between its own retries.
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

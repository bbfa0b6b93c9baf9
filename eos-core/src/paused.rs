//! Paused tasks of a process, and the decisions about them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eos_protocol::{Offset, TaskId, Timestamp, TopicName, TopicPartition, WorkerId};

/// The number of a pause, unique in a process. Each pause has its own number, so a late decision never applies to
/// another failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PauseId(u64);

impl From<u64> for PauseId {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl From<PauseId> for u64 {
    fn from(id: PauseId) -> Self {
        id.0
    }
}

impl fmt::Display for PauseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A paused task. Returned by [`Handle::paused`](crate::Handle::paused).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Paused {
    /// The pause, for [`Handle::resume`](crate::Handle::resume).
    pub id: PauseId,
    /// The paused task.
    pub task: TaskId,
    /// The record or the moment that failed.
    pub at: PausedAt,
    /// The text of the error.
    pub error: String,
    /// The time of the failure, on the machine's clock.
    pub since: Timestamp,
    /// The topic of [`Resume::DeadLetter`], if the policy has one.
    pub dead_letters: Option<TopicName>,
}

/// The place of a pause.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PausedAt {
    /// A record.
    Record {
        /// Its topic and partition.
        partition: TopicPartition,
        /// Its offset.
        offset: Offset,
    },
    /// A moment of a timer, or a final result.
    Due {
        /// The name of the timer, or of the store with the result.
        name: String,
        /// The encoded key.
        key: Vec<u8>,
        /// The moment.
        at: Timestamp,
    },
}

impl fmt::Display for PausedAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record { partition, offset } => write!(f, "record {offset} of {partition}"),
            Self::Due { name, at, .. } => write!(f, "the moment {} of {name}", at.0),
        }
    }
}

/// The decision about a paused task, for [`Handle::resume`](crate::Handle::resume).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resume {
    /// Processes the record again. A retry of the policy starts from its first attempt.
    Retry,
    /// Skips the record, as [`ErrorPolicy::skip`](crate::ErrorPolicy::skip) does.
    Skip,
    /// Writes the record to the dead-letter topic of
    /// [`Pause::dead_letters_to`](crate::errors::Pause::dead_letters_to).
    DeadLetter,
}

/// An error of a decision about a paused task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// This process has no such pause.
    #[error(
        "no task of this process has the pause {id}: it was resumed, its task moved to another process, or its record \
         failed again and has another pause. Call `Handle::paused()` in each process, and resume a listed pause"
    )]
    NotPaused {
        /// The pause.
        id: PauseId,
    },
    /// The policy has no dead-letter topic.
    #[error(
        "{at} can't become a dead letter, because its error policy has no topic for it. Name one with \
         `ErrorPolicy::pause().dead_letters_to(..)`, or choose `Resume::Retry` or `Resume::Skip`"
    )]
    NoDeadLetterTopic {
        /// The record or the moment.
        at: PausedAt,
    },
}

/// The paused tasks of a process. Workers add tasks, and the app's handle sets decisions.
#[derive(Debug)]
pub struct PauseBoard(Mutex<Board>);

#[derive(Debug)]
struct Board {
    next: u64,
    entries: BTreeMap<PauseId, Entry>,
}

#[derive(Debug)]
struct Entry {
    worker: WorkerId,
    paused: Paused,
    decision: Arc<Decision>,
}

/// A decision that the worker has not seen yet.
#[derive(Debug, Default)]
struct Decision(AtomicU8);

impl Decision {
    fn set(&self, how: Resume) {
        let number = match how {
            Resume::Retry => 1,
            Resume::Skip => 2,
            Resume::DeadLetter => 3,
        };
        self.0.store(number, Ordering::Release);
    }

    fn get(&self) -> Option<Resume> {
        match self.0.load(Ordering::Acquire) {
            1 => Some(Resume::Retry),
            2 => Some(Resume::Skip),
            3 => Some(Resume::DeadLetter),
            _ => None,
        }
    }
}

impl Default for PauseBoard {
    fn default() -> Self {
        Self::new(0)
    }
}

impl PauseBoard {
    /// Creates an empty board. The first number should be random, so that a process rejects the numbers of other
    /// processes.
    pub(crate) fn new(first: u64) -> Self {
        Self(Mutex::new(Board {
            // Programs write numbers into JSON, which is exact up to 2^53.
            next: first >> 12,
            entries: BTreeMap::new(),
        }))
    }

    /// Returns the paused tasks without a decision.
    pub(crate) fn paused(&self) -> Vec<Paused> {
        let board = self.lock();
        let open = |it: &&Entry| it.decision.get().is_none();
        let entries = board.entries.values().filter(open);
        entries.map(|it| it.paused.clone()).collect()
    }

    /// Decides about a paused task.
    pub(crate) fn resume(&self, id: PauseId, how: Resume) -> Result<(), ResumeError> {
        let board = self.lock();
        let entry = board
            .entries
            .get(&id)
            .filter(|it| it.decision.get().is_none());
        let entry = entry.ok_or(ResumeError::NotPaused { id })?;
        if how == Resume::DeadLetter && entry.paused.dead_letters.is_none() {
            let at = entry.paused.at.clone();
            return Err(ResumeError::NoDeadLetterTopic { at });
        }
        entry.decision.set(how);
        Ok(())
    }

    /// Adds a paused task. It is listed until the ticket is dropped.
    pub(crate) fn add(
        self: &Arc<Self>,
        worker: WorkerId,
        paused: impl FnOnce(PauseId) -> Paused,
    ) -> PauseTicket {
        let mut board = self.lock();
        let id = PauseId(board.next);
        board.next = board.next.wrapping_add(1);
        let decision = Arc::<Decision>::default();
        let entry = Entry {
            worker,
            paused: paused(id),
            decision: Arc::clone(&decision),
        };
        board.entries.insert(id, entry);
        drop(board);
        PauseTicket {
            id,
            decision,
            board: Arc::clone(self),
        }
    }

    /// Removes the tasks of a replaced worker. The thread of this worker may hang, and then drops no ticket.
    pub(crate) fn clear(&self, worker: WorkerId) {
        self.lock().entries.retain(|_, it| it.worker != worker);
    }

    fn lock(&self) -> MutexGuard<'_, Board> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The worker's side of a pause.
#[derive(Debug)]
pub(crate) struct PauseTicket {
    pub(crate) id: PauseId,
    decision: Arc<Decision>,
    board: Arc<PauseBoard>,
}

impl PauseTicket {
    /// Returns the decision, if there is one.
    pub(crate) fn decision(&self) -> Option<Resume> {
        self.decision.get()
    }
}

impl Drop for PauseTicket {
    fn drop(&mut self) {
        self.board.lock().entries.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(board: &Arc<PauseBoard>, worker: u16, letters: Option<&str>) -> PauseTicket {
        board.add(WorkerId(worker), |id| Paused {
            id,
            task: TaskId::default(),
            at: PausedAt::Record {
                partition: TopicPartition::new("in", eos_protocol::Partition::ZERO),
                offset: Offset::ZERO,
            },
            error: "bad".into(),
            since: Timestamp(0),
            dead_letters: letters.map(TopicName::new),
        })
    }

    #[test]
    fn a_decision_counts_once_and_only_for_its_pause() {
        let board = Arc::new(PauseBoard::new(77 << 12));
        let (first, second) = (add(&board, 0, None), add(&board, 0, None));
        assert_eq!(u64::from(first.id), 77);
        assert_eq!(board.paused().len(), 2);
        assert_eq!(board.resume(first.id, Resume::Skip), Ok(()));
        assert_eq!(first.decision(), Some(Resume::Skip));
        assert_eq!(second.decision(), None);
        assert_eq!(board.paused().len(), 1);
        let id = first.id;
        let again = board.resume(id, Resume::Retry);
        assert_eq!(again, Err(ResumeError::NotPaused { id }));
        drop(first);
        assert_eq!(first_of(&board), second.id);
        drop(second);
        assert!(board.paused().is_empty());
    }

    fn first_of(board: &PauseBoard) -> PauseId {
        board.paused()[0].id
    }

    #[test]
    fn a_dead_letter_needs_a_topic() {
        let board = Arc::new(PauseBoard::default());
        let without = add(&board, 0, None);
        let error = board.resume(without.id, Resume::DeadLetter).unwrap_err();
        assert_eq!(
            error.to_string(),
            "record 0 of in-0 can't become a dead letter, because its error policy has no topic for it. Name one with \
             `ErrorPolicy::pause().dead_letters_to(..)`, or choose `Resume::Retry` or `Resume::Skip`"
        );
        assert_eq!(without.decision(), None, "it is still paused");
        let with = add(&board, 0, Some("dlq"));
        assert_eq!(board.resume(with.id, Resume::DeadLetter), Ok(()));
    }

    #[test]
    fn a_replaced_worker_has_no_paused_tasks() {
        let board = Arc::new(PauseBoard::default());
        let (hung, other) = (add(&board, 0, None), add(&board, 1, None));
        board.clear(WorkerId(0));
        assert_eq!(first_of(&board), other.id);
        let error = board.resume(hung.id, Resume::Skip).unwrap_err();
        assert_eq!(error, ResumeError::NotPaused { id: hung.id });
    }
}

//! The positions of one worker, shared by its source and its producer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use eos_protocol::ledger::{PositionBook, Taken};
use eos_protocol::{CallSite, TopicName, TopicPartition};

use super::failed;
use crate::boundary::Positions;
use crate::client::{CommittedOffset, Result};
use crate::failpoints::{self, Point};
use crate::rules;

/// The positions of one worker. Only the worker's thread uses it.
#[derive(Debug, Clone)]
pub(super) struct Standing(Arc<Mutex<Inner>>);

#[derive(Default)]
pub(super) struct Inner {
    /// The reader of positions. The first producer brings it.
    positions: Option<Box<dyn Positions>>,
    pub(super) book: PositionBook,
    /// The partitions that the group assigned to this worker.
    assigned: BTreeSet<TopicPartition>,
    /// The driving topic of each topic that the group does not assign.
    drivers: BTreeMap<TopicName, TopicName>,
    /// Positions that differ from what this worker left. The worker starts their tasks again.
    moved: BTreeSet<TopicPartition>,
    /// The partitions that a new session takes over, in progress.
    again: Option<VecDeque<TopicPartition>>,
}

impl Standing {
    pub(super) fn new(drivers: BTreeMap<TopicName, TopicName>) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            drivers,
            ..Inner::default()
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a new session. It keeps the reader of positions of the first session, and first takes over all positions
    /// of the worker again.
    ///
    /// A second reader could run before pending take-overs of the first reader. Those take-overs would then raise the
    /// epochs again, and fence the worker itself.
    pub(super) fn connect<E>(
        &self,
        make: impl FnOnce() -> std::result::Result<Box<dyn Positions>, E>,
    ) -> std::result::Result<(), E> {
        let mut inner = self.lock();
        match &mut inner.positions {
            Some(positions) => positions.forget(),
            none => *none = Some(make()?),
        }
        inner.again = None;
        Ok(())
    }
}

impl Inner {
    /// The group assigned these partitions.
    pub(super) fn assigned(&mut self, partitions: &[TopicPartition]) {
        self.assigned.extend(partitions.iter().cloned());
    }

    /// The group revoked these partitions. The worker may still commit for them.
    pub(super) fn revoked(&mut self, partitions: &[TopicPartition]) {
        for partition in partitions {
            self.assigned.remove(partition);
        }
    }

    /// The worker gave these partitions back.
    pub(super) fn unassigned(&mut self, partitions: &[TopicPartition]) {
        for partition in partitions {
            self.book.forget(partition);
            self.moved.remove(partition);
        }
    }

    /// The worker left the group.
    pub(super) fn left(&mut self) {
        self.assigned.clear();
    }

    /// These positions are not as the worker left them.
    ///
    /// They cannot move before they are taken over again: the records before the difference come again first.
    pub(super) fn moved(&mut self, partitions: impl IntoIterator<Item = TopicPartition>) {
        for partition in partitions {
            self.book.forget(&partition);
            self.moved.insert(partition);
        }
    }

    /// Takes the positions whose tasks start again.
    pub(super) fn take_moved(&mut self) -> Vec<TopicPartition> {
        std::mem::take(&mut self.moved).into_iter().collect()
    }

    /// Returns whether the worker owns a partition. The group assigns partitions of driving topics only; those of the
    /// other topics of a stage belong to the owner of the driving partition with the same number.
    fn owns(&self, partition: &TopicPartition) -> bool {
        let driver = self.drivers.get(&partition.topic);
        match driver {
            None => self.assigned.contains(partition),
            Some(topic) => {
                let driving = TopicPartition::new(topic.clone(), partition.partition);
                self.assigned.contains(&driving)
            }
        }
    }

    /// Returns the committed offsets. A partition that the worker owns and has not taken over is taken over. For all
    /// others, the ledger is only read: a second take-over would wait for the worker's own transaction.
    pub(super) fn committed(
        &mut self,
        of: &[TopicPartition],
        slice: Duration,
    ) -> Poll<Result<Vec<CommittedOffset>>> {
        let is_new = |it: &&TopicPartition| self.owns(it) && !self.book.has(it);
        let (new, known): (Vec<_>, Vec<_>) = of.iter().partition(is_new);
        let new: Vec<TopicPartition> = new.into_iter().cloned().collect();
        let known: Vec<TopicPartition> = known.into_iter().cloned().collect();
        let Some(positions) = &mut self.positions else {
            // The first producer is not built yet.
            return Poll::Pending;
        };
        if self.again.is_some() {
            // One call at a time, and those of the new session come first.
            return Poll::Pending;
        }
        let call = CallSite::Committed;
        let mut found = Vec::new();
        if !new.is_empty() {
            failpoints::hit(Point::PreTakeOver)?;
            let taken = std::task::ready!(positions.take_over(&new, slice));
            let taken = taken.map_err(|error| failed(call, error))?;
            failpoints::hit(Point::TakenOver)?;
            for taken in taken {
                found.push(committed(&taken));
                self.book.taken(taken);
            }
        }
        if !known.is_empty() {
            let looked = match positions.look(&known, slice) {
                Poll::Pending if found.is_empty() => return Poll::Pending,
                Poll::Pending => return Poll::Ready(Ok(found)),
                Poll::Ready(looked) => looked.map_err(|error| failed(call, error))?,
            };
            found.extend(looked.iter().map(committed));
        }
        Poll::Ready(Ok(found))
    }

    /// Takes over all positions again, after a new session has fenced the older ones. A commit that a failover lost is
    /// found here, and not at the next record of its partition.
    pub(super) fn take_over_again(&mut self, slice: Duration) -> Poll<Result<()>> {
        if !rules::takes_over_again() {
            return Poll::Ready(Ok(()));
        }
        let Some(positions) = &mut self.positions else {
            return Poll::Ready(Ok(()));
        };
        let left = (self.again).get_or_insert_with(|| self.book.partitions().into());
        while !left.is_empty() {
            let asked = left.make_contiguous();
            let taken = std::task::ready!(positions.take_over(asked, slice));
            let taken = taken.map_err(|error| failed(CallSite::Init, error))?;
            left.retain(|it| !taken.iter().any(|taken| taken.partition == *it));
            for taken in taken {
                let partition = taken.partition.clone();
                if self.book.has(&partition) && !self.book.taken(taken) {
                    self.book.forget(&partition);
                    self.moved.insert(partition);
                }
            }
        }
        self.again = None;
        Poll::Ready(Ok(()))
    }
}

fn committed(taken: &Taken) -> CommittedOffset {
    CommittedOffset {
        partition: taken.partition.clone(),
        offset: taken.offset,
        metadata: taken.name.clone(),
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("book", &self.book)
            .field("assigned", &self.assigned)
            .field("moved", &self.moved)
            .finish_non_exhaustive()
    }
}

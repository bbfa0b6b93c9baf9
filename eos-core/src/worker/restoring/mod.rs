//! Makes the state of a task whole before its first record: the local database as it is, or brought to
//! the committed offsets from the changelog.
//!
//! What to do is decided in `eos_protocol::state`; here databases are opened, brokers are asked and
//! changelogs are read. Tasks that are ready go on meanwhile.

mod deciding;
mod other_store;
mod reading;

use std::time::Duration;

use eos_protocol::state::{Identity, PerFamily, Progress, RestartError, RestoreKind, StoreId};
use eos_protocol::windows::Expiry;
use eos_protocol::{CommitCause, Now, Offset, TaskId, Timestamp, TopicPartition, TransactionName};
use eos_state::{StoreBackend, StoreError, StoreKind, TaskStore};

use self::other_store::Names;
use self::reading::Reader;
use super::home::{HomeError, TaskHome};
use super::stopping::Stopping;
use super::{RecordsOf, Worker, WorkerError};
use crate::client::{Client, Source};
use crate::failpoints::{self, Defence};

/// How long one step may restore before the worker looks around again.
const STRETCH: Duration = Duration::from_millis(20);
/// How often, and how soon after each other, the group is asked again before an offset is believed to be
/// gone or to be behind the state: a coordinator that loads has none for a moment, and a task may have
/// moved meanwhile.
const TRIES: u32 = 4;
const TRY_STARTING_AGAIN: Duration = Duration::from_secs(1);

/// What the group has committed for a task.
#[derive(Debug, Clone)]
pub(in crate::worker) enum Committed {
    Named(TransactionName),
    Unnamed {
        partition: TopicPartition,
        metadata: String,
    },
    Missing(TopicPartition),
}

/// A task whose state is not whole yet.
pub(in crate::worker) struct Restoring<R> {
    task: TaskId,
    /// Where its inputs begin.
    at: Vec<(TopicPartition, Offset)>,
    committed: Committed,
    home: TaskHome,
    identity: Identity,
    stores: Vec<(StoreId, StoreKind)>,
    names: Names,
    /// Its stores of windows, as the program has them.
    windows: Vec<(StoreId, Expiry)>,
    /// As of the last commit.
    stream_time: Option<Timestamp>,
    /// Its changelogs, and the topology's outputs that they are.
    logs: PerFamily<Option<(usize, TopicPartition)>>,
    /// How many partitions the topic has that drives its stage.
    width: u32,
    phase: Phase<R>,
    kind: RestoreKind,
    since: Now,
    told: Now,
    /// The changelogs that were read, and are assigned still.
    read: Vec<TopicPartition>,
    /// What is to be read next is not in one of them: where they begin and end is to be asked again.
    out_of_range: bool,
}

enum Phase<R> {
    /// Its database is to be opened.
    Opening,
    /// The changelogs' ends are to be asked for.
    Asking(Box<dyn StoreBackend>),
    /// Its changelogs are to be assigned.
    Decided(Box<Reader<R>>),
    /// They are read.
    Reading(Box<Reader<R>>),
    /// The state is whole.
    Whole(Box<TaskStore>),
}

impl<R> Restoring<R> {
    /// Whether it asks where its changelogs end.
    pub(in crate::worker) fn is_asking(&self) -> bool {
        matches!(self.phase, Phase::Asking(_)) || self.out_of_range
    }

    /// The client says that an offset is not in the log that it was to read: if it is one of these,
    /// nothing more will come of it.
    pub(in crate::worker) fn out_of_range(&mut self, partition: &TopicPartition, now: Now) {
        let reading = matches!(self.phase, Phase::Reading(_));
        if reading && self.partitions().any(|log| log == *partition) {
            self.out_of_range = true;
            // Since when a broker is waited for.
            self.since = now;
        }
    }

    pub(in crate::worker) fn task(&self) -> TaskId {
        self.task
    }

    /// How far it is; `None` before it reads.
    pub(in crate::worker) fn progress(&self, now: Now) -> Option<Progress> {
        match &self.phase {
            Phase::Decided(reader) | Phase::Reading(reader) => Some(reader.restore.progress(now)),
            Phase::Opening | Phase::Asking(_) | Phase::Whole(_) => None,
        }
    }

    /// The changelogs that are assigned for it.
    pub(in crate::worker) fn assigned(&self) -> impl Iterator<Item = TopicPartition> + '_ {
        let reading = matches!(self.phase, Phase::Reading(_));
        let now = self.partitions().filter(move |_| reading);
        now.chain(self.read.iter().cloned())
    }

    fn partitions(&self) -> impl Iterator<Item = TopicPartition> + '_ {
        let logs = self.logs.iter().filter_map(|(_, log)| log.as_ref());
        logs.map(|(_, partition)| partition.clone())
    }
}

impl<C: Client> Worker<C> {
    /// Goes on with the restores.
    ///
    /// To librdkafka any (un)assign is the answer to the rebalance that is under way, one that was not
    /// heard of yet included: partitions would be given away whose transaction is not settled. So
    /// nothing is assigned while a transaction is open, and what may have been answered is heard before
    /// the next one begins.
    pub(in crate::worker) fn restore(&mut self) -> Result<RestoreStep, WorkerError> {
        self.to_assign = false;
        if self.stopping != Stopping::No {
            self.restoring.clear();
        }
        // What gave up reads nothing more: a changelog may be another one by now.
        let over = self.failure.is_some();
        if over || self.restoring.is_empty() || !self.quiet() || !self.membership.holds() {
            return Ok(RestoreStep::Nothing);
        }
        let mut restoring = std::mem::take(&mut self.restoring);
        restoring.retain(|one| self.tasks.contains_key(&one.task));
        let done = self.go_on_restoring(&mut restoring);
        self.restoring = restoring;
        if self.to_assign {
            self.commit(CommitCause::Restore);
        }
        done
    }

    fn go_on_restoring(
        &mut self,
        restoring: &mut Vec<Restoring<RecordsOf<C>>>,
    ) -> Result<RestoreStep, WorkerError> {
        let begun = self.env.now();
        let mut busy = false;
        let is_late = |this: &Self| this.env.now().since(begun) >= STRETCH;
        for one in restoring.iter_mut() {
            self.open_database(one)?;
            if is_late(self) {
                busy = true;
                break;
            }
        }
        self.ask_for_ends(restoring)?;
        // Each gets its turn, however long one takes.
        self.restore_turn = self.restore_turn.wrapping_add(1);
        let mut n = 0;
        while n < restoring.len() && !is_late(self) {
            let at = (self.restore_turn + n) % restoring.len();
            if let Some(one) = restoring.get_mut(at) {
                match self.read_changelogs(one, begun) {
                    Ok(()) => {}
                    Err(error) => {
                        self.start_over(restoring, at, error)?;
                        return Ok(RestoreStep::Reassigned);
                    }
                }
            }
            n += 1;
        }
        let is_whole = |one: &Restoring<_>| matches!(one.phase, Phase::Whole(_));
        if failpoints::undefended(Defence::RestorePerTask) && restoring.iter().any(is_whole) {
            restoring.iter_mut().try_for_each(Restoring::cut_short)?;
        }
        busy |= is_late(self);
        if self.assign_for_restores(restoring)? {
            return Ok(RestoreStep::Reassigned);
        }
        Ok(if busy {
            RestoreStep::Moved
        } else {
            RestoreStep::Nothing
        })
    }

    /// Assigns the changelogs of those that are to read, and the inputs of those that are whole.
    fn assign_for_restores(
        &mut self,
        restoring: &mut Vec<Restoring<RecordsOf<C>>>,
    ) -> Result<bool, WorkerError> {
        let ready = |one: &Restoring<_>| matches!(one.phase, Phase::Decided(_) | Phase::Whole(_));
        if !restoring.iter().any(ready) {
            return Ok(false);
        }
        if !self.settled() {
            self.to_assign = true;
            return Ok(false);
        }
        let (mut at, mut whole) = (Vec::new(), Vec::new());
        let read = restoring.iter().flat_map(|one| one.read.iter().cloned());
        let read: Vec<_> = read.collect();
        if !read.is_empty() {
            self.source.unassign(&read).map_err(WorkerError::Client)?;
        }
        for mut one in std::mem::take(restoring) {
            match one.phase {
                Phase::Decided(reader) => {
                    let wanted = reader.restore.wanted().filter_map(|(family, offset)| {
                        let (_, partition) = one.logs.get(family).as_ref()?;
                        Some((partition.clone(), offset))
                    });
                    at.extend(wanted);
                    one.phase = Phase::Reading(reader);
                    one.read.clear();
                    restoring.push(one);
                }
                Phase::Whole(store) => {
                    at.extend(one.at.iter().cloned());
                    one.phase = Phase::Opening;
                    whole.push((one, *store));
                }
                _ => restoring.push(one),
            }
        }
        for (one, store) in whole {
            self.restored(one, store)?;
        }
        self.source.assign(&at).map_err(WorkerError::Client)?;
        Ok(true)
    }

    /// What the group said may not be so any more, or not yet: it is asked again, from the beginning.
    fn start_over(
        &mut self,
        restoring: &mut Vec<Restoring<RecordsOf<C>>>,
        at: usize,
        error: WorkerError,
    ) -> Result<(), WorkerError> {
        let passes = match &error {
            WorkerError::Restart(error) => matches!(
                **error,
                RestartError::OffsetGone { .. }
                    | RestartError::OffsetsBehind { .. }
                    | RestartError::OtherHistory { .. }
                    | RestartError::TrimmedMeanwhile { .. }
            ),
            _ => false,
        };
        if !passes || failpoints::undefended(Defence::AskAgain) {
            return Err(error);
        }
        if !self.settled() {
            // It says so again once nothing is open any more.
            self.to_assign = true;
            return Ok(());
        }
        let one = restoring.swap_remove(at);
        let tries = self.restarts.entry(one.task).or_default();
        *tries += 1;
        if *tries >= TRIES {
            return Err(error);
        }
        tracing::warn!(
            app = %self.spec.app, worker = %self.spec.id, task = %one.task, %error,
            "asking the group again before this is believed"
        );
        let read: Vec<_> = one.assigned().collect();
        if !read.is_empty() {
            self.source.unassign(&read).map_err(WorkerError::Client)?;
        }
        let owned = self.owned.iter().find(|(_, task)| **task == one.task);
        let driving = owned.map(|(partition, _)| partition.clone());
        self.tasks.remove(&one.task);
        if let Some(driving) = driving {
            self.owned.remove(&driving);
            self.resolve_again(driving, self.env.now().after(TRY_STARTING_AGAIN));
        }
        Ok(())
    }
}

/// What came of a look at the restores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker) enum RestoreStep {
    Nothing,
    /// There is more to do at once.
    Moved,
    /// Something was (un)assigned, which may have answered a revocation: it is heard before anything else.
    Reassigned,
}

fn no_home(task: TaskId, source: HomeError) -> WorkerError {
    let source = Box::new(source);
    WorkerError::Home { task, source }
}

fn store_failed(task: TaskId, source: StoreError) -> WorkerError {
    let source = Box::new(source);
    WorkerError::Store { task, source }
}

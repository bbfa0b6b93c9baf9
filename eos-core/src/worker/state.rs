//! What a task keeps: on its way into the changelog, and from there into its database.

use std::task::Poll;
use std::time::Duration;

use eos_protocol::state::{
    ChangelogOffsets, CommitRecord, Family, Identity, PerFamily, Position, Standing,
};
use eos_protocol::{Partition, TaskId, TaskProgress, Timestamp, TopicName, TopicPartition};
use eos_state::{StoreError, TaskStore, changelog};

use super::ahead::Ahead;
use super::restoring::Restoring;
use super::trimming::Trimming;
use super::windows::Windows;
use super::{SLICE, Worker, WorkerError};
use crate::client::{Client, ClientError, Headers, LogEnds, Outgoing, Producer, Source};
use crate::failpoints::{self, Defence, Point};
use crate::topology::Topology;

/// How often the brokers are asked how far the changelogs are.
const ASK_CHANGELOGS: Duration = Duration::from_secs(2);

/// The state of one task.
#[derive(Debug)]
pub(super) struct TaskState {
    pub(super) store: TaskStore,
    identity: Identity,
    /// The changelogs that it has, by the topology's outputs.
    outputs: PerFamily<Option<usize>>,
    /// From where a later restore has to read them.
    pub(super) offsets: ChangelogOffsets,
    /// Its stores of windows.
    pub(super) windows: Windows,
    /// What was told of times that are far ahead.
    pub(super) ahead: Ahead,
    /// How much of their changelog is of no use any more.
    pub(super) trimming: Option<Trimming>,
    /// How many records of the transaction being sealed are in the producer's hands.
    sent: PerFamily<usize>,
    /// Whether the transaction being sealed ends in a commit record there.
    wrote: PerFamily<bool>,
}

impl TaskState {
    pub(super) fn new(
        store: TaskStore,
        identity: Identity,
        outputs: PerFamily<Option<usize>>,
        offsets: ChangelogOffsets,
        windows: Windows,
    ) -> Self {
        Self {
            trimming: Trimming::of(&store, windows.stores()),
            windows,
            ahead: Ahead::default(),
            store,
            identity,
            outputs,
            offsets,
            sent: PerFamily::default(),
            wrote: PerFamily::default(),
        }
    }

    /// Which changelogs end in a commit record of the sealed transaction.
    pub(super) fn wrote(&self) -> PerFamily<bool> {
        self.wrote
    }

    /// Intake has ended: what is written beside the windows joins what the transaction changed.
    fn seal_windows(&mut self) -> Result<(), StoreError> {
        if *self.sent.get(Family::Windowed) > 0 || *self.wrote.get(Family::Windowed) {
            return Ok(());
        }
        self.windows.seal(&mut self.store)
    }

    /// Hands what the transaction changed to the producer: the last value of each key, and behind them
    /// a commit record. Pending while its queue is full; goes on where it was.
    fn send<P: Producer>(
        &mut self,
        producer: &mut P,
        partition: Partition,
        commit: CommitRecord,
    ) -> Poll<Result<(), ClientError>> {
        let headers = Headers::new();
        let (mut key, last) = (Vec::new(), changelog::commit_record_value(commit));
        for family in Family::ALL {
            let Some(topic) = *self.outputs.get(family) else {
                continue;
            };
            let wrote = self.wrote.get_mut(family);
            if *wrote || !self.store.touched(family) {
                continue;
            }
            let mut send = |key: &[u8], value: Option<&[u8]>| {
                producer.send(&Outgoing {
                    topic,
                    partition,
                    timestamp: None,
                    key: Some(key),
                    value,
                    headers: &headers,
                })
            };
            let sent = self.sent.get_mut(family);
            let windows = self.trimming.as_mut();
            let mut windows = windows.filter(|_| family == Family::Windowed);
            for write in self.store.changes(family).skip(*sent) {
                if let Some(windows) = &mut windows {
                    windows.wrote(write.key);
                }
                if write.value.is_none() && failpoints::undefended(Defence::Tombstones) {
                    *sent += 1;
                    continue;
                }
                key.clear();
                changelog::key(write.store, write.key, &mut key);
                std::task::ready!(send(&key, write.value))?;
                *sent += 1;
            }
            std::task::ready!(send(&changelog::commit_record_key(family), Some(&last)))?;
            *wrote = true;
        }
        Poll::Ready(Ok(()))
    }

    /// The sealed transaction is committed.
    fn apply(&mut self, progress: &TaskProgress, now: Timestamp) -> Result<(), StoreError> {
        let Some(name) = progress.sealed() else {
            return Ok(());
        };
        if failpoints::undefended(Defence::HeardAfterSeal) {
            self.offsets.sealed();
        }
        let inputs = progress.inputs().iter();
        let position = Position {
            identity: self.identity.clone(),
            standing: Standing::At {
                seq: name.seq,
                nonce: name.nonce,
                inputs: inputs.map(|i| (i.partition.clone(), i.next)).collect(),
                commit_records: name.commit_records(),
                stream_time: name.stream_time,
                wall_time: now,
            },
            changelogs: self.offsets.committed(),
        };
        let over = (self.windows).committed(self.wrote.windowed, name.stream_time);
        self.settle();
        self.store.apply_and_forget(&position, &over)?;
        if let Some(trimming) = &mut self.trimming {
            trimming.committed(name.stream_time);
        }
        Ok(())
    }

    /// The transaction is gone, and what it changed.
    pub(super) fn discard(&mut self) {
        self.offsets.discarded();
        if let Some(trimming) = &mut self.trimming {
            trimming.discarded();
        }
        self.settle();
        if !failpoints::undefended(Defence::Overlay) {
            self.store.discard();
        }
    }

    /// Intake has ended, and what it changed is with the producer.
    pub(super) fn sealed(&mut self) {
        self.offsets.sealed();
        if let Some(trimming) = &mut self.trimming {
            trimming.sealed(self.wrote.windowed);
        }
    }

    fn settle(&mut self) {
        self.sent = PerFamily::default();
        self.wrote = PerFamily::default();
    }

    /// The topics of its changelogs.
    pub(super) fn topics<'a>(
        &'a self,
        topology: &'a Topology,
    ) -> impl Iterator<Item = (Family, &'a TopicName)> {
        let outputs = self.outputs.iter();
        outputs.filter_map(|(family, output)| {
            let output = topology.outputs().get((*output)?)?;
            Some((family, &output.name))
        })
    }
}

impl<C: Client> Worker<C> {
    /// Asks once in a while how far the changelogs are: from there a later restore reads on, instead of
    /// from where the database was last opened. (Its answer waits for the next commit, which proves that
    /// nobody came between: [`ChangelogOffsets`].)
    pub(super) fn hear_of_changelogs(&mut self) {
        let now = self.env.about_now();
        // A restore asks in the same way, and comes first.
        if now < self.ask_changelogs_at || self.restoring.iter().any(Restoring::is_asking) {
            return;
        }
        let asked = self.changelogs();
        if asked.is_empty() {
            return;
        }
        let Poll::Ready(answer) = self.source.ends(&asked, Duration::ZERO) else {
            return;
        };
        self.ask_changelogs_at = now.after(ASK_CHANGELOGS);
        let ends = match answer {
            Ok(ends) => ends,
            // The next answer does as well.
            Err(error) => {
                tracing::debug!(worker = %self.spec.id, %error, "asking where changelogs end");
                return;
            }
        };
        self.heard_of_changelogs(&ends);
        // Other tasks may have come meanwhile, and caches that nobody asks don't shrink by themselves.
        let states = self.tasks.values_mut().filter_map(|t| t.state.as_mut());
        states.for_each(|state| state.store.keep_to_cache_limit());
    }

    /// The changelogs of all tasks.
    fn changelogs(&self) -> Vec<TopicPartition> {
        let tasks = self.tasks.values();
        let logs =
            tasks.filter_map(|task| Some((task.progress.task.partition, task.state.as_ref()?)));
        let logs = logs.flat_map(|(partition, state)| {
            let topics = state.topics(&self.topology);
            topics.map(move |(_, topic)| TopicPartition::new(topic.clone(), partition))
        });
        logs.collect()
    }

    fn heard_of_changelogs(&mut self, ends: &[LogEnds]) {
        for task in self.tasks.values_mut() {
            let partition = task.progress.task.partition;
            let Some(state) = &mut task.state else {
                continue;
            };
            let found = state.topics(&self.topology).filter_map(|(family, topic)| {
                let is_its = |log: &&LogEnds| {
                    log.partition.topic == *topic && log.partition.partition == partition
                };
                Some((family, ends.iter().find(is_its)?.stable))
            });
            for (family, stable) in found.collect::<Vec<_>>() {
                state.offsets.heard(family, stable);
                if let (Family::Windowed, Some(trimming)) = (family, &mut state.trimming) {
                    trimming.heard(stable, task.progress.stream_time());
                }
            }
        }
    }

    /// Without [`ChangelogOffsets`]: the batch that is about to be written stores the LSO of this moment,
    /// whoever has written to the changelog by now.
    fn weaken_changelog_offsets(&mut self) {
        let asked = self.changelogs();
        // The first answer may be to a question of before.
        for _ in 0..2 {
            let tries = std::iter::repeat_with(|| self.source.ends(&asked, SLICE));
            let answer = tries.take(500).find_map(|answer| match answer {
                Poll::Ready(Ok(ends)) => Some(ends),
                Poll::Ready(Err(_)) => {
                    std::thread::sleep(SLICE);
                    None
                }
                Poll::Pending => None,
            });
            self.heard_of_changelogs(&answer.unwrap_or_default());
        }
        let touched = self.tasks.values_mut().filter(|t| t.progress.touched());
        for state in touched.filter_map(|task| task.state.as_mut()) {
            state.offsets.sealed();
        }
    }

    /// Writes what the stores of all touched tasks changed into the open transaction. False while the
    /// producer's queue is full.
    pub(super) fn send_changes(&mut self) -> bool {
        let nonce = self.calls.nonce.unwrap_or_else(|| self.fresh_nonce());
        self.calls.nonce = Some(nonce);
        let Some(producer) = &mut self.producer else {
            return false;
        };
        let (mut refused, mut failed) = (None, None);
        for task in self.tasks.values_mut().filter(|t| t.progress.touched()) {
            let (seq, partition) = (task.progress.next_seq(), task.progress.task.partition);
            let Some(state) = &mut task.state else {
                continue;
            };
            if let Err(source) = state.seal_windows() {
                let (task, source) = (task.progress.task, Box::new(source));
                failed = Some(WorkerError::Store { task, source });
                break;
            }
            match state.send(producer, partition, CommitRecord { seq, nonce }) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    refused = Some(error);
                    break;
                }
                Poll::Pending => {
                    // Its own queue drains while we wait for room.
                    match producer.flush(SLICE) {
                        Poll::Ready(Err(error)) => {
                            refused = Some(error);
                            break;
                        }
                        _ => return false,
                    }
                }
            }
        }
        if let Some(error) = refused {
            self.send_failed(error);
            self.catch_up();
            return false;
        }
        if let Some(error) = failed {
            self.scratch.get_mut().clear();
            self.give_up(error);
            self.catch_up();
            return false;
        }
        true
    }

    /// Brings the databases of all touched tasks to the transaction that was just committed.
    pub(super) fn apply_state(&mut self) {
        let now = self.env.wall_clock();
        let mut tasks = self.tasks.values();
        let any = tasks.any(|task| task.progress.touched() && task.state.is_some());
        if any && let Err(error) = failpoints::hit(Point::PostCommitPreState) {
            return self.give_up(WorkerError::Client(error));
        }
        if any && failpoints::undefended(Defence::LsoAfterApply) {
            self.weaken_changelog_offsets();
        }
        let mut failed = None;
        for task in self.tasks.values_mut().filter(|t| t.progress.touched()) {
            let Some(state) = &mut task.state else {
                continue;
            };
            if let Err(source) = state.apply(&task.progress, now) {
                let task = task.progress.task;
                let source = Box::new(source);
                failed.get_or_insert(WorkerError::Store { task, source });
            }
        }
        self.kept = 0;
        if any && let Err(error) = failpoints::hit(Point::PostState) {
            failed.get_or_insert(WorkerError::Client(error));
        }
        if let Some(error) = failed {
            self.give_up(error);
        }
    }

    /// A database fails whatever the record does: no policy may go on without it.
    pub(super) fn poisoned(task: TaskId, state: Option<&TaskState>) -> Option<WorkerError> {
        let source = Box::new(state?.store.poison()?.clone());
        Some(WorkerError::Store { task, source })
    }
}

//! The state of a task: its changes on their way into the changelog, and from there into its database.

use std::task::Poll;

use eos_protocol::state::{
    ChangelogOffsets, CommitRecord, Family, Identity, PerFamily, Position, Standing,
};
use eos_protocol::{Partition, TaskProgress, Timestamp, TopicName};
use eos_state::{StoreError, TaskStore, changelog};

use super::future_timestamps::FutureTimestamps;
use super::trimming::Trimming;
use super::windows::Windows;
use crate::client::{ClientError, Headers, Outgoing, Producer};
use crate::rules;
use crate::topology::Topology;

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
    /// Warnings about timestamps that are far ahead.
    pub(super) ahead: FutureTimestamps,
    /// How much of their changelog is not needed any more.
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
            ahead: FutureTimestamps::default(),
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
    pub(super) fn seal_windows(&mut self) -> Result<(), StoreError> {
        if *self.sent.get(Family::Windowed) > 0 || *self.wrote.get(Family::Windowed) {
            return Ok(());
        }
        self.windows.seal(&mut self.store)
    }

    /// Hands what the transaction changed to the producer: the last value of each key, and behind them
    /// a commit record. Pending while its queue is full; goes on where it was.
    pub(super) fn send<P: Producer>(
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
                if write.value.is_none() && !rules::writes_tombstones() {
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
    pub(super) fn apply(
        &mut self,
        progress: &TaskProgress,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let Some(name) = progress.sealed() else {
            return Ok(());
        };
        if !rules::stores_sealed_ends_only() {
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
        if rules::drops_aborted_changes() {
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

//! One task of a worker: its progress, its nodes, and the records it has at hand.

use eos_protocol::state::PerFamily;
use eos_protocol::{
    Attempt, Lag, MaxIdle, Merge, Nonce, Now, Offset, Supply, TaskProgress, Timestamp,
    TopicPartition, recommit_due,
};

use super::task_state::TaskState;
use crate::client::Records;
use crate::rules;
use crate::topology::Chains;

/// Whether a task may take records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    /// Its state is not whole yet.
    Restoring,
    /// Its first-start offset is not committed yet (rule 10).
    Unclaimed,
    /// It may.
    Ready,
    /// A rewind is under way (rule 8).
    Rewinding,
}

impl Readiness {
    fn at_start(claimed: bool) -> Self {
        match claimed || !rules::commits_first_start() {
            true => Self::Ready,
            false => Self::Unclaimed,
        }
    }
}

/// A task.
pub(super) struct Task<R> {
    pub(super) progress: TaskProgress,
    pub(super) chains: Chains,
    /// What its records keep; `None` if its stage has no stores, or as long as it is restored.
    pub(super) state: Option<TaskState>,
    pub(super) readiness: Readiness,
    /// When the worker took it over.
    started: Now,
    /// When it last committed the task's offsets.
    committed_at: Option<Now>,
    /// Whether the open transaction carries its offsets once more, as they are.
    pub(super) recommits: bool,
    /// The record that is to be tried again, if one is. The task is parked until then.
    pub(super) attempt: Option<Attempt>,
    /// Which input gives the next record.
    pub(super) merge: Merge,
    /// By input: what it had when that was last asked.
    pub(super) supplies: Vec<(Now, Supply)>,
    /// Since when, or since the last word about it, it waits for an input while another one has a
    /// record.
    pub(super) waits_since: Option<Now>,
    /// By input: fetched records.
    pub(super) fetched: Vec<R>,
    /// Whether a committed offset covers the start.
    pub(super) claimed: bool,
    /// The stream time that an abort gave back; only without the defence `stream_time`.
    pub(super) time_given_back: Option<Timestamp>,
}

impl<R: Records> Task<R> {
    pub(super) fn new(
        progress: TaskProgress,
        chains: Chains,
        claimed: bool,
        max_idle: MaxIdle,
        now: Now,
    ) -> Self {
        let mut fetched = Vec::new();
        fetched.resize_with(progress.inputs().len(), R::default);
        let max_idle = if rules::waits_for_all_inputs() {
            max_idle
        } else {
            MaxIdle::Never
        };
        let readiness = Readiness::at_start(claimed);
        Self {
            merge: Merge::new(max_idle, progress.inputs().len()),
            supplies: vec![(now, Supply::Empty { lag: Lag::Unknown }); progress.inputs().len()],
            started: now,
            waits_since: None,
            committed_at: None,
            recommits: false,
            attempt: None,
            progress,
            chains,
            state: None,
            readiness,
            fetched,
            claimed,
            time_given_back: None,
        }
    }

    /// Its part of the transaction is committed. `held`: one of its records was processed that is
    /// not part of it.
    pub(super) fn committed(&mut self, now: Now, held: bool) {
        if self.progress.touched() || std::mem::take(&mut self.recommits) {
            self.committed_at = Some(now);
        }
        if self.progress.touched() {
            self.progress.committed();
            // The chains that processed the held record may still have to discard it.
            if !held {
                self.chains.committed();
            }
            self.claimed = true;
            if self.readiness == Readiness::Unclaimed {
                self.readiness = Readiness::Ready;
            }
        }
    }

    /// Its offsets under the name that the sealed transaction has.
    pub(super) fn seal(&mut self, nonce: Nonce) -> Vec<(TopicPartition, Offset, String)> {
        let mut wrote = PerFamily::default();
        if let Some(state) = &mut self.state {
            state.sealed();
            wrote = state.wrote();
        }
        self.progress.seal(nonce, wrote)
    }

    /// The record at hand counts. Answers how many bytes its changes take until they are committed.
    pub(super) fn keep(&mut self) -> usize {
        self.state.as_mut().map_or(0, |state| {
            let before = state.store.bytes();
            state.store.keep_record();
            state.store.bytes().saturating_sub(before)
        })
    }

    /// The record at hand does not count.
    pub(super) fn forget(&mut self) {
        self.chains.discard();
        if let Some(state) = &mut self.state {
            state.store.drop_record();
        }
    }

    /// The transaction is gone, and what the task did in it. Returns where its inputs go back to.
    pub(super) fn discard(&mut self, in_rebalance: bool) -> Vec<(TopicPartition, Offset)> {
        self.chains.discard();
        if let Some(state) = &mut self.state {
            state.discard();
        }
        if !rules::rewinds_stream_time() {
            self.time_given_back = self.progress.stream_time();
        }
        if !rules::rewinds_after_abort() || (in_rebalance && !rules::rewinds_retained_tasks()) {
            return Vec::new();
        }
        let back = self.progress.discarded();
        if !back.is_empty() {
            if rules::drops_stale_records() {
                self.drop_fetched();
            }
            self.readiness = Readiness::Rewinding;
        }
        back
    }

    /// Whether its offsets have to be committed again although nothing came.
    pub(super) fn is_overdue(&self, now: Now) -> bool {
        self.readiness == Readiness::Ready
            && !self.progress.touched()
            && recommit_due(self.started, self.committed_at, now)
    }

    /// The rewind is done.
    pub(super) fn rewound(&mut self) {
        self.readiness = if self.claimed {
            Readiness::Ready
        } else {
            Readiness::Unclaimed
        };
    }

    /// Its state is to be restored before its first record.
    pub(super) fn restores(&mut self) {
        self.readiness = Readiness::Restoring;
    }

    /// Its state is whole.
    pub(super) fn restored(&mut self, state: TaskState) {
        self.state = Some(state);
        self.readiness = Readiness::at_start(self.claimed);
    }

    /// Whether this partition is one of its inputs.
    pub(super) fn reads(&self, partition: &TopicPartition) -> bool {
        self.progress
            .inputs()
            .iter()
            .any(|input| input.partition == *partition)
    }

    /// Frees what was fetched of one input.
    pub(super) fn drop_fetched_of(&mut self, input: usize) {
        if let Some(records) = self.fetched.get_mut(input) {
            records.clear();
        }
        if let Some((_, supply)) = self.supplies.get_mut(input) {
            *supply = Supply::Empty { lag: Lag::Unknown };
        }
    }

    pub(super) fn drop_fetched(&mut self) {
        for records in &mut self.fetched {
            records.clear();
        }
        for (_, supply) in &mut self.supplies {
            *supply = Supply::Empty { lag: Lag::Unknown };
        }
    }
}

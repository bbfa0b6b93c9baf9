//! Answers revocations, one at a time, in the order in which they came.

use eos_protocol::{Deadline, Revocation, Settle, TaskId, TopicPartition, plan_revocation};

use super::{Group, GroupStep, Standing};
use crate::client::Client;
use crate::metrics::Count;
use crate::rules;
use crate::worker::RecordsOf;
use crate::worker::shared::Shared;
use crate::worker::tasks::Tasks;

/// A rebalance event that waits for its answer.
#[derive(Debug)]
pub(super) enum Change {
    Assigned(Vec<TopicPartition>),
    Revoked {
        partitions: Vec<TopicPartition>,
        lost: bool,
    },
}

/// A revocation that waits for the end of the open transaction.
#[derive(Debug)]
pub(super) struct Revoking {
    plan: Revocation,
    deadline: Deadline,
    /// The deadline has passed, and the transaction was aborted for it.
    overdue: bool,
}

impl Group {
    /// Begins to answer a revocation.
    pub(super) fn revoke<C: Client>(
        &mut self,
        shared: &Shared<C>,
        txn: Standing,
        tasks: &Tasks<RecordsOf<C>>,
        partitions: Vec<TopicPartition>,
        lost: bool,
    ) -> GroupStep {
        let (spec, open) = (&shared.spec, !txn.settled);
        if !partitions.is_empty() {
            tracing::info!(
                app = %spec.app, worker = %spec.id, ?partitions, lost, open, "partitions revoked"
            );
        }
        shared.meter.count(Count::Rebalances, 1);
        // A task that never started has nothing to settle.
        if let Some(resolving) = &mut self.resolving
            && rules::forgets_revoked_starts()
        {
            resolving.forget(&partitions);
        }
        let inputs_of = |task: TaskId| {
            let inputs = tasks.get(task).map(|task| task.progress.inputs());
            let partitions = inputs.into_iter().flatten();
            partitions.map(|input| input.partition.clone()).collect()
        };
        let plan = plan_revocation(tasks.owned(), partitions, inputs_of, lost, open);
        let settle = match plan.settle {
            _ if !rules::settles_before_revocation() => Settle::Nothing,
            Settle::Abort if !rules::aborts_on_loss() => Settle::Commit,
            settle => settle,
        };
        self.revoking = Some(Revoking {
            plan,
            deadline: Deadline::after(shared.now(), spec.revoke_deadline),
            overdue: false,
        });
        GroupStep::Settle(settle)
    }

    /// Rule 4: settled first, unassigned last; bounded by one deadline, whatever hangs.
    pub(super) fn go_on_revoking<C: Client>(
        &mut self,
        shared: &Shared<C>,
        txn: Standing,
    ) -> GroupStep {
        let Some(mut revoking) = self.revoking.take() else {
            return GroupStep::Idle;
        };
        if txn.settled || revoking.overdue || !rules::settles_before_revocation() {
            return GroupStep::Close(revoking.plan);
        }
        if revoking.deadline.passed(shared.now()) {
            revoking.overdue = true;
            self.revoking = Some(revoking);
            return GroupStep::Overdue;
        }
        // In doubt: the successor waits for stable offsets, this worker need not.
        if txn.in_doubt {
            return GroupStep::Close(revoking.plan);
        }
        self.revoking = Some(revoking);
        GroupStep::Idle
    }
}

//! Handles revocations one at a time, in order of arrival.

use eos_protocol::{Deadline, Revocation, Settle, TaskId, TopicPartition, plan_revocation};

use super::{Group, GroupStep, Standing};
use crate::client::Client;
use crate::metrics::Count;
use crate::rules;
use crate::worker::RecordsOf;
use crate::worker::shared::Shared;
use crate::worker::tasks::Tasks;

/// A queued rebalance event.
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
    /// Whether the deadline has passed and the transaction was aborted for that reason.
    overdue: bool,
}

impl Group {
    /// Begins a revocation.
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
        // A task that never started has no transaction to settle.
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

    /// Rule 4: settle first, unassign last. One deadline limits both in all cases.
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
        // In doubt: the successor waits for stable offsets, so this worker does not have to.
        if txn.in_doubt {
            return GroupStep::Close(revoking.plan);
        }
        self.revoking = Some(revoking);
        GroupStep::Idle
    }
}

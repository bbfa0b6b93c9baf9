//! The steps of a worker in a rebalance (design rule 4).

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{TaskId, TopicPartition};

/// The end of the open transaction before partitions are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Settle {
    /// No transaction is open, or it is being settled already.
    Nothing,
    /// It is sealed and committed, under one deadline.
    Commit,
    /// It is aborted: another member may own the partitions already.
    Abort,
}

/// The response to a revocation, in this order: settle, close, unassign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// First: the open transaction.
    pub settle: Settle,
    /// Then: the tasks that end.
    pub close: Vec<TaskId>,
    /// Last: the partitions are returned. The successor starts only now.
    pub unassign: Vec<TopicPartition>,
}

/// Plans the response to a revocation.
///
/// `owned` are the tasks by the partition of their driving topic. `open` is true if a transaction is open. A loss can
/// be reported as a plain revoke when it races another rebalance. Then the broker's generation check refuses the
/// commit, and the abort follows from that. `inputs_of` returns all partitions that a task reads: the siblings of its
/// driving partition are revoked with it.
#[must_use]
pub fn plan_revocation(
    owned: &BTreeMap<TopicPartition, TaskId>,
    partitions: Vec<TopicPartition>,
    inputs_of: impl Fn(TaskId) -> Vec<TopicPartition>,
    lost: bool,
    open: bool,
) -> Revocation {
    let settle = match (open, lost) {
        (false, _) => Settle::Nothing,
        (true, false) => Settle::Commit,
        (true, true) => Settle::Abort,
    };
    let close: Vec<TaskId> = partitions
        .iter()
        .filter_map(|tp| owned.get(tp).copied())
        .collect();
    let mut unassign = partitions;
    let mut known: BTreeSet<TopicPartition> = unassign.iter().cloned().collect();
    for sibling in close.iter().flat_map(|&task| inputs_of(task)) {
        if known.insert(sibling.clone()) {
            unassign.push(sibling);
        }
    }
    Revocation {
        settle,
        close,
        unassign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Partition, StageId};

    fn tp(n: i32) -> TopicPartition {
        TopicPartition::new("a", Partition::new(n).unwrap())
    }

    fn owned() -> BTreeMap<TopicPartition, TaskId> {
        let task = |n| TaskId {
            stage: StageId(0),
            partition: Partition::new(n).unwrap(),
        };
        [0, 1, 2].map(|n| (tp(n), task(n))).into()
    }

    fn sibling(n: i32) -> TopicPartition {
        TopicPartition::new("b", Partition::new(n).unwrap())
    }

    fn inputs_of(task: TaskId) -> Vec<TopicPartition> {
        let n = task.partition.get();
        vec![tp(n), sibling(n)]
    }

    #[test]
    fn rule_4_a_revoke_commits_first_and_unassigns_last() {
        let plan = plan_revocation(&owned(), vec![tp(1)], inputs_of, false, true);
        assert_eq!(plan.settle, Settle::Commit);
        assert_eq!(plan.close, [owned()[&tp(1)]]);
        assert_eq!(
            plan.unassign,
            [tp(1), sibling(1)],
            "siblings go with the driver"
        );
    }

    #[test]
    fn rule_4_a_loss_aborts() {
        let plan = plan_revocation(&owned(), vec![tp(1), tp(2)], inputs_of, true, true);
        assert_eq!(plan.settle, Settle::Abort);
        assert_eq!(plan.close.len(), 2);
    }

    #[test]
    fn a_partition_that_never_became_a_task_is_given_back_too() {
        let plan = plan_revocation(&owned(), vec![tp(7)], inputs_of, false, false);
        assert_eq!(plan.settle, Settle::Nothing);
        assert!(plan.close.is_empty());
        assert_eq!(plan.unassign, [tp(7)]);
    }
}

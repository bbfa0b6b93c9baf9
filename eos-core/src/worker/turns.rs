//! The turns of tasks in an app with repartition topics.
//!
//! A repartition topic is read in the order of its writes, and the windows behind it close by the youngest record. So the
//! tasks of a stage go through a backlog side by side: the next record of a task has its turn if it is at most [`LEAD`]
//! younger than the next record of any other task of the stage. This is a merge by time, as of the inputs of one task
//! (KIP-695), with two exceptions: no task waits for one without fetched records, and a task that has caught up with the
//! machine's clock waits for no other. Otherwise, one partition with a backlog would delay all live ones.

use std::collections::BTreeMap;

use eos_protocol::{StageId, TaskId, Timestamp};

/// The maximum number of records in a turn. Short turns cost a tenth of the CPU time of an app that does little else, so
/// apps without repartition topics have no such limit.
const TURN: usize = 32;
/// The maximum lead of the next record of a task over that of another task, in milliseconds. The order of records
/// within this time is that of the turns, which is cheaper.
const LEAD: i64 = 1_000;
/// A task has caught up if its next record is not older than this, in milliseconds. It also has if the record's timestamp is
/// wrong and lies in the future.
const LIVE: i64 = 10_000;

/// The times of the next records of all tasks that have some in this step.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// `None` without repartition topics.
    stages: Option<BTreeMap<StageId, BTreeMap<TaskId, i64>>>,
    /// The time from which a record is live.
    live_from: i64,
}

/// The limits of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TurnLimits {
    /// The maximum number of records.
    pub(super) records: usize,
    /// The time of the last record that has its turn.
    pub(super) until: Option<Timestamp>,
}

impl Turns {
    /// Returns short turns in the order of time. `now` is that of the machine's clock.
    pub(super) fn by_time(now: Timestamp) -> Self {
        Self {
            stages: Some(BTreeMap::new()),
            live_from: now.0.saturating_sub(LIVE),
        }
    }

    pub(super) fn are_by_time(&self) -> bool {
        self.stages.is_some()
    }

    /// Sets the time of the task's next record. Without a fetched record, or without a time, no task waits for this one.
    /// A task with a live record waits for no other.
    pub(super) fn set(&mut self, id: TaskId, head: Option<Timestamp>) {
        let Some(stages) = &mut self.stages else {
            return;
        };
        let heads = stages.entry(id.stage).or_default();
        match head.filter(|head| head.0 < self.live_from) {
            Some(Timestamp(head)) => heads.insert(id, head),
            None => heads.remove(&id),
        };
    }

    /// Returns the limits of the task's next turn.
    pub(super) fn limits(&self, id: TaskId) -> TurnLimits {
        let Some(stages) = &self.stages else {
            return TurnLimits {
                records: usize::MAX,
                until: None,
            };
        };
        let heads = stages.get(&id.stage);
        let is_in_order = heads.is_some_and(|heads| heads.contains_key(&id));
        let others = heads
            .into_iter()
            .flatten()
            .filter(|(other, _)| **other != id);
        let least = others.map(|(_, head)| *head).min().filter(|_| is_in_order);
        TurnLimits {
            records: TURN,
            until: least.map(|least| Timestamp(least.saturating_add(LEAD))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eos_protocol::Partition;

    fn id(stage: u16, partition: i32) -> TaskId {
        let partition = Partition::new(partition).unwrap();
        let stage = StageId(stage);
        TaskId { stage, partition }
    }

    fn turns(heads: &[(TaskId, Option<i64>)]) -> Turns {
        let mut turns = Turns::by_time(Timestamp(1_000_000));
        for (id, head) in heads {
            turns.set(*id, head.map(Timestamp));
        }
        turns
    }

    fn until(turns: &Turns, id: TaskId) -> Option<i64> {
        let limits = turns.limits(id);
        assert_eq!(limits.records, TURN);
        limits.until.map(|time| time.0)
    }

    #[test]
    fn a_task_is_not_far_ahead_of_the_others_of_its_stage() {
        let [a, b, c, other] = [id(0, 0), id(0, 1), id(0, 2), id(1, 0)];
        let mut turns = turns(&[
            (a, Some(5_000)),
            (b, Some(9_000)),
            (c, None),
            (other, Some(0)),
        ]);
        assert_eq!(until(&turns, a), Some(9_000 + LEAD));
        assert_eq!(until(&turns, b), Some(5_000 + LEAD));
        assert_eq!(until(&turns, c), None, "its next record is not known");
        assert_eq!(until(&turns, other), None, "it is alone");
        turns.set(a, Some(Timestamp(20_000)));
        assert_eq!(until(&turns, b), Some(20_000 + LEAD));
        turns.set(a, None);
        assert_eq!(
            until(&turns, b),
            None,
            "it waits for no task without records"
        );
    }

    /// Otherwise it would wait until the others have caught up.
    #[test]
    fn a_live_task_and_one_with_a_wrong_time_wait_for_no_others() {
        let [a, b] = [id(0, 0), id(0, 1)];
        for live in [1_000_000 - LIVE, i64::MAX] {
            let turns = turns(&[(a, Some(5_000)), (b, Some(live))]);
            assert_eq!((until(&turns, a), until(&turns, b)), (None, None));
        }
    }

    #[test]
    fn without_repartition_topics_a_turn_has_no_limit() {
        let limits = Turns::default().limits(id(0, 0));
        let none = TurnLimits {
            records: usize::MAX,
            until: None,
        };
        assert_eq!(limits, none);
    }
}

//! How many records a task takes before the next task has its turn.

use std::collections::BTreeMap;

use eos_protocol::{StageId, TaskId, Timestamp};

/// The turn in an app with repartition topics. It is short, so that tasks with a backlog stay side by side in time:
/// a repartition topic is read in the order of its writes, and windows close by the youngest record. Short turns
/// cost a tenth of the CPU time of an app that does little else, so other apps have no such limit.
const TURN: usize = 32;
/// The turn of a task that is behind most others of its stage. The lead that a task gains while the others wait for a
/// fetch shrinks, and yet no task waits for another.
const CATCH_UP: usize = 4 * TURN;

/// The length of each task's turn in one step.
#[derive(Debug, Default)]
pub(super) struct TurnLengths {
    /// Per stage, the time before which a task is behind: the middle between the least and the greatest stream time, but
    /// not less than the median, which one idle task does not move.
    limits: Option<BTreeMap<StageId, i64>>,
}

impl TurnLengths {
    /// Short turns, for tasks with these stream times.
    pub(super) fn short(tasks: impl Iterator<Item = (TaskId, Option<Timestamp>)>) -> Self {
        let mut times = BTreeMap::<StageId, Vec<i64>>::new();
        for (id, time) in tasks {
            let times = times.entry(id.stage).or_default();
            times.extend(time.map(|Timestamp(time)| time));
        }
        let limits = times.into_iter().filter_map(|(stage, mut times)| {
            let (least, greatest) = (*times.iter().min()?, *times.iter().max()?);
            let half = times.len() / 2;
            let median = *times.select_nth_unstable(half).1;
            Some((stage, median.max(i64::midpoint(least, greatest))))
        });
        Self {
            limits: Some(limits.collect()),
        }
    }

    /// The records that a task may take in a row.
    pub(super) fn of(&self, id: TaskId, time: Option<Timestamp>) -> usize {
        let Some(limits) = &self.limits else {
            return usize::MAX;
        };
        match limits.get(&id.stage) {
            Some(limit) if time.is_none_or(|time| time.0 < *limit) => CATCH_UP,
            _ => TURN,
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

    #[test]
    fn a_task_behind_its_stage_has_long_turns() {
        let at = |time| Some(Timestamp(time));
        let of_other_stage = (id(1, 0), at(9_000));
        let tasks = [(id(0, 0), at(100)), (id(0, 1), at(200)), (id(0, 2), None)];
        let lengths = TurnLengths::short(tasks.into_iter().chain([of_other_stage]));
        assert_eq!(lengths.of(id(0, 0), at(100)), CATCH_UP);
        assert_eq!(lengths.of(id(0, 0), at(200)), TURN, "it has caught up");
        assert_eq!(lengths.of(id(0, 1), at(200)), TURN);
        assert_eq!(lengths.of(id(0, 2), None), CATCH_UP, "it has taken none");
        assert_eq!(lengths.of(id(1, 0), at(9_000)), TURN, "it is alone");
    }

    #[test]
    fn all_tasks_catch_up_with_one_that_leads() {
        let tasks = (0..).zip([0, 10, 20, 30, 40, 1_000]);
        let tasks = tasks.map(|(at, time)| (id(0, at), Some(Timestamp(time))));
        let lengths = TurnLengths::short(tasks);
        let of = |time| lengths.of(id(0, 0), Some(Timestamp(time)));
        assert_eq!((of(40), of(499), of(1_000)), (CATCH_UP, CATCH_UP, TURN));
    }

    #[test]
    fn an_idle_task_and_one_from_the_far_future_do_not_end_catching_up() {
        let times = [100, 200, 210, 220, i64::MIN, i64::MAX];
        let tasks = (0..).zip(times);
        let tasks = tasks.map(|(at, time)| (id(0, at), Some(Timestamp(time))));
        let lengths = TurnLengths::short(tasks);
        let of = |time| lengths.of(id(0, 0), Some(Timestamp(time)));
        assert_eq!((of(100), of(200)), (CATCH_UP, CATCH_UP));
        assert_eq!((of(210), of(220)), (TURN, TURN));
    }

    #[test]
    fn without_repartition_topics_a_turn_has_no_limit() {
        assert_eq!(TurnLengths::default().of(id(0, 0), None), usize::MAX);
    }
}

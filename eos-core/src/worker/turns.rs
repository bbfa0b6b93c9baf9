//! How many records a task takes before the next task has its turn.

use std::collections::BTreeMap;

use eos_protocol::{StageId, TaskId, Timestamp};

/// The turn in an app with repartition topics. It is short, so that tasks with a backlog stay side by side in time:
/// a repartition topic is read in the order of its writes, and windows close by the youngest record. Short turns
/// cost a tenth of the CPU time of an app that does little else, so other apps have no such limit.
const TURN: usize = 32;
/// The turn of a task that is behind the others of its stage. The lead that a task gains while the others wait for a
/// fetch shrinks, and yet no task waits for another.
const CATCH_UP: usize = 4 * TURN;

/// The length of each task's turn in one step.
#[derive(Debug, Default)]
pub(super) struct TurnLengths {
    /// Per stage, the middle between the least and the greatest stream time of its tasks.
    middles: Option<BTreeMap<StageId, i64>>,
}

impl TurnLengths {
    /// Short turns, for tasks with these stream times.
    pub(super) fn short(tasks: impl Iterator<Item = (TaskId, Option<Timestamp>)>) -> Self {
        let mut spans = BTreeMap::<StageId, (i64, i64)>::new();
        for (id, time) in tasks {
            if let Some(Timestamp(time)) = time {
                let (least, greatest) = spans.entry(id.stage).or_insert((time, time));
                *least = time.min(*least);
                *greatest = time.max(*greatest);
            }
        }
        let middle = |(least, greatest)| i64::midpoint(least, greatest);
        let middles = spans.into_iter().map(|(id, span)| (id, middle(span)));
        Self {
            middles: Some(middles.collect()),
        }
    }

    /// The records that a task may take in a row.
    pub(super) fn of(&self, id: TaskId, time: Option<Timestamp>) -> usize {
        let Some(middles) = &self.middles else {
            return usize::MAX;
        };
        match middles.get(&id.stage) {
            Some(middle) if time.is_none_or(|time| time.0 < *middle) => CATCH_UP,
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
    fn a_task_behind_the_middle_of_its_stage_has_long_turns() {
        let at = |time| Some(Timestamp(time));
        let of_other_stage = (id(1, 0), at(9_000));
        let tasks = [(id(0, 0), at(100)), (id(0, 1), at(200)), (id(0, 2), None)];
        let lengths = TurnLengths::short(tasks.into_iter().chain([of_other_stage]));
        assert_eq!(lengths.of(id(0, 0), at(100)), CATCH_UP);
        assert_eq!(lengths.of(id(0, 0), at(150)), TURN, "it has caught up");
        assert_eq!(lengths.of(id(0, 1), at(200)), TURN);
        assert_eq!(lengths.of(id(0, 2), None), CATCH_UP, "it has taken none");
        assert_eq!(lengths.of(id(1, 0), at(9_000)), TURN, "it is alone");
    }

    #[test]
    fn times_at_the_ends_of_their_range_give_no_overflow() {
        let tasks = [(id(0, 0), i64::MIN), (id(0, 1), i64::MAX)];
        let lengths = TurnLengths::short(tasks.map(|(id, t)| (id, Some(Timestamp(t)))).into_iter());
        assert_eq!(lengths.of(id(0, 0), Some(Timestamp(i64::MIN))), CATCH_UP);
        assert_eq!(lengths.of(id(0, 1), Some(Timestamp(i64::MAX))), TURN);
    }

    #[test]
    fn without_repartition_topics_a_turn_has_no_limit() {
        assert_eq!(TurnLengths::default().of(id(0, 0), None), usize::MAX);
    }
}

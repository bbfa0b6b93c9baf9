//! The choice of tasks with a backlog for a transaction.
//!
//! A commit writes batches, markers and offsets for each touched task, at least one of each per partition. A
//! transaction therefore takes many records from a few tasks with a backlog, and the next transaction continues with
//! the next tasks. Tasks without a backlog always take their records.

use std::time::Duration;

use crate::{Deadline, Now, TaskId};

/// The fewest tasks with a backlog that a transaction may touch. While one of them waits for a fetch, the others have
/// records.
const FEWEST: usize = 8;
/// The time within which each task with a backlog has its turn. The time of the commits is not included.
const ROUND: Duration = Duration::from_millis(500);
/// The time for which a transaction waits for the records of its tasks before it touches another task. A fetch takes
/// some milliseconds. Without this wait, the transaction would touch one task after the other within microseconds.
const PATIENCE: Duration = Duration::from_millis(3);
/// The minimum number of records in one turn of a task with a backlog.
const MANY: usize = 64;

/// A finished turn of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskTurn {
    /// The number of records that the task took.
    pub records: usize,
    /// Whether the transaction had not touched the task before.
    pub first: bool,
    /// Whether the turn ended because the task had no more records.
    pub dry: bool,
}

impl TaskTurn {
    /// Returns whether the task has a backlog after this turn. `before`: whether it had one.
    ///
    /// Only the first turn of a transaction can end a backlog. A later turn may find no record because the client still
    /// fetches the next ones.
    #[must_use]
    pub fn leaves_backlog(&self, before: bool) -> bool {
        self.records >= MANY || (before && !(self.first && self.dry))
    }
}

/// Chooses the tasks with a backlog that the open transaction may touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BacklogTurns {
    /// The task with the first turn of the open transaction.
    first: Option<TaskId>,
    /// The number of tasks by which the limit was raised.
    raised_by: usize,
    /// Whether a task was skipped since the limit was last raised.
    skipped: bool,
    /// The task with which the next transaction begins: the first skipped one.
    next: Option<TaskId>,
    /// The time at which the limit is raised, if no record arrives before.
    raise: Option<Deadline>,
}

/// The decision after a step without a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DryStep {
    /// No task was skipped.
    Idle,
    /// Some tasks were skipped. Their turn comes after this time, if no record arrives before.
    Wait(Duration),
    /// The transaction may touch one more task.
    Touch,
}

impl BacklogTurns {
    /// Begins a step of a transaction that has touched no task yet. `turn` is the task with the next turn if none was
    /// skipped. Returns the task with the first turn.
    pub fn begin(&mut self, turn: TaskId) -> TaskId {
        self.skipped = false;
        self.raise = None;
        *self.first.get_or_insert(turn)
    }

    /// Ends a committed transaction. The next one begins with the first skipped task.
    pub fn committed(&mut self) {
        self.raised_by = 0;
        self.first = self.next.take();
    }

    /// Ends a discarded transaction. The next one touches the same tasks: otherwise, the commits of other tasks would
    /// hide a task whose transactions always fail.
    pub fn discarded(&mut self) {
        self.next = None;
    }

    /// Gives this task the first turn of the next transaction.
    pub fn begin_next_with(&mut self, task: TaskId) {
        self.next = Some(task);
    }

    /// Returns the number of tasks with a backlog that the open transaction may touch. `backlogged` is the number of
    /// all tasks with a backlog, and `interval` the time between two commits.
    #[must_use]
    pub fn limit(&self, backlogged: usize, interval: Duration) -> usize {
        let nanoseconds = backlogged as u128 * interval.as_nanos();
        let within_round = nanoseconds.div_ceil(ROUND.as_nanos());
        let within_round = usize::try_from(within_round).unwrap_or(usize::MAX);
        within_round.max(FEWEST).saturating_add(self.raised_by)
    }

    /// Records that this task takes no records in the open transaction.
    pub fn skip(&mut self, task: TaskId) {
        self.skipped = true;
        self.next.get_or_insert(task);
    }

    /// Records that a task within the limit had records.
    pub fn fed(&mut self) {
        self.raise = None;
    }

    /// Decides about the wait after a step in which no task within the limit had a record.
    pub fn dry_step(&mut self, now: Now) -> DryStep {
        if !std::mem::take(&mut self.skipped) {
            return DryStep::Idle;
        }
        let raise = *self.raise.get_or_insert(Deadline::after(now, PATIENCE));
        if !raise.passed(now) {
            return DryStep::Wait(raise.remaining(now));
        }
        self.raise = None;
        self.raised_by += 1;
        self.next = None;
        DryStep::Touch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Partition, StageId};

    const INTERVAL: Duration = Duration::from_millis(100);

    fn id(partition: usize) -> TaskId {
        TaskId {
            stage: StageId(0),
            partition: Partition::new(i32::try_from(partition).unwrap()).unwrap(),
        }
    }

    /// Runs a transaction over tasks that all have a backlog, and returns the touched ones. `dry` of them, from the
    /// first on, have no record left at their second turn.
    fn transaction(turns: &mut BacklogTurns, tasks: usize, dry: usize) -> Vec<usize> {
        let first = turns.begin(id(0)).partition.get() as usize;
        let (mut touched, mut now) = (Vec::new(), Now::default());
        for _ in 0..=dry {
            for task in (first..tasks).chain(0..first) {
                if touched.contains(&task) {
                    continue;
                }
                match touched.len() < turns.limit(tasks, INTERVAL) {
                    true => touched.push(task),
                    false => turns.skip(id(task)),
                }
            }
            if touched.len() - FEWEST < dry {
                assert_eq!(turns.dry_step(now), DryStep::Wait(PATIENCE));
                now = now.after(PATIENCE);
                for task in touched.len()..tasks {
                    turns.skip(id((first + task) % tasks));
                }
                assert_eq!(turns.dry_step(now), DryStep::Touch);
            }
        }
        turns.committed();
        touched
    }

    #[test]
    fn transactions_take_turns_through_all_tasks() {
        let mut turns = BacklogTurns::default();
        assert_eq!(transaction(&mut turns, 20, 0), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(
            transaction(&mut turns, 20, 0),
            [8, 9, 10, 11, 12, 13, 14, 15]
        );
        assert_eq!(transaction(&mut turns, 20, 0), [16, 17, 18, 19, 0, 1, 2, 3]);
    }

    #[test]
    fn a_transaction_that_runs_dry_takes_the_next_tasks() {
        let mut turns = BacklogTurns::default();
        assert_eq!(
            transaction(&mut turns, 20, 2),
            [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
        );
        assert_eq!(transaction(&mut turns, 20, 0)[0], 10);
    }

    #[test]
    fn a_transaction_waits_for_a_fetch_before_it_takes_the_next_task() {
        let (mut turns, mut now) = (BacklogTurns::default(), Now::default());
        let limit = |turns: &BacklogTurns| turns.limit(20, INTERVAL);
        assert_eq!(turns.dry_step(now), DryStep::Idle, "none was skipped");

        let half = PATIENCE / 2;
        turns.skip(id(8));
        assert_eq!(turns.dry_step(now), DryStep::Wait(PATIENCE));
        now = now.after(half);
        turns.skip(id(8));
        assert_eq!(turns.dry_step(now), DryStep::Wait(half));
        turns.fed();
        now = now.after(half);
        turns.skip(id(8));
        assert_eq!(turns.dry_step(now), DryStep::Wait(PATIENCE), "records came");
        now = now.after(PATIENCE);
        turns.skip(id(8));
        let before = limit(&turns);
        assert_eq!(turns.dry_step(now), DryStep::Touch);
        assert_eq!(limit(&turns), before + 1);
        turns.skip(id(9));
        assert_eq!(
            turns.dry_step(now),
            DryStep::Wait(PATIENCE),
            "one at a time"
        );
    }

    #[test]
    fn a_transaction_after_a_discarded_one_touches_the_same_tasks() {
        let (mut turns, now) = (BacklogTurns::default(), Now::default());
        transaction(&mut turns, 20, 0);
        let limit = |turns: &BacklogTurns| turns.limit(20, INTERVAL);
        assert_eq!(turns.begin(id(0)), id(8));
        turns.skip(id(16));
        turns.dry_step(now);
        turns.skip(id(16));
        assert_eq!(turns.dry_step(now.after(PATIENCE)), DryStep::Touch);
        turns.skip(id(17));
        let raised = limit(&turns);
        turns.discarded();
        for _ in 0..2 {
            assert_eq!(turns.begin(id(0)), id(8));
            assert_eq!(limit(&turns), raised);
        }
        turns.skip(id(17));
        turns.committed();
        assert_eq!(turns.begin(id(0)), id(17));
        assert_eq!(limit(&turns), raised - 1);

        turns.skip(id(5));
        turns.begin_next_with(id(3));
        turns.committed();
        assert_eq!(turns.begin(id(0)), id(3));
    }

    #[test]
    fn each_task_has_its_turn_within_half_a_second() {
        for (tasks, interval) in [(8, 10), (128, 100), (500, 10), (500, 125), (500, 30_000)] {
            let interval = Duration::from_millis(interval);
            let limit = BacklogTurns::default().limit(tasks, interval);
            let transactions = tasks.div_ceil(limit) as u32;
            assert!(
                limit >= tasks || (interval * transactions) <= ROUND,
                "{tasks} {interval:?}: {limit}"
            );
        }
        assert_eq!(BacklogTurns::default().limit(128, INTERVAL), 26);
        assert_eq!(BacklogTurns::default().limit(usize::MAX, ROUND), usize::MAX);
    }

    #[test]
    fn a_task_that_waits_for_a_fetch_keeps_its_backlog() {
        let turn = |records, first, dry| TaskTurn {
            records,
            first,
            dry,
        };
        assert!(turn(MANY, true, true).leaves_backlog(false));
        assert!(!turn(MANY - 1, true, true).leaves_backlog(true));
        assert!(turn(0, false, true).leaves_backlog(true));
        assert!(turn(1, true, false).leaves_backlog(true));
        assert!(!turn(1, false, false).leaves_backlog(false));
    }
}

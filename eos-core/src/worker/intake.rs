//! The intake of records into the open transaction.

use eos_protocol::{CommitCause, DryStep, Now, TaskId, TaskTurn, Timestamp};

use crate::client::Client;

use super::pipeline::Done;
use super::turns::{TurnLimits, Turns};
use super::{STRETCH, Worker, WorkerError};

/// The reason why a task's turn ended.
enum Turn {
    /// The task has no more records.
    Dry,
    /// Another task has the next turn.
    Over,
    /// The step has taken records for long enough, or the commit is due.
    Full,
    /// The worker has to do something else first.
    Then(Done),
}

impl<C: Client> Worker<C> {
    /// Returns whether the worker may take records now.
    fn accepts(&self) -> bool {
        self.txn.takes_records()
            && self.lifecycle.goes_on()
            && self.group.takes_records()
            && !self.restorer.needs_commit()
    }

    /// Rule 10: a start offset that a policy resolved is committed before the first record. It does not wait for global
    /// tables: after a failed start, the policy would resolve another offset and skip the records in between.
    pub(super) fn claim(&mut self) -> bool {
        if !self.accepts() || !self.tasks.has_unclaimed() {
            return false;
        }
        if self.begin() {
            self.tasks.claim();
            self.commit(CommitCause::FirstStart);
        }
        true
    }

    /// Commits the offsets of idle tasks again, before the brokers expire them.
    pub(super) fn recommit(&mut self) {
        let now = self.shared.env.about_now();
        if self.accepts()
            && self.chores.looks_for_idle(now)
            && self.tasks.has_overdue(now)
            && self.begin()
        {
            self.tasks.recommit(now);
            self.commit(CommitCause::Idle);
        }
    }

    /// Continues asynchronous calls. They continue during a commit. Returns whether any ended.
    pub(super) fn run_calls(&mut self) -> Result<bool, WorkerError> {
        let admits = self.shared.spec.globals.is_ready()
            && self.lifecycle.goes_on()
            && self.group.takes_records()
            && !self.restorer.needs_commit();
        let (shared, tasks, source) = (&self.shared, &mut self.tasks, &mut self.source);
        let ran = self.pipeline.run_calls(shared, tasks, source, admits);
        ran.map_err(WorkerError::Client)
    }

    /// Processes records for a limited time. Returns whether there may be more at once.
    pub(super) fn take_records(&mut self) -> bool {
        match self.pipeline.send_rest(&self.shared, &mut self.txn) {
            Ok(true) => {}
            Ok(false) => return false,
            Err(raised) => {
                self.raise(raised);
                return false;
            }
        }
        if !self.accepts() || !self.shared.spec.globals.is_ready() || !self.merge_held() {
            return false;
        }
        let begun = self.shared.env.about_now();
        self.pipeline.set_clock(begun);
        let mut more_with_backlog = match self.shared.has_repartitions {
            true => usize::MAX,
            false => self.tasks.more_with_backlog(self.txn.pace.interval()),
        };
        let mut turns = self.tasks.turns();
        // With repartition topics, all tasks stay at the same time. Otherwise, later stages would receive late records.
        let mut by_time = Turns::default();
        if self.shared.has_repartitions {
            by_time = Turns::by_time(self.shared.env.wall_clock());
            for id in &turns {
                by_time.set(*id, self.next_time(*id));
            }
        }
        let mut any = false;
        while let Some(id) = turns.pop_front() {
            if self.tasks.would_touch_backlog(id) {
                if more_with_backlog == 0 {
                    self.tasks.skip(id);
                    continue;
                }
                more_with_backlog -= 1;
            }
            let turn = self.take_turn(id, by_time.limits(id), begun, &mut any);
            if by_time.are_by_time() {
                let next = match turn {
                    Turn::Over | Turn::Then(Done::Begin) => self.next_time(id),
                    Turn::Dry | Turn::Full | Turn::Then(_) => None,
                };
                by_time.set(id, next);
            }
            match turn {
                Turn::Dry => {}
                Turn::Over => turns.push_back(id),
                Turn::Full => {
                    self.tasks.end_turn(id);
                    return true;
                }
                Turn::Then(Done::Begin) => {
                    if !self.merge_held() || self.is_full(begun) {
                        self.tasks.end_turn(id);
                        return true;
                    }
                    turns.push_front(id);
                }
                Turn::Then(done) => {
                    if self.follow_up(done) {
                        self.tasks.end_turn(id);
                        return true;
                    }
                }
            }
        }
        if self.pipeline.needs_claim() {
            return self.claim_more();
        }
        if any {
            return true;
        }
        match self.tasks.dry_step(self.pipeline.clock()) {
            DryStep::Idle => false,
            DryStep::Touch => true,
            DryStep::Wait(wait) => {
                self.pipeline.wake.after(wait);
                false
            }
        }
    }

    /// At most once: commits the offsets of the fetched records. First come the outputs of the claimed records.
    fn claim_more(&mut self) -> bool {
        match self.txn.is_open() {
            true => self.commit(CommitCause::Claim),
            false => _ = self.begin(),
        }
        true
    }

    /// At most once: a claim opens a transaction. If the worker stops or gives partitions back by now, it takes no records,
    /// so the transaction must not wait for its interval.
    pub(super) fn end_idle_claim(&mut self) {
        if !self.lifecycle.goes_on() {
            self.commit(CommitCause::Shutdown);
        } else if !self.group.takes_records() {
            self.commit(CommitCause::Revoke);
        }
    }

    /// Returns the time of the next record of a task, if it is fetched.
    fn next_time(&mut self, id: TaskId) -> Option<Timestamp> {
        let task = self.tasks.get_mut(id)?;
        self.pipeline.next_time::<C>(task, &mut self.source)
    }

    /// Processes records of one task.
    fn take_turn(&mut self, id: TaskId, limits: TurnLimits, begun: Now, any: &mut bool) -> Turn {
        let Self {
            shared,
            source,
            txn,
            tasks,
            pipeline,
            ..
        } = self;
        let Some(task) = tasks.get_mut(id) else {
            return Turn::Dry;
        };
        let (first, mut records) = (!task.progress.touched(), 0);
        let mut turn = Turn::Over;
        for _ in 0..limits.records {
            let waits = limits
                .until
                .is_some_and(|until| pipeline.next_time::<C>(task, source) > Some(until));
            let done = match waits {
                true => pipeline.process_due(shared, task, txn),
                false => pipeline.process(shared, task, source, txn),
            };
            match done {
                Done::Next => {
                    records += 1;
                    // `Done::Next` has nothing to drop, but the compiler would call the destructor for each record.
                    std::mem::forget(done);
                }
                // Its next record comes after those of other tasks.
                Done::Dry if waits => break,
                Done::Dry => {
                    turn = Turn::Dry;
                    break;
                }
                done => {
                    *any |= !matches!(done, Done::Missing(_));
                    turn = Turn::Then(done);
                    break;
                }
            }
            let now = pipeline.clock();
            let is_long = now != begun && now.since(begun) >= STRETCH;
            if is_long || txn.commit_due(shared, now).is_some() {
                turn = Turn::Full;
                break;
            }
        }
        *any |= records > 0;
        // Records that the transaction before has discarded are fetched again.
        let dry = matches!(turn, Turn::Dry) && !task.progress.expects_record();
        let ended = TaskTurn {
            records,
            first,
            dry,
        };
        let had_backlog = task.has_backlog;
        task.has_backlog = ended.leaves_backlog(had_backlog);
        // The limit counts one task less from now on, so another task has its turn at once.
        *any |= had_backlog && !task.has_backlog;
        if records > 0 {
            tasks.fed();
        }
        turn
    }

    /// Returns whether the step has taken records for long enough, or the commit is due.
    fn is_full(&self, begun: Now) -> bool {
        let now = self.pipeline.clock();
        now.since(begun) >= STRETCH || self.txn.commit_due(&self.shared, now).is_some()
    }

    /// Carries out the follow-up action of a record. Returns whether intake ends.
    fn follow_up(&mut self, done: Done) -> bool {
        match done {
            Done::Dry | Done::Next => return false,
            Done::Rewind(seeks) => {
                self.group.seek(seeks);
                return false;
            }
            Done::Missing(record) => {
                self.group.missing(&self.shared, record);
                return false;
            }
            Done::Full | Done::Begin => {}
            Done::Commit(cause) => self.commit(cause),
            Done::Raise(raised) => self.raise(raised),
            Done::Failed(error) => self.fail_record(*error),
        }
        true
    }

    /// Merges the record that waits for a transaction. Returns whether intake may continue.
    fn merge_held(&mut self) -> bool {
        let Some(id) = self.pipeline.held_task() else {
            return true;
        };
        let tasks = &self.tasks;
        self.pipeline.forget(|task| !tasks.contains(task));
        if self.pipeline.held_task().is_none() {
            return true;
        }
        if !self.begin() {
            return false;
        }
        let (Some(record), Some(task)) = (self.pipeline.take_held(), self.tasks.get_mut(id)) else {
            return false;
        };
        match self
            .pipeline
            .merge(&self.shared, task, record, &mut self.txn)
        {
            Done::Next => true,
            done => {
                self.follow_up(done);
                false
            }
        }
    }

    /// Handles a record that failed without side effects: commits the records before it, then stops the worker.
    fn fail_record(&mut self, error: WorkerError) {
        tracing::error!(
            app = %self.shared.spec.app, worker = %self.shared.spec.id, %error, "record failed"
        );
        if self.lifecycle.fail(error) {
            self.commit(CommitCause::RecordFailed);
        }
    }
}

//! One worker: a consumer, a transactional producer, and the tasks it owns.
//!
//! [`Worker::step`] does a short piece of all due work and returns. Nothing calls back into the worker, and no call
//! blocks for longer than a slice, except the wait for a database before a commit. So a simulation can step several
//! workers on one thread under a virtual clock. `eos-protocol` makes the decisions, and the worker carries them out.
//!
//! Each part owns its state. Parts exchange values: the transaction machine takes events and returns actions, and
//! `Worker::advance` is its only caller.
//!
//! | part | does |
//! |---|---|
//! | `shared` | settings, clocks, topology and meter, which the other parts read |
//! | `transaction` | the open transaction: the machine, its producer, the calls in flight |
//! | `tasks` | the tasks: their offsets, records and state |
//! | `group` | rebalances, starts of tasks, seeks, membership |
//! | `restore` | restores the state of a task before its first record |
//! | `pipeline` | takes one record through its nodes into the transaction |
//! | `seal` | the end of intake: results, changes of state and offsets |
//! | `chores` | metrics, records to purge, the ends of changelogs and of idle inputs |
//! | `lifecycle` | stop and failure |
//! | `task`, `task_state`, `windows`, `trimming` | one task, its state, its windows and their changelog |
//! | `spec`, `storage`, `purge_queue`, `status`, `error` | the interface between runtime and worker |
//! | `ahead` | the records of a task whose calls run ahead of their turn |
//! | `turns` | how many records a task takes in a row |
//! | `wake`, `future_timestamps` | the next moment with work; warnings about timestamps far ahead |

mod ahead;
mod chores;
mod error;
#[cfg(test)]
mod fake;
mod future_timestamps;
mod group;
mod lifecycle;
mod parked_keys;
mod pipeline;
mod purge_queue;
mod restore;
mod rounds;
mod seal;
mod shared;
mod spec;
mod status;
mod storage;
mod task;
mod task_pause;
mod task_state;
mod tasks;
#[cfg(test)]
mod tests;
mod transaction;
mod trimming;
mod turns;
mod wake;
mod windows;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use eos_protocol::state::StoreNames;
use eos_protocol::{
    Action, Clock, CommitCause, Event, Guarantee, Now, Outcome, Revocation, SeenTopic, Settle,
    State, TaskId, TaskProgress, TaskTurn, TopicName,
};

use crate::client::{Client, ClientError, Source, SourceEvent};
use crate::failpoints::{self, Point};
use crate::metrics::WorkerMeter;
use crate::rules;
use crate::topology::Topology;

pub use crate::paused::PauseBoard;
pub use error::{RecordFault, TwoOwners, UnknownStore, WorkerError};
pub use purge_queue::PurgeQueue;
pub use spec::{Env, StateSpec, WorkerSpec};
pub use status::InputStanding;
pub use storage::{Home, HomeError, InMemory, TaskHome};

use chores::Chores;
use group::{Group, GroupStep, NewTask, Sought, Standing};
use lifecycle::Lifecycle;
use pipeline::{Done, Pipeline, Raised};
use restore::{RestoreStep, Restorer};
use shared::Shared;
use task::{Readiness, Task};
use tasks::Tasks;
use transaction::{Call, TransactionDriver};
use turns::TurnLengths;

/// The longest time that one client call may block while there is no other work.
const SLICE: Duration = Duration::from_millis(20);
/// The longest wait for an event. The worker detects a stop after this time at the latest.
const NAP: Duration = Duration::from_millis(50);
/// The longest wait for a response that a rebalance needs, or for a database write.
const SHORT_NAP: Duration = Duration::from_millis(5);
/// The longest time that one step may take records.
const STRETCH: Duration = Duration::from_millis(5);

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// More work is due at once.
    Busy,
    /// No work is due before this wait is over, or an event arrives: see [`Worker::wait`].
    Idle(Duration),
    /// The worker has stopped as requested.
    Stopped,
}

/// The mode of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopMode {
    /// Commits and closes, for a quick restart. A static member keeps its partitions for its session timeout.
    Restart,
    /// Commits, leaves the group and closes. The partitions move at once.
    Leave,
}

type RecordsOf<C> = <<C as Client>::Source as Source>::Records;

/// A worker, generic over its Kafka client.
pub struct Worker<C: Client> {
    shared: Shared<C>,
    source: C::Source,
    txn: TransactionDriver<C>,
    tasks: Tasks<RecordsOf<C>>,
    group: Group,
    restorer: Restorer<C>,
    pipeline: Pipeline,
    /// The number of tasks that have started.
    starts: u32,
    chores: Chores,
    lifecycle: Lifecycle,
}

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
    /// Creates a worker that has not joined the group yet.
    ///
    /// # Errors
    /// If the client rejects its configuration.
    pub(crate) fn new(
        spec: WorkerSpec,
        env: Env,
        topology: Arc<Topology>,
        client: Arc<C>,
        meter: Arc<WorkerMeter>,
    ) -> Result<Self, WorkerError> {
        spec.pauses.clear(spec.id);
        let watch = group::watch(&spec, &topology);
        let mut source = group::subscribed(&*client, &spec, &topology, watch.names())?;
        let shared = Shared::new(spec, env, topology, client, meter);
        let makes_calls = shared.topology.has_calls();
        let executor = makes_calls.then(|| shared.env.executor(source.waker()));
        let mut worker = Self {
            txn: TransactionDriver::new(&shared, &mut source),
            tasks: Tasks::default(),
            group: Group::new(watch),
            restorer: Restorer::default(),
            pipeline: Pipeline::new(&shared.spec.output_limits, executor),
            starts: 0,
            chores: Chores::default(),
            lifecycle: Lifecycle::default(),
            source,
            shared,
        };
        worker.shared.meter.stepped(worker.shared.env.about_now());
        worker.advance(Event::Start);
        Ok(worker)
    }

    /// Does a short piece of all due work.
    ///
    /// # Errors
    /// [`WorkerError`] if the worker failed. Drop it then: the next start with the same identity resolves an open
    /// transaction.
    pub fn step(&mut self) -> Result<Step, WorkerError> {
        let step = self.act();
        self.shared.meter.stepped(self.shared.env.about_now());
        step
    }

    fn act(&mut self) -> Result<Step, WorkerError> {
        self.clear_wakes();
        self.txn.look_at_markers(&self.shared);
        if let Err(error) = self.end_apply(false) {
            self.give_up(error);
        }
        self.poll()?;
        self.advance(Event::Tick);
        let mut busy = self.rebalance()?;
        match self.go_back()? {
            Sought::Reassigned => return Ok(Step::Busy),
            sought => busy |= matches!(sought, Sought::Moved | Sought::Done),
        }
        match self.restore()? {
            RestoreStep::Reassigned => return Ok(Step::Busy),
            restored => busy |= restored == RestoreStep::Moved,
        }
        busy |= self.claim();
        self.recommit();
        self.group.check_coverage(&self.shared, &mut self.source);
        self.run_chores();
        busy |= self.drive();
        // The machine may have committed just now.
        self.txn.look_at_markers(&self.shared);
        self.rejoin()?;
        if self.txn.has_failed() {
            self.lifecycle.end()?;
        }
        busy |= self.run_calls()?;
        busy |= self.take_records();
        self.report();
        if let Some(cause) = self.txn.commit_due(&self.shared, self.shared.now()) {
            self.commit(cause);
        }
        self.end(busy)
    }

    /// Waits until there may be an event, or until `at_most` has passed.
    pub fn wait(&mut self, at_most: Duration) {
        let begun = self.shared.now();
        self.source.wait(at_most);
        self.txn.pace.waited(begun, self.shared.now());
    }

    /// Begins to stop the worker. Call `step` until it returns [`Step::Stopped`].
    pub fn stop(&mut self, mode: StopMode) {
        if self.lifecycle.stop(mode, self.shared.now()) {
            tracing::info!(
                app = %self.shared.spec.app, worker = %self.shared.spec.id, ?mode, "stopping"
            );
            self.commit(CommitCause::Shutdown);
        }
    }

    /// Commits the open transaction in the next steps, before it is due. Returns false if none is open.
    pub fn commit_now(&mut self) -> bool {
        let open = self.txn.is_open();
        self.commit(CommitCause::Interval);
        open
    }

    /// The state of the worker's transaction.
    #[must_use]
    pub fn state(&self) -> State {
        self.txn.state()
    }

    /// Whether all assigned tasks are ready for records: no rebalance, restore or seek is in progress, and no record
    /// waits for a transaction of its own.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.group.is_ready()
            && self.restorer.is_empty()
            && !self.restorer.needs_commit()
            && self.pipeline.held_task().is_none()
            && (self.tasks.values()).all(|task| task.readiness == Readiness::Ready)
    }

    /// Returns the progress of each partition that the worker reads.
    #[must_use]
    pub fn standings(&self) -> Vec<InputStanding> {
        self.tasks.values().flat_map(InputStanding::of).collect()
    }

    // The transaction.

    /// Feeds the transaction machine and performs its actions. Nothing else calls the machine.
    fn advance(&mut self, event: Event) {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let (before, at) = (self.txn.state(), self.shared.now());
            for action in self.txn.step(&self.shared, event) {
                if let Err(error) = self.perform(action) {
                    next = Some(self.txn.action_failed(error));
                }
            }
            self.txn.report(&self.shared, event, before, at);
        }
    }

    /// Performs an action of the machine.
    fn perform(&mut self, action: Action) -> Result<(), ClientError> {
        match action {
            Action::Apply => self.apply(),
            Action::Discard => self.discard(),
            Action::Stop(reason) => {
                let error = self.txn.stop(&self.shared, reason);
                self.lifecycle.fail(error);
            }
            Action::Claim => {
                let nonce = self.txn.nonce(&self.shared);
                let offsets = self.tasks.claim_fetched(nonce, self.shared.now());
                self.txn.claim(offsets);
            }
            Action::Claimed => {
                self.tasks.claimed(self.shared.now());
                self.txn.begun(&self.shared);
            }
            Action::Leave => self.leave_behind_unclear_commit(),
            Action::Seal => {
                self.pipeline.begin_emission();
                self.txn.perform(&self.shared, action)?;
            }
            Action::Commit if !rules::applies_after_commit() => {
                self.apply_state();
                if let Err(error) = self.end_apply(true) {
                    self.lifecycle.fail(error);
                }
                self.txn.perform(&self.shared, action)?;
            }
            Action::Drop if !rules::keeps_changes_in_doubt() => {
                if self.txn.is_in_doubt() {
                    self.tasks.drop_changes();
                }
                self.txn.perform(&self.shared, action)?;
            }
            Action::Abort => {
                self.txn.perform(&self.shared, action)?;
                self.pipeline.abort();
            }
            _ => self.txn.perform(&self.shared, action)?,
        }
        Ok(())
    }

    /// Leaves the group, because a commit of this member may still arrive. The group then refuses it. At least once and
    /// without stores, it would only repeat records.
    fn leave_behind_unclear_commit(&mut self) {
        let repeats = self.shared.spec.guarantee == Guarantee::AtLeastOnce
            && self.shared.topology.stores().is_empty();
        if !repeats && self.group.membership.holds() && rules::leaves_with_unclear_commit() {
            tracing::warn!(
                app = %self.shared.spec.app, worker = %self.shared.spec.id,
                "a commit of offsets had no response; leaving the group, so that it can't arrive later"
            );
            self.group.membership.evict(&self.shared);
        }
    }

    /// Applies a committed transaction.
    fn apply(&mut self) {
        self.txn.blame.committed(self.tasks.taken());
        self.txn.pace.known(self.shared.now());
        self.apply_state();
        let held = self.pipeline.held_task();
        self.tasks.committed(self.shared.now(), held);
        self.txn.committed(&self.shared);
    }

    /// Begins to write the changes of the committed transaction to the databases of all touched tasks.
    fn apply_state(&mut self) {
        let applied = self.try_apply_state();
        if let Err(error) = applied {
            self.lifecycle.fail(error);
        }
    }

    fn try_apply_state(&mut self) -> Result<(), WorkerError> {
        if !self.tasks.changed_state() {
            return Ok(());
        }
        failpoints::hit(Point::PostCommitPreState).map_err(WorkerError::Client)?;
        if !rules::stores_known_ends_only() {
            chores::take_any_end(&self.shared, &mut self.source, &mut self.tasks);
        }
        self.tasks.apply(self.shared.env.wall_clock())?;
        failpoints::hit(Point::ApplyBegun).map_err(WorkerError::Client)?;
        self.end_apply(false)
    }

    /// Takes the results of the finished database writes of the last transaction. With `wait`, blocks until all
    /// writes have finished.
    fn end_apply(&mut self, wait: bool) -> Result<(), WorkerError> {
        if !self.tasks.is_applying() {
            return Ok(());
        }
        let begun = self.shared.now();
        let ended = self.tasks.end_apply(wait);
        self.txn.pace.applied(self.shared.now().since(begun));
        ended?;
        if self.tasks.is_applying() {
            return Ok(());
        }
        failpoints::hit(Point::ApplyDone).map_err(WorkerError::Client)
    }

    /// Discards the transaction. Its tasks go back to the last commit.
    fn discard(&mut self) {
        self.pipeline.discard();
        let records = self.txn.pace.discarded();
        failpoints::given_back(records);
        self.lifecycle.lost_prefix();
        // At most once, no record comes again.
        if self.shared.spec.guarantee != Guarantee::AtMostOnce {
            self.txn.blame.discarded(self.tasks.taken(), records);
        }
        let in_rebalance = !self.group.is_quiet();
        self.group.seek(self.tasks.discard(in_rebalance));
        self.txn.discarded(&self.shared);
    }

    /// Begins a transaction if none is open (rule 1). Returns whether one is open.
    fn begin(&mut self) -> bool {
        if self.txn.state() == State::Idle {
            // Rule 7: an unanswered request that is detected only now still precedes the begin.
            self.quarantine();
            self.advance(Event::Touched);
        }
        self.txn.begun(&self.shared)
    }

    /// Commits the open transaction.
    fn commit(&mut self, cause: CommitCause) {
        if self.txn.is_open() {
            // Before the deadline of the commit begins: a database may stall.
            if let Err(error) = self.end_apply(rules::applies_in_order()) {
                return self.give_up(error);
            }
            self.txn.pace.commits_for(cause);
            self.advance(Event::CommitDue);
        }
    }

    /// Rule 7: a request without a response may affect the next transaction.
    fn quarantine(&mut self) {
        if self.txn.is_unanswered() {
            self.advance(Event::Unanswered);
        }
    }

    /// Continues the calls in flight. Returns whether there are any.
    fn drive(&mut self) -> bool {
        if let Some(event) = self.txn.build_if_due(&self.shared) {
            self.advance(event);
        }
        if !self.txn.is_busy() {
            self.quarantine();
            return false;
        }
        if self.txn.pauses(&self.shared) {
            return false;
        }
        if self.txn.is_sealing() {
            self.seal();
        }
        for call in Call::ALL {
            if self.txn.is_under_way(call) {
                self.drive_call(call);
            }
        }
        if self.txn.reads_outcome() {
            self.read_outcome();
        }
        true
    }

    fn seal(&mut self) {
        // If a database can't apply a transaction, its task must not commit the next one.
        if let Err(error) = self.end_apply(rules::applies_in_order()) {
            return self.give_up(error);
        }
        let (pipeline, tasks) = (&mut self.pipeline, &mut self.tasks);
        match seal::seal(&self.shared, pipeline, tasks, &mut self.txn) {
            Ok(true) => self.advance(Event::Sealed),
            Ok(false) => {}
            Err(raised) => self.raise(raised),
        }
    }

    fn drive_call(&mut self, call: Call) {
        let (shared, source) = (&self.shared, &mut self.source);
        let done = match call {
            Call::SendOffsets => {
                let membership = &mut self.group.membership;
                self.txn.send_offsets(shared, source, membership)
            }
            Call::CommitThroughConsumer => {
                let membership = &mut self.group.membership;
                self.txn.commit_through_consumer(shared, source, membership)
            }
            _ => self.txn.call(shared, call),
        };
        let Poll::Ready(done) = done else { return };
        if matches!(call, Call::Commit | Call::Abort) {
            self.quarantine();
        }
        self.txn.done(call);
        let well = done.is_ok();
        match done {
            // Without rule 5: the abort of the in-doubt producer decides.
            _ if call == Call::Abort
                && self.txn.is_in_doubt()
                && !rules::never_aborts_in_doubt() =>
            {
                self.advance(Event::Resolved(Outcome::Aborted));
            }
            Ok(()) => self.advance(call.event()),
            Err(error) => {
                let event = self.txn.failed(&self.shared, error);
                self.advance(event);
            }
        }
        if well && call == Call::Init {
            // A late InitProducerId would fence the transaction that begins now.
            self.quarantine();
        }
    }

    /// Rule 6: decides a commit without a clean response.
    fn read_outcome(&mut self) {
        if !self.group.membership.holds() {
            // Another worker continued its tasks, so this worker owns none of them any more.
            self.txn.outcome_read();
            return self.advance(Event::Resolved(Outcome::Aborted));
        }
        let outcome = transaction::read_outcome(&self.shared, &mut self.source, &self.tasks);
        let Poll::Ready(outcome) = outcome else {
            return;
        };
        self.txn.outcome_read();
        match outcome {
            // Another worker has committed since. The tasks are closed. Those that this worker still owns start at the
            // group's committed offsets.
            Ok(Outcome::Dirty) => {
                if rules::evicts_after_foreign_commit() {
                    self.group.membership.evict(&self.shared);
                }
                self.advance(Event::Resolved(Outcome::Aborted));
            }
            Ok(outcome) => self.advance(Event::Resolved(outcome)),
            Err(error) => {
                let event = self.txn.failed(&self.shared, error);
                self.advance(event);
            }
        }
    }

    fn raise(&mut self, raised: Raised) {
        match raised {
            Raised::Event(event) => self.advance(event),
            Raised::GiveUp(error) => self.give_up(*error),
        }
    }

    /// Stops without a commit of the open transaction: it may be incomplete, can't be fenced, or its topic no longer
    /// exists.
    fn give_up(&mut self, error: WorkerError) {
        if self.lifecycle.has_failed() {
            // The worker ends with its first error.
            tracing::error!(
                app = %self.shared.spec.app, worker = %self.shared.spec.id, %error,
                "another error of a worker that ends"
            );
        }
        self.lifecycle.fail(error);
        self.advance(Event::Lost);
    }

    // The group.

    fn standing(&self) -> Standing {
        Standing {
            settled: self.txn.is_settled(),
            in_doubt: self.txn.is_in_doubt(),
        }
    }

    /// Reads the client's events. Rebalances are handled later, in order.
    fn poll(&mut self) -> Result<(), WorkerError> {
        while let Some(event) = self.source.poll() {
            match event {
                SourceEvent::Assigned(partitions) => self.group.assigned(partitions),
                SourceEvent::Revoked { partitions, lost } => self.group.revoked(partitions, lost),
                SourceEvent::OutOfRange { partition, asked } => {
                    let brokers = self.shared.broker_time();
                    self.restorer.out_of_range(&partition, brokers);
                    if self.tasks.any_reads(&partition) {
                        self.group.out_of_range(&self.shared, partition, asked);
                    }
                }
                SourceEvent::Topics(report) => self.compare_topics(&report),
                SourceEvent::Failed(error) => {
                    if let Some(error) = self.shared.consumer_failed(error) {
                        self.give_up(error);
                    }
                }
            }
        }
        let (shared, source) = (&self.shared, &mut self.source);
        if let Some(error) = self.group.explain_gaps(shared, source, &mut self.tasks)? {
            self.give_up(error);
        }
        Ok(())
    }

    /// Stops the worker if a topic has changed.
    fn compare_topics(&mut self, report: &[(TopicName, Option<SeenTopic>)]) {
        self.shared.broker_answered();
        match self.group.compare_topics(self.shared.now(), report) {
            Err(error) => self.give_up(error),
            Ok(grown) => {
                for it in grown {
                    tracing::info!(
                        worker = %self.shared.spec.id, topic = %it.topic, before = it.before, now = it.now,
                        "an input topic has more partitions; adding tasks"
                    );
                    self.shared.spec.input_partitions.insert(it.topic, it.now);
                }
            }
        }
    }

    /// Continues a rebalance.
    fn rebalance(&mut self) -> Result<bool, WorkerError> {
        let standing = self.standing();
        let (shared, source) = (&self.shared, &mut self.source);
        match self.group.step(shared, standing, source, &self.tasks)? {
            GroupStep::Idle => return Ok(false),
            GroupStep::Moved => {}
            GroupStep::Lost => self.advance(Event::Lost),
            GroupStep::Settle(settle) => self.settle(settle),
            GroupStep::Overdue => {
                tracing::warn!(
                    app = %self.shared.spec.app, worker = %self.shared.spec.id, state = ?self.txn.state(),
                    "the transaction did not end in time; returning the partitions anyway"
                );
                self.advance(Event::Lost);
                return self.rebalance();
            }
            GroupStep::Close(plan) => self.close(plan)?,
            GroupStep::Start(tasks) => {
                self.start(tasks)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Settles the open transaction before its partitions are given back.
    fn settle(&mut self, settle: Settle) {
        match settle {
            Settle::Nothing => {}
            Settle::Commit => self.commit(CommitCause::Revoke),
            Settle::Abort => self.advance(Event::Lost),
        }
        if let Err(error) = failpoints::hit(Point::InRevoke)
            && !self.txn.is_settled()
        {
            let event = self.txn.failed(&self.shared, error);
            self.advance(event);
        }
    }

    /// Closes revoked tasks, and gives their partitions back.
    fn close(&mut self, mut plan: Revocation) -> Result<(), WorkerError> {
        // Their changelogs go with them, and their databases close before other workers may open them.
        plan.unassign.extend(self.restorer.forget(&plan.close));
        // The close of a database would wait for its last write, and hide an error.
        if let Err(error) = self.end_apply(true) {
            self.give_up(error);
        }
        if rules::closes_revoked_tasks() {
            self.tasks.close(&plan.close);
        }
        self.pipeline.forget(|task| plan.close.contains(&task));
        self.pipeline.abort_calls(&plan.close);
        self.tasks.disown(&plan.unassign);
        self.group.forget(&plan.unassign);
        for partition in &plan.unassign {
            self.txn.blame.revoked(partition);
        }
        for (task, clock) in plan
            .close
            .iter()
            .flat_map(|id| Clock::ALL.map(|clock| (*id, clock)))
        {
            let due = TaskProgress::due_partition(task, clock);
            self.txn.blame.revoked(&due);
        }
        let unassigned = self.source.unassign(&plan.unassign);
        unassigned.map_err(WorkerError::Client)
    }

    /// Adds tasks, and assigns the inputs of those without stores.
    fn start(&mut self, tasks: Vec<NewTask>) -> Result<(), WorkerError> {
        let spec = &self.shared.spec;
        let topology = Arc::clone(&self.shared.topology);
        let (mut at, mut started, mut unclaimed) = (Vec::new(), Vec::new(), Vec::new());
        for new in tasks {
            let Some(stage) = topology.stage(new.id.stage) else {
                continue;
            };
            started.push(new.id.to_string());
            if !new.claimed {
                unclaimed.push(new.id.to_string());
            }
            let known = self.shared.width(stage.driving_topic());
            let width = known.max(new.id.partition.get().unsigned_abs() + 1);
            let stateful = topology.stores_of(stage).next().is_some();
            if stateful {
                self.restorer.begin(&self.shared, stage, &new);
            } else {
                at.extend(new.at.iter().cloned());
            }
            let changelogs = self.shared.changelog_digests(stage);
            let claimed = new.claimed && !new.names_other_changelogs(&changelogs);
            let layout = stage.layout();
            let progress = TaskProgress::resume(new.id, layout, width, new.at, new.name);
            let stores = StoreNames::of(topology.stores_of(stage).map(|store| &*store.name));
            let mut progress = progress.with_changelogs(changelogs).with_stores(stores);
            // At least once, the task commits its start under a new number: see `with_own_numbers`.
            let numbers = stateful && spec.guarantee == Guarantee::AtLeastOnce;
            if numbers && rules::numbers_each_attempt() {
                progress = progress.with_own_numbers();
            }
            let progress = progress.with_guarantee(spec.guarantee);
            let chains = topology.instantiate(stage);
            let now = self.shared.now();
            let claimed = claimed && !numbers;
            let mut task = Task::new(progress, chains, claimed, spec.max_idle, now);
            task.closes_when_idle(topology.idle_of(stage));
            self.starts += 1;
            task.makes_calls(topology.calls_of(stage), self.starts);
            if stateful {
                task.restores();
            }
            self.tasks.insert(new.driving, task);
        }
        tracing::info!(
            app = %spec.app, worker = %spec.id, tasks = started.join(" "),
            unclaimed = unclaimed.join(" "), offsets = ?at, "tasks start"
        );
        self.source.assign(&at).map_err(WorkerError::Client)
    }

    /// Rule 8: rewinds to the last commit.
    fn go_back(&mut self) -> Result<Sought, WorkerError> {
        let settled = self.txn.is_settled();
        let sought = self
            .group
            .go_back(&self.shared, settled, &mut self.source)?;
        match sought {
            Sought::Done | Sought::Reassigned => self.tasks.rewound(),
            Sought::NeedsCommit => self.commit(CommitCause::Restore),
            Sought::Nothing | Sought::Moved => {}
        }
        Ok(sought)
    }

    /// Continues the restores.
    fn restore(&mut self) -> Result<RestoreStep, WorkerError> {
        // A failed worker restores nothing more, because a changelog may have been replaced.
        let may =
            !self.lifecycle.has_failed() && self.group.is_quiet() && self.group.membership.holds();
        if self.lifecycle.is_stopping() {
            self.restorer.clear();
        }
        if !may {
            self.restorer.skip_step();
            return Ok(RestoreStep::Nothing);
        }
        let (shared, settled) = (&self.shared, self.txn.is_settled());
        let (source, tasks) = (&mut self.source, &mut self.tasks);
        let step = self.restorer.step(shared, settled, source, tasks);
        for driving in self.restorer.take_released() {
            let not_before = self.shared.now().after(restore::RETRY);
            self.group.resolve_again(&self.shared, driving, not_before);
        }
        if self.restorer.needs_commit() {
            self.commit(CommitCause::Restore);
        }
        step
    }

    /// Leaves the group and joins it again, after the group removed the worker.
    fn rejoin(&mut self) -> Result<(), WorkerError> {
        if self.lifecycle.is_stopping() {
            return Ok(());
        }
        let (standing, owns_nothing) = (self.standing(), self.tasks.owns_nothing());
        let (shared, source) = (&self.shared, &mut self.source);
        self.group.rejoin(shared, standing, source, owns_nothing)
    }

    // Records.

    /// Whether the worker may take records now.
    fn accepts(&self) -> bool {
        self.txn.takes_records()
            && self.lifecycle.goes_on()
            && self.group.takes_records()
            && !self.restorer.needs_commit()
    }

    /// Rule 10: a start offset that a policy resolved is committed before the first record.
    fn claim(&mut self) -> bool {
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
    fn recommit(&mut self) {
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

    /// Continues asynchronous calls. They go on during a commit. Returns whether any ended.
    fn run_calls(&mut self) -> Result<bool, WorkerError> {
        let admits =
            self.lifecycle.goes_on() && self.group.takes_records() && !self.restorer.needs_commit();
        let (shared, tasks, source) = (&self.shared, &mut self.tasks, &mut self.source);
        let ran = self.pipeline.run_calls(shared, tasks, source, admits);
        ran.map_err(WorkerError::Client)
    }

    /// Processes records for a limited time. Returns whether there may be more at once.
    fn take_records(&mut self) -> bool {
        match self.pipeline.send_rest(&self.shared, &mut self.txn) {
            Ok(true) => {}
            Ok(false) => return false,
            Err(raised) => {
                self.raise(raised);
                return false;
            }
        }
        if !self.accepts() || !self.merge_held() {
            return false;
        }
        let begun = self.shared.env.about_now();
        self.pipeline.set_clock(begun);
        // With repartition topics, all tasks stay at the same stream time. Otherwise, later stages would receive late
        // records.
        let (lengths, mut more_with_backlog) = match self.shared.has_repartitions {
            true => (TurnLengths::short(self.tasks.stream_times()), usize::MAX),
            false => {
                let more = self.tasks.more_with_backlog(self.txn.pace.interval());
                (TurnLengths::default(), more)
            }
        };
        let mut turns: VecDeque<TaskId> = self.tasks.turns().collect();
        let mut any = false;
        while let Some(id) = turns.pop_front() {
            if self.tasks.would_touch_backlog(id) {
                if more_with_backlog == 0 {
                    self.tasks.skip(id);
                    continue;
                }
                more_with_backlog -= 1;
            }
            match self.take_turn(id, &lengths, begun, &mut any) {
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
        any || self.tasks.widen()
    }

    /// At most once: commits the offsets of the fetched records. First come the outputs of the claimed records.
    fn claim_more(&mut self) -> bool {
        match self.txn.is_open() {
            true => self.commit(CommitCause::Claim),
            false => _ = self.begin(),
        }
        true
    }

    /// Processes records of one task.
    fn take_turn(&mut self, id: TaskId, lengths: &TurnLengths, begun: Now, any: &mut bool) -> Turn {
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
        for _ in 0..lengths.of(id, task.progress.stream_time()) {
            match pipeline.process(shared, task, source, txn) {
                Done::Dry => {
                    turn = Turn::Dry;
                    break;
                }
                Done::Next => records += 1,
                done => {
                    *any |= !matches!(done, Done::Missing(_));
                    turn = Turn::Then(done);
                    break;
                }
            }
            let now = pipeline.clock();
            if now.since(begun) >= STRETCH || txn.commit_due(shared, now).is_some() {
                turn = Turn::Full;
                break;
            }
        }
        *any |= records > 0;
        let dry = matches!(turn, Turn::Dry);
        let ended = TaskTurn {
            records,
            first,
            dry,
        };
        task.has_backlog = ended.leaves_backlog(task.has_backlog);
        turn
    }

    /// Whether the step has taken records for long enough, or the commit is due.
    fn is_full(&self, begun: Now) -> bool {
        let now = self.pipeline.clock();
        now.since(begun) >= STRETCH || self.txn.commit_due(&self.shared, now).is_some()
    }

    /// Carries out the follow-up action of a record. Returns whether intake ends.
    fn follow_up(&mut self, done: Done) -> bool {
        match done {
            Done::Dry | Done::Next => return false,
            Done::GoBack(seeks) => {
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

    // The end of a step.

    fn run_chores(&mut self) {
        let (shared, source) = (&self.shared, &mut self.source);
        // A restore sends the same query, and comes first.
        match self.restorer.is_asking() {
            true => self.chores.abandon_ends(),
            false => self.chores.read_ends(shared, source, &mut self.tasks),
        }
        self.chores.purge(shared, &self.tasks);
    }

    /// Adds the counts of this step to the metrics, and reports the tasks periodically.
    fn report(&mut self) {
        let meter = &self.shared.meter;
        self.pipeline.count(meter);
        self.restorer.count(meter);
        if self.chores.reports(self.shared.env.about_now()) {
            let restoring = self.restorer.progress(self.shared.env.about_now());
            let (generation, tasks) = (self.txn.generation(), &mut self.tasks);
            chores::report(&self.shared, &mut self.source, tasks, restoring, generation);
        }
    }

    fn end(&mut self, busy: bool) -> Result<Step, WorkerError> {
        let drained = self.txn.is_settled() && !self.pipeline.has_unsent();
        if drained
            && self.lifecycle.is_stopping()
            && let Err(error) = self.end_apply(true)
        {
            self.give_up(error);
        }
        let (shared, source) = (&self.shared, &mut self.source);
        if self
            .lifecycle
            .step(shared, drained, source, &self.group, &self.tasks)?
        {
            self.txn.close();
            return Ok(Step::Stopped);
        }
        if self.txn.is_settled() {
            self.lifecycle.end()?;
        }
        Ok(match busy {
            true => Step::Busy,
            false => Step::Idle(self.nap()),
        })
    }

    fn clear_wakes(&mut self) {
        let (txn, group) = (&mut self.txn.wake, &mut self.group.wake);
        let (restorer, pipeline) = (&mut self.restorer.wake, &mut self.pipeline.wake);
        for wake in [txn, group, restorer, pipeline] {
            wake.clear();
        }
    }

    /// Returns the time until work may be due.
    fn nap(&self) -> Duration {
        let now = self.shared.now();
        let longest = match self.group.is_waiting() {
            true => SHORT_NAP,
            false => NAP,
        };
        let waits = [
            self.txn.pace.wait(now),
            self.txn.builds_at().map(|at| at.since(now)),
            self.txn.wake.wait(),
            self.group.wake.wait(),
            self.restorer.wake.wait(),
            self.pipeline.wake.wait(),
            self.tasks.is_applying().then_some(SHORT_NAP),
        ];
        waits.into_iter().flatten().fold(longest, Duration::min)
    }
}

impl<C: Client> std::fmt::Debug for Worker<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("id", &self.shared.spec.id)
            .field("state", &self.txn.state())
            .field("tasks", &self.tasks.ids().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

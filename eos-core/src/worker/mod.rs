//! One worker: a consumer, a transactional producer, and the tasks it owns.
//!
//! [`Worker::step`] does a short piece of all due work and returns. Nothing calls back into the worker, and no call
//! blocks for longer than a slice, except the waits for a database: before a commit, and when a task is closed. So a
//! simulation can step several workers on one thread under a virtual clock. `eos-protocol` makes the decisions, and the
//! worker carries them out.
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
//! | `assignments`, `intake` | the steps of the worker with its group, and with its records |
//! | `seal` | the end of intake: results, changes of state and offsets |
//! | `chores` | metrics, records to purge, the ends of changelogs and of idle inputs |
//! | `lifecycle` | stop and failure |
//! | `task`, `task_state`, `windows`, `trimming` | one task, its state, its windows and their changelog |
//! | `own_moments`, `past_sets`, `ticks` | timers: moments that come before a record of their key, endless handlers, the schedule of ticks |
//! | `spec`, `storage`, `purge_queue`, `status`, `error` | the interface between runtime and worker |
//! | `ahead` | the records of a task whose calls run ahead of their turn |
//! | `turns` | the turns of tasks in an app with repartition topics, in the order of event time |
//! | `wake`, `future_timestamps` | the next moment with work; warnings about timestamps far ahead |

mod ahead;
mod assignments;
mod between;
mod chores;
mod error;
#[cfg(test)]
mod fake;
mod future_timestamps;
mod group;
mod intake;
mod key_places;
mod lifecycle;
mod own_moments;
mod parked_keys;
mod past_sets;
mod pipeline;
mod purge_queue;
mod repeats;
mod restore;
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
mod ticks;
mod transaction;
mod trimming;
mod turns;
mod wake;
mod windows;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use eos_protocol::{Action, CommitCause, Event, Guarantee, Outcome, State, TaskId};

use crate::client::{Client, ClientError, Source};
use crate::failpoints::{self, Point};
use crate::global::GlobalReads;
use crate::metrics::WorkerMeter;
use crate::rules;
use crate::topology::Topology;

pub use crate::global::GlobalTables;
pub use crate::paused::PauseBoard;
pub use crate::views::ViewBoard;
pub use error::{RecordFault, TwoOwners, UnknownStore, WorkerError};
pub use purge_queue::PurgeQueue;
pub use spec::{Env, StateSpec, WorkerSpec};
pub use status::InputStanding;
pub use storage::{Home, HomeError, InMemory, TaskHome};

use chores::Chores;
use group::{Group, NewTask, Sought, Standing};
use lifecycle::Lifecycle;
use pipeline::{Pipeline, Raised};
use restore::{RestoreStep, Restorer};
use shared::Shared;
use task::Readiness;
use tasks::Tasks;
use transaction::{Call, TransactionDriver};

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
    /// The starting tasks that views know.
    starting: Option<BTreeSet<TaskId>>,
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
        spec.views.clear(spec.id);
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
            pipeline: Pipeline::new(
                &shared.spec.output_limits,
                executor,
                GlobalReads::new(Arc::clone(&shared.spec.globals)),
            ),
            starts: 0,
            chores: Chores::default(),
            lifecycle: Lifecycle::default(),
            starting: None,
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
        busy |= self.restart_moved()?;
        self.list_starting_tasks();
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
        self.pipeline.end_reads();
        self.report();
        let (views, env) = (&self.shared.spec.views, &self.shared.env);
        views.wake_overdue(|| env.now());
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

    /// Returns the state of the worker's transaction.
    #[must_use]
    pub fn state(&self) -> State {
        self.txn.state()
    }

    /// Returns whether all assigned tasks are ready for records: no rebalance, restore or seek is in progress, and no
    /// record waits for a transaction of its own.
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
                    next = Some(self.txn.action_failed(&self.shared, error));
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
        // The phase of the commit includes this time.
        self.take_applied(false)
    }

    /// Takes the results of the finished database writes of the last transaction. With `wait`, blocks until all
    /// writes have finished.
    fn end_apply(&mut self, wait: bool) -> Result<(), WorkerError> {
        if !self.tasks.is_applying() {
            return Ok(());
        }
        let begun = self.shared.now();
        let ended = self.take_applied(wait);
        self.txn.pace.applied(self.shared.now().since(begun));
        ended
    }

    /// As [`end_apply`](Self::end_apply), but does not measure the time that it takes.
    fn take_applied(&mut self, wait: bool) -> Result<(), WorkerError> {
        if self.tasks.end_apply(wait)? {
            self.shared.spec.views.changed();
        }
        match self.tasks.is_applying() {
            true => Ok(()),
            false => failpoints::hit(Point::ApplyDone).map_err(WorkerError::Client),
        }
    }

    /// Discards the transaction. Its tasks go back to the last commit.
    fn discard(&mut self) {
        self.pipeline.discard();
        let records = self.txn.pace.discarded(self.shared.now());
        failpoints::given_back(records);
        self.lifecycle.lost_prefix();
        // At most once, no record is delivered again.
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
            if self.txn.is_stalled(&self.shared) {
                // The coordinator would abort it, and fence the producer.
                return self.advance(Event::Lost);
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
        let well = done.is_ok();
        self.txn.done(&self.shared, call, well);
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
        if well && call == Call::CommitThroughConsumer {
            self.end_idle_claim();
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

    fn standing(&self) -> Standing {
        Standing {
            settled: self.txn.is_settled(),
            in_doubt: self.txn.is_in_doubt(),
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
        self.chores.mirror(shared, source, &self.tasks);
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

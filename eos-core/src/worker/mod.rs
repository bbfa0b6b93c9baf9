//! One worker: a consumer, a transactional producer, and the tasks it owns.
//!
//! [`Worker::step`] does a little of everything that is due and returns: it hears events, answers
//! a rebalance, goes on with the transaction, processes records. Nothing calls back into it and
//! nothing blocks for longer than a slice, so a simulation can step several workers on one thread
//! under a virtual clock. What to do is decided in `eos-protocol`; here it is done.
//!
//! | file | does |
//! |---|---|
//! | `mod.rs` | the step, and when to commit |
//! | `hearing.rs` | takes in what the client reports |
//! | `stopping.rs` | the way out |
//! | `calls.rs` | performs the transaction machine's actions and reports what came of them |
//! | `sealing.rs` | gathers the offsets of a transaction and adds them |
//! | `emitting.rs` | hands on the results that go on once per commit |
//! | `doubt.rs` | finds out what became of a commit without a clean answer |
//! | `rebalance.rs` | answers assignments and revocations |
//! | `topics.rs` | compares the app's topics with those that it started with |
//! | `starting.rs` | finds out where assigned tasks start |
//! | `home.rs` | where the databases of tasks are |
//! | `restoring.rs` | makes the state of a task whole before its first record |
//! | `state.rs` | writes what a transaction changed to the changelog and to the database |
//! | `purging.rs` | tells which records nobody needs any more |
//! | `trimming.rs` | how much of a windowed changelog is of no use any more |
//! | `rewinding.rs` | goes back to the last commit |
//! | `membership.rs` | notices that the group took it for dead, and joins anew |
//! | `coverage.rs` | looks whether the group has all partitions |
//! | `intake.rs` | gives each task its turn |
//! | `record.rs` | takes one record through the task's nodes into the transaction |
//! | `failed.rs` | what becomes of a record that can't be processed |
//! | `quiet.rs` | how often failed and late records are told of |
//! | `send.rs` | hands its effects to the producer |
//! | `foreign.rs` | whether the records of a repartition topic are the app's own |
//! | `gap.rs` | finds out whether the log has lost a record that does not come again |
//! | `gauge.rs` | describes the tasks for the metrics |
//! | `standing.rs` | what whoever steps it may ask of it |

mod ahead;
mod calls;
mod coverage;
mod doubt;
mod emitting;
mod error;
mod failed;
#[cfg(test)]
mod fake;
mod foreign;
mod gap;
mod gauge;
mod gone;
mod hearing;
mod home;
mod intake;
mod membership;
mod purging;
mod quiet;
mod rebalance;
mod record;
mod restoring;
mod rewinding;
mod sealing;
mod send;
mod spec;
mod standing;
mod starting;
mod state;
mod stopping;
mod task;
#[cfg(test)]
mod tests;
mod topics;
mod trimming;
mod windows;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::{
    BrokerTime, CommitCause, CommitPacer, Event, Isolation, Load, Now, Offset, State, TaskId,
    TopicName, TopicPartition, TopicWatch, Transaction,
};

use crate::client::{Client, ClientError, Source};
#[cfg(feature = "failpoints")]
use crate::failpoints;
use crate::metrics::{Stopwatch, WorkerMeter};
use crate::store::Buffers;
use crate::topology::{Scratch, Topology};

pub use error::{RecordFault, TwoOwners, WorkerError};
pub use home::{Home, HomeError, InMemory, TaskHome};
pub use purging::DoneWith;
pub use spec::{Env, StateSpec, WorkerSpec};
pub use standing::InputStanding;

use calls::Calls;
use coverage::Coverage;
use emitting::Emitting;
use gap::Gap;
use hearing::OutOfRange;
use membership::Membership;
use quiet::Quiet;
use rebalance::{Answering, Change};
use restoring::{RestoreStep, Restoring};
use rewinding::Rewound;
use starting::Resolving;
use stopping::Stopping;
use task::Task;

/// How long one call into the client may block while there is nothing else to do.
const SLICE: Duration = Duration::from_millis(20);
/// The longest wait for something to happen; a stop is noticed after it at the latest.
const NAP: Duration = Duration::from_millis(50);

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There is more to do at once.
    Busy,
    /// Nothing to do before this wait is over, or something happens: see [`Worker::wait`].
    Idle(Duration),
    /// The worker has stopped as asked.
    Stopped,
}

/// How a worker stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Commits and closes. A static member keeps its partitions for its session time-out: for a
    /// quick restart.
    Restart,
    /// Commits, leaves the group and closes: its partitions move at once.
    Leave,
}

type RecordsOf<C> = <<C as Client>::Source as Source>::Records;

/// A worker, generic over its Kafka client.
pub struct Worker<C: Client> {
    spec: WorkerSpec,
    env: Env,
    topology: Arc<Topology>,
    client: Arc<C>,
    meter: Arc<WorkerMeter>,

    source: C::Source,
    producer: Option<C::Producer>,
    machine: Transaction,
    calls: Calls,

    tasks: BTreeMap<TaskId, Task<RecordsOf<C>>>,
    /// The tasks by the partition of their driving topic: what the group assigns.
    owned: BTreeMap<TopicPartition, TaskId>,
    changes: VecDeque<Change>,
    membership: Membership,
    answering: Answering,
    /// Assigned partitions whose start offsets are being found out.
    resolving: Option<Resolving>,
    /// Seeks that are not confirmed yet.
    rewinds: Vec<(TopicPartition, Offset)>,
    /// They can be done only while no transaction is open: no record is taken until then.
    reassigning: bool,
    /// Tasks whose state is not whole yet.
    restoring: Vec<Restoring<RecordsOf<C>>>,
    /// Partitions are to be assigned for them, which waits until no transaction is open.
    to_assign: bool,
    /// The restore that comes first in the next step.
    restore_turn: usize,
    /// Since a question for all failed: whose turn it is to be asked for.
    ask_singly: Option<usize>,
    /// How often tasks were started over.
    restarts: BTreeMap<TaskId, u32>,
    /// Partitions whose next offset is not in the log.
    out_of_range: Vec<OutOfRange>,
    /// Records that do not come again after a rewind.
    gaps: Vec<Gap>,
    /// The app's topics, as it knows them.
    topics: TopicWatch,
    /// For how long brokers could be reached.
    brokers: BrokerTime,

    scratch: RefCell<Scratch>,
    buffers: RefCell<Buffers>,
    /// How many bytes the open transaction's changes of state take.
    kept: usize,
    /// How much of the scratch is sent; the rest waits for room in the producer's queue.
    unsent: Option<send::Unsent>,
    /// How far the results are that go on once per commit.
    emitting: Emitting,
    /// A record that is done, and waits for a transaction of its own.
    held: Option<record::Held>,
    /// The group's generation at the last `send_offsets`, for the log.
    generation: i32,
    /// Without rule 3: what the group once knew the worker as.
    #[cfg(feature = "failpoints")]
    first_member: Option<<C::Source as Source>::Member>,
    /// The open transaction.
    load: Option<Load>,
    cause: CommitCause,
    pacer: CommitPacer,
    /// The search for a record that keeps aborting its transaction.
    isolation: Isolation,
    /// Whether a record can be to blame for what ends the open transaction.
    blamed: bool,
    /// Times the commit under way.
    stopwatch: Stopwatch,
    /// When the markers of the last transaction that was committed should be written: none is begun before.
    begins_at: Now,
    /// Whether that is yet to come, as of this step.
    awaits_markers: bool,
    /// How long the worker waited with nothing to do since the last commit.
    idle: Duration,
    /// Events that came up while a task was at work; the machine hears them once it is back.
    deferred: Vec<Event>,
    /// A commit to ask for once the task at work is back.
    deferred_commit: Option<CommitCause>,
    /// By when a task wants to be asked again.
    ask_again: Option<Duration>,
    /// When the tasks were described for the metrics.
    described: Option<Now>,
    /// Records processed and sent that are not counted yet.
    processed: u64,
    sent: u64,
    skipped: u64,
    dead_letters: u64,
    late_records: u64,
    retries: u64,
    restored_records: u64,
    restored_bytes: u64,
    /// When the brokers are asked again how far the changelogs are.
    ask_changelogs_at: Now,
    /// The topics of which nobody needs what is committed, and when that is told next.
    repartitions: BTreeSet<TopicName>,
    tell_done_at: Now,
    /// The least of the limits of all output topics.
    least_limit: usize,
    /// How often records that were left out are told of.
    quiet: Quiet,
    /// The clock as of the last record.
    last_read: Now,
    /// When idle tasks were last looked for.
    looked_for_idle: Now,
    /// The task that is served first in the next step.
    turn: usize,

    /// Whether the group has assigned anything, be it nothing.
    joined: bool,
    /// The look at what the others have.
    coverage: Coverage,
    stopping: Stopping,
    /// Why the worker stops once what it has is committed.
    failure: Option<WorkerError>,
    last_error: Option<ClientError>,
}

impl<C: Client> Worker<C> {
    /// A worker that has joined nothing yet.
    ///
    /// # Errors
    /// If the client refuses its configuration.
    pub(crate) fn new(
        spec: WorkerSpec,
        env: Env,
        topology: Arc<Topology>,
        client: Arc<C>,
        meter: Arc<WorkerMeter>,
    ) -> Result<Self, WorkerError> {
        let watch = topics::watch(&spec, &topology);
        let source = membership::subscribed(&*client, &spec, &topology, watch.names())?;
        let policy = spec.policy;
        let limits = spec.output_limits.iter().copied().flatten();
        let least_limit = limits.min().unwrap_or(usize::MAX);
        let repartitions = purging::repartitions(&topology);
        let brokers = BrokerTime::new(env.now());
        let mut worker = Self {
            machine: Transaction::new(spec.guarantee, spec.limits.clone()),
            spec,
            env,
            topology,
            client,
            meter,
            source,
            producer: None,
            calls: Calls::default(),
            tasks: BTreeMap::new(),
            owned: BTreeMap::new(),
            changes: VecDeque::new(),
            membership: Membership::default(),
            answering: Answering::Nothing,
            resolving: None,
            rewinds: Vec::new(),
            reassigning: false,
            restoring: Vec::new(),
            to_assign: false,
            restore_turn: 0,
            ask_singly: None,
            restarts: BTreeMap::new(),
            out_of_range: Vec::new(),
            gaps: Vec::new(),
            topics: watch,
            brokers,
            scratch: RefCell::default(),
            buffers: RefCell::default(),
            kept: 0,
            unsent: None,
            emitting: Emitting::default(),
            held: None,
            generation: -1,
            #[cfg(feature = "failpoints")]
            first_member: None,
            load: None,
            cause: CommitCause::Interval,
            pacer: CommitPacer::new(policy),
            isolation: Isolation::default(),
            blamed: false,
            stopwatch: Stopwatch::default(),
            described: None,
            begins_at: Now::default(),
            awaits_markers: false,
            idle: Duration::ZERO,
            deferred: Vec::new(),
            deferred_commit: None,
            ask_again: None,
            processed: 0,
            sent: 0,
            skipped: 0,
            dead_letters: 0,
            late_records: 0,
            retries: 0,
            restored_records: 0,
            restored_bytes: 0,
            ask_changelogs_at: Now::default(),
            quiet: Quiet::default(),
            repartitions,
            tell_done_at: Now::default(),
            least_limit,
            last_read: Now::default(),
            looked_for_idle: Now::default(),
            turn: 0,
            joined: false,
            coverage: Coverage::default(),
            stopping: Stopping::No,
            failure: None,
            last_error: None,
        };
        #[cfg(feature = "failpoints")]
        if failpoints::undefended(failpoints::Defence::CheckedMember) {
            worker.first_member = worker.source.member().ok();
        }
        worker.meter.stepped(worker.env.about_now());
        worker.feed(Event::Start);
        Ok(worker)
    }

    /// Does a little of everything that is due.
    ///
    /// # Errors
    /// [`WorkerError`] if the worker can't go on. It is over then; dropping it leaves whatever is
    /// open to the next start with the same identity.
    pub fn step(&mut self) -> Result<Step, WorkerError> {
        let step = self.act();
        self.meter.stepped(self.env.about_now());
        step
    }

    fn act(&mut self) -> Result<Step, WorkerError> {
        self.ask_again = None;
        self.look_at_markers();
        self.hear()?;
        self.catch_up();
        self.feed(Event::Tick);
        let mut busy = self.answer()?;
        match self.rewind()? {
            Rewound::Reassigned => return Ok(Step::Busy),
            rewound => busy |= rewound == Rewound::Moved,
        }
        match self.restore()? {
            RestoreStep::Reassigned => return Ok(Step::Busy),
            restored => busy |= restored == RestoreStep::Moved,
        }
        busy |= self.claim();
        self.recommit();
        self.look_at_group();
        self.hear_of_changelogs();
        self.tell_what_is_done();
        busy |= self.drive()?;
        // It may have committed just now.
        self.look_at_markers();
        self.join_anew()?;
        self.check()?;
        busy |= self.intake();
        self.count();
        self.describe();
        self.commit_if_due();
        if self.stop_if_asked()? {
            return Ok(Step::Stopped);
        }
        if self.settled()
            && let Some(failure) = self.failure.take()
        {
            return Err(failure);
        }
        Ok(if busy {
            Step::Busy
        } else {
            Step::Idle(self.nap())
        })
    }

    /// Waits until something may have happened, or `at_most` has passed.
    pub fn wait(&mut self, at_most: Duration) {
        let begun = self.env.now();
        self.source.wait(at_most);
        // Records may be there while markers are waited for.
        self.idle += self.env.now().since(begun.max(self.begins_at));
    }

    /// Whether no transaction is open or under way.
    fn settled(&self) -> bool {
        matches!(
            self.machine.state(),
            State::Cold | State::Initializing | State::Idle | State::Fenced | State::Failed
        )
    }

    /// Whether records may be taken now.
    fn accepts(&self) -> bool {
        self.machine.takes_records()
            && self.stopping == Stopping::No
            && self.failure.is_none()
            && self.membership.holds()
            && !self.reassigning
            && !self.to_assign
            && !matches!(self.answering, Answering::Revoking(_))
            && !self.awaits_markers
    }

    /// Looks whether a transaction that is begun now would meet what is left of the last one. The clock is not
    /// asked again by those who may take no records for it: one of them would find the wait over and the next
    /// one nothing to wake up for.
    fn look_at_markers(&mut self) {
        let idle = self.machine.state() == State::Idle;
        let wait = match idle {
            true => self.begins_at.since(self.env.now()),
            false => Duration::ZERO,
        };
        self.awaits_markers = !wait.is_zero();
        if self.awaits_markers {
            self.nap_at_most(Some(wait));
        }
    }

    fn quiet(&self) -> bool {
        self.changes.is_empty() && matches!(self.answering, Answering::Nothing)
    }

    /// How long nothing can be due.
    fn nap(&self) -> Duration {
        let now = self.env.now();
        // Whoever waits for an answer waits for these.
        let mut nap = match (&self.answering, &self.resolving) {
            (Answering::Nothing, None) => NAP,
            _ => Duration::from_millis(5),
        };
        if let Some(load) = &self.load {
            nap = nap.min(self.pacer.policy().wait(now, load));
        }
        if let Some(wait) = self.ask_again {
            nap = nap.min(wait);
        }
        if let Some(at) = self.calls.build_at {
            nap = nap.min(at.since(now));
        }
        nap
    }

    /// The worker has nothing to do for longer than this.
    fn nap_at_most(&mut self, wait: Option<Duration>) {
        if let Some(wait) = wait {
            self.ask_again = Some(self.ask_again.map_or(wait, |least| least.min(wait)));
        }
    }

    /// Asks for a commit of what is open.
    fn commit(&mut self, cause: CommitCause) {
        if self.machine.state() == State::Open {
            self.cause = cause;
            self.feed(Event::CommitDue);
        }
    }

    fn commit_if_due(&mut self) {
        if let Some(cause) = self.due(self.env.now()) {
            self.commit(cause);
        }
    }

    /// Whether the open transaction has grown as far as it should.
    fn due(&self, now: Now) -> Option<CommitCause> {
        let load = self.load.as_ref()?;
        let full = |limit| load.records >= limit;
        if self.isolation.limit().is_some_and(full) {
            return Some(CommitCause::Records);
        }
        if self.kept >= self.spec.state.uncommitted_bytes {
            return Some(CommitCause::Bytes);
        }
        self.pacer.policy().due(now, load)
    }
}

impl<C: Client> std::fmt::Debug for Worker<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("id", &self.spec.id)
            .field("state", &self.machine.state())
            .field("tasks", &self.tasks.keys())
            .finish_non_exhaustive()
    }
}

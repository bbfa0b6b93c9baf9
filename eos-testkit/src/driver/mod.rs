//! An app under test.
//!
//! A test needs no broker, no I/O, no threads and no waiting, and can crash the app and abort its transactions.
//!
//! ```text
//! pipe ─► input topics ─► Worker::step()  ─► output topics ─► read
//!                            │                (read_committed)
//!                         databases in memory ─► store
//!                            ▲
//!          crash, abort, rebalance, lost state, errors
//! ```
//!
//! The runtime is the real one, its brokers are the [model](eos_broker::broker), and time is virtual. Every run is
//! the same, and takes about a millisecond.

mod builder;
mod compare;
mod dying;
mod everywhere;
mod faults;
mod input;
mod moving;
mod output;
mod pausing;
mod piping;
mod running;
mod starting;
mod stores;
mod topics;
mod transactions;
mod viewing;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use eos_core::metrics::Metrics;
use eos_core::spi::stepped::{Process, Stepped};
use eos_core::{App, Error, Timestamp};

use crate::client::Cluster;
use crate::disk::Disk;
use faults::Faults;

pub use builder::Builder;
pub use compare::{Committed, RawRecord};
pub use everywhere::crash_everywhere;
pub use faults::CrashPoint;
pub use input::Input;
pub use output::OutputRecord;
pub use stores::Rows;

/// Builds the app, as each start of its program does.
type Rebuild = Box<dyn Fn() -> App + Send>;

/// A process of the app, and its surviving data.
struct Seat {
    instance: String,
    disk: Disk,
    process: Option<Process<Cluster>>,
    /// By worker: whether it has stopped on request.
    stopped: Vec<bool>,
}

/// Runs an app against a broker in memory: it pipes records in, and reads committed records.
///
/// It corresponds to Kafka Streams' `TopologyTestDriver`, but runs the real runtime with its transactions. A test can
/// [crash](Self::crash) the app in the middle of a record, [abort](Self::abort) its transaction,
/// [lose](Self::crash_and_lose_state) its state or [move](Self::rebalance) its tasks, and check that the result is
/// the same. Nothing waits for a clock: a test takes about a millisecond.
///
/// ```
/// use eos_core::{App, KeyValueStore, PlainTopic, Topic};
/// use eos_testkit::TestDriver;
///
/// let clicks = Topic::<String, String>::plain("clicks");
/// let counts = KeyValueStore::<String, u64>::plain("counts");
/// let totals = Topic::<String, u64>::plain("totals");
/// let mut app = App::new("clicks-v1");
/// app.source(&clicks).group_by_key().count(&counts).to(&totals);
///
/// let mut driver = TestDriver::new(app);
/// driver.pipe(&clicks, "ada", "/home");
/// driver.crash_during_next_record();
/// driver.pipe(&clicks, "ada", "/books");
///
/// assert_eq!(driver.crashes(), 1);
/// assert_eq!(driver.read_pairs(&totals), [("ada".to_owned(), 1), ("ada".to_owned(), 2)]);
/// assert_eq!(driver.store(&counts).get("ada"), Some(&2));
/// ```
///
/// # When records are committed
/// By default each call that pipes returns once all records are processed and committed, through all repartition
/// topics. After [`hold`](Self::hold) a transaction stays open until [`commit`](Self::commit). The driver decides
/// when to commit, so `commit.interval.ms`, `commit.pace`, `transaction.timeout.ms` and `max.poll.interval.ms` of the
/// app have no effect. Its other settings do.
///
/// # Time
/// [`now`](Self::now) stands still until [`advance_wall_clock`](Self::advance_wall_clock). Timeouts, such as the wait
/// before a retry, do not depend on that call: the broker's time advances until all records are processed.
///
/// It is also the machine's clock for the app. So a record that is more than an hour ahead of it fails in a stage with windows,
/// event-time timers, rows that expire or deduplication (`max.timestamp.ahead.ms`). For records of other years, set the clock
/// with [`Builder::start_at`], e.g. to the time of the first record.
///
/// # Errors
/// If the app ends with an error, the call during which it ends panics with the runtime's text.
/// [`try_pipe`](Self::try_pipe) returns the error instead. [`error`](Self::error) returns it until
/// [`restart`](Self::restart).
pub struct TestDriver {
    app: Stepped<Cluster>,
    /// Builds the app again for each start.
    rebuild: Option<Rebuild>,
    cluster: Cluster,
    faults: Faults,
    seats: Vec<Seat>,
    /// The number of seats so far.
    seated: usize,
    begin: i64,
    /// The total advance of the clock, in milliseconds.
    advanced: i64,
    /// The lead of the machines' clocks over the time that passes, in milliseconds.
    set: Arc<AtomicI64>,
    holds: bool,
    error: Option<Arc<Error>>,
    /// The next offset to read, by topic and partition.
    next: BTreeMap<(String, i32), i64>,
    crashes: u32,
    /// Whether a process that dies at a planned place loses its databases.
    loses_state: bool,
}

impl TestDriver {
    /// Starts an app with one process, and with one partition for each topic.
    ///
    /// # Panics
    /// With the runtime's text if the app is invalid.
    #[track_caller]
    #[must_use]
    pub fn new(app: App) -> TestDriver {
        TestDriver::builder().start(app)
    }

    /// Starts the app of a function, with one process, and with one partition for each topic. Each start of a process
    /// builds it again, as the program does: a closure's own variables are lost in a crash. [`new`](Self::new) uses
    /// one app for all starts, and its closures survive.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// use eos_core::{App, PlainTopic, Topic};
    /// use eos_testkit::TestDriver;
    ///
    /// fn visits() -> PlainTopic<String, String> {
    ///     Topic::plain("visits")
    /// }
    /// fn numbered() -> PlainTopic<String, u64> {
    ///     Topic::plain("numbered")
    /// }
    /// fn app() -> App {
    ///     let seen = AtomicU64::new(0);
    ///     let mut app = App::new("visits-v1");
    ///     let number = move |_: String| seen.fetch_add(1, Ordering::Relaxed) + 1;
    ///     app.source(&visits()).map(number).to(&numbered());
    ///     app
    /// }
    ///
    /// let mut driver = TestDriver::of(app);
    /// driver.pipe(&visits(), "ada", "/home");
    /// driver.crash();
    /// driver.pipe(&visits(), "ada", "/home");
    /// // A mistake: a count belongs into a store.
    /// let numbers = driver.read(&numbered());
    /// assert_eq!(numbers.iter().map(|it| it.value).collect::<Vec<_>>(), [1, 1]);
    /// ```
    ///
    /// # Panics
    /// With the runtime's text if the app is invalid.
    #[track_caller]
    #[must_use]
    pub fn of(app: impl Fn() -> App + Send + 'static) -> TestDriver {
        TestDriver::builder().start_of(app)
    }

    /// Starts an app as [`new`](Self::new) does.
    ///
    /// # Errors
    /// [`Error`] if the graph, a setting, or the cluster is invalid.
    #[track_caller]
    pub fn build(app: App) -> Result<TestDriver, Error> {
        TestDriver::builder().build(app)
    }

    /// Creates a builder for more options: partitions, the clock, instances.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The time of the clock: the start time plus all advances. [`set_wall_clock`](Self::set_wall_clock) changes it.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp(self.begin + self.advanced + self.set.load(Ordering::Relaxed))
    }

    /// The cluster that the app runs on. Use it to write beside the driver, as an upstream producer does, or to
    /// read partitions and committed offsets.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The error that ended the app, if any, until [`restart`](Self::restart).
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        self.error.as_deref()
    }

    /// The number of crashes of the app's processes. A planned crash counts once it has happened, so assert on this
    /// number.
    #[must_use]
    pub fn crashes(&self) -> u32 {
        self.crashes
    }

    /// The metrics of the first process since its last start: records skipped, late, retried, … `None` while it is
    /// down.
    #[must_use]
    pub fn metrics(&self) -> Option<Metrics> {
        let first = self.seats.first()?;
        first.process.as_ref().map(Process::metrics)
    }

    /// The stream time of the task that reads a partition: the highest time of its taken records. `None` if no record
    /// had a time, or if the app is down, so that no task reads the partition.
    ///
    /// # Panics
    /// If the app reads no such topic, or the topic has no such partition.
    #[track_caller]
    #[must_use]
    pub fn stream_time(&self, topic: &str, partition: i32) -> Option<Timestamp> {
        let reads = self.app.reads();
        let names: Vec<&str> = reads.iter().map(|it| it.as_str()).collect();
        assert!(
            names.contains(&topic),
            "the app does not read {topic}, so there is no stream time. It reads {}",
            names.join(", ")
        );
        let partitions = self.cluster.partitions(topic);
        assert!(
            (0..partitions).contains(&partition),
            "partition {partition} of {topic} does not exist: the topic has {partitions}"
        );
        let standings = self.standings();
        let mut of = standings.iter().filter(|it| {
            it.partition.topic.as_str() == topic && it.partition.partition.get() == partition
        });
        of.next()?.stream_time
    }
}

impl fmt::Debug for TestDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestDriver")
            .field("app", &self.app.app())
            .field("now", &self.now())
            .field("holds", &self.holds)
            .field("crashes", &self.crashes)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

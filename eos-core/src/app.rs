//! An application: its graph and its settings.

use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eos_protocol::{FirstStart, Guarantee};

#[cfg(feature = "kafka")]
use crate::runtime::Signals;
use crate::settings::Settings;
use crate::stream::{Output, Stream};
use crate::topic::Topic;
use crate::topology::{Graph, Topology, TopologyError};

/// A stream processing application.
///
/// Its name derives everything that is its own: the consumer group, transactional ids, paths. Start
/// the same program several times and the work is shared between the processes.
pub struct App {
    graph: Arc<Mutex<Graph>>,
    settings: Settings,
}

impl App {
    /// An app of this name that does nothing yet.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            graph: Arc::new(Mutex::new(Graph::new())),
            settings: Settings::new(name),
        }
    }

    /// Reads a topic. Several chains may read the same one: they share its transactions.
    pub fn source<K: 'static, V: 'static>(&mut self, topic: &Topic<K, V>) -> Stream<K, V> {
        let parent = self.lock().source(topic);
        Stream::new(Arc::clone(&self.graph), parent)
    }

    /// A handle to emit to a topic from [`Stream::process`].
    pub fn output<K: 'static, V: 'static>(&mut self, topic: &Topic<K, V>) -> Output<K, V> {
        let mut graph = self.lock();
        Output {
            app: graph.token(),
            index: graph.output(topic),
            types: PhantomData,
        }
    }

    /// What is promised; [`Guarantee::ExactlyOnce`] unless you say otherwise.
    #[must_use]
    pub fn guarantee(mut self, guarantee: Guarantee) -> Self {
        self.settings.guarantee = guarantee;
        self
    }

    /// How many workers (threads) this process runs; 1 by default. More processes do as well.
    #[must_use]
    pub fn workers(mut self, workers: u16) -> Self {
        self.settings.workers = workers;
        self
    }

    /// How long a transaction stays open at most (`commit.interval.ms`); 100 ms by default.
    #[must_use]
    pub fn commit_interval(mut self, interval: Duration) -> Self {
        self.settings.policy.interval = interval;
        self
    }

    /// After how long the brokers abort a transaction that its worker left open
    /// (`transaction.timeout.ms`); 30 s by default.
    #[must_use]
    pub fn transaction_timeout(mut self, timeout: Duration) -> Self {
        self.settings.transaction_timeout = timeout;
        self
    }

    /// After how long without a sign of life the group gives a worker's partitions to others
    /// (`session.timeout.ms`); 30 s by default.
    #[must_use]
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.settings.session_timeout = timeout;
        self
    }

    /// Where the very first start begins; [`FirstStart::Earliest`] by default. Later starts go on
    /// at the committed offsets, and a missing or invalid one is an error, never a silent jump.
    #[must_use]
    pub fn first_start(mut self, from: FirstStart) -> Self {
        self.settings.first_start = from;
        self
    }

    /// How long to wait for a broker at the start; 15 s by default.
    #[must_use]
    pub fn start_deadline(mut self, deadline: Duration) -> Self {
        self.settings.start_deadline = deadline;
        self
    }

    /// Whether workers are static members of the group (the default): a quick restart then moves no
    /// partition, and a worker that is gone for good is missed after its session time-out. Dynamic
    /// members leave at each stop.
    #[must_use]
    pub fn static_membership(mut self, static_member: bool) -> Self {
        self.settings.static_member = static_member;
        self
    }

    /// Where the identity of this process is kept; by default `EOS_STATE_DIR`, else `eos` in the
    /// user's state directory.
    #[must_use]
    pub fn state_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.settings.state_dir = Some(dir.into());
        self
    }

    /// Which slot of the state directory to use; by default the first free one.
    #[must_use]
    pub fn slot(mut self, slot: u32) -> Self {
        self.settings.slot = Some(slot);
        self
    }

    /// Accepts the offsets of an old layout, as an error message names it. For one start, after
    /// every instance of the old program was stopped.
    ///
    /// ```
    /// # use eos_core::App;
    /// let app = App::new("pricing-v1").accept_layout("91f0a2b3c4d5e6f7");
    /// ```
    #[must_use]
    pub fn accept_layout(mut self, layout: &str) -> Self {
        self.settings.accepted_layout = Some(layout.to_owned());
        self
    }

    /// A property for librdkafka, as it is: security, buffers, `client.rack` … What the guarantee
    /// rests on is refused by name when the app starts.
    #[must_use]
    pub fn property(mut self, key: &str, value: &str) -> Self {
        let property = (key.to_owned(), value.to_owned());
        self.settings.properties.push(property);
        self
    }

    /// Serves the [metrics](crate::metrics) for Prometheus at `http://<address>/metrics`, from the
    /// start of the app until its [`Running`](crate::Running) is dropped. Nothing is served unless
    /// you say so. Needs the feature `prometheus`.
    ///
    /// `address` is a port, opened on the loopback interface only, or `host:port`; there is neither
    /// TLS nor a password. 0 takes a free port, which the log names: for several processes on one
    /// host. An address that can't be had ends the start with
    /// [`EndpointError`](crate::metrics::EndpointError).
    ///
    /// ```
    /// # use eos_core::App;
    /// let app = App::new("pricing-v1").prometheus("9464");
    /// ```
    #[cfg(feature = "prometheus")]
    #[must_use]
    pub fn prometheus(mut self, address: &str) -> Self {
        self.settings.metrics_at = Some(address.to_owned());
        self
    }

    pub(crate) fn check(&self) -> Result<Arc<Topology>, TopologyError> {
        // The graph is taken: an app runs once.
        std::mem::replace(&mut *self.lock(), Graph::new())
            .build()
            .map(Arc::new)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "kafka")]
impl App {
    /// Starts the app and answers at once; for programs that do something else beside it.
    ///
    /// Waits up to the start deadline for a broker, so don't call it on an async thread that others
    /// need; [`App::run`] takes care of that.
    ///
    /// # Errors
    /// [`Error`](crate::Error) if the app, this process or the cluster is not fit to start.
    pub fn start(self, bootstrap_servers: &str) -> crate::Result<crate::Running> {
        let topology = self.check()?;
        let client = crate::kafka::KafkaClient::new(crate::kafka::KafkaConfig {
            bootstrap: bootstrap_servers.to_owned(),
            common: self.settings.properties.clone(),
            // A tenth of a second of work at full speed; six partitions hold 96 MB at most.
            prefetch_per_partition: Some(16 << 20),
            ..Default::default()
        });
        crate::runtime::start(self.settings, topology, client, bootstrap_servers)
    }

    /// Runs the app until it is stopped by SIGTERM or SIGINT, or can't go on.
    ///
    /// # Exactly-once
    /// Dying at any moment is as good as a stop: the next start ends what was left open.
    ///
    /// # Cancel safety
    /// Dropping the future stops the app in the background.
    ///
    /// # Errors
    /// [`Error`](crate::Error): its text names the fix.
    pub async fn run(self, bootstrap_servers: &str) -> crate::Result<()> {
        // Before anything else: a stop that comes while the start still waits for a broker counts.
        let mut signals = Signals::hear();
        let bootstrap = bootstrap_servers.to_owned();
        let (tell, started) = tokio::sync::oneshot::channel();
        // A thread of its own: nobody has to wait for it once the app was asked to stop.
        std::thread::Builder::new()
            .name("eos-start".into())
            .spawn(move || {
                // An app that nobody waits for any more is dropped, which stops it.
                let _unheard = tell.send(self.start(&bootstrap));
            })
            .map_err(crate::Error::Thread)?;
        let mut running = tokio::select! {
            started = started => started.unwrap_or(Err(crate::Error::Gone))?,
            _ = signals.asked() => return Ok(()),
        };
        tokio::select! {
            ended = running.ended() => return ended,
            mode = signals.asked() => running.handle().stop(mode),
        }
        running.ended().await
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

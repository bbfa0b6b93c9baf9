//! An application: its graph and its settings.

use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[cfg(feature = "kafka")]
use eos_kafka::{KafkaClient, KafkaConfig};
use eos_protocol::windows::check_retention;
use eos_protocol::{FirstStart, Guarantee};
use eos_state::StoreKind;

use crate::client::Client;
use crate::codec::{Decode, Encode, OrderedKey};
use crate::config::Settings;
#[cfg(feature = "kafka")]
use crate::config::{Properties, secrets_among};
use crate::output::Output;
#[cfg(all(feature = "kafka", feature = "failpoints"))]
use crate::rules;
#[cfg(feature = "kafka")]
use crate::runtime::Signals;
use crate::runtime::Stepped;
use crate::store::{ByWindow, InOrder, KeyValueStore, OrderedStore, Store, WindowStore};
use crate::stream::Stream;
use crate::topic::Topic;
use crate::topology::{Description, Graph, Topology, TopologyError};

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
            graph: Arc::new(Mutex::new(Graph::new(name))),
            settings: Settings::new(name),
        }
    }

    /// Reads a topic. Several chains may read the same one: they share its transactions, and a
    /// record that fails in one of them has no effect in any.
    pub fn source<K, V, KC, VC>(&mut self, topic: &Topic<K, V, KC, VC>) -> Stream<K, V>
    where
        K: 'static,
        V: 'static,
        KC: Decode<K>,
        VC: Decode<V>,
    {
        let source = self.lock().source(topic);
        Stream::new(Arc::clone(&self.graph), source)
    }

    /// A handle to emit to a topic from [`Stream::process`].
    pub fn output<K, V, KC, VC>(&mut self, topic: &Topic<K, V, KC, VC>) -> Output<K, V>
    where
        K: 'static,
        V: 'static,
        KC: Encode<K>,
        VC: Encode<V>,
    {
        let mut graph = self.lock();
        Output {
            app: graph.token(),
            index: graph.output(topic, true),
            types: PhantomData,
        }
    }

    /// A store, and the handle to it. The streams whose closures use it have to say so:
    /// [`Stream::with_store`].
    pub fn store<K: 'static, V: 'static>(&mut self, store: &KeyValueStore<K, V>) -> Store<K, V> {
        let mut graph = self.lock();
        Store {
            app: graph.token(),
            index: graph.store(store),
            types: PhantomData,
        }
    }

    /// A store that is read in the order of its keys, and the handle to it, for
    /// [`Ctx::ordered_store`](crate::Ctx::ordered_store). The streams whose closures use it have to say
    /// so: [`Stream::with_store`].
    pub fn ordered_store<K: OrderedKey, V: 'static>(
        &mut self,
        store: &OrderedStore<K, V>,
    ) -> Store<K, V, InOrder> {
        let mut graph = self.lock();
        Store {
            app: graph.token(),
            index: graph.keep(store.inner.spec(StoreKind::Ordered)),
            types: PhantomData,
        }
    }

    /// A store of windows, and the handle to it, for
    /// [`Ctx::window_store`](crate::Ctx::window_store). It has to say how long it keeps them:
    /// [`WindowStore::retention`]. The streams whose closures use it have to say so:
    /// [`Stream::with_store`].
    ///
    /// ```
    /// # use eos_core::{App, Topic, Tumbling, WindowStore};
    /// # use std::time::Duration;
    /// # let mut app = App::new("a");
    /// let hours = Tumbling::of(Duration::from_secs(3600));
    /// let seen = app.window_store(
    ///     &WindowStore::<String, u64>::plain("seen").retention(Duration::from_secs(24 * 3600)),
    /// );
    /// let busy = app.output(&Topic::<String, u64>::plain("busy-users"));
    /// app.source(&Topic::<String, String>::plain("clicks"))
    ///     .with_store(&seen)
    ///     .process(move |ctx, click| {
    ///         let Some(hour) = click.timestamp.and_then(|time| hours.window(time)) else {
    ///             return Ok(());
    ///         };
    ///         let store = ctx.window_store(&seen);
    ///         let clicks = store.get(&click.key, hour.start)?.unwrap_or(0) + 1;
    ///         if store.put(&click.key, hour.start, &clicks)? && clicks == 1000 {
    ///             ctx.emit(&busy, click.key, clicks)?;
    ///         }
    ///         Ok(())
    ///     });
    /// ```
    pub fn window_store<K: 'static, V: 'static>(
        &mut self,
        store: &WindowStore<K, V>,
    ) -> Store<K, V, ByWindow> {
        let mut graph = self.lock();
        let retention = store.retention.unwrap_or_default();
        let name = || store.name().to_owned();
        if retention < Duration::from_millis(1) {
            graph.wrong(TopologyError::NoRetention { store: name() });
        } else if let Err(reason) = check_retention(retention) {
            graph.wrong(TopologyError::Windows {
                store: name(),
                reason,
            });
        }
        Store {
            app: graph.token(),
            // How long its windows are nobody says.
            index: graph.keep(store.spec(retention, Duration::ZERO)),
            types: PhantomData,
        }
    }

    /// What the app does, in words: in the format of Kafka Streams, and with the guarantee of each
    /// edge.
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// let mut app = App::new("shout-v1");
    /// app.source(&Topic::<String, String>::plain("lines"))
    ///     .map(|line| line.to_uppercase())
    ///     .to(&Topic::plain("shouts"));
    /// let description = app.describe()?;
    /// assert!(description.to_string().contains("Source: KSTREAM-SOURCE-0000000000 (topics: [lines])"));
    /// println!("{}", description.guarantees());
    /// # Ok::<(), eos_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Topology`](crate::Error::Topology) if the graph makes no sense,
    /// [`Error::Settings`](crate::Error::Settings) if a setting does not.
    pub fn describe(&self) -> crate::Result<Description> {
        let graph = self.lock();
        graph.check()?;
        let settings = self.settings.clone().resolve(std::env::vars_os())?;
        Ok(graph.describe(settings.guarantee))
    }

    /// What is promised; [`Guarantee::ExactlyOnce`] unless you say otherwise
    /// (`processing.guarantee`).
    #[must_use]
    pub fn guarantee(self, guarantee: Guarantee) -> Self {
        let name = match guarantee {
            Guarantee::ExactlyOnce => "exactly_once_v2",
            Guarantee::AtLeastOnce => "at_least_once",
        };
        self.set("processing.guarantee", name)
    }

    /// How many workers (threads) this process runs (`num.stream.threads`); 1 by default. More
    /// processes do as well.
    #[must_use]
    pub fn workers(self, workers: u16) -> Self {
        self.set("num.stream.threads", workers)
    }

    /// How long a transaction stays open at most (`commit.interval.ms`); 100 ms by default.
    #[must_use]
    pub fn commit_interval(self, interval: Duration) -> Self {
        self.set_ms("commit.interval.ms", interval)
    }

    /// After how long the brokers abort a transaction that its worker left open
    /// (`transaction.timeout.ms`); 30 s by default.
    #[must_use]
    pub fn transaction_timeout(self, timeout: Duration) -> Self {
        self.set_ms("transaction.timeout.ms", timeout)
    }

    /// After how long without a sign of life the group gives a worker's partitions to others
    /// (`session.timeout.ms`); 30 s by default. Under `group.protocol=consumer` the brokers say.
    #[must_use]
    pub fn session_timeout(self, timeout: Duration) -> Self {
        self.set_ms("session.timeout.ms", timeout)
    }

    /// Where the very first start begins (`auto.offset.reset`); [`FirstStart::Earliest`] by default.
    /// Later starts go on at the committed offsets, and a missing or invalid one is an error, never
    /// a silent jump.
    #[must_use]
    pub fn first_start(self, from: FirstStart) -> Self {
        let name = match from {
            FirstStart::Earliest => "earliest",
            FirstStart::Latest => "latest",
        };
        self.set("auto.offset.reset", name)
    }

    /// How long to wait for a broker at the start (`start.deadline.ms`); 15 s by default.
    #[must_use]
    pub fn start_deadline(self, deadline: Duration) -> Self {
        self.set_ms("start.deadline.ms", deadline)
    }

    /// Whether workers are static members of the group (`static.membership`, the default): a quick
    /// restart then moves no partition, and a worker that is gone for good is missed after its
    /// session time-out. Dynamic members leave at each stop; under `group.protocol=consumer` all are.
    #[must_use]
    pub fn static_membership(self, static_member: bool) -> Self {
        self.set("static.membership", static_member)
    }

    /// Where the identity of this process is kept (`state.dir`); by default `eos` in the user's
    /// state directory.
    #[must_use]
    pub fn state_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.settings.set_state_dir(dir.into());
        self
    }

    /// Which slot of the state directory to use (`slot`); by default the first free one.
    #[must_use]
    pub fn slot(self, slot: u32) -> Self {
        self.set("slot", slot)
    }

    /// Accepts the offsets of an old layout, as an error message names it (`accept.layout`). For one
    /// start, after every instance of the old program was stopped.
    ///
    /// ```
    /// # use eos_core::App;
    /// let app = App::new("pricing-v1").accept_layout("91f0a2b3c4d5e6f7");
    /// ```
    #[must_use]
    pub fn accept_layout(self, layout: &str) -> Self {
        self.set("accept.layout", layout)
    }

    /// Sets a property by Kafka's name: one of the app's, such as `commit.interval.ms`, or one for
    /// librdkafka. `consumer.` or `producer.` before it sets it for these clients only. Files and
    /// environment variables override it.
    ///
    /// All properties, their sources and what must hold between them: `docs/configuration.md`.
    /// What is misspelt, out of range, or would break the guarantee is an error when the app
    /// starts.
    ///
    /// ```
    /// # use eos_core::App;
    /// let app = App::new("pricing-v1")
    ///     .set("security.protocol", "sasl_ssl")
    ///     .set("consumer.fetch.min.bytes", 1000);
    /// ```
    #[must_use]
    pub fn set(mut self, key: &str, value: impl fmt::Display) -> Self {
        self.settings.set(key, value);
        self
    }

    /// Reads properties from a file in Java's `.properties` syntax when the app starts. They
    /// override what the program sets; environment variables override them, and `EOS_CONFIG_FILE`
    /// names another file.
    #[must_use]
    pub fn config_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.set_file(path.into());
        self
    }

    fn set_ms(mut self, key: &str, value: Duration) -> Self {
        self.settings.set_ms(key, value);
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

    #[cfg_attr(
        not(feature = "kafka"),
        allow(dead_code, reason = "without the adapter there is no client to run on")
    )]
    pub(crate) fn check(&self) -> Result<Arc<Topology>, TopologyError> {
        // The graph is taken: an app runs once.
        let graph = std::mem::replace(&mut *self.lock(), Graph::new(""));
        Topology::of(graph).map(Arc::new)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl App {
    /// The app on any client, for whoever steps its workers: see [`stepped`](crate::stepped).
    ///
    /// Neither the environment nor a file that it names is read: a simulation has no other input than its
    /// seed.
    ///
    /// # Errors
    /// [`Error`](crate::Error) if the graph or a setting makes no sense.
    pub fn stepped<C: Client>(self, client: C) -> crate::Result<Stepped<C>> {
        let topology = self.check()?;
        let settings = self.settings.resolve(std::iter::empty())?;
        Ok(Stepped::new(settings, topology, client))
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
        let mut settings = self.settings;
        settings.set_default_brokers(bootstrap_servers);
        let settings = settings.resolve(std::env::vars_os())?;
        let bootstrap = settings.bootstrap.clone().unwrap_or_default();
        let client = KafkaClient::new(kafka_config(&bootstrap, &settings.properties));
        crate::runtime::start(settings, topology, client, &bootstrap)
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

/// The user's properties, as librdkafka's client takes them.
#[cfg(feature = "kafka")]
fn kafka_config(bootstrap: &str, properties: &Properties) -> KafkaConfig {
    let all = [
        &properties.common,
        &properties.consumer,
        &properties.producer,
    ];
    let all = all.into_iter().flatten();
    let all = all.map(|(key, value)| (key.as_str(), value.as_str()));
    let mut config = KafkaConfig::default();
    config.bootstrap = bootstrap.to_owned();
    config.common.clone_from(&properties.common);
    config.consumer.clone_from(&properties.consumer);
    config.producer.clone_from(&properties.producer);
    config.secrets = secrets_among(all.chain([("bootstrap.servers", bootstrap)]));
    #[cfg(feature = "failpoints")]
    {
        config.without_quarantine = !rules::quarantines_unanswered_producers();
    }
    config
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

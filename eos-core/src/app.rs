//! An application: its graph and its settings.

use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[cfg(feature = "kafka")]
use eos_kafka::{KafkaClient, KafkaConfig};
use eos_protocol::{FirstStart, Guarantee};

use crate::boundary::Ledger;
use crate::client::Client;
use crate::codec::{Decode, Encode};
use crate::config::Settings;
#[cfg(feature = "kafka")]
use crate::config::{Properties, secrets_among};
use crate::error_policy::ErrorPolicy;
use crate::output::Output;
#[cfg(all(feature = "kafka", feature = "failpoints"))]
use crate::rules;
use crate::runtime::{Running, Signals, Stepped};
use crate::store::StoreSpec;
use crate::store_handle::{Store, StoreDef};
use crate::streams::Stream;
use crate::timer::{Timer, TimerHandle};
use crate::topic::Topic;
use crate::topology::{Description, GlobalSpec, Graph, Mistake, Topology};

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

    /// A handle to emit to a topic from a closure with a context, such as [`Stream::for_each`].
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

    /// Adds a global table. Returns the graph, and the table's number.
    pub(crate) fn add_global(&self, table: GlobalSpec) -> (Arc<Mutex<Graph>>, usize) {
        let at = self.lock().global(table);
        (Arc::clone(&self.graph), at)
    }

    /// Declares a store and returns its handle, for [`Ctx::store`](crate::Ctx::store). Each stream whose closures use
    /// the store needs [`Stream::with_store`].
    ///
    /// A [`WindowStore`](crate::state::WindowStore) needs a [`retention`](crate::state::WindowStore::retention).
    ///
    /// ```
    /// # use eos_core::state::WindowStore;
    /// # use eos_core::windows::Tumbling;
    /// # use eos_core::{App, Topic};
    /// # use std::time::Duration;
    /// # let mut app = App::new("a");
    /// let hours = Tumbling::of(Duration::from_secs(3600));
    /// let seen = app.store(
    ///     &WindowStore::<String, u64>::plain("seen").retention(Duration::from_secs(24 * 3600)),
    /// );
    /// app.source(&Topic::<String, String>::plain("clicks"))
    ///     .with_store(&seen)
    ///     .process_values(move |ctx, click| {
    ///         let Some(hour) = click.timestamp.and_then(|time| hours.window(time)) else {
    ///             return Ok(());
    ///         };
    ///         let store = ctx.store(&seen);
    ///         let clicks = store.get(click.key, hour.start)?.unwrap_or(0) + 1;
    ///         if store.put(click.key, hour.start, &clicks)? && clicks == 1000 {
    ///             ctx.forward(clicks)?;
    ///         }
    ///         Ok(())
    ///     })
    ///     .to(&Topic::plain("busy-users"));
    /// ```
    pub fn store<D: StoreDef>(&mut self, definition: &D) -> Store<D> {
        let declared = definition.declared();
        Store::new(self.token(), self.keep(declared.store, declared.check))
    }

    /// Records a mistake, so that the app does not start.
    pub(crate) fn wrong(&self, mistake: Mistake) {
        self.lock().wrong(mistake);
    }

    /// Adds a store for closures. Returns its number.
    pub(crate) fn keep(&self, store: StoreSpec, check: Result<(), Mistake>) -> usize {
        let mut graph = self.lock();
        if let Err(mistake) = check {
            graph.wrong(mistake);
        }
        graph.keep(store)
    }

    /// Describes the app: in the format of Kafka Streams, and with the guarantee of each edge. It knows what the program
    /// sets, and reads neither a file nor the environment.
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
    /// [`Error::Topology`](crate::Error::Topology) names all mistakes in the graph,
    /// [`Error::Settings`](crate::Error::Settings) one in the settings.
    pub fn describe(&self) -> crate::Result<Description> {
        let mut graph = self.lock();
        graph.add_sequences();
        graph.check()?;
        let settings = self
            .settings
            .clone()
            .without_file()
            .resolve(std::iter::empty())?;
        graph.check_guarantee(settings.guarantee)?;
        Ok(graph.describe(settings.guarantee))
    }

    /// Commits the transactions of this app in a ledger, such as a database: the rows of its places, and the positions of
    /// its inputs. The app writes to no topic and keeps no state. See [`boundary`](crate::boundary).
    ///
    /// # Exactly-once
    /// The rows and the positions of a transaction become durable together. A worker that lost its partitions cannot
    /// commit.
    pub fn ledger(&mut self, ledger: &(impl Ledger + Clone)) -> &mut Self {
        self.lock().set_ledger(Arc::new(ledger.clone()));
        self
    }

    /// The guarantee (`processing.guarantee`); [`Guarantee::ExactlyOnce`] by default.
    pub fn guarantee(&mut self, guarantee: Guarantee) -> &mut Self {
        self.set("processing.guarantee", guarantee.property_value())
    }

    /// The number of workers (threads) of this process (`num.stream.threads`); 1 by default. The group shares its
    /// partitions among the workers of all processes.
    pub fn workers(&mut self, workers: u16) -> &mut Self {
        self.set("num.stream.threads", workers)
    }

    /// The longest time that a transaction stays open (`commit.interval.ms`); 100 ms by default.
    pub fn commit_interval(&mut self, interval: Duration) -> &mut Self {
        self.settings.set_ms("commit.interval.ms", interval);
        self
    }

    /// Where the very first start begins (`auto.offset.reset`); [`FirstStart::Earliest`] by default.
    /// Later starts go on at the committed offsets, and a missing or invalid one is an error, never
    /// a silent jump.
    pub fn first_start(&mut self, from: FirstStart) -> &mut Self {
        self.set("auto.offset.reset", from.property_value())
    }

    /// The directory of this process's identity, and of its state with the feature `rocksdb` (`state.dir`); by default
    /// `eos` in the user's state directory.
    pub fn state_dir(&mut self, dir: impl Into<PathBuf>) -> &mut Self {
        self.settings.set_state_dir(dir.into());
        self
    }

    /// The policy for records that can't be processed, of every source without an
    /// [`on_error`](Stream::on_error) of its own; [`ErrorPolicy::fail`] by default.
    ///
    /// ```
    /// # use eos_core::{App, ErrorPolicy};
    /// # let mut app = App::new("a");
    /// app.on_error(ErrorPolicy::dead_letter("dead-letters"));
    /// ```
    pub fn on_error(&mut self, policy: impl Into<ErrorPolicy>) -> &mut Self {
        self.lock().default_policy(policy.into());
        self
    }

    /// Sets a property by Kafka's name: one of the app's, such as `commit.interval.ms`, or one for
    /// librdkafka. `consumer.` or `producer.` before it sets it for these clients only. Files and
    /// environment variables override it.
    ///
    /// `docs/configuration.md` lists all properties, their sources and the rules between them. A property that is
    /// misspelt, out of range, or would break the guarantee is an error when the app starts.
    ///
    /// ```
    /// # use eos_core::App;
    /// # let mut app = App::new("a");
    /// app.set("security.protocol", "sasl_ssl").set("consumer.fetch.min.bytes", 1000);
    /// ```
    pub fn set(&mut self, key: &str, value: impl fmt::Display) -> &mut Self {
        self.settings.set(key, value);
        self
    }

    /// Reads properties from a file in Java's `.properties` syntax when the app starts. They
    /// override what the program sets; environment variables override them, and `EOS_CONFIG_FILE`
    /// names another file.
    pub fn config_file(&mut self, path: impl Into<PathBuf>) -> &mut Self {
        self.settings.set_file(path.into());
        self
    }

    /// Reads the environment variables that begin with this prefix and `_`, instead of those that begin with `EOS_`:
    /// for several apps in one process. `BILLING` makes `BILLING_STATE_DIR` the variable of `state.dir`. The variables that
    /// begin with `EOS_` then have no effect on this app. A prefix that begins with `EOS_` is an error when the app starts.
    ///
    /// ```
    /// # use eos_core::App;
    /// # let mut app = App::new("a");
    /// app.environment_prefix("BILLING");
    /// ```
    pub fn environment_prefix(&mut self, prefix: &str) -> &mut Self {
        self.settings.set_environment_prefix(prefix);
        self
    }

    /// Serves the [metrics](crate::metrics) for Prometheus at `http://<address>/metrics`, from the
    /// start of the app until its [`Running`](crate::run::Running) is dropped. By default nothing is served. Needs the
    /// feature `prometheus`.
    ///
    /// `address` is a port, opened on the loopback interface only, or `host:port`; there is neither
    /// TLS nor a password. 0 takes a free port, which the log names: for several processes on one
    /// host. If the address is not available, the start fails. Two apps in one process need two addresses.
    ///
    /// ```
    /// # use eos_core::App;
    /// # let mut app = App::new("a");
    /// app.prometheus("9464");
    /// ```
    pub fn prometheus(&mut self, address: &str) -> &mut Self {
        self.settings.metrics_at = Some(address.to_owned());
        self
    }

    #[cfg_attr(
        not(feature = "kafka"),
        allow(dead_code, reason = "without the adapter there is no client to run on")
    )]
    fn resolve(
        self,
        variables: impl IntoIterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
    ) -> crate::Result<(Arc<Topology>, Settings)> {
        // The graph is taken: an app runs once. A mistake in it comes before one in the settings.
        let graph = std::mem::replace(&mut *self.lock(), Graph::new(""));
        graph.check()?;
        let settings = self.settings.resolve(variables)?;
        graph.check_guarantee(settings.guarantee)?;
        Ok((Arc::new(Topology::of(graph)?), settings))
    }

    #[cfg(any(test, not(feature = "kafka")))]
    pub(crate) fn check(&self) -> Result<Arc<Topology>, crate::topology::TopologyError> {
        // The graph is taken: an app runs once.
        let graph = std::mem::replace(&mut *self.lock(), Graph::new(""));
        Topology::of(graph).map(Arc::new)
    }

    /// The app's handles carry it.
    pub(crate) fn token(&self) -> u64 {
        self.lock().token()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl App {
    /// The app on any client, with workers that the caller steps: see [`stepped`](crate::spi::stepped).
    ///
    /// Neither the environment nor a file that it names is read: a simulation has no other input than its
    /// seed.
    ///
    /// # Errors
    /// [`Error`](crate::Error) if the graph or a setting makes no sense.
    pub fn stepped<C: Client>(self, client: C) -> crate::Result<Stepped<C>> {
        let (topology, settings) = self.resolve(std::iter::empty())?;
        Ok(Stepped::new(settings, topology, client))
    }
}

/// Running needs the feature `kafka`: without it these methods return
/// [`Error::FeatureMissing`](crate::Error::FeatureMissing).
impl App {
    /// Declares a timer and returns its handle. Exactly one step must handle it, by
    /// [`Stream::on_timer`](crate::Stream::on_timer) or [`Stream::with_timer`](crate::Stream::with_timer).
    pub fn timer<K: 'static>(&mut self, definition: &Timer<K>) -> TimerHandle<K> {
        TimerHandle::new(self.token(), self.keep(definition.spec(), Ok(())))
    }
}

impl App {
    /// Starts the app, for programs that do something else beside it.
    ///
    /// # Cancel safety
    /// Dropping the future stops the app in the background.
    ///
    /// # Errors
    /// [`Error`](crate::Error) if the app, this process or the cluster is not fit to start.
    pub async fn start(self, bootstrap_servers: &str) -> crate::Result<Running> {
        let bootstrap = bootstrap_servers.to_owned();
        let (send, started) = tokio::sync::oneshot::channel();
        // A thread of its own: a start that waits for a broker holds up no async thread, and can be abandoned.
        std::thread::Builder::new()
            .name("eos-start".into())
            .spawn(move || {
                // Without a receiver the app is dropped, which stops it.
                let _abandoned = send.send(self.start_blocking(&bootstrap));
            })
            .map_err(crate::Error::Thread)?;
        started.await.unwrap_or(Err(crate::Error::Gone))
    }

    /// As [`start`](Self::start), on the calling thread. It waits up to the start deadline for a broker.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    #[cfg(feature = "kafka")]
    pub fn start_blocking(self, bootstrap_servers: &str) -> crate::Result<Running> {
        let mut app = self;
        app.settings.set_default_brokers(bootstrap_servers);
        let (topology, settings) = app.resolve(std::env::vars_os())?;
        let bootstrap = settings.bootstrap.clone().unwrap_or_default();
        let client = KafkaClient::new(kafka_config(&bootstrap, &settings.properties));
        crate::runtime::start(settings, topology, client, &bootstrap)
    }

    /// As [`start`](Self::start), on the calling thread.
    ///
    /// # Errors
    /// [`Error::FeatureMissing`](crate::Error::FeatureMissing): this build has no Kafka client.
    #[cfg(not(feature = "kafka"))]
    pub fn start_blocking(self, _bootstrap_servers: &str) -> crate::Result<Running> {
        self.check()?;
        Err(crate::Error::FeatureMissing {
            feature: "kafka",
            needed_by: "`App::run`".into(),
        })
    }

    /// Runs the app until it is stopped by SIGTERM or SIGINT, or can't go on.
    ///
    /// # Exactly-once
    /// A crash at any moment loses and doubles nothing: the next start aborts the open transactions.
    ///
    /// # Cancel safety
    /// Dropping the future stops the app in the background.
    ///
    /// # Errors
    /// [`Error`](crate::Error): its text names the fix.
    pub async fn run(self, bootstrap_servers: &str) -> crate::Result<()> {
        // Before anything else: a stop that comes while the start still waits for a broker counts.
        let mut signals = Signals::hear();
        let mut running = tokio::select! {
            started = self.start(bootstrap_servers) => started?,
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

#[cfg(all(test, not(feature = "kafka")))]
mod tests {
    use super::*;

    #[test]
    fn a_start_without_the_kafka_feature_fails_and_names_the_fix() {
        let mut app = App::new("a");
        app.source(&crate::Topic::<String, String>::plain("t"))
            .ignore();
        let error = app.start_blocking("localhost:9092").unwrap_err();
        let text = error.to_string();
        let says = "this build of eos-core lacks the feature `kafka`, which `App::run` needs. Add features";
        assert!(text.starts_with(says), "{text}");
    }
}

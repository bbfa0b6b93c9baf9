//! The embedded broker, which stops when it is dropped.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use kafka_wire::Producer;
use kafka_wire::lines::{self, Follower, Keys};

use super::limits::Limits;
use super::shared::{Shared, Traffic};
use super::{clock, connection};
use crate::broker::{Broker, BrokerOptions};

/// The stack size of a connection's thread, in bytes. It is small, because requests are on the heap.
const STACK: usize = 256 << 10;

/// A Kafka broker in this process, on loopback, in memory.
///
/// For development and tests. Its data is lost when it is dropped.
///
/// # Example
/// ```
/// use eos_broker::EmbeddedKafka;
///
/// let kafka = EmbeddedKafka::builder().topic("orders", 6).start()?;
/// kafka.produce_lines("orders", "anna:pen\nbert:ink\n", eos_broker::Keys::BeforeColon)?;
/// println!("bootstrap.servers={}", kafka.bootstrap());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct EmbeddedKafka {
    address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// The reason why the embedded broker did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The port cannot be bound.
    #[error(
        "cannot listen on 127.0.0.1:{port}: {source}; choose another port, or 0 for a free one"
    )]
    Listen {
        /// The requested port.
        port: u16,
        /// The system's error.
        source: io::Error,
    },
    /// The system cannot start a thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// A topic cannot be created.
    #[error("cannot create topic '{name}': {why}")]
    Topic {
        /// The name of the topic.
        name: String,
        /// The reason.
        why: String,
    },
}

/// The configuration of an embedded broker before its start.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Builder {
    port: u16,
    advertised_port: Option<u16>,
    options: BrokerOptions,
    limits: Limits,
    topics: Vec<(String, i32)>,
}

impl Builder {
    /// Sets the port to listen on. The default is a free port.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Sets the advertised port, if it is not the broker's own but that of a proxy in front of it.
    pub fn advertised_port(mut self, port: u16) -> Self {
        self.advertised_port = Some(port);
        self
    }

    /// Sets the broker's options.
    pub fn options(mut self, options: BrokerOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the limits of connections.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Adds a topic that exists from the start.
    pub fn topic(mut self, name: impl Into<String>, partitions: i32) -> Self {
        self.topics.push((name.into(), partitions));
        self
    }

    /// Starts the broker, which accepts connections when this function returns.
    ///
    /// # Errors
    /// If the port is taken, a topic cannot be created, or the system cannot start a thread.
    pub fn start(self) -> Result<EmbeddedKafka, StartError> {
        let port = self.port;
        let listen = |source| StartError::Listen { port, source };
        let listener = bind(port).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let mut options = self.options;
        options.host = address.ip().to_string();
        options.port = self.advertised_port.unwrap_or(address.port());
        if options.incarnation == 0 {
            // Clients must not mistake this broker for an earlier one on the same port.
            options.incarnation = RandomState::new().build_hasher().finish().max(1);
        }
        let mut broker = Broker::new(options);
        for (name, partitions) in self.topics {
            let created = broker.add_topic(&name, partitions, &[]);
            created.map_err(|why| StartError::Topic { name, why })?;
        }
        let shared = Arc::new(Shared::new(broker, self.limits));
        let clock = clock::start(Arc::clone(&shared)).map_err(StartError::Thread)?;
        let mut embedded = EmbeddedKafka {
            address,
            shared: Arc::clone(&shared),
            threads: vec![clock],
        };
        let accepting = thread::Builder::new()
            .name("eos-broker-accept".into())
            .spawn(move || accept(&listener, &shared))
            .map_err(StartError::Thread)?;
        embedded.threads.push(accepting);
        Ok(embedded)
    }
}

impl EmbeddedKafka {
    /// Returns a builder with the default configuration.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts a broker without topics on a free port.
    ///
    /// # Errors
    /// See [`Builder::start`].
    pub fn start() -> Result<EmbeddedKafka, StartError> {
        Builder::default().start()
    }

    /// Returns the address for clients: `127.0.0.1:port`.
    pub fn bootstrap(&self) -> String {
        self.address.to_string()
    }

    /// Returns the port that the broker listens on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the counts of connections and requests so far.
    pub fn traffic(&self) -> Traffic {
        self.shared.traffic()
    }

    /// Calls `act` on the model itself, at the current time. Clients wait meanwhile. Responses that result from the
    /// call are sent after it, so `act` must not call the model's own `step` and `advance`.
    pub fn with<T>(&self, act: impl FnOnce(&mut Broker, i64) -> T) -> T {
        self.shared.with_broker(|broker, now| {
            let done = act(broker, now);
            (done, broker.advance(now))
        })
    }

    /// Produces each line of a text as a record, and returns the number of records.
    ///
    /// The key selects the partition, as in Java's default partitioner. Lines without keys are spread over all
    /// partitions.
    ///
    /// # Errors
    /// If the topic does not exist, or a line cannot be parsed. The lines before that line are written.
    pub fn produce_lines(&self, topic: &str, text: &str, keys: Keys) -> anyhow::Result<u64> {
        let mut producer = Producer::new(&self.bootstrap())?;
        lines::produce(
            &mut producer,
            topic,
            text.as_bytes(),
            keys,
            lines::Extras::default(),
        )
    }

    /// Reads the committed records of some topics as lines of text, from the beginning and continuously.
    ///
    /// # Errors
    /// If one of the topics does not exist.
    pub fn follow(&self, topics: &[&str]) -> anyhow::Result<Follower> {
        Follower::new(&self.bootstrap(), topics)
    }

    /// Ends a member's session as if it had been silent for too long.
    pub fn expire_session(&self, group: &str, member_id: &str) {
        self.with(|broker, now| broker.expire_session(group, member_id, now));
    }
}

impl Drop for EmbeddedKafka {
    fn drop(&mut self) {
        self.shared.stop();
        // The accepting thread waits for a connection, and this one wakes it up.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        for thread in self.threads.drain(..) {
            // The panic of a thread has already been printed.
            let _ = thread.join();
        }
    }
}

/// Binds a port. For 0, it is a free port below those that the system assigns to outgoing connections.
///
/// A client that keeps connecting to a stopped broker may get the broker's own port as its local port. It is then
/// connected to itself, and the broker cannot start again.
fn bind(port: u16) -> io::Result<TcpListener> {
    if port != 0 {
        return TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    }
    for _ in 0..100 {
        // Each `RandomState` has its own keys.
        let random = RandomState::new().build_hasher().finish();
        let port = 10_000 + (random % 22_768) as u16;
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return Ok(listener);
        }
    }
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut number = 0;
    for socket in listener.incoming() {
        if shared.is_stopping() {
            break;
        }
        let Ok(socket) = socket else {
            // The process probably has no free file descriptors. Some will be closed.
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        number += 1;
        open(number, socket, shared);
    }
}

fn open(number: u64, socket: TcpStream, shared: &Arc<Shared>) {
    let Ok(for_stopping) = socket.try_clone() else {
        return;
    };
    let counters = &shared.counters;
    counters.accepted.fetch_add(1, Ordering::Relaxed);
    let Some(now_open) = shared.opened(number, for_stopping) else {
        return;
    };
    if now_open > shared.limits.max_connections {
        counters.turned_away.fetch_add(1, Ordering::Relaxed);
        shared.closed(number);
        return;
    }
    let served = Arc::clone(shared);
    let thread = thread::Builder::new()
        .name(format!("eos-broker-{number}"))
        .stack_size(STACK)
        .spawn(move || {
            // An error means that the client has disconnected.
            let _ = connection::serve(&served, &socket);
            let _ = socket.shutdown(std::net::Shutdown::Both);
            served.closed(number);
        });
    if thread.is_err() {
        shared.closed(number);
    }
}

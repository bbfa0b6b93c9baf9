//! Who to ask, and asking again: routes to brokers, leaders and coordinators, bounded retries.

use std::collections::{BTreeMap, HashMap};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kafka_protocol::messages::{FindCoordinatorRequest, TopicName};
use kafka_protocol::protocol::{Request, StrBytes};

use super::cluster::ClusterMetadata;
use super::connection::Connection;
use super::failure::{Failure, check};

/// Pauses between two attempts: short at first, since most elections are over in milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The longest one exchange may take, so that a frozen broker leaves time to ask another.
const LONGEST_EXCHANGE: Duration = Duration::from_secs(10);

/// A synchronous Kafka client: every call returns within its timeout, answered or failed.
///
/// One socket per broker, opened when first needed. Nothing happens between two calls.
#[derive(Debug)]
pub struct Client {
    timeout: Duration,
    bootstrap: Vec<String>,
    brokers: BTreeMap<i32, String>,
    leaders: HashMap<String, Vec<Option<i32>>>,
    coordinators: HashMap<(i8, String), i32>,
    connections: HashMap<i32, Connection>,
    /// The connection for questions that any broker answers.
    any: Option<Connection>,
    /// Which address the next `any` is opened to.
    turn: usize,
}

/// Who a request goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node<'a> {
    /// Whichever broker answers.
    Any,
    /// The broker with this id.
    Broker(i32),
    /// The leader of a partition.
    Leader(&'a str, i32),
    /// The coordinator of a consumer group.
    Group(&'a str),
    /// The coordinator of a transactional id.
    Transaction(&'a str),
}

impl Client {
    /// Connects to the first broker of `bootstrap` (`host:port,host:port`) that answers.
    ///
    /// `timeout` bounds this call and every later one, retries included.
    ///
    /// # Errors
    /// When no address of the list answers like a Kafka broker; it does not wait for one to come up.
    pub fn connect(bootstrap: &str, timeout: Duration) -> Result<Client> {
        let addresses = bootstrap.split(',').map(str::trim);
        let addresses: Vec<_> = addresses
            .filter(|a| !a.is_empty())
            .map(str::to_owned)
            .collect();
        if addresses.is_empty() {
            bail!("no bootstrap address: give host:port, several separated by commas");
        }
        let mut client = Client {
            timeout,
            bootstrap: addresses,
            brokers: BTreeMap::new(),
            leaders: HashMap::new(),
            coordinators: HashMap::new(),
            connections: HashMap::new(),
            any: None,
            turn: 0,
        };
        let deadline = Instant::now() + timeout;
        client.open_any(client.bootstrap.len(), deadline).map_err(Failure::into_error).with_context(|| {
            format!("no Kafka broker answers at {bootstrap}: start one with `cargo xtask kafka up`, or correct the address")
        })?;
        Ok(client)
    }

    /// Sends one request as it is and returns the answer, error codes unread.
    ///
    /// For what this client has no method for: tests drive transactions with it.
    ///
    /// # Errors
    /// When the node cannot be found or reached, or its answer does not arrive in time. Then it is
    /// unknown whether the request took effect.
    pub fn request<R: Request>(&mut self, to: Node<'_>, request: &R) -> Result<R::Response> {
        let deadline = Instant::now() + self.timeout;
        self.exchange(to, request, deadline)
            .map_err(Failure::into_error)
    }

    /// How long a call may take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Calls `attempt` until it succeeds, fails for good, or the timeout is over.
    pub(super) fn retry<T>(
        &mut self,
        what: &str,
        mut attempt: impl FnMut(&mut Client, Instant) -> Result<T, Failure>,
    ) -> Result<T> {
        let deadline = Instant::now() + self.timeout;
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match attempt(self, deadline) {
                Ok(answer) => return Ok(answer),
                Err(Failure::Final(error)) => return Err(error.context(what.to_owned())),
                Err(Failure::Retry(error)) => error,
            };
            if Instant::now() + pause >= deadline {
                let waited = self.timeout;
                return Err(error.context(format!("{what}: gave up after {waited:?}")));
            }
            self.forget_routes();
            thread::sleep(pause);
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// One request, one answer; a broken connection is dropped so that the next call opens another.
    pub(super) fn exchange<R: Request>(
        &mut self,
        to: Node<'_>,
        request: &R,
        deadline: Instant,
    ) -> Result<R::Response, Failure> {
        let deadline = deadline.min(Instant::now() + LONGEST_EXCHANGE);
        let Some(broker) = self.locate(to, deadline)? else {
            return self.exchange_any(request, deadline);
        };
        let answer = self
            .connection(broker, deadline)?
            .exchange(request, deadline);
        if matches!(answer, Err(Failure::Retry(_))) {
            self.hang_up(broker);
        }
        answer
    }

    /// The open connection to a broker.
    pub(super) fn connection(
        &mut self,
        broker: i32,
        deadline: Instant,
    ) -> Result<&mut Connection, Failure> {
        use std::collections::hash_map::Entry;
        match self.connections.entry(broker) {
            Entry::Occupied(open) => Ok(open.into_mut()),
            Entry::Vacant(slot) => {
                let Some(address) = self.brokers.get(&broker) else {
                    return Err(Failure::retry(format!(
                        "broker {broker} is not in the cluster"
                    )));
                };
                Ok(slot.insert(Connection::open(address, deadline)?))
            }
        }
    }

    /// Closes the connection to a broker, with whatever was on its way.
    pub(super) fn hang_up(&mut self, broker: i32) {
        self.connections.remove(&broker);
    }

    /// The leader of a partition, asked for if not known.
    pub(super) fn leader(
        &mut self,
        topic: &str,
        partition: i32,
        deadline: Instant,
    ) -> Result<i32, Failure> {
        if !self.leaders.contains_key(topic) {
            let cluster = self.metadata_of(Node::Any, &[topic], deadline)?;
            self.remember(&cluster);
        }
        let Some(leaders) = self.leaders.get(topic) else {
            return Err(Failure::retry(format!(
                "topic {topic} does not exist: create it first"
            )));
        };
        match usize::try_from(partition).ok().and_then(|p| leaders.get(p)) {
            Some(Some(leader)) => Ok(*leader),
            Some(None) => Err(Failure::retry(format!("{topic}-{partition} has no leader"))),
            None => Err(Failure::Final(anyhow::anyhow!(
                "{topic} has {} partitions, there is no {partition}",
                leaders.len()
            ))),
        }
    }

    /// How many partitions a topic has.
    pub(super) fn partitions(&mut self, topic: &str, deadline: Instant) -> Result<i32, Failure> {
        self.leader(topic, 0, deadline)?;
        Ok(self.leaders.get(topic).map_or(0, Vec::len) as i32)
    }

    /// Keeps where brokers and leaders are.
    pub(super) fn remember(&mut self, cluster: &ClusterMetadata) {
        for broker in &cluster.brokers {
            let address = broker.address();
            if self.brokers.get(&broker.id) != Some(&address) {
                self.connections.remove(&broker.id);
                self.brokers.insert(broker.id, address);
            }
        }
        for (topic, partitions) in &cluster.topics {
            let leaders = partitions.iter().map(|p| p.leader).collect();
            self.leaders.insert(topic.clone(), leaders);
        }
    }

    /// Forgets who leads and who coordinates, so that the next attempt asks again.
    pub(super) fn forget_routes(&mut self) {
        self.leaders.clear();
        self.coordinators.clear();
    }

    fn locate(&mut self, to: Node<'_>, deadline: Instant) -> Result<Option<i32>, Failure> {
        match to {
            Node::Any => Ok(None),
            Node::Broker(id) => Ok(Some(id)),
            Node::Leader(topic, partition) => self.leader(topic, partition, deadline).map(Some),
            Node::Group(group) => self.coordinator(0, group, deadline).map(Some),
            Node::Transaction(id) => self.coordinator(1, id, deadline).map(Some),
        }
    }

    fn coordinator(&mut self, kind: i8, key: &str, deadline: Instant) -> Result<i32, Failure> {
        let slot = (kind, key.to_owned());
        if let Some(broker) = self.coordinators.get(&slot) {
            return Ok(*broker);
        }
        let request = FindCoordinatorRequest::default()
            .with_key_type(kind)
            .with_coordinator_keys(vec![text(key)]);
        let answer = self.exchange_any(&request, deadline)?;
        let found = answer
            .coordinators
            .first()
            .with_context(|| format!("no coordinator named for {key}"))?;
        check(found.error_code, || format!("coordinator of {key}"))?;
        let address = format!("{}:{}", found.host.as_str(), found.port);
        if self.brokers.get(&found.node_id.0) != Some(&address) {
            self.hang_up(found.node_id.0);
            self.brokers.insert(found.node_id.0, address);
        }
        self.coordinators.insert(slot, found.node_id.0);
        Ok(found.node_id.0)
    }

    fn exchange_any<R: Request>(
        &mut self,
        request: &R,
        deadline: Instant,
    ) -> Result<R::Response, Failure> {
        self.open_any(1, deadline)?;
        let Some(connection) = self.any.as_mut() else {
            return Err(Failure::retry("no connection"));
        };
        let answer = connection.exchange(request, deadline);
        if matches!(answer, Err(Failure::Retry(_))) {
            self.any = None;
        }
        answer
    }

    /// Makes sure that `any` is open, trying at most `attempts` addresses, each in its turn.
    fn open_any(&mut self, attempts: usize, deadline: Instant) -> Result<(), Failure> {
        if self.any.is_some() {
            return Ok(());
        }
        let mut last = Failure::retry("no address to try");
        for left in (1..=attempts as u32).rev() {
            let addresses: Vec<&String> =
                self.bootstrap.iter().chain(self.brokers.values()).collect();
            let address = addresses[self.turn % addresses.len()].clone();
            self.turn += 1;
            // Each address gets its share of the time, or a frozen first one would eat it all.
            let now = Instant::now();
            let share = deadline.saturating_duration_since(now) / left;
            match Connection::open(&address, now + share) {
                Ok(connection) => {
                    self.any = Some(connection);
                    return Ok(());
                }
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }
}

/// A string in the protocol's form.
pub(super) fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

/// A topic name in the protocol's form.
pub(super) fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

//! A synchronous client: connections, deadlines, bounded retries.
//!
//! ```text
//! routing                       any broker | leader of a partition | coordinator of a group or transaction
//! cluster, topics, offsets      what there is, and changes to it
//! groups, transactions          the same for groups and transactional ids
//! acls, configs, quotas         rights, properties and limits
//! fetch                         records of a batch, without those that read_committed hides
//!   ├── tally                   how much of which kind lies in the log
//!   └── spans, transaction_log  how each transaction ended, as markers and the coordinators' log show
//! ```

mod acls;
mod cluster;
mod configs;
mod fetch;
mod groups;
mod offsets;
mod quotas;
mod routing;
mod spans;
mod tally;
mod topics;
mod transaction_log;
mod transactions;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kafka_protocol::protocol::Request;

use self::routing::Routes;
use crate::connection::{Connection, Failure, is_answer};

pub use acls::{Operation, Resource};
pub use cluster::{Broker, ClusterMetadata, Partition};
pub use fetch::{Fetched, Isolation};
pub use groups::{GroupMember, GroupState, Offsets};
pub use routing::Node;
pub use tally::{EndedBy, Tally};

/// How long one exchange may take: above the broker's own limit, so that its answer arrives, and
/// short, so that a frozen broker leaves time to ask another.
pub(crate) const EXCHANGE: Duration = Duration::from_secs(6);

/// Pauses between two attempts: short at first, since most elections are over in milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A synchronous Kafka client: every call returns within its timeout, answered or failed.
///
/// One socket per broker, opened when first needed. Nothing happens between two calls.
#[derive(Debug)]
pub struct Client {
    timeout: Duration,
    /// How long one exchange may take.
    exchange: Duration,
    bootstrap: Vec<String>,
    pub(crate) routes: Routes,
    connections: HashMap<i32, Connection>,
    /// The connection for questions that any broker answers.
    any: Option<Connection>,
    /// Which address the next `any` is opened to.
    turn: usize,
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
            exchange: EXCHANGE,
            bootstrap: addresses,
            routes: Routes::default(),
            connections: HashMap::new(),
            any: None,
            turn: 0,
        };
        let deadline = Instant::now() + timeout;
        client
            .open_any(client.bootstrap.len(), deadline)
            .map_err(Failure::into_error)
            .with_context(|| {
                format!(
                    "no Kafka broker responds at {bootstrap}: start one, or correct the address"
                )
            })?;
        Ok(client)
    }

    /// Waits no longer than this for one answer, and asks again instead, another broker if there is
    /// one: a broker that is frozen should cost little.
    #[must_use]
    pub fn impatient(mut self, exchange: Duration) -> Client {
        self.exchange = exchange;
        self
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
    pub(crate) fn retry<T>(
        &mut self,
        what: &str,
        attempt: impl FnMut(&mut Client, Instant) -> Result<T, Failure>,
    ) -> Result<T> {
        self.retry_for(self.timeout, what, attempt)
    }

    /// The same with another limit than the client's own.
    pub(super) fn retry_for<T>(
        &mut self,
        limit: Duration,
        what: &str,
        mut attempt: impl FnMut(&mut Client, Instant) -> Result<T, Failure>,
    ) -> Result<T> {
        let deadline = Instant::now() + limit;
        let mut pause = FIRST_PAUSE;
        let mut answered = None;
        loop {
            let error = match attempt(self, deadline) {
                Ok(answer) => return Ok(answer),
                Err(Failure::Final(error)) => return Err(error.context(what.to_owned())),
                Err(Failure::Retry(error)) => error,
            };
            // What a broker answered tells more than that the time was over while it was asked again.
            let error = match answered.take() {
                Some(answer) if !is_answer(&error) => answer,
                _ => error,
            };
            if Instant::now() + pause >= deadline {
                return Err(error.context(format!("{what}: gave up after {limit:?}")));
            }
            answered = is_answer(&error).then_some(error);
            self.routes.forget();
            thread::sleep(pause);
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// One request, one answer; a broken connection is dropped so that the next call opens another.
    pub(crate) fn exchange<R: Request>(
        &mut self,
        to: Node<'_>,
        request: &R,
        deadline: Instant,
    ) -> Result<R::Response, Failure> {
        let deadline = deadline.min(Instant::now() + self.exchange);
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
    pub(crate) fn connection(
        &mut self,
        broker: i32,
        deadline: Instant,
    ) -> Result<&mut Connection, Failure> {
        match self.connections.entry(broker) {
            Entry::Occupied(open) => Ok(open.into_mut()),
            Entry::Vacant(slot) => {
                let Some(address) = self.routes.brokers.get(&broker) else {
                    return Err(Failure::retry(format!(
                        "broker {broker} is not in the cluster"
                    )));
                };
                Ok(slot.insert(Connection::open(address, deadline)?))
            }
        }
    }

    /// Closes the connection to a broker, with whatever was on its way.
    pub(crate) fn hang_up(&mut self, broker: i32) {
        self.connections.remove(&broker);
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
            let addresses: Vec<&String> = self
                .bootstrap
                .iter()
                .chain(self.routes.brokers.values())
                .collect();
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

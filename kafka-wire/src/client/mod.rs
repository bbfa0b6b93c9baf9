//! A synchronous client: connections, deadlines, bounded retries.
//!
//! ```text
//! routing                       any broker | leader of a partition | coordinator of a group or transaction
//! cluster, topics, offsets      cluster state, and changes to it
//! groups, transactions          the same for groups and transactional ids
//! acls, configs, quotas         ACLs, properties and limits
//! fetch                         records of a batch, without those that read_committed hides
//!   ├── tally                   the number of records and markers of each kind in the log
//!   └── spans, transaction_log  the end of each transaction, from the markers and from the coordinators' log
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

/// The timeout of one exchange. It is longer than the broker's own limit, so that the response arrives. It is short
/// enough to leave time for another broker if one is frozen.
pub(crate) const EXCHANGE: Duration = Duration::from_secs(6);

/// The first pause between two attempts. It is short, because most elections are over in milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A synchronous Kafka client. Every call returns or fails within its timeout.
///
/// It opens one socket per broker, on first use. It does no work between two calls.
#[derive(Debug)]
pub struct Client {
    timeout: Duration,
    /// The timeout of one exchange.
    exchange: Duration,
    bootstrap: Vec<String>,
    pub(crate) routes: Routes,
    connections: HashMap<i32, Connection>,
    /// The connection for requests that any broker can handle.
    any: Option<Connection>,
    /// The index of the next address for `any`.
    turn: usize,
}

impl Client {
    /// Connects to the first broker of `bootstrap` (`host:port,host:port`) that responds.
    ///
    /// `timeout` bounds this call and every later one, retries included.
    ///
    /// # Errors
    /// If no address of the list responds like a Kafka broker. This call does not wait for a broker to start.
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

    /// Limits the wait for one response. After it, the client sends the request again, to another broker if there is
    /// one. So a frozen broker costs little time.
    #[must_use]
    pub fn impatient(mut self, exchange: Duration) -> Client {
        self.exchange = exchange;
        self
    }

    /// Sends one request unchanged and returns the response. Does not check error codes.
    ///
    /// It is for requests without a method of this client. Tests drive transactions with it.
    ///
    /// # Errors
    /// If the node cannot be found or reached, or its response does not arrive in time. Then it is unknown whether the
    /// request took effect.
    pub fn request<R: Request>(&mut self, to: Node<'_>, request: &R) -> Result<R::Response> {
        let deadline = Instant::now() + self.timeout;
        self.exchange(to, request, deadline)
            .map_err(Failure::into_error)
    }

    /// Returns the timeout of a call.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Calls `attempt` until it succeeds, fails permanently, or the timeout is over.
    pub(crate) fn retry<T>(
        &mut self,
        what: &str,
        attempt: impl FnMut(&mut Client, Instant) -> Result<T, Failure>,
    ) -> Result<T> {
        self.retry_for(self.timeout, what, attempt)
    }

    /// As [`Client::retry`], with another timeout than the client's own.
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
            // A broker's error response is more informative than a timeout of the retry.
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

    /// Sends one request and returns its response. Drops a broken connection, so that the next call opens another.
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

    /// Returns the open connection to a broker.
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

    /// Closes the connection to a broker, and drops a request in flight.
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

    /// Ensures that `any` is open. Tries at most `attempts` addresses, in turn.
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
            // Each address gets its share of the time. Otherwise, a frozen first address would use all of it.
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

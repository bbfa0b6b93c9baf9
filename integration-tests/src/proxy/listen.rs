//! The proxy: its ports, its connections, and its interface for tests.

use std::net::{Ipv4Addr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kafka_wire::protocol::messages::ApiKey;

use super::book::Entry;
use super::dispatch::{Dispatch, lock};
use super::late::Late;
use super::link::Link;
use super::rule::{Rule, RuleId};

/// The time limit of a broker to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// A proxy in front of every broker of a cluster. Dropping it cuts all connections.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    ports: Vec<u16>,
    acceptors: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    dispatch: Arc<Dispatch>,
    links: Mutex<Vec<Weak<Link>>>,
    connections: AtomicU64,
    over: AtomicBool,
}

impl Proxy {
    /// Opens a port for each of `brokers` brokers. Connections are closed at once until [`Proxy::forward_to`] sets the
    /// addresses of the brokers.
    ///
    /// # Errors
    /// When no port is free.
    pub fn start(brokers: usize) -> Result<Proxy> {
        Proxy::seeded(brokers, 1)
    }

    /// As [`Proxy::start`], with a seed for the random decisions.
    ///
    /// # Errors
    /// As [`Proxy::start`].
    pub fn seeded(brokers: usize, seed: u64) -> Result<Proxy> {
        let shared = Arc::new(Shared {
            dispatch: Arc::new(Dispatch::new(seed)),
            links: Mutex::default(),
            connections: AtomicU64::new(0),
            over: AtomicBool::new(false),
        });
        let mut proxy = Proxy {
            shared,
            ports: Vec::new(),
            acceptors: Vec::new(),
        };
        for broker in 0..brokers {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("open a port")?;
            proxy.ports.push(listener.local_addr()?.port());
            let shared = Arc::clone(&proxy.shared);
            let accept = move || shared.accept(&listener, broker);
            proxy.acceptors.push(thread::spawn(accept));
        }
        Ok(proxy)
    }

    /// Returns the ports to advertise, in the order of the brokers.
    pub fn ports(&self) -> Vec<u16> {
        self.ports.clone()
    }

    /// Sets the addresses of the brokers, in the order of the ports.
    ///
    /// # Errors
    /// When the number of addresses differs from the number of ports, or an address is invalid.
    pub fn forward_to(&self, brokers: &[String]) -> Result<()> {
        let (given, ports) = (brokers.len(), self.ports.len());
        ensure!(given == ports, "{given} brokers for {ports} ports");
        let address = |broker: &String| {
            let mut found = broker.to_socket_addrs().context(broker.clone())?;
            found.next().with_context(|| broker.clone())
        };
        let addresses = brokers.iter().map(address).collect::<Result<_>>()?;
        self.shared.dispatch.forward_to(addresses);
        Ok(())
    }

    /// Adds a rule after the existing ones. The first rule that matches a request acts.
    pub fn add(&self, rule: Rule) -> RuleId {
        lock(&self.shared.dispatch.book).add(rule)
    }

    /// Ends a rule. Its kept requests stay kept until they are [released](Proxy::release).
    pub fn end(&self, rule: RuleId) {
        lock(&self.shared.dispatch.book).end(rule);
    }

    /// Returns the number of times that a rule has acted.
    pub fn fired(&self, rule: RuleId) -> u64 {
        lock(&self.shared.dispatch.book).fired(rule)
    }

    /// Returns the number of requests that a rule keeps now.
    pub fn held(&self, rule: RuleId) -> usize {
        lock(&self.shared.dispatch.book).held(rule)
    }

    /// Delivers the requests that a rule keeps, and returns their number. [`Proxy::late`] returns the responses.
    pub fn release(&self, rule: RuleId) -> usize {
        let due = lock(&self.shared.dispatch.book).take_of(rule);
        let count = due.len();
        self.shared.dispatch.deliver(due);
        count
    }

    /// Returns the requests of a rule that were delivered late, with the brokers' responses.
    pub fn late(&self, rule: RuleId) -> Vec<Late> {
        lock(&self.shared.dispatch.book).late(rule)
    }

    /// Returns the number of requests of an API from clients whose `client.id` begins with `client`.
    pub fn requests(&self, api: ApiKey, client: &str) -> u64 {
        lock(&self.shared.dispatch.book).requests(api as i16, client)
    }

    /// Returns all acts so far, in order.
    pub fn log(&self) -> Vec<Entry> {
        lock(&self.shared.dispatch.book).log().to_vec()
    }

    /// Returns the acts of one rule.
    pub fn log_of(&self, rule: RuleId) -> Vec<Entry> {
        let mut log = self.log();
        log.retain(|entry| entry.rule == rule);
        log
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener, broker: usize) {
        for client in listener.incoming() {
            if self.over.load(Ordering::Acquire) {
                return;
            }
            let shared = Arc::clone(self);
            // A connection attempt to a frozen broker must not block the listener.
            thread::spawn(move || {
                // If the broker can't be reached, the client's connection is closed.
                if let Ok(client) = client {
                    let _ = shared.connect(client, broker);
                }
            });
        }
    }

    fn connect(self: &Arc<Self>, client: TcpStream, broker: usize) -> Result<()> {
        let to = self.dispatch.broker(broker).context("not yet known")?;
        let upstream = TcpStream::connect_timeout(&to, CONNECT)?;
        let number = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let link = Link::start(&self.dispatch, number, broker, client, upstream)?;
        let mut links = lock(&self.links);
        links.retain(|link| link.strong_count() > 0);
        links.push(Arc::downgrade(&link));
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        for port in &self.ports {
            // Wakes the acceptor thread.
            let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, *port));
        }
        for acceptor in self.acceptors.drain(..) {
            // A panic of the thread was already printed.
            let _ = acceptor.join();
        }
        for link in lock(&self.shared.links).drain(..) {
            if let Some(link) = link.upgrade() {
                link.close();
            }
        }
    }
}

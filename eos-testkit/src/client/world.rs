//! The broker, the network, and the members that act on their own.

use std::collections::BTreeMap;
use std::fmt;

use eos_protocol::state::TopicUuid;
use kafka_protocol::messages::{ApiKey, RequestKind, ResponseKind};

use super::cluster::Watcher;
use super::member::Member;
use super::network::{ClientId, Heard, Line, Network, Sent, version};
use crate::broker::{Broker, Output, Request, Ticket, key_of};

/// `max.partition.fetch.bytes`, as it is by default.
const FETCH_BYTES: i32 = 1 << 20;

/// Everything behind a [`Cluster`](super::Cluster).
pub(super) struct World {
    pub(super) broker: Broker,
    pub(super) network: Network,
    pub(super) watcher: Box<dyn Watcher>,
    /// Milliseconds since the epoch.
    pub(super) now: i64,
    /// `max.partition.fetch.bytes` of all clients.
    pub(super) fetch_bytes: i32,
    /// Calls that make no sense.
    pub(super) misuses: Vec<String>,
    clients: u64,
    /// How often the broker was asked past the network.
    asked: u64,
    /// Boxed: each call takes its member out and puts it back.
    members: BTreeMap<ClientId, Box<Member>>,
    /// Clients whose names begin so stand still.
    frozen: Vec<String>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("now", &self.now)
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}

/// A client's end of the network.
pub(super) struct Wire<'a> {
    now: i64,
    client: ClientId,
    client_id: &'a str,
    network: &'a mut Network,
    watcher: &'a mut dyn Watcher,
    broker: &'a Broker,
    fetch_bytes: i32,
}

impl Wire<'_> {
    /// Milliseconds since the epoch.
    pub(super) fn now(&self) -> i64 {
        self.now
    }

    pub(super) fn send(&mut self, line: Line, body: RequestKind) -> Ticket {
        let sent = Sent {
            client_id: self.client_id,
            key: key_of(&body).unwrap_or(ApiKey::ApiVersions),
            body: &body,
            now: self.now,
        };
        let fate = self.watcher.fate(&sent);
        let at = (self.client, line);
        self.network.send(at, self.client_id, body, fate, self.now)
    }

    pub(super) fn hear(&mut self, ticket: Ticket) -> Option<Heard> {
        self.network.hear(ticket)
    }

    pub(super) fn forget(&mut self, ticket: Ticket) {
        self.network.forget(ticket);
    }

    /// `max.partition.fetch.bytes`.
    pub(super) fn fetch_bytes(&self) -> i32 {
        self.fetch_bytes
    }

    /// The id of the topic with this name. A client learns it when brokers refuse its fetch of another topic.
    pub(super) fn topic_id(&self, topic: &str) -> Option<TopicUuid> {
        let id = self.broker.id_of(topic)?.as_u128();
        Some(TopicUuid(id))
    }

    /// How many partitions a topic has: what a client knows from its last look at the metadata.
    pub(super) fn partitions(&self, topic: &str) -> i32 {
        self.broker.partitions_of(topic)
    }
}

impl World {
    pub(super) fn new(broker: Broker, watcher: Box<dyn Watcher>, now: i64) -> World {
        World {
            broker,
            network: Network::default(),
            watcher,
            now,
            fetch_bytes: FETCH_BYTES,
            misuses: Vec::new(),
            clients: 0,
            asked: 0,
            members: BTreeMap::new(),
            frozen: Vec::new(),
        }
    }

    pub(super) fn new_client(&mut self) -> ClientId {
        self.clients += 1;
        ClientId(self.clients)
    }

    pub(super) fn join(&mut self, client: ClientId, member: Member) {
        self.members.insert(client, Box::new(member));
    }

    /// A client is gone without a word.
    pub(super) fn gone(&mut self, client: ClientId) {
        self.members.remove(&client);
        self.network.forget_all(client);
    }

    /// What one of a member's calls does, and then what its own thread does.
    pub(super) fn member<T>(
        &mut self,
        client: ClientId,
        act: impl FnOnce(&mut Member, &mut Wire<'_>) -> T,
    ) -> Option<T> {
        let mut member = self.members.remove(&client)?;
        let client_id = member.client_id().to_owned();
        let mut wire = self.wire(client, &client_id);
        let answer = act(&mut member, &mut wire);
        member.tick(&mut wire);
        self.members.insert(client, member);
        self.settle();
        Some(answer)
    }

    /// What a client's call does on the network.
    pub(super) fn on_wire<T>(
        &mut self,
        client: ClientId,
        client_id: &str,
        act: impl FnOnce(&mut Wire<'_>) -> T,
    ) -> T {
        let answer = act(&mut self.wire(client, client_id));
        self.settle();
        answer
    }

    fn wire<'a>(&'a mut self, client: ClientId, client_id: &'a str) -> Wire<'a> {
        Wire {
            now: self.now,
            client,
            client_id,
            network: &mut self.network,
            watcher: &mut *self.watcher,
            broker: &self.broker,
            fetch_bytes: self.fetch_bytes,
        }
    }

    pub(super) fn freeze(&mut self, prefix: &str) {
        self.frozen.push(prefix.to_owned());
    }

    pub(super) fn thaw(&mut self, prefix: &str) {
        self.frozen.retain(|it| it != prefix);
    }

    /// Asks the broker at once, past the network.
    pub(super) fn ask(&mut self, body: RequestKind) -> Option<ResponseKind> {
        // Far from those that the network counts.
        let ticket = Ticket((1 << 62) + self.asked);
        self.asked += 1;
        let request = Request::new(ticket, version(&body), body);
        let now = self.now;
        let (own, others): (Vec<_>, Vec<_>) = self
            .broker
            .step(request, now)
            .into_iter()
            .partition(|output| output.ticket() == ticket);
        self.network.take_in(others, now);
        match own.into_iter().next() {
            Some(Output::Answer(_, response)) => Some(response),
            _ => None,
        }
    }

    fn is_frozen(&self, client_id: &str) -> bool {
        self.frozen.iter().any(|it| client_id.starts_with(it))
    }

    /// Lets time pass until then.
    pub(super) fn pass(&mut self, until: i64) {
        loop {
            self.settle();
            let Some(next) = self.next_event().filter(|next| *next <= until) else {
                break;
            };
            self.now = self.now.max(next);
        }
        self.now = self.now.max(until);
    }

    /// When something happens by itself; nothing before then but what somebody asks for.
    pub(super) fn next_event(&self) -> Option<i64> {
        let members = self.members.values();
        let awake = members.filter(|member| !self.is_frozen(member.client_id()));
        let wakes = awake.filter_map(|member| member.wake());
        let network = self.network.next_arrival();
        wakes.chain(network).chain(self.broker.next_wake()).min()
    }

    /// Does all that is due now.
    fn settle(&mut self) {
        loop {
            let now = self.now;
            if self.broker.next_wake().is_some_and(|wake| wake <= now) {
                let outputs = self.broker.advance(now);
                self.network.take_in(outputs, now);
            }
            self.network.deliver(&mut self.broker, now);
            let told = self.network.told();
            let due: Vec<ClientId> = self
                .members
                .iter()
                .filter(|(client, member)| {
                    let due = member.wake().is_some_and(|wake| wake <= now);
                    (due || told.contains(client)) && !self.is_frozen(member.client_id())
                })
                .map(|(client, _)| *client)
                .collect();
            for client in &due {
                if let Some(mut member) = self.members.remove(client) {
                    let client_id = member.client_id().to_owned();
                    member.tick(&mut self.wire(*client, &client_id));
                    self.members.insert(*client, member);
                }
            }
            let network = self.network.next_arrival().is_some_and(|at| at <= now);
            let broker = self.broker.next_wake().is_some_and(|at| at <= now);
            if due.is_empty() && !network && !broker {
                return;
            }
        }
    }
}

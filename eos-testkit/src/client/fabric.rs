//! The broker, its network, and their virtual time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use eos_protocol::state::TopicUuid;
use kafka_protocol::messages::{ApiKey, RequestKind, ResponseKind};

use super::network::{ClientId, Heard, Line, Network, Sent, earliest, version};
use super::watcher::{Effect, Reaction, Watcher};
use eos_broker::broker::{Broker, Output, Request, Ticket, key_of};

/// The default of `max.partition.fetch.bytes`.
const FETCH_BYTES: i32 = 1 << 20;

/// The time of a cluster. Any thread can read it without the lock of the cluster.
#[derive(Clone)]
pub(super) struct Clock(Arc<AtomicI64>);

impl Clock {
    /// Milliseconds since the epoch.
    pub(super) fn now(&self) -> i64 {
        self.0.load(Ordering::Acquire)
    }
}

/// The part of a cluster that clients send requests to. It knows clients only by their ids.
pub(super) struct Fabric {
    pub(super) broker: Broker,
    /// `max.partition.fetch.bytes` of all clients.
    pub(super) fetch_bytes: i32,
    network: Network,
    watcher: Box<dyn Watcher>,
    clock: Clock,
    /// The number of requests past the network.
    direct: u64,
}

impl Fabric {
    pub(super) fn new(broker: Broker, watcher: Box<dyn Watcher>, now: i64) -> Fabric {
        Fabric {
            broker,
            fetch_bytes: FETCH_BYTES,
            network: Network::default(),
            watcher,
            clock: Clock(Arc::new(AtomicI64::new(now))),
            direct: 0,
        }
    }

    /// Milliseconds since the epoch.
    pub(super) fn now(&self) -> i64 {
        self.clock.now()
    }

    pub(super) fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// Sets the time, but never back.
    pub(super) fn advance(&mut self, to: i64) {
        self.clock.0.fetch_max(to, Ordering::AcqRel);
    }

    /// Announces one side of a call.
    pub(super) fn effect(&mut self, effect: &Effect<'_>) -> Reaction {
        self.watcher.effect(effect)
    }

    /// Sends a request past the network and returns the response.
    pub(super) fn ask(&mut self, body: RequestKind) -> Option<ResponseKind> {
        let now = self.now();
        // Far from the ticket numbers of the network.
        let ticket = Ticket((1 << 62) + self.direct);
        self.direct += 1;
        let request = Request::new(ticket, version(&body), body);
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

    /// Delivers everything that is due now. Returns the clients with an arrival.
    pub(super) fn deliver(&mut self) -> BTreeSet<ClientId> {
        let now = self.now();
        if self.broker.next_wake().is_some_and(|wake| wake <= now) {
            let outputs = self.broker.advance(now);
            self.network.take_in(outputs, now);
        }
        self.network.deliver(&mut self.broker, now);
        self.network.told()
    }

    /// The time of the next arrival, or of the broker's next timeout.
    pub(super) fn next_event(&self) -> Option<i64> {
        earliest(self.network.next_arrival(), self.broker.next_wake())
    }

    /// Removes a client. Requests that it sent still arrive.
    pub(super) fn forget(&mut self, client: ClientId) {
        self.network.forget_all(client);
    }
}

/// One client's end of the network.
pub(super) struct Wire<'a> {
    fabric: &'a mut Fabric,
    client: ClientId,
    client_id: &'a str,
}

impl<'a> Wire<'a> {
    pub(super) fn new(fabric: &'a mut Fabric, client: ClientId, client_id: &'a str) -> Wire<'a> {
        Wire {
            fabric,
            client,
            client_id,
        }
    }

    /// Milliseconds since the epoch.
    pub(super) fn now(&self) -> i64 {
        self.fabric.now()
    }

    pub(super) fn send(&mut self, line: Line, body: RequestKind) -> Ticket {
        let now = self.now();
        let Fabric {
            watcher, network, ..
        } = &mut *self.fabric;
        let fate = watcher.fate(&Sent {
            client_id: self.client_id,
            key: key_of(&body).unwrap_or(ApiKey::ApiVersions),
            body: &body,
            now,
        });
        network.send((self.client, line), self.client_id, body, fate, now)
    }

    pub(super) fn hear(&mut self, ticket: Ticket) -> Option<Heard> {
        self.fabric.network.hear(ticket)
    }

    pub(super) fn forget(&mut self, ticket: Ticket) {
        self.fabric.network.forget(ticket);
    }

    /// `max.partition.fetch.bytes`.
    pub(super) fn fetch_bytes(&self) -> i32 {
        self.fabric.fetch_bytes
    }

    /// The id of the topic with this name. A client learns it when brokers refuse its fetch of another topic.
    pub(super) fn topic_id(&self, topic: &str) -> Option<TopicUuid> {
        let id = self.fabric.broker.id_of(topic)?.as_u128();
        Some(TopicUuid(id))
    }

    /// See [`Broker::topic_changes`].
    pub(super) fn topic_changes(&self) -> u64 {
        self.fabric.broker.topic_changes()
    }

    /// The partition count of a topic, as the client's last Metadata response reports it.
    pub(super) fn partitions(&self, topic: &str) -> i32 {
        self.fabric.broker.partitions_of(topic)
    }
}

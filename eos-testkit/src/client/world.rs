//! Everything behind a [`Cluster`](super::Cluster).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::fabric::{Fabric, Wire};
use super::member::Member;
use super::members::Members;
use super::network::{ClientId, earliest};
use super::watcher::Watcher;
use eos_broker::broker::Broker;

/// A cluster, its clients, and the passing of time for both.
pub(super) struct World {
    pub(super) fabric: Fabric,
    pub(super) members: Members,
    /// Calls in a wrong order.
    pub(super) misuses: Vec<String>,
    /// The number of clients so far.
    clients: u64,
    /// The `client.id` of each client.
    names: BTreeMap<ClientId, String>,
    /// The clients with an arrival since the last call of [`World::take_arrivals`].
    arrived: BTreeSet<ClientId>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("now", &self.fabric.now())
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}

impl World {
    pub(super) fn new(broker: Broker, watcher: Box<dyn Watcher>, now: i64) -> World {
        World {
            fabric: Fabric::new(broker, watcher, now),
            members: Members::default(),
            misuses: Vec::new(),
            clients: 0,
            names: BTreeMap::new(),
            arrived: BTreeSet::new(),
        }
    }

    pub(super) fn new_client(&mut self, client_id: &str) -> ClientId {
        self.clients += 1;
        let client = ClientId(self.clients);
        self.names.insert(client, client_id.to_owned());
        client
    }

    /// Takes the `client.id` of each client with an arrival since the last call.
    pub(super) fn take_arrivals(&mut self) -> Vec<String> {
        let arrived = std::mem::take(&mut self.arrived);
        let names = arrived.iter().filter_map(|it| self.names.get(it).cloned());
        names.collect()
    }

    /// Removes a client that ended without a request.
    pub(super) fn gone(&mut self, client: ClientId) {
        self.members.remove(client);
        self.names.remove(&client);
        self.fabric.forget(client);
    }

    /// Runs a call of a member.
    pub(super) fn member<T>(
        &mut self,
        client: ClientId,
        act: impl FnOnce(&mut Member, &mut Wire<'_>) -> T,
    ) -> Option<T> {
        let answer = self.members.act(client, &mut self.fabric, act)?;
        self.settle();
        Some(answer)
    }

    /// Runs a call of a client on the network.
    pub(super) fn on_wire<T>(
        &mut self,
        client: ClientId,
        client_id: &str,
        act: impl FnOnce(&mut Wire<'_>) -> T,
    ) -> T {
        let answer = act(&mut Wire::new(&mut self.fabric, client, client_id));
        self.settle();
        answer
    }

    /// Lets time pass until then.
    pub(super) fn pass(&mut self, until: i64) {
        loop {
            self.settle();
            let Some(next) = self.next_event().filter(|next| *next <= until) else {
                break;
            };
            self.fabric.advance(next);
        }
        self.fabric.advance(until);
    }

    /// The time of the next event that no call causes.
    pub(super) fn next_event(&self) -> Option<i64> {
        earliest(self.members.wake(), self.fabric.next_event())
    }

    /// Does all that is due now.
    fn settle(&mut self) {
        let now = self.fabric.now();
        while self.next_event().is_some_and(|at| at <= now) {
            let mut arrived = self.fabric.deliver();
            self.members.tick(&arrived, &mut self.fabric);
            self.arrived.append(&mut arrived);
        }
    }
}

//! The group members of a cluster, which act on their own.

use std::collections::{BTreeMap, BTreeSet};

use super::fabric::{Fabric, Wire};
use super::member::Member;
use super::network::ClientId;

/// All members.
#[derive(Debug, Default)]
pub(super) struct Members {
    by_client: BTreeMap<ClientId, Joined>,
    /// The times at which members act next, without the frozen ones. With hundreds of members, a check of each member
    /// after every call would take most of a run.
    wakes: BTreeSet<(i64, ClientId)>,
    /// Prefixes of `client.id`. The threads of these clients stand still.
    frozen: Vec<String>,
}

#[derive(Debug)]
struct Joined {
    client_id: String,
    member: Member,
    /// The time of this member in [`Members::wakes`].
    wake: Option<i64>,
}

impl Joined {
    /// Updates the entry of this member.
    fn schedule(
        &mut self,
        client: ClientId,
        frozen: &[String],
        wakes: &mut BTreeSet<(i64, ClientId)>,
    ) {
        let wake = match is_frozen(frozen, &self.client_id) {
            true => None,
            false => self.member.wake(),
        };
        if wake == self.wake {
            return;
        }
        if let Some(before) = self.wake {
            wakes.remove(&(before, client));
        }
        wakes.extend(wake.map(|at| (at, client)));
        self.wake = wake;
    }
}

impl Members {
    pub(super) fn join(&mut self, client: ClientId, client_id: String, member: Member) {
        let mut joined = Joined {
            client_id,
            member,
            wake: None,
        };
        joined.schedule(client, &self.frozen, &mut self.wakes);
        self.by_client.insert(client, joined);
    }

    pub(super) fn remove(&mut self, client: ClientId) {
        let removed = self.by_client.remove(&client);
        if let Some(wake) = removed.and_then(|it| it.wake) {
            self.wakes.remove(&(wake, client));
        }
    }

    pub(super) fn freeze(&mut self, prefix: &str) {
        self.frozen.push(prefix.to_owned());
        self.schedule_all();
    }

    pub(super) fn thaw(&mut self, prefix: &str) {
        self.frozen.retain(|it| it != prefix);
        self.schedule_all();
    }

    fn schedule_all(&mut self) {
        for (client, joined) in &mut self.by_client {
            joined.schedule(*client, &self.frozen, &mut self.wakes);
        }
    }

    /// Runs a call of this member, and then its thread.
    pub(super) fn act<T>(
        &mut self,
        client: ClientId,
        fabric: &mut Fabric,
        act: impl FnOnce(&mut Member, &mut Wire<'_>) -> T,
    ) -> Option<T> {
        let joined = self.by_client.get_mut(&client)?;
        let mut wire = Wire::new(fabric, client, &joined.client_id);
        let answer = act(&mut joined.member, &mut wire);
        joined.member.tick(&mut wire);
        joined.schedule(client, &self.frozen, &mut self.wakes);
        Some(answer)
    }

    /// The time at which a member acts next if nothing arrives before.
    pub(super) fn wake(&self) -> Option<i64> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// Runs the threads of members that are due or have an arrival.
    pub(super) fn tick(&mut self, arrived: &BTreeSet<ClientId>, fabric: &mut Fabric) {
        let now = fabric.now();
        let due = self.wakes.iter().take_while(|(at, _)| *at <= now);
        let mut clients: BTreeSet<ClientId> = due.map(|(_, client)| *client).collect();
        clients.extend(arrived);
        for client in clients {
            let Some(joined) = self.by_client.get_mut(&client) else {
                continue;
            };
            if is_frozen(&self.frozen, &joined.client_id) {
                continue;
            }
            let mut wire = Wire::new(fabric, client, &joined.client_id);
            joined.member.tick(&mut wire);
            joined.schedule(client, &self.frozen, &mut self.wakes);
        }
    }
}

fn is_frozen(frozen: &[String], client_id: &str) -> bool {
    frozen.iter().any(|it| client_id.starts_with(it))
}

//! The group members of a cluster, which act on their own.

use std::collections::{BTreeMap, BTreeSet};

use super::fabric::{Fabric, Wire};
use super::member::Member;
use super::network::ClientId;

/// All members.
#[derive(Debug, Default)]
pub(super) struct Members {
    by_client: BTreeMap<ClientId, Joined>,
    /// Prefixes of `client.id`. The threads of these clients stand still.
    frozen: Vec<String>,
}

#[derive(Debug)]
struct Joined {
    client_id: String,
    member: Member,
}

impl Members {
    pub(super) fn join(&mut self, client: ClientId, client_id: String, member: Member) {
        self.by_client.insert(client, Joined { client_id, member });
    }

    pub(super) fn remove(&mut self, client: ClientId) {
        self.by_client.remove(&client);
    }

    pub(super) fn freeze(&mut self, prefix: &str) {
        self.frozen.push(prefix.to_owned());
    }

    pub(super) fn thaw(&mut self, prefix: &str) {
        self.frozen.retain(|it| it != prefix);
    }

    /// Runs a call of this member, and then its thread.
    pub(super) fn act<T>(
        &mut self,
        client: ClientId,
        fabric: &mut Fabric,
        act: impl FnOnce(&mut Member, &mut Wire<'_>) -> T,
    ) -> Option<T> {
        let Joined { client_id, member } = self.by_client.get_mut(&client)?;
        let mut wire = Wire::new(fabric, client, client_id);
        let answer = act(member, &mut wire);
        member.tick(&mut wire);
        Some(answer)
    }

    /// The time at which a member acts next if nothing arrives before.
    pub(super) fn wake(&self) -> Option<i64> {
        let members = self.by_client.values();
        let awake = members.filter(|it| !is_frozen(&self.frozen, &it.client_id));
        awake.filter_map(|it| it.member.wake()).min()
    }

    /// Runs the threads of members that are due or have an arrival. Returns whether there were any.
    pub(super) fn tick(&mut self, arrived: &BTreeSet<ClientId>, fabric: &mut Fabric) -> bool {
        let now = fabric.now();
        let mut ticked = false;
        for (client, Joined { client_id, member }) in &mut self.by_client {
            let due = member.wake().is_some_and(|wake| wake <= now);
            if (due || arrived.contains(client)) && !is_frozen(&self.frozen, client_id) {
                member.tick(&mut Wire::new(fabric, *client, client_id));
                ticked = true;
            }
        }
        ticked
    }
}

fn is_frozen(frozen: &[String], client_id: &str) -> bool {
    frozen.iter().any(|it| client_id.starts_with(it))
}

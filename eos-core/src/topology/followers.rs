//! Steps that must process each row of their table, beginning with the first row.

use std::sync::Arc;

use eos_protocol::Stage;
use eos_protocol::state::AddedStep;

use super::checked::Topology;
use super::follower::{Follower, MadeOf};
use super::graph::Graph;
use crate::store::StoreSpec;

impl Graph {
    /// Records that a grouping must process each row of a table.
    pub(crate) fn follow_by_group(&mut self, topic: &str, rows: MadeOf, store: usize) {
        let topic = topic.to_owned();
        let step = AddedStep::Grouping { topic };
        self.followers.push(Follower { step, rows, store });
    }

    /// Records that a store must receive each row of a table.
    pub(crate) fn follow_in_store(&mut self, store: usize, rows: MadeOf) {
        let name = self.stores.get(store).map(|spec| spec.name.to_string());
        let step = AddedStep::Stored {
            store: name.unwrap_or_default(),
        };
        self.followers.push(Follower { step, rows, store });
    }

    /// Returns the steps of a stage that must process each row of their tables.
    fn followers_of(&self, stage: &Stage) -> impl Iterator<Item = &Follower> {
        let is_here = |store: usize| {
            let users = self.users.get(store);
            users.is_some_and(|users| users.iter().any(|at| stage.sources.contains(at)))
        };
        let followers = self.followers.iter();
        followers.filter(move |follower| is_here(follower.store))
    }
}

impl Topology {
    /// Returns the names that a commit of this stage records: the names of its stores, and of the steps that have
    /// processed all of their rows.
    pub(crate) fn names_of(&self, stage: &Stage) -> Vec<String> {
        let stores = self.stores_of(stage).map(|store| store.name.to_string());
        let followers = self.graph.followers_of(stage);
        stores.chain(followers.map(|it| it.step.name())).collect()
    }

    /// Returns the first step of a stage that is new although its table has rows, and a store with such rows. `is_new`
    /// takes the name of a step.
    pub(crate) fn added_late<E>(
        &self,
        stage: &Stage,
        is_new: impl Fn(&str) -> bool,
        has_rows: impl Fn(&StoreSpec) -> Result<bool, E>,
    ) -> Result<Option<(AddedStep, Arc<str>)>, E> {
        let stores = &self.graph.stores;
        let has_rows = |store: usize| match stores.get(store) {
            Some(spec) => has_rows(spec),
            None => Ok(false),
        };
        let followers = self.graph.followers_of(stage);
        for follower in followers.filter(|it| is_new(&it.step.name())) {
            let Some(store) = follower.rows.filled(&has_rows)? else {
                continue;
            };
            if let Some(spec) = stores.get(store) {
                return Ok(Some((follower.step.clone(), Arc::clone(&spec.name))));
            }
        }
        Ok(None)
    }
}

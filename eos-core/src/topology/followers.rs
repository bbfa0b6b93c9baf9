//! Steps that have to see each row of their table, from its first one on.

use std::sync::Arc;

use eos_protocol::Stage;
use eos_protocol::joins::JoinKind;
use eos_protocol::state::{AddedStep, StoreId};

use super::checked::Topology;
use super::graph::Graph;

/// The stores whose rows make the rows of a table.
#[derive(Debug, Clone)]
pub(crate) enum MadeOf {
    Store(usize),
    Both(Arc<[MadeOf; 2]>),
    Either(Arc<[MadeOf; 2]>),
}

impl MadeOf {
    pub(super) fn joined(kind: JoinKind, left: &Self, right: &Self) -> Self {
        match kind {
            JoinKind::Inner => Self::Both(Arc::new([left.clone(), right.clone()])),
            JoinKind::Left => left.clone(),
            JoinKind::Outer => Self::Either(Arc::new([left.clone(), right.clone()])),
        }
    }

    /// Returns a store that has rows, if the table may have some.
    fn filled<E>(&self, has_rows: &impl Fn(usize) -> Result<bool, E>) -> Result<Option<usize>, E> {
        match self {
            Self::Store(store) => Ok(has_rows(*store)?.then_some(*store)),
            Self::Both(sides) => {
                let [left, right] = &**sides;
                match left.filled(has_rows)? {
                    Some(store) => Ok(right.filled(has_rows)?.map(|_| store)),
                    None => Ok(None),
                }
            }
            Self::Either(sides) => {
                let [left, right] = &**sides;
                match left.filled(has_rows)? {
                    Some(store) => Ok(Some(store)),
                    None => right.filled(has_rows),
                }
            }
        }
    }
}

/// A step that has to see each row of its table.
pub(crate) struct Follower {
    step: AddedStep,
    rows: MadeOf,
    /// A store of the table's stage.
    store: usize,
}

impl Graph {
    /// Records that a grouping has to see each row of a table.
    pub(crate) fn follow_by_group(&mut self, topic: &str, rows: MadeOf, store: usize) {
        let topic = topic.to_owned();
        let step = AddedStep::Grouping { topic };
        self.followers.push(Follower { step, rows, store });
    }

    /// Records that a store has to see each row of a table.
    pub(crate) fn follow_in_store(&mut self, store: usize, rows: MadeOf) {
        let name = self.stores.get(store).map(|spec| spec.name.to_string());
        let step = AddedStep::Stored {
            store: name.unwrap_or_default(),
        };
        self.followers.push(Follower { step, rows, store });
    }

    /// Returns the steps of a stage that have to see each row of their tables.
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
    /// Returns the names that a commit of this stage records: those of its stores, and of the steps that have seen all of
    /// their rows.
    pub(crate) fn names_of(&self, stage: &Stage) -> Vec<String> {
        let stores = self.stores_of(stage).map(|store| store.name.to_string());
        let followers = self.graph.followers_of(stage);
        stores.chain(followers.map(|it| it.step.name())).collect()
    }

    /// Returns the first step of a stage that is new although its table has rows, with a store that has some. `is_new`
    /// takes the name of a step.
    pub(crate) fn added_late<E>(
        &self,
        stage: &Stage,
        is_new: impl Fn(&str) -> bool,
        has_rows: impl Fn(StoreId) -> Result<bool, E>,
    ) -> Result<Option<(AddedStep, Arc<str>)>, E> {
        let stores = &self.graph.stores;
        let has_rows = |store: usize| match stores.get(store) {
            Some(spec) => has_rows(spec.id),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joined_table_has_rows_as_its_kind_says() {
        let [left, right] = [MadeOf::Store(0), MadeOf::Store(1)];
        let filled = |kind, stores: &[usize]| {
            let has_rows = |store| Ok::<_, ()>(stores.contains(&store));
            MadeOf::joined(kind, &left, &right).filled(&has_rows)
        };
        for (kind, none, one, other, both) in [
            (JoinKind::Inner, None, None, None, Some(0)),
            (JoinKind::Left, None, Some(0), None, Some(0)),
            (JoinKind::Outer, None, Some(0), Some(1), Some(0)),
        ] {
            assert_eq!(filled(kind, &[]), Ok(none), "{kind:?}");
            assert_eq!(filled(kind, &[0]), Ok(one), "{kind:?}");
            assert_eq!(filled(kind, &[1]), Ok(other), "{kind:?}");
            assert_eq!(filled(kind, &[0, 1]), Ok(both), "{kind:?}");
        }
    }
}

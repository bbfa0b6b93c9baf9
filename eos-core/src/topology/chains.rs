//! The nodes of one task.

use std::sync::Arc;

use eos_protocol::state::StoreId;

use super::node::{Entry, Place};
use crate::error_policy::ErrorPolicy;

/// The entry of one input's records.
pub(crate) struct Source {
    pub(crate) entry: Box<dyn Entry>,
    /// The place of the first node.
    pub(crate) first: Option<usize>,
    /// Whether its records are admitted ahead of their turn, for a `map_async`.
    pub(crate) makes_calls: bool,
    /// The error policy of this source.
    pub(crate) policy: Arc<ErrorPolicy>,
    /// The output of the dead letters, as an index into the topology's outputs.
    pub(crate) dead_letter: Option<usize>,
    /// The store of the keys with sequenced dead letters.
    pub(crate) sequence: Option<StoreId>,
}

/// The nodes of one task.
pub(crate) struct Chains {
    /// The sources that read each input, in order of declaration.
    pub(crate) inputs: Vec<Vec<Source>>,
    /// The nodes. Children stand behind their parents.
    pub(crate) places: Vec<Place>,
}

impl Chains {
    /// Returns the next place from `at` on whose node forwards results once per commit, and the store of these results.
    pub(crate) fn emitter(&self, at: usize) -> Option<(usize, usize)> {
        let places = self.places.iter().enumerate().skip(at);
        places
            .filter_map(|(at, place)| Some((at, place.node.emits()?)))
            .next()
    }

    /// Returns the place of the node that handles the due items of a store.
    pub(crate) fn handler(&self, store: usize) -> Option<usize> {
        let mut places = self.places.iter();
        places.position(|place| place.node.due_stores().contains(&store))
    }

    /// Returns the stores whose rows keep the values of this input's records: see [`Node::right_value_store`](super::node::Node::right_value_store).
    pub(crate) fn right_value_stores(&self, input: usize) -> impl Iterator<Item = usize> {
        let sources = self.inputs.get(input).into_iter().flatten();
        let first = sources.filter_map(|source| self.places.get(source.first?));
        first.filter_map(|place| place.node.right_value_store())
    }

    /// Called when the records since the last commit are committed.
    pub(crate) fn committed(&mut self) {
        for place in &mut self.places {
            place.node.committed();
        }
    }

    /// Called after an aborted transaction or a failed record. Each node discards its records since the last commit.
    pub(crate) fn discard(&mut self) {
        for place in &mut self.places {
            place.node.discard();
        }
    }

    /// Called when the task closes. One call is enough, and a drop of the chains has the same effect.
    pub(crate) fn close(&mut self) {
        for place in &mut self.places {
            place.node.close();
        }
    }
}

impl Drop for Chains {
    fn drop(&mut self) {
        self.close();
    }
}

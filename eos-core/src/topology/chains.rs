//! The nodes of one task: what its records run through.

use std::sync::Arc;

use super::node::{Entry, Place};
use crate::error_policy::ErrorPolicy;

/// Where records of one input enter.
pub(crate) struct Source {
    pub(crate) entry: Box<dyn Entry>,
    /// The place of the node that comes first.
    pub(crate) first: Option<usize>,
    /// What becomes of a record that fails behind this source.
    pub(crate) policy: Arc<ErrorPolicy>,
    /// Where its dead letters go: an index into the topology's outputs.
    pub(crate) dead_letter: Option<usize>,
}

/// The nodes of one task.
pub(crate) struct Chains {
    /// By input: the sources that read it, in order of declaration.
    pub(crate) inputs: Vec<Vec<Source>>,
    /// Children stand behind their parents.
    pub(crate) places: Vec<Place>,
}

impl Chains {
    /// The next place from `at` on whose node hands on results once per commit, and the store that it
    /// has them from.
    pub(crate) fn emitter(&self, at: usize) -> Option<(usize, usize)> {
        let places = self.places.iter().enumerate().skip(at);
        places
            .filter_map(|(at, place)| Some((at, place.node.emits()?)))
            .next()
    }

    /// What was taken since the last commit is committed.
    pub(crate) fn committed(&mut self) {
        for place in &mut self.places {
            place.node.committed();
        }
    }

    /// The transaction was aborted, or a record failed: each node that took a record since the last
    /// commit forgets it.
    pub(crate) fn discard(&mut self) {
        for place in &mut self.places {
            place.node.discard();
        }
    }

    /// The task goes away. Once is enough; dropping the chains does it, too.
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

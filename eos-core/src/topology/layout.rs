//! The places of a stage's nodes: parents before their children.

use std::collections::BTreeMap;

use eos_protocol::Stage;

use super::graph::{Exit, Graph};
use super::node::Place;

/// The place of each node. Behind an exit with `n` children stand `n - 1` copying nodes, one for each child but the
/// last.
pub(super) struct Layout<'g> {
    graph: &'g Graph,
    nodes: Vec<usize>,
    /// The exits that copy, by their first child.
    copies: BTreeMap<usize, Vec<Exit>>,
    /// The places by node.
    places: BTreeMap<usize, usize>,
    /// The place of the first copying node, by exit.
    copying: BTreeMap<Exit, usize>,
}

impl<'g> Layout<'g> {
    pub(super) fn new(graph: &'g Graph, stage: &Stage) -> Self {
        let nodes = graph.behind(&stage.sources);
        let sources = stage.sources.iter().map(|&at| Exit::Source(at));
        let exits = nodes
            .iter()
            .flat_map(|&at| [Exit::Node(at), Exit::Rest(at)]);
        let mut copies: BTreeMap<usize, Vec<Exit>> = BTreeMap::new();
        for exit in sources.chain(exits) {
            if let [first, _, ..] = graph.children(exit) {
                copies.entry(*first).or_default().push(exit);
            }
        }
        let (mut places, mut copying, mut next) = (BTreeMap::new(), BTreeMap::new(), 0);
        for &node in &nodes {
            for &exit in copies.get(&node).into_iter().flatten() {
                copying.insert(exit, next);
                next += graph.children(exit).len() - 1;
            }
            places.insert(node, next);
            next += 1;
        }
        Self {
            graph,
            nodes,
            copies,
            places,
            copying,
        }
    }

    /// Returns the first place behind an exit.
    pub(super) fn first(&self, exit: Exit) -> Option<usize> {
        match self.copying.get(&exit) {
            Some(&copy) => Some(copy),
            None => self.place(*self.graph.children(exit).first()?),
        }
    }

    fn place(&self, node: usize) -> Option<usize> {
        self.places.get(&node).copied()
    }

    /// Creates the nodes in their places.
    pub(super) fn places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        for &at in &self.nodes {
            for &exit in self.copies.get(&at).into_iter().flatten() {
                self.copy(exit, &mut places);
            }
            if let Some(node) = self.graph.nodes.get(at) {
                places.push(Place {
                    node: (node.make)(),
                    child: self.first(Exit::Node(at)),
                    rest: self.first(Exit::Rest(at)),
                });
            }
        }
        places
    }

    /// Adds the copying nodes behind an exit. Each gives a copy to a child, and the record to the next node.
    fn copy(&self, exit: Exit, places: &mut Vec<Place>) {
        let Some((last, others)) = self.graph.children(exit).split_last() else {
            return;
        };
        let Some(make) = self.graph.copies(exit) else {
            return;
        };
        for (n, &child) in others.iter().enumerate() {
            let rest = if n + 1 < others.len() {
                Some(places.len() + 1)
            } else {
                self.place(*last)
            };
            places.push(Place {
                node: make(),
                child: self.place(child),
                rest,
            });
        }
    }
}

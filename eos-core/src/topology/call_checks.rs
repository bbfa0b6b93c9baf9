//! Checks of asynchronous calls.

use eos_protocol::Stage;

use super::error::{Mistake, Mistakes, check_store_name};
use super::graph::{Exit, Graph};
use super::kind::Kind;

impl Graph {
    /// Returns the nodes of a stage that make calls: the index of the declaration, and the node.
    pub(super) fn calls_of(&self, stage: &Stage) -> impl Iterator<Item = (usize, usize)> {
        self.calls_behind(&stage.sources).into_iter()
    }

    /// Whether records of a source go to a node that makes calls.
    pub(super) fn makes_calls(&self, source: usize) -> bool {
        !self.calls_behind(&[source]).is_empty()
    }

    fn calls_behind(&self, sources: &[usize]) -> Vec<(usize, usize)> {
        let nodes = self.behind(sources).into_iter();
        let calls = nodes.filter_map(|node| match self.nodes.get(node)?.kind {
            Kind::MapAsync(at) => Some((at, node)),
            _ => None,
        });
        calls.collect()
    }

    /// Checks that each stage has at most one node of calls, and that no node before it needs an order.
    pub(super) fn check_calls(&self, mistakes: &mut Mistakes) {
        for (at, calls) in self.calls.iter().enumerate() {
            let name = || calls.name.to_string();
            if check_store_name(&calls.name).is_err() {
                mistakes.add(Mistake::CallName { name: name() });
            }
            if self.calls.iter().take(at).any(|it| it.name == calls.name) {
                mistakes.add(Mistake::SameCalls { name: name() });
            }
        }
        let name = |at: usize| {
            let calls = self.calls.get(at);
            calls.map_or_else(String::new, |calls| calls.name.to_string())
        };
        for stage in self.stages() {
            let calls: Vec<_> = self.calls_of(&stage).collect();
            for &(at, node) in &calls {
                self.check_before_calls(&stage, node, &name(at), mistakes);
            }
            for source in stage.sources.iter().filter_map(|at| self.sources.get(*at)) {
                if let (Some((at, _)), Some(store)) = (calls.first(), source.policy.sequence()) {
                    mistakes.add(Mistake::SequenceWithCalls {
                        name: name(*at),
                        store: store.to_owned(),
                    });
                }
            }
            if let [(first, _), (second, _), ..] = calls[..] {
                mistakes.add(Mistake::TwoCalls {
                    first: name(first),
                    second: name(second),
                });
            }
        }
    }

    /// Checks the exits and nodes before a node of calls.
    fn check_before_calls(&self, stage: &Stage, node: usize, name: &str, mistakes: &mut Mistakes) {
        let leads = |exit: Exit| {
            let mut next = self.children(exit).to_vec();
            while let Some(at) = next.pop() {
                if at == node {
                    return true;
                }
                next.extend(self.children(Exit::Node(at)));
                next.extend(self.children(Exit::Rest(at)));
            }
            false
        };
        let sources = stage.sources.iter().map(|&at| Exit::Source(at));
        let nodes = self.behind(&stage.sources).into_iter();
        let exits = nodes.flat_map(|at| [Exit::Node(at), Exit::Rest(at)]);
        for exit in sources.chain(exits).filter(|exit| leads(*exit)) {
            if self.children(exit).len() > 1 {
                mistakes.add(Mistake::CloneBeforeCalls {
                    name: name.to_owned(),
                });
            }
            let (Exit::Node(at) | Exit::Rest(at)) = exit else {
                continue;
            };
            let kind = self.nodes.get(at).map(|node| node.kind);
            // Two nodes of calls are a mistake of their own.
            let other = kind.filter(|kind| !matches!(kind, Kind::MapAsync(_)));
            if let Some(kind) = other.filter(|kind| !kind.may_precede_calls()) {
                mistakes.add(Mistake::BeforeCalls {
                    name: name.to_owned(),
                    method: kind.method(),
                });
            }
        }
    }
}

//! Checks of operators that put records in order.

use std::time::Duration;

use super::error::{Mistake, Mistakes};
use super::graph::{Graph, NodeSpec};
use super::kind::Kind;
use crate::reorder::OrderError;

impl Graph {
    /// Checks that windows behind an order wait for the records that it holds back, and that gaps that become dead letters
    /// have a topic. Topics between stages are not checked.
    pub(super) fn check_reordered(&self, mistakes: &mut Mistakes) {
        for (at, node) in self.nodes.iter().enumerate() {
            match node.kind {
                Kind::ReorderByTime(store, within) => {
                    self.check_dedups_behind(at, store, mistakes);
                    self.check_graces_behind(at, store, within, mistakes);
                }
                Kind::Reorder {
                    store,
                    held_back,
                    needs_letters,
                } => {
                    self.check_dedups_behind(at, store, mistakes);
                    if let Some(held_back) = held_back {
                        self.check_graces_behind(at, store, held_back, mistakes);
                    }
                    if needs_letters {
                        self.check_letters_of_order(at, store, mistakes);
                    }
                }
                _ => {}
            }
        }
    }

    /// Checks that no deduplication comes behind an order.
    fn check_dedups_behind(&self, at: usize, store: usize, mistakes: &mut Mistakes) {
        let mut next = vec![at];
        while let Some(node) = next.pop().and_then(|at| self.nodes.get(at)) {
            if let Kind::Dedup(dedup) | Kind::DedupBySequence(dedup) = node.kind
                && let Some((order, dedup)) = self.stores.get(store).zip(self.stores.get(dedup))
            {
                mistakes.add(Mistake::Order {
                    store: order.name.to_string(),
                    reason: OrderError::Deduplication(dedup.name.to_string()),
                });
            }
            next.extend(node.out.children.iter().chain(&node.rest.children));
        }
    }

    fn check_graces_behind(
        &self,
        at: usize,
        before: usize,
        held_back: Duration,
        mistakes: &mut Mistakes,
    ) {
        let Some((node, before)) = self.nodes.get(at).zip(self.stores.get(before)) else {
            return;
        };
        self.visit_behind(&node.out.children, held_back, |node, held_back| {
            if let Kind::ReorderByTime(store, within) = node.kind {
                // It holds all records back until their own moments.
                self.check_wait(&before.name, held_back, (store, within), mistakes);
                return false;
            }
            let store = node.kind.aggregates().and_then(|at| self.stores.get(at));
            let windows = store.and_then(|store| Some((store, store.windows?)));
            if let Some((store, _)) = windows.filter(|(_, it)| it.grace() < held_back) {
                let (windows, least) = (store.name.to_string(), held_back);
                mistakes.add(Mistake::Order {
                    store: before.name.to_string(),
                    reason: OrderError::ShortGrace { windows, least },
                });
            }
            true
        });
    }

    /// Visits the nodes behind these, with the time by which results are held back there: this time, and the waits of each
    /// `reorder_by` on the way. `visit` returns whether to continue behind its node.
    pub(super) fn visit_behind(
        &self,
        first: &[usize],
        held_back: Duration,
        mut visit: impl FnMut(&NodeSpec, Duration) -> bool,
    ) {
        let mut next: Vec<_> = first.iter().map(|at| (*at, held_back)).collect();
        while let Some((at, mut held_back)) = next.pop() {
            let Some(node) = self.nodes.get(at) else {
                continue;
            };
            if let Kind::Reorder {
                held_back: Some(wait),
                ..
            } = node.kind
            {
                held_back = held_back.saturating_add(wait);
            }
            if visit(node, held_back) {
                let behind = node.out.children.iter().chain(&node.rest.children);
                next.extend(behind.map(|at| (*at, held_back)));
            }
        }
    }

    /// Checks that an order by time waits for records that an earlier step holds back.
    pub(super) fn check_wait(
        &self,
        before: &str,
        least: Duration,
        (store, within): (usize, Duration),
        mistakes: &mut Mistakes,
    ) {
        if let Some(store) = self.stores.get(store).filter(|_| within < least) {
            let before = before.to_owned();
            mistakes.add(Mistake::Order {
                store: store.name.to_string(),
                reason: OrderError::ShortWait { before, least },
            });
        }
    }

    fn check_letters_of_order(&self, at: usize, store: usize, mistakes: &mut Mistakes) {
        let sources = self.sources.iter().enumerate();
        let mut sources = sources.filter(|(source, _)| self.behind(&[*source]).contains(&at));
        let without = sources.find(|(_, source)| source.policy.dead_letter_topic().is_none());
        if let Some(((_, source), store)) = without.zip(self.stores.get(store)) {
            mistakes.add(Mistake::Order {
                store: store.name.to_string(),
                reason: OrderError::NoLetters(source.topic.clone()),
            });
        }
    }
}

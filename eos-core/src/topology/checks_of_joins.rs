//! Checks of joins of streams.

use std::time::Duration;

use eos_protocol::joins::{JoinTerms, Side};

use super::error::{Mistake, Mistakes};
use super::graph::Graph;
use super::kind::Kind;

impl Graph {
    /// Checks that windows and joins behind unpaired results wait for these results, and that joins wait for results
    /// that earlier steps hold back. Does not check across topics between stages.
    pub(super) fn check_joins(&self, mistakes: &mut Mistakes) {
        for (at, node) in self.nodes.iter().enumerate() {
            let held_back = match node.kind {
                Kind::JoinWithin(join) => {
                    let terms = self.terms_of(join.rows);
                    let held_back = terms.and_then(|terms| terms.within().held_back(join.kind));
                    held_back.map(|held_back| (join.rows, held_back))
                }
                Kind::OnClose(store) => {
                    let windows = self.stores.get(store).and_then(|store| store.windows);
                    windows.map(|windows| (store, windows.held_back()))
                }
                Kind::ReorderByTime(store, within) => Some((store, within)),
                Kind::Reorder {
                    store, held_back, ..
                } => held_back.map(|held_back| (store, held_back)),
                _ => None,
            };
            if let Some((store, held_back)) = held_back {
                self.check_behind(at, store, held_back, mistakes);
            }
        }
    }

    fn terms_of(&self, store: usize) -> Option<&JoinTerms> {
        self.stores.get(store)?.expiry.as_ref()?.join()
    }

    fn check_behind(&self, at: usize, before: usize, least: Duration, mistakes: &mut Mistakes) {
        let Some((first, before)) = self.nodes.get(at).zip(self.stores.get(before)) else {
            return;
        };
        let is_join = matches!(first.kind, Kind::JoinWithin(_));
        let is_order = matches!(first.kind, Kind::ReorderByTime(..) | Kind::Reorder { .. });
        self.visit_behind(&first.out.children, least, |node, least| {
            let found = match node.kind {
                // The step holds results back until their own moments.
                Kind::OnClose(_) => return false,
                Kind::ReorderByTime(store, within) => {
                    if !is_order {
                        self.check_wait(&before.name, least, (store, within), mistakes);
                    }
                    return false;
                }
                Kind::JoinThis(join) => self.open_for(join.rows, Side::Left),
                Kind::JoinOther(join) => self.open_for(join.rows, Side::Right),
                // Other checks cover the windows behind other steps.
                kind if is_join => kind.aggregates().and_then(|store| {
                    let store = self.stores.get(store)?;
                    Some((
                        store.name.to_string(),
                        store.windows?.grace(),
                        Duration::ZERO,
                    ))
                }),
                _ => None,
            };
            let Some((store, grace, more)) = found else {
                return true;
            };
            if grace.saturating_add(more) < least {
                mistakes.add(Mistake::ShortGraceOfJoin {
                    store,
                    before: before.name.to_string(),
                    least,
                    needed: least.saturating_sub(more),
                });
            }
            !matches!(node.kind, Kind::JoinThis(_) | Kind::JoinOther(_))
        });
    }

    /// Returns the name and the grace of a join, and the additional time for which a record of one side stays open.
    fn open_for(&self, store: usize, side: Side) -> Option<(String, Duration, Duration)> {
        let within = self.terms_of(store)?.within();
        let partners = match side {
            Side::Left => within.after_time(),
            Side::Right => within.before_time(),
        };
        let name = self.stores.get(store)?.name.to_string();
        Some((name, within.grace_time(), partners))
    }
}

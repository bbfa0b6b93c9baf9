//! What a read_committed reader must not see.
//!
//! A leader answers such a fetch with data up to the last stable offset and the list of aborted
//! transactions that touch it, each as (producer id, first offset). Hiding their records is the
//! client's part: a producer's batches are dropped from that first offset on until its next abort
//! marker. The same producer may commit before and after, so the marker, not the id, decides.

use std::collections::{HashSet, VecDeque};

use anyhow::Result;

use super::batch::Batch;

/// The aborted transactions of one fetch, walked in offset order along with its batches.
#[derive(Debug, Default)]
pub(super) struct Aborted {
    /// Transactions that begin ahead of the position, by first offset.
    ahead: VecDeque<(i64, i64)>,
    /// Producers inside an aborted transaction at the position.
    inside: HashSet<i64>,
}

impl Aborted {
    /// The list a leader sent, as (producer id, first offset).
    pub(super) fn new(transactions: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let mut ahead: Vec<_> = transactions
            .into_iter()
            .map(|(producer, first)| (first, producer))
            .collect();
        ahead.sort_unstable();
        Aborted {
            ahead: ahead.into(),
            inside: HashSet::new(),
        }
    }

    /// Whether the next batch in offset order holds records of an aborted transaction.
    pub(super) fn hides(&mut self, batch: &Batch) -> Result<bool> {
        while let Some(&(first, producer)) = self.ahead.front()
            && first <= batch.last_offset
        {
            self.inside.insert(producer);
            self.ahead.pop_front();
        }
        if batch.abort_marker()? {
            self.inside.remove(&batch.producer_id);
            return Ok(true);
        }
        Ok(batch.transactional() && self.inside.contains(&batch.producer_id))
    }
}

//! The reader of positions.

use std::collections::BTreeMap;
use std::task::Poll;
use std::time::Duration;

use eos_core::boundary::{Answer, Identity, LedgerError, LedgerFailure, Plan, Positions, Taken};
use eos_protocol::{CallSite, TopicPartition};

use super::world::Of;
use super::{ModelLedger, unavailable};
use crate::client::Edge;

/// A take-over ends the session that holds a position after this many calls.
const PATIENCE: u32 = 3;

pub(super) struct ModelPositions {
    ledger: ModelLedger,
    plan: Plan,
    worker: String,
    /// The number of requests for each held position.
    waited: BTreeMap<TopicPartition, u32>,
}

impl ModelPositions {
    pub(super) fn new(ledger: ModelLedger, plan: &Plan, identity: &Identity) -> Self {
        Self {
            ledger,
            plan: plan.clone(),
            worker: identity.worker.clone(),
            waited: BTreeMap::new(),
        }
    }

    fn of(&self, partition: &TopicPartition) -> Of {
        (self.plan.app.clone(), partition.clone())
    }
}

impl Positions for ModelPositions {
    fn take_over(&mut self, of: &[TopicPartition], _: Duration) -> Poll<Answer<Vec<Taken>>> {
        self.ledger
            .at(CallSite::Committed, &self.worker, Edge::Before);
        if self
            .ledger
            .world()
            .take_fault(CallSite::Committed)
            .is_some()
        {
            return Poll::Ready(Err(unavailable()));
        }
        let mut taken = Vec::new();
        for partition in of {
            let place = self.of(partition);
            let topic = self
                .plan
                .topics
                .iter()
                .find(|(it, _)| *it == partition.topic);
            let ids = (self.plan.cluster_id.clone(), topic.and_then(|(_, id)| *id));
            if let Some(known) = self.ledger.world().other_ids(&place, &ids) {
                let text = format!("{partition} has a position of {known:?}, and is of {ids:?}");
                return Poll::Ready(Err(LedgerError::new(LedgerFailure::Fatal, text)));
            }
            let waited = self.waited.entry(partition.clone()).or_default();
            match self.ledger.world().take_over(&place, *waited >= PATIENCE) {
                Some(found) => {
                    self.waited.remove(partition);
                    taken.push(found);
                }
                None => *waited += 1,
            }
        }
        self.ledger
            .at(CallSite::Committed, &self.worker, Edge::After);
        match taken.is_empty() && !of.is_empty() {
            true => Poll::Pending,
            false => Poll::Ready(Ok(taken)),
        }
    }

    fn look(&mut self, of: &[TopicPartition], _: Duration) -> Poll<Answer<Vec<Taken>>> {
        if self
            .ledger
            .world()
            .take_fault(CallSite::Committed)
            .is_some()
        {
            return Poll::Ready(Err(unavailable()));
        }
        let world = self.ledger.world();
        let found = of.iter().map(|partition| world.look(&self.of(partition)));
        Poll::Ready(Ok(found.collect()))
    }
}

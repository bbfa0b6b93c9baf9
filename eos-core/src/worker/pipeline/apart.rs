//! Records that abort their transactions and have moments of timers in their units.

use eos_protocol::{Clock, Offset, Place, Round, TopicPartition};
use eos_state::DueItem;

use super::{Done, Pipeline, Processed, Unit};
use crate::client::Client;
use crate::topology::{Fault, MomentOutputs};
use crate::worker::RecordsOf;
use crate::worker::apart::Apart;
use crate::worker::error::advice;
use crate::worker::shared::Shared;
use crate::worker::task::Task;
use crate::worker::transaction::TransactionDriver;

/// Returns the fault of a record or item that aborts its transactions.
pub(super) fn aborts<C: Client>(txn: &TransactionDriver<C>) -> Fault {
    let last = txn.last_error();
    Fault::Aborts(last.map(|error| format!("{error}{}", advice(error))))
}

impl Pipeline {
    /// Decides about a record that aborts its transactions, before it is processed. `None` if it runs once more, because a
    /// moment in its unit may be to blame.
    pub(super) fn suspect<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        record: Processed,
        (partition, offset): (TopicPartition, Offset),
        txn: &mut TransactionDriver<C>,
    ) -> Option<Done> {
        if !task.chains.has_due_items() {
            return Some(self.condemn(shared, task, record, aborts(txn), txn));
        }
        let is_known = |it: &Apart| it.partition == partition && it.offset == offset;
        if !task.apart.as_deref().is_some_and(is_known) {
            task.apart = Some(Box::new(Apart {
                partition,
                offset,
                is_alone: true,
            }));
        }
        None
    }

    /// Handles the first moment in the unit of a suspected record, whose effects are in the scratch. Without one, it
    /// condemns the record, or returns `None` if the record has not yet run without moments.
    pub(super) fn take_apart<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        record: Processed,
        txn: &mut TransactionDriver<C>,
    ) -> Option<Done> {
        let (apart, (input, offset)) = (task.apart.as_deref_mut()?, record.record()?);
        let partition = &task.progress.inputs().get(input)?.partition;
        if apart.partition != *partition || !txn.blame.is_culprit(partition, offset) {
            if apart.partition == *partition && apart.offset != offset {
                task.apart = None;
            }
            return None;
        }
        match self.scratch.get_mut().take_first_moment() {
            None if !std::mem::replace(&mut apart.is_alone, true) => {
                txn.blame.acquitted(partition, offset);
                None
            }
            None => {
                self.clear();
                task.forget();
                task.apart = None;
                Some(self.condemn(shared, task, record, aborts(txn), txn))
            }
            Some(MomentOutputs { store, key, at, .. }) => {
                apart.is_alone = false;
                self.clear();
                task.forget();
                let spec = shared.topology.stores().get(store)?;
                let clock = spec.clock.unwrap_or(Clock::Stream);
                let item = DueItem {
                    clock,
                    place: Place {
                        round: Round::of(at),
                        store: spec.id,
                        key,
                    },
                    due: at,
                    value: Vec::new(),
                };
                let unit = Processed {
                    unit: Unit::Index(clock),
                    ..record.left_out()
                };
                Some(self.handle(shared, task, unit, (&item, false), txn))
            }
        }
    }
}

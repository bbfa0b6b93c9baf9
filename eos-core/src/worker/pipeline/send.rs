//! Sends the effects of processed records to the producer.

use std::task::Poll;

use eos_protocol::Partition;

use super::{Pipeline, Raised};
use crate::client::{Client, Producer};
use crate::failpoints::{self, Point};
use crate::worker::SLICE;
use crate::worker::shared::Shared;
use crate::worker::transaction::TransactionDriver;

/// Outputs of a processed record that the producer has not taken completely.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unsent {
    /// The index of the next output in the scratch.
    at: usize,
    /// The input's partition number, which is the output partition of records without a key.
    input: Partition,
}

impl Unsent {
    /// Returns all outputs in the scratch.
    pub(super) fn all(input: Partition) -> Self {
        Self { at: 0, input }
    }
}

impl Pipeline {
    /// Sends the rest of the scratch to the producer. Returns false while its queue is full, or without a producer.
    pub(in crate::worker) fn send_rest<C: Client>(
        &mut self,
        shared: &Shared<C>,
        txn: &mut TransactionDriver<C>,
    ) -> Result<bool, Raised> {
        let Some(mut unsent) = self.unsent else {
            return Ok(true);
        };
        let scratch = self.scratch.get_mut();
        let counts = &shared.spec.output_partitions;
        while let Some(outgoing) = scratch.get(unsent.at, counts, unsent.input) {
            let first = unsent.at == 0 && txn.pace.is_empty();
            // Without a producer there is no transaction.
            let Some(producer) = txn.producer() else {
                return Ok(false);
            };
            let point = if first {
                Point::FirstSend
            } else {
                Point::KthSend
            };
            let sent = match failpoints::hit(point) {
                Ok(()) => producer.send(&outgoing),
                Err(error) => Poll::Ready(Err(error)),
            };
            let error = match sent {
                Poll::Ready(Ok(())) => {
                    unsent.at += 1;
                    continue;
                }
                Poll::Ready(Err(error)) => error,
                Poll::Pending => {
                    self.unsent = Some(unsent);
                    // The queue drains while the worker waits for room.
                    match producer.flush(SLICE) {
                        Poll::Ready(Err(error)) => error,
                        _ => return Ok(false),
                    }
                }
            };
            self.unsent = None;
            self.clear();
            return Err(Raised::Event(txn.send_failed(shared, error)));
        }
        self.counters.sent += unsent.at as u64;
        txn.pace.sent(scratch.size());
        scratch.clear();
        self.unsent = None;
        Ok(true)
    }
}

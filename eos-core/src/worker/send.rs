//! Hands the effects of finished records to the producer.

use std::task::Poll;

use eos_protocol::{ErrorClass, Event, Partition, blames_a_record};

use super::{SLICE, Worker};
use crate::client::{Client, ClientError, Producer};
use crate::failpoints::{self, Point};

/// Outputs of a finished record that are not all handed to the producer yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unsent {
    /// The next one in the scratch.
    at: usize,
    /// The input's partition number: where records without a key go.
    input: Partition,
}

impl Unsent {
    /// All that is in the scratch.
    pub(super) fn all(input: Partition) -> Self {
        Self { at: 0, input }
    }
}

impl<C: Client> Worker<C> {
    /// Hands the rest of the scratch to the producer. False while its queue is full.
    pub(super) fn send_rest(&mut self) -> bool {
        let sent = self.send_some();
        self.catch_up();
        sent
    }

    /// Lets the machine hear what came up while a task was at work.
    pub(super) fn catch_up(&mut self) {
        for event in std::mem::take(&mut self.deferred) {
            self.feed(event);
        }
        if let Some(cause) = self.deferred_commit.take() {
            self.commit(cause);
        }
    }

    /// As [`send_rest`](Self::send_rest), while a task is at work: a failure is heard later.
    pub(super) fn send_some(&mut self) -> bool {
        let Some(mut unsent) = self.unsent else {
            return true;
        };
        let scratch = self.scratch.get_mut();
        let counts = &self.spec.output_partitions;
        while let Some(outgoing) = scratch.get(unsent.at, counts, unsent.input) {
            // What it was to go to is gone, and the transaction with it.
            let Some(producer) = &mut self.producer else {
                return false;
            };
            let first = unsent.at == 0 && self.load.as_ref().is_none_or(|load| load.bytes == 0);
            let point = if first {
                Point::FirstSend
            } else {
                Point::KthSend
            };
            let sent = match failpoints::hit(point) {
                Ok(()) => producer.send(&outgoing),
                Err(error) => Poll::Ready(Err(error)),
            };
            match sent {
                Poll::Ready(Ok(())) => unsent.at += 1,
                Poll::Pending => {
                    self.unsent = Some(unsent);
                    // Its own queue drains while we wait for room.
                    if let Poll::Ready(Err(error)) = producer.flush(SLICE) {
                        self.send_failed(error);
                    }
                    return false;
                }
                Poll::Ready(Err(error)) => {
                    self.send_failed(error);
                    return false;
                }
            }
        }
        self.sent += unsent.at as u64;
        if let Some(load) = &mut self.load {
            load.bytes += scratch.size() as u64;
        }
        scratch.clear();
        self.unsent = None;
        true
    }

    pub(super) fn send_failed(&mut self, error: ClientError) {
        self.unsent = None;
        self.scratch.get_mut().clear();
        // The record counts as taken, and its outputs are gone: whatever the error says of itself,
        // the transaction must not be committed.
        let (call, class) = match (error.call, error.class()) {
            (call, ErrorClass::Retriable) => (call, ErrorClass::Abortable),
            other => other,
        };
        self.blamed |= blames_a_record(error.fault.code);
        tracing::warn!(
            app = %self.spec.app, worker = %self.spec.id, transaction = self.machine.number(),
            ?class, %error, "an output was refused"
        );
        self.last_error = Some(error);
        self.deferred.push(Event::Failed(call, class));
    }
}

//! Seals a transaction: sends results, state changes and offsets.

use std::task::Poll;

use eos_protocol::Guarantee;
use eos_protocol::state::CommitRecord;

use super::pipeline::{Pipeline, Raised};
use super::shared::Shared;
use super::tasks::Tasks;
use super::transaction::TransactionDriver;
use super::{RecordsOf, SLICE, WorkerError};
use crate::client::{Client, Producer};

/// Continues the sealing. Returns false while the producer's queue is full.
pub(super) fn seal<C: Client>(
    shared: &Shared<C>,
    pipeline: &mut Pipeline,
    tasks: &mut Tasks<RecordsOf<C>>,
    txn: &mut TransactionDriver<C>,
) -> Result<bool, Raised> {
    let sealed = pipeline.send_rest(shared, txn)?
        && pipeline.emit_results(shared, tasks, txn)?
        && send_changes(shared, pipeline, tasks, txn)?;
    if sealed {
        txn.gather_offsets(shared, tasks);
    }
    Ok(sealed)
}

/// Writes the changes of the stores of all touched tasks into the open transaction. Returns false while the
/// producer's queue is full.
fn send_changes<C: Client>(
    shared: &Shared<C>,
    pipeline: &mut Pipeline,
    tasks: &mut Tasks<RecordsOf<C>>,
    txn: &mut TransactionDriver<C>,
) -> Result<bool, Raised> {
    let nonce = txn.nonce(shared);
    let Some(producer) = txn.producer() else {
        return Ok(false);
    };
    // Without a transaction, a restart may find the changes although the attempt failed. A timer or a window that the
    // changelog shows as fired or closed does not write its outputs again. So the outputs must be acknowledged first.
    if shared.spec.guarantee == Guarantee::AtLeastOnce
        && tasks
            .values()
            .any(|t| t.progress.touched() && t.state.is_some())
    {
        match producer.flush(SLICE) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => {
                pipeline.clear();
                return Err(Raised::Event(txn.send_failed(shared, error)));
            }
            Poll::Pending => return Ok(false),
        }
    }
    for task in tasks.values_mut().filter(|t| t.progress.touched()) {
        let (seq, id) = (task.progress.next_seq(), task.progress.task);
        let Some(state) = &mut task.state else {
            continue;
        };
        if let Err(source) = state.seal_windows() {
            pipeline.clear();
            let source = Box::new(source);
            return Err(Raised::give_up(WorkerError::Store { task: id, source }));
        }
        let (commit, guarantee) = (CommitRecord { seq, nonce }, shared.spec.guarantee);
        let sent = match state.send(producer, id.partition, commit, guarantee) {
            // The queue drains while the worker waits for room.
            Poll::Pending => match producer.flush(SLICE) {
                Poll::Ready(Err(error)) => Err(error),
                _ => return Ok(false),
            },
            Poll::Ready(sent) => sent,
        };
        if let Err(error) = sent {
            pipeline.clear();
            return Err(Raised::Event(txn.send_failed(shared, error)));
        }
    }
    Ok(true)
}

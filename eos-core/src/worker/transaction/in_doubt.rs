//! The outcome of a commit without a clean response.

use std::task::Poll;

use eos_protocol::{Committed, Outcome, outcome};

use crate::client::{Client, ClientError, CommittedOffset, Records, Source};
use crate::rules;
use crate::worker::shared::Shared;
use crate::worker::tasks::Tasks;
use crate::worker::{RecordsOf, SLICE};

/// Rule 6: reads the outcome of the transaction from the names beside the stable offsets.
pub(in crate::worker) fn read_outcome<C: Client>(
    shared: &Shared<C>,
    source: &mut C::Source,
    tasks: &Tasks<RecordsOf<C>>,
) -> Poll<Result<Outcome, ClientError>> {
    let partitions = tasks.touched_partitions();
    let mut committed = Vec::new();
    if !partitions.is_empty() {
        committed = std::task::ready!(source.committed(&partitions, SLICE))?;
        shared.broker_answered();
    }
    // All offsets decide, and a transaction still holds some of them back.
    if committed.len() < partitions.len() {
        return Poll::Pending;
    }
    let outcome = judge(tasks, &committed);
    tracing::info!(
        app = %shared.spec.app, worker = %shared.spec.id, verdict = ?outcome,
        "the transaction in doubt is resolved"
    );
    Poll::Ready(Ok(outcome))
}

fn judge<R: Records>(tasks: &Tasks<R>, committed: &[CommittedOffset]) -> Outcome {
    if !rules::reads_outcome_in_doubt() {
        return Outcome::Aborted;
    }
    let mut verdict = None;
    for task in tasks.values().filter(|t| t.progress.touched()) {
        let inputs = task.progress.inputs();
        let found: Vec<Committed> = committed
            .iter()
            .filter(|c| inputs.iter().any(|i| i.partition == c.partition))
            .map(as_committed)
            .collect();
        let one = outcome(task.progress.sealed(), task.progress.last(), &found);
        match verdict {
            None => verdict = Some(one),
            Some(other) if other != one => return Outcome::Dirty,
            Some(_) => {}
        }
    }
    // Without a touched task there is nothing to apply.
    verdict.unwrap_or(Outcome::Aborted)
}

pub(in crate::worker) fn as_committed(c: &CommittedOffset) -> Committed {
    Committed {
        partition: c.partition.clone(),
        offset: c.offset,
        metadata: c.metadata.clone(),
    }
}

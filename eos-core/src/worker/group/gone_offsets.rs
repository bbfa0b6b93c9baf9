//! Committed offsets that are no longer in the log.

use std::collections::BTreeMap;

use eos_protocol::TopicPartition;

use super::resolving::{Found, QUERY_PAUSE, Resolving, by_partition};
use crate::client::{Client, OffsetBounds};
use crate::rules;
use crate::worker::WorkerError;
use crate::worker::shared::Shared;

/// Reads the offset of a task again if its log lacks it.
///
/// The client reports such an offset only at the fetch, and a rebalance can drop that report
/// (`rd_kafka_assignment_pause` purges the queue that holds it).
///
/// The bounds are newer than the offsets, so the offset of such a task is read once more. It is an error if the group
/// still has the same offset.
pub(super) fn recheck<C: Client>(
    shared: &Shared<C>,
    resolving: &mut Resolving,
    bounds: &[OffsetBounds],
) -> Result<(), WorkerError> {
    let bounds = by_partition(bounds);
    let mut known = Vec::with_capacity(resolving.starts.len());
    for found in std::mem::take(&mut resolving.starts) {
        let Some((partition, wanted, log)) = gone(&found, &bounds) else {
            known.push(found);
            continue;
        };
        let before = resolving.gone.insert(partition.clone(), wanted);
        if before == Some(wanted) || !rules::rereads_gone_offsets() {
            return Err(WorkerError::OffsetOutOfRange {
                partition: partition.clone(),
                group: shared.spec.app.as_str().to_owned(),
                in_ledger: shared.client.keeps_origins(),
                wanted,
                first: log.first,
                end: log.end,
            });
        }
        resolving.not_before = Some(shared.now().after(QUERY_PAUSE));
        resolving.partitions.push(found.driving);
    }
    resolving.starts = known;
    Ok(())
}

/// Returns the first committed offset of a task that is missing in its log.
fn gone<'a>(
    found: &'a Found,
    bounds: &BTreeMap<&TopicPartition, &'a OffsetBounds>,
) -> Option<(&'a TopicPartition, eos_protocol::Offset, &'a OffsetBounds)> {
    found.start.committed().find_map(|(partition, wanted)| {
        let log = *bounds.get(partition)?;
        (wanted < log.first).then_some((partition, wanted, log))
    })
}

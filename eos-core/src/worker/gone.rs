//! Committed offsets that are not in the log any more.

use super::starting::{ASK_AGAIN, Resolving};
use super::{Worker, WorkerError};
use crate::client::{Client, OffsetBounds};
use crate::failpoints::{self, Defence};

impl<C: Client> Worker<C> {
    /// The client reports an offset that is gone only when it fetches it, and a rebalance can
    /// swallow that report (`rd_kafka_assignment_pause` purges the queue it is in).
    ///
    /// The bounds are younger than the offsets. A task whose offset is gone is looked up again; it is an
    /// error if the group has that very offset still.
    pub(super) fn look_for_gone(
        &self,
        resolving: &mut Resolving,
        bounds: &[OffsetBounds],
    ) -> Result<(), WorkerError> {
        let mut known = Vec::with_capacity(resolving.starts.len());
        for found in std::mem::take(&mut resolving.starts) {
            let gone = found.start.committed().find_map(|(partition, wanted)| {
                let log = bounds.iter().find(|b| b.partition == *partition)?;
                (wanted < log.first).then_some((partition, wanted, log))
            });
            let Some((partition, wanted, log)) = gone else {
                known.push(found);
                continue;
            };
            let before = resolving.gone.insert(partition.clone(), wanted);
            if before == Some(wanted) || failpoints::undefended(Defence::Gone) {
                return Err(WorkerError::OffsetOutOfRange {
                    partition: partition.clone(),
                    group: self.spec.app.as_str().to_owned(),
                    wanted,
                    first: log.first,
                    end: log.end,
                });
            }
            resolving.not_before = Some(self.env.now().after(ASK_AGAIN));
            resolving.partitions.push(found.driving);
        }
        resolving.starts = known;
        Ok(())
    }
}

//! Copies the positions of a ledger to the consumer group, for tools that show lag.

use std::collections::BTreeMap;
use std::task::Poll;
use std::time::Duration;

use eos_protocol::{Now, Offset, TopicPartition, mirror_metadata};

use crate::client::{Client, OffsetToCommit, Source};
use crate::worker::RecordsOf;
use crate::worker::shared::Shared;
use crate::worker::tasks::Tasks;

/// The interval between two copies.
const EVERY: Duration = Duration::from_secs(5);

/// The copies of one worker.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    next: Now,
    /// The copied positions of the worker's partitions.
    copied: BTreeMap<TopicPartition, Offset>,
    in_flight: Option<Vec<OffsetToCommit>>,
}

impl Mirror {
    /// Continues the commit of copies, or begins one for the positions that changed.
    pub(super) fn copy<C: Client>(
        &mut self,
        shared: &Shared<C>,
        source: &mut C::Source,
        tasks: &Tasks<RecordsOf<C>>,
    ) {
        if self.in_flight.is_none() {
            let now = shared.env.about_now();
            if now < self.next {
                return;
            }
            self.next = now.after(EVERY);
            let changed = self.changed(tasks);
            if changed.is_empty() {
                return;
            }
            self.in_flight = Some(changed);
        }
        let Some(offsets) = &self.in_flight else {
            return;
        };
        let Poll::Ready(copied) = source.commit(offsets, Duration::ZERO) else {
            return;
        };
        match copied {
            Ok(()) => {
                let copied = offsets.iter().map(|it| (it.partition.clone(), it.offset));
                self.copied.extend(copied);
            }
            // The next round tries again. A rebalance is the usual cause.
            Err(error) => tracing::debug!(
                app = %shared.spec.app, worker = %shared.spec.id, %error,
                "copying positions of the ledger to the consumer group failed"
            ),
        }
        self.in_flight = None;
    }

    fn changed<R: crate::client::Records>(&mut self, tasks: &Tasks<R>) -> Vec<OffsetToCommit> {
        let mut kept = BTreeMap::new();
        let mut changed = Vec::new();
        for task in tasks.values() {
            // Without a name the ledger has no position yet.
            let Some(name) = task.progress.last() else {
                continue;
            };
            let metadata = mirror_metadata(&name.to_string());
            for input in task.progress.inputs() {
                let copied = self.copied.remove(&input.partition);
                if let Some(copied) = copied {
                    kept.insert(input.partition.clone(), copied);
                }
                if copied != Some(input.committed) {
                    changed.push(OffsetToCommit {
                        partition: input.partition.clone(),
                        offset: input.committed,
                        metadata: metadata.clone(),
                    });
                }
            }
        }
        self.copied = kept;
        changed
    }
}

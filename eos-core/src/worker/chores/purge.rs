//! Queues processed records for deletion.

use std::time::Duration;

use eos_protocol::TopicPartition;
use eos_protocol::state::Family;

use super::Chores;
use crate::client::Client;
use crate::rules;
use crate::worker::RecordsOf;
use crate::worker::shared::Shared;
use crate::worker::tasks::Tasks;
use crate::worker::trimming::Trimming;

/// The shortest interval.
const EVERY: Duration = Duration::from_secs(1);

impl Chores {
    /// Queues the records that committed transactions no longer need, periodically.
    pub(in crate::worker) fn purge<C: Client>(
        &mut self,
        shared: &Shared<C>,
        tasks: &Tasks<RecordsOf<C>>,
    ) {
        let now = shared.env.about_now();
        if now < self.next_purge {
            return;
        }
        self.next_purge = now.after(EVERY);
        let topology = &shared.topology;
        let mut queue = shared.spec.purge_queue.lock();
        for task in tasks.values() {
            // Without a name the offsets are not committed: a first start resolved them.
            if task.progress.last().is_none() {
                continue;
            }
            let inputs = task.progress.inputs().iter();
            for input in inputs.filter(|i| topology.is_repartition(&i.partition.topic)) {
                let needless = if rules::purges_committed_records_only() {
                    input.committed
                } else {
                    input.next
                };
                queue.told(&input.partition, needless);
            }
            let Some(state) = &task.state else { continue };
            let Some(needless) = state.trimming.as_ref().and_then(Trimming::needless) else {
                continue;
            };
            let mut topics = state.topics(topology);
            if let Some((_, topic)) = topics.find(|(family, _)| *family == Family::Windowed) {
                let partition = task.progress.task.partition;
                queue.told(&TopicPartition::new(topic.clone(), partition), needless);
            }
        }
    }
}

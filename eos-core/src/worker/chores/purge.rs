//! Tells which records nobody needs any more. They are deleted elsewhere.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eos_protocol::state::{Family, Purge};
use eos_protocol::{Offset, TopicName, TopicPartition};

use super::Worker;
use super::trimming::Trimming;
use crate::client::Client;
use crate::failpoints::{self, Defence};
use crate::topology::{Purpose, Topology};

/// How often at most.
const EVERY: Duration = Duration::from_secs(1);

/// What the workers of a process are done with, for whoever deletes it.
#[derive(Debug, Default)]
pub struct DoneWith(Mutex<Purge>);

impl DoneWith {
    fn lock(&self) -> MutexGuard<'_, Purge> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Below this offset nobody needs anything any more.
    #[cfg(test)]
    pub(crate) fn told(&self, partition: &TopicPartition, needless: Offset) {
        self.lock().told(partition, needless);
    }

    /// Everything below these offsets is to be deleted.
    #[must_use]
    pub fn due(&self) -> Vec<(TopicPartition, Offset)> {
        self.lock().due()
    }

    /// The log ends before that: it is another one.
    pub fn forget(&self, partition: &TopicPartition) {
        self.lock().forget(partition);
    }

    /// The broker told where a log begins now.
    pub fn begins(&self, partition: &TopicPartition, at: Offset) {
        self.lock().begins(partition, at);
    }
}

/// The topics of which nobody needs what their reader has committed: what is in a repartition topic
/// was written by this app, for this app.
pub(super) fn repartitions(topology: &Topology) -> BTreeSet<TopicName> {
    let internals = topology.internals().iter();
    let repartitions = internals.filter(|internal| internal.purpose == Purpose::Repartition);
    let outputs = repartitions.filter_map(|internal| topology.outputs().get(internal.output));
    outputs.map(|output| output.name.clone()).collect()
}

impl<C: Client> Worker<C> {
    /// Tells it once in a while.
    pub(super) fn tell_what_is_done(&mut self) {
        let now = self.env.about_now();
        if now < self.tell_done_at {
            return;
        }
        self.tell_done_at = now.after(EVERY);
        let mut done = self.spec.done_with.lock();
        for task in self.tasks.values() {
            // Without a name the offsets are none that were committed: a first start found them.
            if task.progress.last().is_none() {
                continue;
            }
            let inputs = task.progress.inputs().iter();
            for input in inputs.filter(|i| self.repartitions.contains(&i.partition.topic)) {
                let needless = if failpoints::undefended(Defence::PurgeAfterCommit) {
                    input.next
                } else {
                    input.committed
                };
                done.told(&input.partition, needless);
            }
            let Some(state) = &task.state else { continue };
            let Some(needless) = state.trimming.as_ref().and_then(Trimming::needless) else {
                continue;
            };
            let mut topics = state.topics(&self.topology);
            if let Some((_, topic)) = topics.find(|(family, _)| *family == Family::Windowed) {
                let partition = task.progress.task.partition;
                done.told(&TopicPartition::new(topic.clone(), partition), needless);
            }
        }
    }
}

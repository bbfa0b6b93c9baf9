//! Describes the tasks for the metrics, now and then.

use std::time::Duration;

use eos_protocol::Generation;

use super::Worker;
use crate::client::{Client, Source};
use crate::metrics::{InputMetrics, RestoringMetrics, TaskMetrics};

/// How often at most: each time asks the client about every input.
const EVERY: Duration = Duration::from_millis(500);

impl<C: Client> Worker<C> {
    /// Makes known where the tasks are, if that has not been done for a while.
    pub(super) fn describe(&mut self) {
        let now = self.env.about_now();
        if self.described.is_some_and(|last| now.since(last) < EVERY) {
            return;
        }
        self.described = Some(now);
        let source = &mut self.source;
        let mut tasks = Vec::with_capacity(self.tasks.len());
        for (id, task) in &self.tasks {
            let inputs = task.progress.inputs().iter().map(|input| {
                let partition = &input.partition;
                let (end, held_back) = (source.end(partition), source.held_back(partition));
                InputMetrics::new(partition.clone(), input.next, end, held_back)
            });
            tasks.push(TaskMetrics::new(*id, inputs.collect()));
        }
        let restoring = self.restoring.iter();
        let restoring = restoring.map(|one| RestoringMetrics::new(one.task(), one.progress(now)));
        self.meter.tasks(
            Generation::new(self.generation).ok(),
            tasks,
            restoring.collect(),
        );
    }
}

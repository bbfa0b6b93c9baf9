//! Describes the tasks for the metrics, now and then.

use std::time::Duration;

use eos_protocol::Generation;

use super::Worker;
use crate::client::{Client, Source};
use crate::metrics::{Ends, InputMetrics, RestoringMetrics, TaskMetrics};

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
        let clock = self.env.wall_clock();
        for (id, task) in &mut self.tasks {
            let inputs = task.progress.inputs().iter().map(|input| {
                let partition = &input.partition;
                let ends = Ends {
                    readable: source.end(partition),
                    high: source.high_watermark(partition),
                    held_back: source.held_back(partition),
                };
                InputMetrics::new(partition.clone(), input.next, ends)
            });
            let mut told = TaskMetrics::new(*id, inputs.collect());
            told.stream_time = task.progress.stream_time();
            if let Some(state) = &mut task.state
                && let Some(trimming) = &state.trimming
            {
                told.windows_ahead = trimming.ahead_of(told.stream_time);
                let times = (told.stream_time, clock);
                let retention = trimming.retention();
                for far in state.ahead.look(times, told.windows_ahead, retention) {
                    far.warn(self.spec.app.as_str(), *id);
                }
            }
            tasks.push(told);
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

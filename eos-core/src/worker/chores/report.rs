//! Reports the tasks to the metrics.

use std::time::Duration;

use eos_protocol::{Generation, Now};

use super::Chores;
use crate::client::{Client, Source};
use crate::metrics::{Ends, InputMetrics, RestoringMetrics, TaskMetrics};
use crate::worker::RecordsOf;
use crate::worker::shared::Shared;
use crate::worker::tasks::Tasks;

/// The shortest interval: each report queries the client for every input.
const EVERY: Duration = Duration::from_millis(500);

/// The rows of parked keys that a report counts, to bound its duration.
const COUNT_BUDGET: u64 = 10_000;

impl Chores {
    /// Returns whether a report is due.
    pub(in crate::worker) fn reports(&mut self, now: Now) -> bool {
        let due = self.reported.is_none_or(|last| now.since(last) >= EVERY);
        if due {
            self.reported = Some(now);
        }
        due
    }
}

/// Reports the positions of the tasks.
pub(in crate::worker) fn report<C: Client>(
    shared: &Shared<C>,
    source: &mut C::Source,
    tasks: &mut Tasks<RecordsOf<C>>,
    restoring: Vec<RestoringMetrics>,
    generation: i32,
) {
    let clock = shared.env.wall_clock();
    let mut to_count = COUNT_BUDGET;
    let mut reports = Vec::with_capacity(tasks.len());
    for (id, task) in tasks.iter_mut() {
        let inputs = task.progress.inputs().iter().map(|input| {
            let partition = &input.partition;
            let ends = Ends {
                readable: source.end(partition),
                high: source.high_watermark(partition),
                held_back: source.held_back(partition),
            };
            InputMetrics::new(partition.clone(), input.next, ends)
        });
        let mut report = TaskMetrics::new(id, inputs.collect());
        report.stream_time = task.progress.stream_time();
        report.calls = task.ahead.as_ref().map(|ahead| ahead.metrics());
        report.paused = task.stands_still();
        if let Some(state) = &task.state {
            report.due_behind = state.due_behind(report.stream_time, clock);
            let parked = task.parked.as_mut();
            report.parked_keys = parked.and_then(|parked| parked.count(state, &mut to_count));
        }
        if let Some(state) = &mut task.state
            && let Some(trimming) = &state.trimming
        {
            report.windows_ahead = trimming.ahead_of(report.stream_time);
            let times = (report.stream_time, clock);
            let retention = trimming.retention();
            for far in state.ahead.look(times, report.windows_ahead, retention) {
                far.warn(shared.spec.app.as_str(), id);
            }
        }
        reports.push(report);
    }
    let generation = Generation::new(generation).ok();
    shared.meter.tasks(generation, reports, restoring);
}

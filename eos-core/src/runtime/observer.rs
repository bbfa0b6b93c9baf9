//! Periodic reports: state, outages, and the summary in the log.

use std::time::Duration;

use eos_protocol::AppId;

use super::app_state::AppState;
use super::chores::Chore;
use super::handle::Handle;
use crate::metrics::{Metrics, Totals};

/// The time between two summaries in the log.
const SUMMARY: Duration = Duration::from_secs(30);

/// The interval of the observation of the workers.
const LOOK: Duration = Duration::from_millis(250);

/// The longest time without a broker response that is not logged. A worker queries the topics every ten seconds.
const SILENCE: Duration = Duration::from_secs(15);

/// Returns the chores that observe the workers, and log facts for operators.
pub(super) fn chores(app: &AppId, handle: &Handle) -> Vec<Chore> {
    let (watcher, mut outage) = (handle.clone(), Outage::default());
    let mut unassigned = Unassigned::default();
    let (name, summarized) = (app.clone(), handle.clone());
    let (app, mut last) = (app.clone(), Totals::default());
    vec![
        Chore {
            every: LOOK,
            act: Box::new(move || {
                // The workers may all wait for a broker.
                watcher.wake_views();
                let metrics = watcher.metrics();
                let state = AppState::of(&metrics, watcher.asked().is_some());
                watcher.observed().enter(state);
                outage.log(&name, silence(&metrics));
                let is_idle = metrics.workers.iter().all(|it| it.tasks.is_empty());
                // While the app starts, it may have joined no group yet.
                unassigned.log(&name, is_idle && state == AppState::Running);
            }),
        },
        Chore {
            every: SUMMARY,
            act: Box::new(move || {
                let metrics = summarized.metrics();
                if let Some(summary) = Summary::since(&last, &metrics) {
                    summary.log(&app);
                }
                last = metrics.totals;
            }),
        },
    ]
}

/// Returns the time since any worker has received a response from a broker. `None` if no worker runs.
fn silence(metrics: &Metrics) -> Option<Duration> {
    let workers = metrics.workers.iter();
    workers.filter_map(|worker| worker.last_response).min()
}

/// Whether brokers are unreachable, and the last log line about it.
#[derive(Debug, Default)]
struct Outage {
    /// The silence at the last log line.
    logged: Option<Duration>,
}

/// A log line about an outage.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Silent(Duration),
    Over,
}

impl Outage {
    fn line(&mut self, silence: Option<Duration>) -> Option<Line> {
        let silence = silence.unwrap_or_default();
        if silence < SILENCE {
            return self.logged.take().map(|_| Line::Over);
        }
        let due = self.logged.is_none_or(|logged| silence >= logged + SUMMARY);
        due.then(|| {
            self.logged = Some(silence);
            Line::Silent(silence)
        })
    }

    fn log(&mut self, app: &AppId, silence: Option<Duration>) {
        match self.line(silence) {
            Some(Line::Silent(silence)) => tracing::warn!(
                %app, silent_s = silence.as_secs(),
                "no broker responds; the app continues when one does"
            ),
            Some(Line::Over) => tracing::info!(%app, "a broker responds again"),
            None => {}
        }
    }
}

/// How long this process has had no partitions, as a number of observations.
#[derive(Debug, Default)]
struct Unassigned {
    observations: u32,
}

impl Unassigned {
    /// The number of observations before the log line: five seconds.
    const PATIENCE: u32 = 20;

    /// Whether the log line is due: once for each time without partitions.
    fn is_due(&mut self, is_idle: bool) -> bool {
        self.observations = match is_idle {
            true => self.observations.saturating_add(1),
            false => 0,
        };
        self.observations == Self::PATIENCE
    }

    fn log(&mut self, app: &AppId, is_idle: bool) {
        if self.is_due(is_idle) {
            tracing::info!(
                %app,
                "this process has no partitions: other members of the group have them. The partitions of a member \
                 that ended without leaving the group are assigned again after its session.timeout.ms"
            );
        }
    }
}

/// The work since the last summary.
#[derive(Debug, PartialEq, Eq)]
struct Summary {
    processed: u64,
    written: u64,
    commits: u64,
    aborts: u64,
    /// The number of remaining offsets. `None` if no input is known.
    lag: Option<u64>,
    late: u64,
    failed: u64,
}

impl Summary {
    /// Returns `None` if no record was processed.
    fn since(last: &Totals, metrics: &Metrics) -> Option<Self> {
        let now = &metrics.totals;
        let failed = |totals: &Totals| totals.skipped + totals.dead_letters;
        let tasks = metrics.workers.iter().flat_map(|worker| &worker.tasks);
        let lags = tasks
            .flat_map(|task| &task.inputs)
            .filter_map(|input| input.lag);
        let processed = now.records_in.saturating_sub(last.records_in);
        (processed > 0).then(|| Self {
            processed,
            written: now.records_out.saturating_sub(last.records_out),
            commits: now.commits.total().saturating_sub(last.commits.total()),
            aborts: now.aborts.saturating_sub(last.aborts),
            lag: lags.fold(None, |sum, lag| Some(sum.unwrap_or(0) + lag)),
            late: now.late_records.saturating_sub(last.late_records),
            failed: failed(now).saturating_sub(failed(last)),
        })
    }

    fn log(&self, app: &AppId) {
        tracing::info!(
            %app, processed = self.processed, written = self.written, commits = self.commits,
            aborts = self.aborts, lag = self.lag, late = self.late, failed = self.failed,
            seconds = SUMMARY.as_secs(), "summary"
        );
    }
}

#[cfg(test)]
mod tests {
    use eos_protocol::{Offset, Partition, TaskId, TopicPartition};

    use super::*;
    use crate::metrics::{Ends, InputMetrics, TaskMetrics, WorkerMetrics};

    #[test]
    fn an_outage_has_a_line_at_its_begin_every_half_minute_and_at_its_end() {
        let mut outage = Outage::default();
        let mut lines = Vec::new();
        for seconds in [1, 14, 15, 16, 40, 45, 46, 74, 75, 2, 3] {
            lines.extend(outage.line(Some(Duration::from_secs(seconds))));
        }
        let silent = |seconds| Line::Silent(Duration::from_secs(seconds));
        assert_eq!(lines, [silent(15), silent(45), silent(75), Line::Over]);
        assert_eq!(outage.line(None), None, "no worker runs");
    }

    #[test]
    fn a_process_without_partitions_has_one_line_after_five_seconds() {
        let patience = LOOK * Unassigned::PATIENCE;
        assert_eq!(patience, Duration::from_secs(5));
        let mut unassigned = Unassigned::default();
        let mut lines =
            |idle: bool, looks: u32| (0..looks).filter(|_| unassigned.is_due(idle)).count();
        assert_eq!(lines(true, 19), 0);
        assert_eq!(lines(true, 100), 1);
        assert_eq!(lines(false, 100), 0);
        assert_eq!(lines(true, 20), 1);
    }

    #[test]
    fn a_summary_lists_changes_and_is_omitted_while_no_record_flows() {
        let mut busy = WorkerMetrics::default();
        let input = |lag: i64| {
            let partition = TopicPartition::new("in", Partition::ZERO);
            let ends = Ends {
                readable: Some(Offset::new(lag).unwrap()),
                ..Ends::default()
            };
            InputMetrics::new(partition, Offset::ZERO, ends)
        };
        busy.tasks = vec![
            TaskMetrics::new(TaskId::default(), vec![input(3), input(4)]),
            TaskMetrics::new(TaskId::default(), vec![input(5)]),
        ];
        let mut now = Metrics {
            workers: vec![busy],
            ..Metrics::default()
        };
        (now.totals.records_in, now.totals.records_out) = (70, 100);
        (now.totals.skipped, now.totals.dead_letters) = (2, 1);
        let mut last = Totals::default();
        (last.records_in, last.records_out, last.skipped) = (50, 40, 1);
        let summary = Summary::since(&last, &now).unwrap();
        let expected = Summary {
            processed: 20,
            written: 60,
            commits: 0,
            aborts: 0,
            lag: Some(12),
            late: 0,
            failed: 2,
        };
        assert_eq!(summary, expected);
        assert_eq!(Summary::since(&now.totals, &now), None);
    }
}

//! The metrics in Prometheus' text format, version 0.0.4.
//!
//! Names are `eos_*` in base units (seconds, records, offsets), counters end in `_total`. Every
//! sample of a worker has the labels `app` and `worker`. Prometheus computes sums over workers.

use std::fmt::{Display, Write};
use std::time::Duration;

use eos_protocol::State;

#[cfg(test)]
use super::RestoreKind;
use super::global::GLOBALS;
use super::ledger::LEDGERS;
use super::{
    CallMetrics, GlobalMetrics, InputMetrics, LedgerMetrics, Metrics, Phase, TaskMetrics, Totals,
    WorkerMetrics,
};

/// Name, help, value.
type Counter = (&'static str, &'static str, fn(&Totals) -> u64);
type Gauge = (&'static str, &'static str, fn(&InputMetrics) -> Option<u64>);
type TaskDuration = (
    &'static str,
    &'static str,
    fn(&TaskMetrics) -> Option<Duration>,
);
type CallGauge = (&'static str, &'static str, fn(&CallMetrics) -> u64);

const COUNTERS: [Counter; 29] = [
    (
        "eos_records_in_total",
        "Processed records, including those of aborted transactions.",
        |t| t.records_in,
    ),
    (
        "eos_records_out_total",
        "Written records, including those of aborted transactions.",
        |t| t.records_out,
    ),
    (
        "eos_records_skipped_total",
        "Records that failed and were skipped.",
        |t| t.skipped,
    ),
    (
        "eos_record_retries_total",
        "Retries of failed records.",
        |t| t.retried,
    ),
    (
        "eos_dead_letters_total",
        "Records that failed and went to a dead letter topic.",
        |t| t.dead_letters,
    ),
    (
        "eos_repeated_letters_total",
        "Replayed dead letters that were processed, discarded or released before.",
        |t| t.repeated_letters,
    ),
    (
        "eos_late_records_total",
        "Records that were too late for their window or their order.",
        |t| t.late_records,
    ),
    (
        "eos_late_windows_total",
        "Windows that were closed when a record for them arrived.",
        |t| t.late_windows,
    ),
    ("eos_dedup_new_total", "Records with a new id.", |t| {
        t.dedup_new
    }),
    (
        "eos_dedup_duplicates_total",
        "Duplicates that a deduplication found.",
        |t| t.dedup_duplicates,
    ),
    (
        "eos_dedup_too_old_total",
        "Forwarded records that were too old for a deduplication to judge.",
        |t| t.dedup_too_old,
    ),
    (
        "eos_dedup_missing_id_total",
        "Forwarded records without an id for a deduplication.",
        |t| t.dedup_missing_id,
    ),
    (
        "eos_async_repeated_total",
        "Asynchronous calls that started again.",
        |t| t.calls_repeated,
    ),
    (
        "eos_async_timed_out_total",
        "Tries of asynchronous calls without a result in time.",
        |t| t.calls_timed_out,
    ),
    (
        "eos_dedup_stale_total",
        "Records of a former epoch, or with a version that is not higher.",
        |t| t.dedup_stale,
    ),
    (
        "eos_dedup_gaps_total",
        "Gaps in the numbers of producers.",
        |t| t.dedup_gaps,
    ),
    (
        "eos_reorder_gaps_total",
        "Gaps in the numbers of keys that reorder_by gave up.",
        |t| t.reorder_gaps,
    ),
    (
        "eos_join_alone_total",
        "Records of joins that went out alone.",
        |t| t.join_alone,
    ),
    (
        "eos_join_too_late_pairs_total",
        "Missed pairs of joins: the earlier record had closed.",
        |t| t.join_too_late_pairs,
    ),
    (
        "eos_foreign_stale_answers_total",
        "Answers of foreign-key joins that belonged to former subscriptions.",
        |t| t.stale_answers,
    ),
    (
        "eos_misplaced_keys_total",
        "Records of joined topics whose key is in another partition than their partitioner chooses.",
        |t| t.misplaced_keys,
    ),
    (
        "eos_aborts_total",
        "Transactions aborted and repeated.",
        |t| t.aborts,
    ),
    (
        "eos_fences_total",
        "Transaction calls that failed because the member or producer was not current any more.",
        |t| t.fences,
    ),
    (
        "eos_producer_rebuilds_total",
        "Producers replaced after a quarantine, a fence or repeated aborts.",
        |t| t.rebuilds,
    ),
    (
        "eos_producer_quarantines_total",
        "Producers replaced while a request of theirs had no response.",
        |t| t.quarantines,
    ),
    (
        "eos_rebalances_total",
        "Handled assignments and revocations.",
        |t| t.rebalances,
    ),
    (
        "eos_abandoned_threads_total",
        "Threads abandoned because a client call did not return.",
        |t| t.abandoned_threads,
    ),
    (
        "eos_restored_records_total",
        "Changelog records read to restore state.",
        |t| t.restored_records,
    ),
    (
        "eos_restored_bytes_total",
        "Changelog bytes read to restore state, keys and values.",
        |t| t.restored_bytes,
    ),
];

const INPUTS: [Gauge; 3] = [
    (
        "eos_input_next_offset",
        "The offset of the next record to process.",
        |i| u64::try_from(i.next.get()).ok(),
    ),
    (
        "eos_input_lag_offsets",
        "Offsets left to process, up to the high watermark, including those held back by open transactions.",
        |i| i.lag,
    ),
    (
        "eos_input_held_back_offsets",
        "Offsets from the last stable offset to the high watermark, held back by open transactions.",
        |i| i.held_back,
    ),
];

impl Metrics {
    /// Returns the metrics in Prometheus' text format (version 0.0.4), for your own HTTP server. The content type is
    /// `text/plain; version=0.0.4; charset=utf-8`.
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        let mut text = Text::new(self);
        for (name, help, value) in COUNTERS {
            text.family(name, "counter", help);
            for worker in &self.workers {
                text.sample(name, worker, &[], value(&worker.totals));
            }
        }
        text.commits(&self.workers);
        text.restores(&self.workers);
        text.workers(&self.workers);
        text.times(&self.workers);
        text.parked_keys(&self.workers);
        text.calls(&self.workers);
        text.globals(&self.globals);
        if let Some(ledger) = &self.ledger {
            text.ledger(ledger);
        }
        for (name, help, value) in INPUTS {
            text.family(name, "gauge", help);
            for worker in &self.workers {
                for input in worker.tasks.iter().flat_map(|task| &task.inputs) {
                    let Some(value) = value(input) else { continue };
                    let partition = input.partition.partition.to_string();
                    let labels = [
                        ("topic", input.partition.topic.as_str()),
                        ("partition", &partition),
                    ];
                    text.sample(name, worker, &labels, value);
                }
            }
        }
        text.out
    }
}

struct Text<'a> {
    app: &'a str,
    out: String,
}

impl<'a> Text<'a> {
    fn new(metrics: &'a Metrics) -> Self {
        Self {
            app: &metrics.app,
            out: String::with_capacity(4096 * (1 + metrics.workers.len())),
        }
    }

    fn commits(&mut self, workers: &[WorkerMetrics]) {
        let name = "eos_commits_total";
        self.family(name, "counter", "Transactions committed.");
        for worker in workers {
            for (cause, n) in worker.totals.commits.iter() {
                self.sample(name, worker, &[("cause", cause.name())], n);
            }
        }
        self.family(
            "eos_commit_phase_seconds",
            "summary",
            "Time spent in the phases of commits; drain runs beside send_offsets.",
        );
        for worker in workers {
            for phase in Phase::ALL {
                let spent = worker.totals.commit_times.phase(phase);
                let label = [("phase", phase.name())];
                let seconds = spent.total.as_secs_f64();
                self.sample("eos_commit_phase_seconds_sum", worker, &label, seconds);
                self.sample(
                    "eos_commit_phase_seconds_count",
                    worker,
                    &label,
                    spent.count,
                );
            }
        }
        self.family(
            "eos_commit_seconds",
            "histogram",
            "Time from the end of intake to the end of the commit.",
        );
        for worker in workers {
            let latency = &worker.totals.commit_times.latency;
            let mut below = 0;
            for (upper, n) in latency.buckets() {
                below += n;
                let le = upper.map_or_else(|| "+Inf".to_owned(), |u| u.as_secs_f64().to_string());
                self.sample("eos_commit_seconds_bucket", worker, &[("le", &le)], below);
            }
            let seconds = latency.stats().total.as_secs_f64();
            self.sample("eos_commit_seconds_sum", worker, &[], seconds);
            // Equal to the last bucket. The counter of `spent` may be newer.
            self.sample("eos_commit_seconds_count", worker, &[], below);
        }
    }

    fn restores(&mut self, workers: &[WorkerMetrics]) {
        let name = "eos_restores_total";
        self.family(name, "counter", "Tasks whose state was restored.");
        for worker in workers {
            for (kind, n) in worker.totals.restores.iter() {
                self.sample(name, worker, &[("kind", kind.name())], n);
            }
        }
        let name = "eos_restoring_tasks";
        self.family(name, "gauge", "Tasks whose state is not restored yet.");
        for worker in workers {
            self.sample(name, worker, &[], worker.restoring.len());
        }
        let name = "eos_restore_remaining_offsets";
        let help = "Changelog offsets left to read for these tasks, if known.";
        self.family(name, "gauge", help);
        for worker in workers {
            let left = worker.restoring.iter().filter_map(|task| task.remaining);
            self.sample(name, worker, &[], left.sum::<u64>());
        }
    }

    fn workers(&mut self, workers: &[WorkerMetrics]) {
        let name = "eos_worker_state";
        let help = "1 for the state of the worker's transaction; all 0 once the worker has ended.";
        self.family(name, "gauge", help);
        for worker in workers {
            for state in State::ALL {
                let here = u8::from(worker.state == Some(state));
                self.sample(name, worker, &[("state", name_of(state))], here);
            }
        }
        let name = "eos_open_transaction_seconds";
        self.family(name, "gauge", "Age of the open transaction; 0 if none is.");
        for worker in workers {
            let age = worker.open_for.unwrap_or_default();
            self.sample(name, worker, &[], age.as_secs_f64());
        }
        let name = "eos_worker_last_step_age_seconds";
        let help = "Time since the worker's last step ended: it grows while a closure hangs.";
        self.family(name, "gauge", help);
        for worker in workers {
            if let Some(age) = worker.last_step {
                self.sample(name, worker, &[], age.as_secs_f64());
            }
        }
        let name = "eos_worker_last_response_age_seconds";
        let help = "Time since the worker received a response from a broker: it grows while none is reachable.";
        self.family(name, "gauge", help);
        for worker in workers {
            if let Some(age) = worker.last_response {
                self.sample(name, worker, &[], age.as_secs_f64());
            }
        }
        let name = "eos_group_generation";
        let help = "The group's generation as of the worker's last commit.";
        self.family(name, "gauge", help);
        for worker in workers {
            if let Some(generation) = worker.generation {
                self.sample(name, worker, &[], generation);
            }
        }
        let name = "eos_tasks";
        self.family(name, "gauge", "Tasks that the worker owns.");
        for worker in workers {
            self.sample(name, worker, &[], worker.tasks.len());
        }
        let name = "eos_paused_tasks";
        let help = "Tasks that are paused at a failed record and wait for a decision.";
        self.family(name, "gauge", help);
        for worker in workers {
            let paused = worker.tasks.iter().filter(|task| task.paused).count();
            self.sample(name, worker, &[], paused);
        }
    }

    fn times(&mut self, workers: &[WorkerMetrics]) {
        let name = "eos_stream_time_seconds";
        let help = "The highest timestamp of a task's records, in seconds since 1970.";
        self.family(name, "gauge", help);
        for worker in workers {
            for task in &worker.tasks {
                let Some(time) = task.stream_time else {
                    continue;
                };
                let id = task.id.to_string();
                self.sample(name, worker, &[("task", &id)], time.0 as f64 / 1_000.0);
            }
        }
        let durations: [TaskDuration; 2] = [
            (
                "eos_windows_ahead_seconds",
                "How far the latest window of a task's stores starts ahead of stream time; absent if \
                 none does.",
                |task| task.windows_ahead,
            ),
            (
                "eos_due_behind_seconds",
                "Time since the earliest unhandled timer or final result of a task became \
                 due; absent for tasks without these.",
                |task| task.due_behind,
            ),
        ];
        for (name, help, value) in durations {
            self.family(name, "gauge", help);
            for worker in workers {
                for task in &worker.tasks {
                    let Some(duration) = value(task) else {
                        continue;
                    };
                    let id = task.id.to_string();
                    self.sample(name, worker, &[("task", &id)], duration.as_secs_f64());
                }
            }
        }
    }

    fn parked_keys(&mut self, workers: &[WorkerMetrics]) {
        let name = "eos_parked_keys";
        let help = "Parked keys, and dead letters without a key that are not replayed yet; absent for \
                    tasks without dead letters in sequence.";
        self.family(name, "gauge", help);
        for worker in workers {
            for task in &worker.tasks {
                if let Some(parked) = task.parked_keys {
                    let id = task.id.to_string();
                    self.sample(name, worker, &[("task", &id)], parked);
                }
            }
        }
    }

    fn calls(&mut self, workers: &[WorkerMetrics]) {
        let gauges: [CallGauge; 2] = [
            (
                "eos_async_running",
                "Running asynchronous calls; absent for tasks without these.",
                |calls| calls.running,
            ),
            (
                "eos_async_waiting",
                "Records that wait for their calls, or for the turn of earlier records.",
                |calls| calls.waiting,
            ),
        ];
        for (name, help, value) in gauges {
            self.family(name, "gauge", help);
            for worker in workers {
                let tasks = worker.tasks.iter();
                for (id, calls) in tasks.filter_map(|task| Some((task.id, task.calls?))) {
                    let id = id.to_string();
                    self.sample(name, worker, &[("task", &id)], value(&calls));
                }
            }
        }
    }

    /// A global table belongs to its process, not to a worker.
    fn globals(&mut self, tables: &[GlobalMetrics]) {
        for (name, kind, help, value) in GLOBALS {
            self.family(name, kind, help);
            for table in tables {
                let labels = [
                    ("app", self.app),
                    ("table", &table.table),
                    ("topic", &table.topic),
                ];
                self.labelled(name, &labels, value(table));
            }
        }
    }

    /// Writes the counters of the ledger. They have no label `worker`, because the workers of a process share the
    /// ledger.
    fn ledger(&mut self, ledger: &LedgerMetrics) {
        let mut family = "";
        for (name, help, label, value) in LEDGERS {
            if name != family {
                self.family(name, "counter", help);
                family = name;
            }
            let mut labels = vec![("app", self.app), ("ledger", &*ledger.ledger)];
            labels.extend(label);
            self.labelled(name, &labels, value(&ledger.totals));
        }
    }

    // Writing into a `String` can't fail.

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(
        &mut self,
        name: &str,
        worker: &WorkerMetrics,
        labels: &[(&str, &str)],
        value: impl Display,
    ) {
        let worker = worker.id.to_string();
        let mut all = vec![("app", self.app), ("worker", &*worker)];
        all.extend(labels);
        self.labelled(name, &all, value);
    }

    fn labelled(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let mut before = '{';
        self.out.push_str(name);
        for (label, value) in labels {
            let _ = write!(self.out, "{before}{label}=\"");
            escape(value, &mut self.out);
            self.out.push('"');
            before = ',';
        }
        let _ = writeln!(self.out, "}} {value}");
    }
}

/// The format escapes three characters in the value of a label: backslash, quote and line feed.
fn escape(value: &str, out: &mut String) {
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}

fn name_of(state: State) -> &'static str {
    match state {
        State::Cold => "cold",
        State::Initializing => "initializing",
        State::Idle => "idle",
        State::Claiming => "claiming",
        State::Open => "open",
        State::Sealing => "sealing",
        State::SendingOffsets => "sending_offsets",
        State::Committing => "committing",
        State::Aborting => "aborting",
        State::InDoubt => "in_doubt",
        State::Fenced => "fenced",
        State::Failed => "failed",
    }
}

#[cfg(test)]
#[path = "prometheus_test.rs"]
mod tests;

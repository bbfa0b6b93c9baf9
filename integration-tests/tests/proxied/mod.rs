//! An app behind the proxy. Its input arrives in lots, so that a fault always hits the same transaction.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use eos_core::run::{Running, StopMode};
use eos_core::spi::failpoints::Failpoints;
use eos_core::{Handle, Topic};
use integration_tests::judge::{self, Expectation, Question};
use integration_tests::proxy::Proxy;
use integration_tests::wait::wait_until;
use kafka_wire::{Isolation, Producer};
use tokio::runtime::Runtime;

use crate::common::{Case, PATIENCE, With, ended};

const PARTITIONS: i32 = 2;
/// Records of one lot.
pub(crate) const LOT: u64 = 20;
/// The commit interval. It is long enough for the outputs of a lot to be acknowledged before its transaction is sealed.
const INTERVAL: Duration = Duration::from_millis(200);

/// One app with an input and two outputs, and its progress.
pub(crate) struct Subject<'a> {
    pub(crate) proxy: &'a Proxy,
    pub(crate) case: Case,
    outputs: [String; 2],
    producer: Producer,
    sent: u64,
    settings: Settings,
    running: Option<Running>,
}

/// The settings of an app.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) transaction_timeout: Option<Duration>,
    /// The disabled defences.
    pub(crate) undefended: &'static str,
    /// The faults.
    pub(crate) failpoints: &'static str,
}

/// The findings of the judge in several runs.
#[derive(Debug, Default, Clone)]
pub(crate) struct Found {
    lost: u64,
    doubled: u64,
    torn: u64,
    /// Committed offsets that do not match the outputs.
    offsets: u64,
    /// All other violations.
    other: u64,
    /// The text of the first verdict that was not clean.
    pub(crate) said: String,
}

impl<'a> Subject<'a> {
    /// Starts an app with its own topics, and waits until it has processed a first lot.
    pub(crate) fn start(
        proxy: &'a Proxy,
        bootstrap: &str,
        name: &str,
        settings: Settings,
    ) -> Result<Subject<'a>> {
        let mut case = Case::with_partitions(bootstrap, name, PARTITIONS)?;
        let second = format!("{}-out-2", case.app);
        case.client
            .create_topic(&second, PARTITIONS, 1, &crate::common::KEEP)?;
        let mut subject = Subject {
            proxy,
            outputs: [case.output.clone(), second],
            producer: Producer::new(bootstrap)?,
            case,
            sent: 0,
            settings,
            running: None,
        };
        subject.run()?;
        subject.lot()?;
        subject.await_outputs(PATIENCE)?;
        Ok(subject)
    }

    fn run(&mut self) -> Result<()> {
        let app = self
            .case
            .app()
            .with("commit.interval.ms", INTERVAL.as_millis());
        let mut app = app.with("commit.pace", "fixed");
        if let Some(timeout) = self.settings.transaction_timeout {
            app = app.with("transaction.timeout.ms", timeout.as_millis());
        }
        let input = Topic::<String, serde_json::Value>::json(&self.case.input);
        for output in &self.outputs {
            app.source(&input).to(&Topic::json(output));
        }
        let faults = Failpoints::parse(self.settings.failpoints, self.settings.undefended)?;
        let _entered = faults.enter();
        self.running = Some(app.start_blocking(&self.case.bootstrap)?);
        Ok(())
    }

    /// Returns the prefix of the client ids of this app.
    pub(crate) fn clients(&self) -> String {
        format!("{}-", self.case.app)
    }

    pub(crate) fn is_undefended(&self) -> bool {
        !self.settings.undefended.is_empty()
    }

    pub(crate) fn handle(&self) -> Option<Handle> {
        self.running.as_ref().map(Running::handle)
    }

    pub(crate) fn totals(&self) -> eos_core::metrics::Totals {
        self.handle()
            .map(|handle| handle.metrics().totals)
            .unwrap_or_default()
    }

    /// Sends a lot. It is one batch for each partition, so that the app processes it in one transaction.
    pub(crate) fn lot(&mut self) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
        for seq in self.sent..self.sent + LOT {
            let (key, value) = (format!("k{}", seq % 4), format!("{{\"seq\":{seq}}}"));
            let partition = (seq % 2) as i32;
            let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
            let input = &self.case.input;
            self.producer.send(input, partition, key, value, &[], now)?;
        }
        self.sent += LOT;
        self.producer.flush()
    }

    /// Waits until all sent records are committed in both outputs.
    pub(crate) fn await_outputs(&mut self, patience: Duration) -> Result<()> {
        let what = format!("{} records are in both outputs", self.sent);
        let waited = wait_until(patience, &what, || {
            for output in &self.outputs {
                let mut seen = std::collections::BTreeSet::new();
                let client = &mut self.case.client;
                client.read_all(output, Isolation::ReadCommitted, |_, record| {
                    seen.insert(record.value.clone());
                })?;
                if (seen.len() as u64) < self.sent {
                    return Ok(false);
                }
            }
            Ok(true)
        });
        waited.with_context(|| self.state())
    }

    /// Returns the status of the app as text: the reason for its end, or its metrics.
    fn state(&mut self) -> String {
        let Some(running) = &mut self.running else {
            return "it does not run".to_owned();
        };
        let at_once = |runtime: Runtime| {
            runtime.block_on(async {
                let end = tokio::time::timeout(Duration::from_millis(10), running.ended());
                end.await.ok()
            })
        };
        match Runtime::new().ok().and_then(at_once) {
            Some(Err(error)) => format!("{} ended: {error}", self.case.app),
            Some(Ok(())) => format!("{} ended", self.case.app),
            None => format!("{}: {:#?}", self.case.app, running.handle().metrics()),
        }
    }

    /// Waits until the group's offsets are at the end of the input.
    pub(crate) fn await_offsets(&mut self, patience: Duration) -> Result<()> {
        wait_until(patience, "the offsets are at the end", || {
            self.case.is_through()
        })
    }

    /// Stops the app, which must end without an error.
    pub(crate) fn stop(&mut self) -> Result<()> {
        if let Some(mut running) = self.running.take() {
            running.handle().stop(StopMode::Leave);
            ended(&mut running)??;
        }
        Ok(())
    }

    /// Stops the app and starts it again, so that records that are processed twice become visible.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.stop()?;
        self.run()
    }

    /// Returns the findings of the judge. The app must be stopped.
    pub(crate) fn judge(&self) -> Result<Found> {
        let case = &self.case;
        let mut question = Question::of_app(&case.bootstrap, &case.app, &case.input, &self.outputs);
        question.patience = Duration::from_secs(30);
        let (evidence, verdict) = question.judge(Expectation::Finished)?;
        let mut found = Found::default();
        if !verdict.is_clean() {
            found.said = format!("{}: {}", self.case.app, judge::text(&evidence, &verdict));
        }
        for (kind, finding) in verdict.findings() {
            let count = match kind {
                "lost" => &mut found.lost,
                "doubled" => &mut found.doubled,
                "torn" => &mut found.torn,
                "offsets" => &mut found.offsets,
                _ => &mut found.other,
            };
            *count += finding.count;
        }
        Ok(found)
    }
}

impl Found {
    pub(crate) fn is_clean(&self) -> bool {
        self.lost + self.doubled + self.torn + self.offsets + self.other == 0
    }

    pub(crate) fn add(&mut self, other: Found) {
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.torn += other.torn;
        self.offsets += other.offsets;
        self.other += other.other;
        if self.said.is_empty() {
            self.said = other.said;
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Found {
            lost,
            doubled,
            torn,
            ..
        } = self;
        write!(f, "lost {lost}, doubled {doubled}, torn {torn}")?;
        if self.offsets > 0 {
            write!(f, ", offsets beside the outputs {}", self.offsets)?;
        }
        if self.other > 0 {
            write!(f, ", other {}", self.other)?;
        }
        Ok(())
    }
}

/// Runs the jobs, `at_a_time` of them at the same time. Returns the result of each job, in their order, and the time
/// from the start to its end.
pub(crate) fn in_parallel<J: Sync, T: Send>(
    at_a_time: usize,
    jobs: &[J],
    run: impl Fn(&J) -> Result<T> + Sync,
) -> Vec<(Result<T>, Duration)> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..at_a_time.min(jobs.len()) {
            scope.spawn(|| {
                loop {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(nth) else {
                        return;
                    };
                    let outcome = run(job);
                    if let Ok(mut done) = done.lock() {
                        done.push((nth, (outcome, start.elapsed())));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(nth, _)| *nth);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

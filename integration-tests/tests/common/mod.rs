//! Shared parts of the tests that run an app in the test process.
#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod log;
pub(crate) mod sweeps;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use eos_core::run::Running;
use eos_core::{App, Error, Topic};
use integration_tests::judge::{Expectation, Question};
use integration_tests::wait::{is_through, nothing_is_open, wait_until};
use kafka_launcher::for_tests;
use kafka_wire::{Client, Isolation, Producer};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The time limit of each wait. A wait normally takes about a second.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A topic setting that keeps all records. The records of the tests have small numbers as timestamps, so for the broker
/// they are decades old. Without this setting, the broker deletes them at its first check, half a minute after its
/// start.
pub(crate) const KEEP: [(&str, &str); 1] = [("retention.ms", "-1")];

/// Sets a property in an expression.
pub(crate) trait With {
    fn with(self, key: &str, value: impl std::fmt::Display) -> App;
}

impl With for App {
    fn with(mut self, key: &str, value: impl std::fmt::Display) -> App {
        self.set(key, value);
        self
    }
}

/// A name, and a test function that takes the address of a Kafka.
pub(crate) type Scenario = (&'static str, fn(&str) -> Result<()>);

/// The names and the state directory of one scenario on a shared cluster.
pub(crate) struct Case {
    pub(crate) bootstrap: String,
    pub(crate) app: String,
    pub(crate) input: String,
    pub(crate) output: String,
    pub(crate) state: TempDir,
    pub(crate) client: Client,
}

impl Case {
    /// Creates an input and an output topic of one partition each.
    pub(crate) fn new(bootstrap: &str, name: &str) -> Result<Case> {
        Self::with_partitions(bootstrap, name, 1)
    }

    pub(crate) fn with_partitions(bootstrap: &str, name: &str, partitions: i32) -> Result<Case> {
        let mark = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
        let app = format!("{name}-{mark:x}");
        let mut client = Client::connect(bootstrap, PATIENCE)?;
        let (input, output) = (format!("{app}-in"), format!("{app}-out"));
        client.create_topic(&input, partitions, 1, &KEEP)?;
        client.create_topic(&output, partitions, 1, &KEEP)?;
        Ok(Case {
            bootstrap: bootstrap.to_owned(),
            app,
            input,
            output,
            state: TempDir::new()?,
            client,
        })
    }

    pub(crate) fn send(&self, values: &[&str]) -> Result<()> {
        let mut producer = Producer::new(&self.bootstrap)?;
        for value in values {
            let (key, value) = (Some(&b"k"[..]), Some(value.as_bytes()));
            producer.send(&self.input, 0, key, value, &[], 1_000)?;
        }
        producer.flush()
    }

    /// Returns an app of this name without a pipeline.
    pub(crate) fn app(&self) -> App {
        App::new(&self.app)
            .with("state.dir", self.state.path().display())
            .with("start.deadline.ms", PATIENCE.as_millis())
    }

    /// Returns an app that copies text from the input to the output.
    pub(crate) fn copy(&self) -> App {
        let mut app = self.app();
        app.source(&Topic::<String, String>::plain(&self.input))
            .to(&Topic::plain(&self.output));
        app
    }

    /// Returns the committed output records as text.
    pub(crate) fn output(&mut self) -> Result<Vec<String>> {
        let mut values = Vec::new();
        self.client
            .read_all(&self.output, Isolation::ReadCommitted, |_, record| {
                let value = record.value.as_deref().unwrap_or_default();
                values.push(String::from_utf8_lossy(value).into_owned());
            })?;
        Ok(values)
    }

    /// Returns the committed offset of partition 0.
    pub(crate) fn committed(&mut self) -> Result<Option<i64>> {
        let all = self.client.committed(&self.app, &self.input)?;
        Ok(all.into_iter().next().flatten().map(|(offset, _)| offset))
    }

    /// Sets the group's offset of partition 0.
    pub(crate) fn set_offset(&mut self, offset: i64, metadata: &str) -> Result<()> {
        self.client
            .commit_offset(&self.app, &self.input, 0, offset, metadata)
    }

    /// Waits until the app has no open transaction.
    pub(crate) fn nothing_is_open(&mut self) -> Result<()> {
        nothing_is_open(&mut self.client, &self.app, PATIENCE)
    }

    /// Returns whether the app's committed offsets are at the end of its input.
    pub(crate) fn is_through(&mut self) -> Result<bool> {
        is_through(&mut self.client, &self.app, &self.input)
    }

    /// Checks that the judge finds no violation so far.
    pub(crate) fn must_be_clean(&self, expectation: Expectation) -> Result<()> {
        let outputs = std::slice::from_ref(&self.output);
        Question::of_app(&self.bootstrap, &self.app, &self.input, outputs)
            .must_be_clean(expectation)
    }

    /// Runs an app that must fail, and returns its error.
    pub(crate) fn failure_of(&self, app: App) -> Result<Error> {
        match app.start_blocking(&self.bootstrap) {
            Err(error) => Ok(error),
            Ok(mut running) => ended(&mut running)?
                .err()
                .context("it ended without an error"),
        }
    }

    /// Runs an app until the output has this many records, and stops it.
    pub(crate) fn run_to(&mut self, app: App, records: usize) -> Result<()> {
        let mut running = app.start_blocking(&self.bootstrap)?;
        let what = format!("{} has {records} records", self.output);
        wait_until(PATIENCE, &what, || Ok(self.output()?.len() >= records))?;
        running.handle().stop(eos_core::run::StopMode::Leave);
        Ok(ended(&mut running)??)
    }
}

/// Waits until an app has committed three more times.
pub(crate) fn commits_go_on(running: &Running) -> Result<()> {
    let commits = || running.handle().metrics().totals.commits.total();
    let before = commits();
    wait_until(PATIENCE, "it commits", || Ok(commits() > before + 2))
}

/// Waits until an app has ended, for at most [`PATIENCE`], and returns its result.
pub(crate) fn ended(running: &mut Running) -> Result<Result<(), Error>> {
    let runtime = Runtime::new()?;
    runtime.block_on(async {
        let end = tokio::time::timeout(PATIENCE, running.ended()).await;
        end.context("the app goes on")
    })
}

/// Runs the scenarios one after the other on one cluster. A failed scenario does not stop the others.
pub(crate) fn on_kafka(scenarios: &[Scenario]) -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    each(scenarios, kafka.bootstrap())
}

pub(crate) fn each(scenarios: &[Scenario], bootstrap: &str) -> Result<()> {
    log::init();
    let mut failed = Vec::new();
    for (name, scenario) in scenarios {
        let start = std::time::Instant::now();
        let outcome = scenario(bootstrap);
        let word = if outcome.is_ok() { "ok" } else { "FAILED" };
        eprintln!("{name} ... {word} ({:.1?})", start.elapsed());
        if let Err(error) = outcome {
            failed.push(format!("{name}: {error:?}"));
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
    Ok(())
}

/// Fails unless the text contains each of these parts.
pub(crate) fn says(text: &impl ToString, parts: &[&str]) -> Result<()> {
    let text = text.to_string();
    for part in parts {
        if !text.contains(part) {
            bail!("{part:?} is not in: {text}");
        }
    }
    Ok(())
}

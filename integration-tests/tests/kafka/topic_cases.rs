//! Changes to each topic of an app.
//!
//! Each topic is deleted, created again, given partitions and given another cleanup policy, while the app runs and
//! while it is stopped. The brokers run with and without `auto.create.topics.enable`. The app either continues with
//! exact results, or ends with the error in the table.
//!
//! `cargo test -p integration-tests --test kafka topic_cases:: -- --nocapture` runs them. `EOS_CASE=changelog` runs the
//! cases whose names contain this.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use eos_core::errors::{PreflightError, TopicChange, WorkerError};
use eos_core::errors::{RestartError, StartError};
use eos_core::run::{Running, StopMode};
use eos_core::{App, Error, ErrorPolicy, KeyValueStore, Topic};
use integration_tests::sweep::each;
use integration_tests::wait::wait_until;
use kafka_launcher::{ClusterOptions, own_for_tests};
use kafka_wire::{Client, Isolation, Producer};
use tempfile::TempDir;

use crate::common::{KEEP, PATIENCE, With, ended, log};

/// The number of cases that run at a time. Most cases wait.
const AT_ONCE: usize = 10;
/// The time for which an app must continue after a change. It is longer than its interval between queries of its
/// topics.
const LOOK: Duration = Duration::from_secs(15);
const PARTITIONS: i32 = 2;
const GROWN: i32 = 4;
/// The number of records before the change, and again after it.
const RECORDS: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Input,
    Sibling,
    Output,
    Repartition,
    Changelog,
    DeadLetters,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Deleted,
    Recreated,
    Grown,
    OtherPolicy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Running,
    Stopped,
}

/// The result of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    /// The app processes each record once, before and after the change.
    GoesOn,
    /// The app ends with this error, and its message names the topic.
    Ends(&'static str),
}

use Change::{Deleted, Grown, OtherPolicy, Recreated};
use Outcome::{Ends, GoesOn};
use Role::{Changelog, DeadLetters, Input, Output, Repartition, Sibling};

const ROLES: [Role; 6] = [Input, Sibling, Output, Repartition, Changelog, DeadLetters];
const CHANGES: [Change; 4] = [Deleted, Recreated, Grown, OtherPolicy];

/// Returns the expected outcome from the table. (The producer may be the first to detect that an output is missing.)
fn expected(role: Role, change: Change, when: When) -> Outcome {
    match (when, change, role) {
        (When::Running, Deleted, _) => Ends("TopicChanged::Deleted"),
        (When::Running, Recreated, _) => Ends("TopicChanged::Recreated"),
        (When::Running, Grown, _) => Ends("TopicChanged::Grown"),
        // Only the next start detects it.
        (When::Running, OtherPolicy, _) => GoesOn,
        (When::Stopped, Deleted, Input | Sibling | Output | DeadLetters) => Ends("MissingTopics"),
        (When::Stopped, Deleted | Recreated, Changelog) => Ends("ChangelogRecreated"),
        (When::Stopped, Recreated, Input | Sibling) => Ends("Disagree"),
        (When::Stopped, Deleted | Recreated, _) => GoesOn,
        // Its changelog and repartition topic then have fewer partitions than the input.
        (When::Stopped, Grown, Input) => Ends("Unfit"),
        (When::Stopped, Grown, Sibling) => Ends("UnequalWidths"),
        (When::Stopped, Grown | OtherPolicy, Repartition | Changelog) => Ends("Unfit"),
        (When::Stopped, Grown | OtherPolicy, _) => GoesOn,
    }
}

#[derive(Debug, Clone, Copy)]
struct One {
    role: Role,
    change: Change,
    when: When,
}

impl fmt::Display for One {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { role, change, when } = self;
        write!(f, "{role:?}-{change:?}-{when:?}")
    }
}

#[test]
fn on_brokers_that_create_topics() -> Result<()> {
    every_case("true")
}

#[test]
fn on_brokers_that_create_none() -> Result<()> {
    every_case("false")
}

fn every_case(auto_create: &str) -> Result<()> {
    log::init();
    let options = ClusterOptions::default().property("auto.create.topics.enable", auto_create);
    let Some(cluster) = own_for_tests(&options)? else {
        return Ok(());
    };
    let part = std::env::var("EOS_CASE").unwrap_or_default().to_lowercase();
    let mut cases = Vec::new();
    for role in ROLES {
        for change in CHANGES {
            for when in [When::Running, When::Stopped] {
                cases.push(One { role, change, when });
            }
        }
    }
    cases.retain(|case| case.to_string().to_lowercase().contains(&part));
    let done = each(&cases, AT_ONCE, |case| {
        let mut scene = Scene::new(cluster.bootstrap(), *case)?;
        scene.play().with_context(|| case.to_string())
    });
    let mut failed = Vec::new();
    eprintln!("auto.create.topics.enable={auto_create}");
    for (case, one) in cases.iter().zip(done) {
        let wanted = expected(case.role, case.change, case.when);
        let found = match &one.answer {
            Ok(found) => format!("{found:?}"),
            Err(error) => format!("{error:?}"),
        };
        eprintln!("{case}: {found} ({:.1?})", one.took);
        let by_the_producer = wanted == Ends("TopicChanged::Deleted")
            && !matches!(case.role, Input | Sibling)
            && found == format!("{:?}", Ends("Client"));
        if one.answer.as_ref().ok() != Some(&wanted) && !by_the_producer {
            failed.push(format!("{case}: {found} instead of {wanted:?}"));
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// One app with a topic in each role.
struct Scene {
    case: One,
    bootstrap: String,
    app: String,
    state: TempDir,
    client: Client,
    sent: usize,
    changed: bool,
}

impl Scene {
    fn new(bootstrap: &str, case: One) -> Result<Scene> {
        let app = case.to_string().to_lowercase();
        let mut scene = Scene {
            case,
            bootstrap: bootstrap.to_owned(),
            app,
            state: TempDir::new()?,
            client: Client::connect(bootstrap, PATIENCE)?,
            sent: 0,
            changed: false,
        };
        for role in [Input, Sibling, Output, DeadLetters] {
            scene.create(role)?;
        }
        let copies = scene.copies();
        scene.client.create_topic(&copies, PARTITIONS, 1, &KEEP)?;
        Ok(scene)
    }

    fn topic(&self, role: Role) -> String {
        let app = &self.app;
        match role {
            Input => format!("{app}-in"),
            Sibling => format!("{app}-rows"),
            Output => format!("{app}-out"),
            Repartition => format!("{app}-words-repartition"),
            Changelog => format!("{app}-in-changelog"),
            DeadLetters => format!("{app}-dlq"),
        }
    }

    /// Returns the output topic after the repartition.
    fn copies(&self) -> String {
        format!("{}-copies", self.app)
    }

    fn create(&mut self, role: Role) -> Result<()> {
        let topic = self.topic(role);
        let settings: &[_] = match role {
            Repartition => &[
                ("cleanup.policy", "delete"),
                ("retention.ms", "-1"),
                ("retention.bytes", "-1"),
                ("message.timestamp.type", "CreateTime"),
            ],
            Changelog => &[("cleanup.policy", "compact")],
            _ => &KEEP,
        };
        self.client.create_topic(&topic, PARTITIONS, 1, settings)
    }

    fn start(&self) -> Result<Running, Error> {
        let text = |role| Topic::<String, String>::plain(&self.topic(role));
        let mut app = App::new(&self.app)
            .with("state.dir", self.state.path().display())
            .with("start.deadline.ms", PATIENCE.as_millis())
            .with(
                "transaction.timeout.ms",
                Duration::from_secs(12).as_millis(),
            );
        let input = app.source(&text(Input));
        let rows = Topic::<String, Option<String>>::plain(&self.topic(Sibling));
        let rows = app.table(&rows, &KeyValueStore::plain("rows"));
        let joined = input
            .on_error(ErrorPolicy::dead_letter(&self.topic(DeadLetters)))
            .try_map(|value| match &value[..] {
                "bad" => Err("bad".into()),
                _ => Ok::<_, eos_core::Failure>(value),
            })
            .left_join(&rows, |value, row| {
                format!("{value} {}", row.as_deref().unwrap_or("none"))
            });
        joined.clone().to(&text(Output));
        joined
            .key_by(|value: &String| value.clone())
            .repartition(&Topic::plain("words"))
            .to(&Topic::plain(&self.copies()));
        app.start_blocking(&self.bootstrap)
    }

    /// Sends some records, and one that fails.
    fn send(&mut self) -> Result<()> {
        let mut producer = Producer::with_patience(&self.bootstrap, PATIENCE)?;
        let input = self.topic(Input);
        for _ in 0..RECORDS {
            // Distinct keys, so that compaction removes no record.
            let (key, value) = (key(self.sent), self.sent.to_string());
            let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
            producer.send(&input, 0, key, value, &[], 1_000)?;
            self.sent += 1;
        }
        producer.send(&input, 0, Some(b"bad"), Some(b"bad"), &[], 1_000)?;
        producer.flush()
    }

    fn play(&mut self) -> Result<Outcome> {
        let mut producer = Producer::with_patience(&self.bootstrap, PATIENCE)?;
        let rows = self.topic(Sibling);
        for n in 0..2 * RECORDS {
            producer.send(&rows, 0, Some(key(n).as_bytes()), Some(b"row"), &[], 500)?;
        }
        producer.flush()?;
        self.send()?;
        let mut running = self.start()?;
        self.await_all()?;
        let outcome = match self.case.when {
            When::Running => {
                self.change()?;
                self.outcome(&mut running)?
            }
            When::Stopped => {
                running.handle().stop(StopMode::Leave);
                ended(&mut running)??;
                self.change()?;
                match self.start() {
                    Ok(mut running) => self.outcome(&mut running)?,
                    Err(error) => self.named(&error)?,
                }
            }
        };
        self.judge(&outcome)?;
        Ok(outcome)
    }

    fn change(&mut self) -> Result<()> {
        let One { role, change, .. } = self.case;
        let topic = self.topic(role);
        self.changed = true;
        match change {
            Deleted => self.client.delete_topic(&topic),
            Recreated => {
                // A query in the meantime may create the topic again.
                self.client.delete_topic(&topic)?;
                self.create(role)
            }
            Grown => self.client.grow_topic(&topic, GROWN),
            OtherPolicy => {
                let other = match role {
                    Changelog => "delete",
                    _ => "compact",
                };
                self.client.configure_topic(&topic, "cleanup.policy", other)
            }
        }
    }

    /// Sends more records, and returns how the app ends or that it continues.
    fn outcome(&mut self, running: &mut Running) -> Result<Outcome> {
        let since = Instant::now();
        // A deleted topic accepts no records.
        if !(self.case.role == Input && self.case.change == Deleted) {
            self.send()?;
        }
        while since.elapsed() < PATIENCE {
            if let Some(end) = end_of(running)? {
                let error = end.err().context("the app ended without an error")?;
                return self.named(&error);
            }
            if since.elapsed() > LOOK && self.all_there()? {
                running.handle().stop(StopMode::Leave);
                ended(running)??;
                return Ok(GoesOn);
            }
        }
        bail!("the app neither ends nor processes all records")
    }

    fn named(&self, error: &Error) -> Result<Outcome> {
        let (text, topic) = (error.to_string(), self.topic(self.case.role));
        let variant = variant(error);
        ensure!(
            text.contains(&topic),
            "{variant} does not name {topic}: {text}"
        );
        eprintln!("{}: {text}", self.case);
        Ok(Ends(variant))
    }

    /// Returns the values in all partitions of a topic. It is empty if the topic does not exist.
    fn read(&mut self, topic: &str) -> Result<Vec<String>> {
        let mut values = Vec::new();
        self.client
            .read_all(topic, Isolation::ReadCommitted, |_, record| {
                let value = record.value.as_deref().unwrap_or_default();
                values.push(String::from_utf8_lossy(value).into_owned());
            })?;
        Ok(values)
    }

    fn all_there(&mut self) -> Result<bool> {
        let (out, copies) = (self.topic(Output), self.copies());
        let replaced = self.is_replaced(Output);
        let whole = if replaced { RECORDS } else { self.sent };
        Ok(self.read(&out)?.len() >= whole && self.read(&copies)?.len() >= self.sent)
    }

    fn await_all(&mut self) -> Result<()> {
        wait_until(PATIENCE, "all records are through", || self.all_there())
    }

    fn is_replaced(&self, role: Role) -> bool {
        let replaced = matches!(self.case.change, Deleted | Recreated);
        self.changed && replaced && self.case.role == role
    }

    /// Checks that no record is lost or counted twice, for any outcome.
    fn judge(&mut self, outcome: &Outcome) -> Result<()> {
        let joined = |n: usize| format!("{n} row");
        let mut topics = vec![self.copies()];
        if !self.is_replaced(Output) {
            topics.push(self.topic(Output));
        }
        for topic in topics {
            let mut found = self.read(&topic)?;
            // Merge the partitions in order. (No number has two digits.)
            found.sort();
            let wanted: Vec<_> = (0..self.sent).map(joined).collect();
            let whole = *outcome == GoesOn || found.len() < RECORDS;
            let prefix = wanted.get(..found.len()) == Some(&found[..]);
            ensure!(
                prefix && (!whole || found == wanted),
                "{topic} has {found:?} of {} records",
                self.sent
            );
        }
        Ok(())
    }
}

fn key(n: usize) -> String {
    format!("k{n}")
}

/// Returns the result of an app if it ends within half a second.
fn end_of(running: &mut Running) -> Result<Option<Result<(), Error>>> {
    let runtime = tokio::runtime::Runtime::new()?;
    Ok(runtime.block_on(async {
        let moment = Duration::from_millis(500);
        tokio::time::timeout(moment, running.ended()).await.ok()
    }))
}

/// Returns the name of the innermost variant of an error.
fn variant(error: &Error) -> &'static str {
    match error {
        Error::Preflight(error) => match error {
            PreflightError::MissingTopics { .. } => "MissingTopics",
            PreflightError::Unfit { .. } => "Unfit",
            PreflightError::Uncreated { .. } => "Uncreated",
            PreflightError::Widths { .. } => "UnequalWidths",
            _ => "another preflight error",
        },
        Error::Worker(error) => match error {
            WorkerError::TopicChanged(changed) => match changed.change {
                TopicChange::Deleted { .. } => "TopicChanged::Deleted",
                TopicChange::Recreated { .. } => "TopicChanged::Recreated",
                TopicChange::Grown { .. } => "TopicChanged::Grown",
                _ => "another TopicChanged",
            },
            WorkerError::Restart(error) => match &**error {
                RestartError::ChangelogRecreated { .. } => "ChangelogRecreated",
                RestartError::OffsetGone { .. } => "OffsetGone",
                _ => "another RestartError",
            },
            WorkerError::Start(error) => match error {
                StartError::Disagree { .. } => "Disagree",
                StartError::OffsetMissing { .. } => "OffsetMissing",
                _ => "another StartError",
            },
            WorkerError::Client(_) => "Client",
            _ => "another worker error",
        },
        _ => "another error",
    }
}

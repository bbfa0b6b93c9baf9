//! Processes that count by key on separate hosts, and their expected counts.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use integration_tests::counted::{Counted, Counts, Findings, visible};
use integration_tests::files::restart_rows;
use integration_tests::process::{Program, build};
use integration_tests::sweep::Member;
use integration_tests::wait::wait_until;
use kafka_wire::partitioner::partition;
use kafka_wire::{Client, Producer};
use tempfile::TempDir;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An example of this package that counts, built with failpoints.
#[derive(Clone, Copy)]
pub(crate) struct Counter {
    pub(crate) program: &'static str,
    /// The topic that gives its changelog the name.
    pub(crate) stage: &'static str,
    pub(crate) partitions: i32,
}

/// One scenario: its topics, hosts and processes.
pub(crate) struct Scene {
    pub(crate) app: String,
    pub(crate) client: Client,
    bootstrap: String,
    counter: Counter,
    program: PathBuf,
    producer: Producer,
    dir: TempDir,
    sent: Counts,
    pub(crate) total: u64,
    logs: Vec<PathBuf>,
}

/// The settings of a process.
#[derive(Clone, Copy)]
pub(crate) struct Start<'a> {
    /// The name of the host. Each host has its own state directory.
    pub(crate) host: &'a str,
    pub(crate) failpoints: &'a str,
    pub(crate) undefended: &'a str,
    pub(crate) interval_ms: u32,
}

impl<'a> Start<'a> {
    pub(crate) fn on(host: &'a str) -> Self {
        Start {
            host,
            failpoints: "",
            undefended: "",
            interval_ms: 50,
        }
    }
}

pub(crate) fn program(counter: &Counter) -> Result<PathBuf> {
    let program = Program::Example(counter.program);
    build("integration-tests", program, &["--features", "failpoints"])
}

impl Scene {
    pub(crate) fn new(bootstrap: &str, name: &str, counter: Counter) -> Result<Scene> {
        let mark = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
        let app = format!("{name}-{mark:x}").replace('_', "-");
        let mut client = Client::connect(bootstrap, PATIENCE)?;
        for end in ["in", "out"] {
            client.create_topic(&format!("{app}-{end}"), counter.partitions, 1, &[])?;
        }
        Ok(Scene {
            app,
            client,
            bootstrap: bootstrap.to_owned(),
            counter,
            program: program(&counter)?,
            producer: Producer::new(bootstrap)?,
            dir: TempDir::new()?,
            sent: Counts::new(),
            total: 0,
            logs: Vec::new(),
        })
    }

    pub(crate) fn start(&mut self, how: Start<'_>) -> Result<Member> {
        let mut command = Command::new(&self.program);
        command
            .env("EOS_BOOTSTRAP_SERVERS", &self.bootstrap)
            .env("APP", &self.app)
            .env("RUST_LOG", "info,eos_core=debug")
            .env(
                "EOS_STATE_DIR",
                self.dir.path().join("state").join(how.host),
            )
            .env("EOS_SESSION_TIMEOUT_MS", "4000")
            .env("EOS_HEARTBEAT_INTERVAL_MS", "400")
            // Longer than each test, because the coordinator must not end the transaction of a frozen process.
            .env("EOS_TRANSACTION_TIMEOUT_MS", "60000")
            .env("EOS_REPARTITION_PURGE_INTERVAL_MS", "100")
            .env("EOS_COMMIT_PACE", "fixed")
            .env("EOS_COMMIT_INTERVAL_MS", how.interval_ms.to_string())
            // The least value, with which a restore writes loads of a mebibyte.
            .env("EOS_STATE_MEMORY_BYTES", (8 << 20).to_string())
            .env("EOS_FAILPOINTS", how.failpoints)
            .env("EOS_FAILPOINTS_LOG", self.fired_log())
            .env("EOS_UNDEFENDED", how.undefended);
        let log = self.dir.path().join(format!("{}.log", self.logs.len()));
        self.logs.push(log.clone());
        Member::spawn(command, log)
    }

    /// Sends a record of each key to the partition of the key.
    pub(crate) fn send<'k>(&mut self, keys: impl IntoIterator<Item = &'k str>) -> Result<()> {
        let now = i64::try_from(UNIX_EPOCH.elapsed()?.as_millis())?;
        let topic = format!("{}-in", self.app);
        for key in keys {
            let to = partition(key.as_bytes(), self.counter.partitions);
            let bytes = Some(key.as_bytes());
            self.producer.send(&topic, to, bytes, bytes, &[], now)?;
            *self.sent.entry(key.to_owned()).or_default() += 1;
            self.total += 1;
        }
        self.producer.flush()
    }

    /// Returns the `nth` key of a partition.
    pub(crate) fn key_of(&self, wanted: i32, nth: usize) -> String {
        let keys = (0..).map(|n| format!("k{n}"));
        let mut its = keys.filter(|k| partition(k.as_bytes(), self.counter.partitions) == wanted);
        its.nth(nth).unwrap_or_default()
    }

    pub(crate) fn await_counted(&mut self, member: &mut Member) -> Result<()> {
        let (output, total) = (format!("{}-out", self.app), self.total);
        wait_until(PATIENCE, "every record is counted", || {
            member.check()?;
            Ok(visible(&mut self.client, &output)? >= total)
        })
    }

    /// Starts a process, sends a record of each key, waits until they are counted, and stops the process.
    pub(crate) fn run<'k>(
        &mut self,
        how: Start<'_>,
        keys: impl IntoIterator<Item = &'k str>,
    ) -> Result<Vec<String>> {
        let mut member = self.start(how)?;
        self.send(keys)?;
        self.await_counted(&mut member)?;
        stop(&mut member)?;
        Ok(rows(&member))
    }

    /// Returns the committed offsets of one of the app's topics.
    pub(crate) fn committed(&mut self, topic: &str) -> Result<Vec<i64>> {
        let all = self.client.committed(&self.app, topic)?;
        Ok(all
            .into_iter()
            .map(|at| at.map_or(0, |(offset, _)| offset))
            .collect())
    }

    pub(crate) fn fired(&self) -> Vec<String> {
        let log = fs::read_to_string(self.fired_log()).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    pub(crate) fn await_fired(&self, times: usize) -> Result<()> {
        let what = format!("{times} faults have fired");
        wait_until(PATIENCE, &what, || Ok(self.fired().len() >= times))?;
        let fired = self.fired();
        ensure!(fired.len() == times, "{fired:?}");
        Ok(())
    }

    /// Deletes the databases of a host, but keeps its identity.
    pub(crate) fn delete_databases(&self, host: &str) -> Result<()> {
        let slot = self.dir.path().join("state").join(host).join(&self.app);
        fs::remove_dir_all(slot.join("0").join("tasks")).context("the databases of a host")
    }

    pub(crate) fn judge(&mut self) -> Result<Findings> {
        let counted = Counted {
            output: &format!("{}-out", self.app),
            changelog: &format!("{}-{}-changelog", self.app, self.counter.stage),
            partitions: self.counter.partitions,
            state: &self.dir.path().join("state"),
        };
        counted.check(&mut self.client, &self.sent)
    }

    /// Returns the ends of all logs.
    pub(crate) fn tails(&self) -> String {
        let logs = self.logs.iter().enumerate().map(|(nth, path)| {
            let log = fs::read_to_string(path).unwrap_or_default();
            let all: Vec<&str> = log.lines().collect();
            let from = all.len().saturating_sub(40);
            format!("--- process {nth}\n{}\n", all[from..].join("\n"))
        });
        logs.collect::<String>() + &format!("--- fired\n{}", self.fired().join("\n"))
    }

    fn fired_log(&self) -> PathBuf {
        self.dir.path().join("fired")
    }
}

/// Requests a stop, and waits until the process has ended with exit code 0.
pub(crate) fn stop(member: &mut Member) -> Result<()> {
    member.ask_to_stop()?;
    member.await_end(PATIENCE)
}

/// Returns the rows of the restart table that the process took.
pub(crate) fn rows(member: &Member) -> Vec<String> {
    restart_rows(member.log().lines())
}

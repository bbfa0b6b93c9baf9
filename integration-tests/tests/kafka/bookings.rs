//! An app that books orders in PostgreSQL: its topic, its database, its processes, and the judge.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Result, ensure};
use eos_postgres::testing::{Cluster, run, value};
use integration_tests::process::{Program, build};
use integration_tests::shop::{ARTICLES, Question, Verdict, judge, read, tables};
use integration_tests::sweep::Member;
use integration_tests::wait::wait_until;
use kafka_wire::{Client, Producer};
use tempfile::TempDir;

use crate::common::PATIENCE;

/// The partitions of the topic of orders.
pub(crate) const PARTITIONS: i32 = 2;
/// Orders that are sent together.
pub(crate) const SLICE: u64 = 10;
/// The pause between two queries. Each query opens a connection.
const PAUSE: Duration = Duration::from_millis(50);

/// One scenario: its topic, database and processes.
pub(crate) struct Scene<'a> {
    pub(crate) app: String,
    /// The URL of the database.
    pub(crate) url: String,
    pub(crate) client: Client,
    /// The orders that were sent.
    pub(crate) sent: u64,
    pub(crate) members: Vec<Member>,
    bootstrap: &'a str,
    program: &'a Path,
    producer: Producer,
    dir: TempDir,
}

/// The settings of a process.
#[derive(Debug, Clone)]
pub(crate) struct Start<'a> {
    /// The name of its state directory.
    pub(crate) host: &'a str,
    pub(crate) failpoints: &'a str,
    pub(crate) session_timeout: Duration,
    pub(crate) transaction_timeout: Duration,
    pub(crate) interval_ms: u32,
    /// Further variables.
    pub(crate) settings: Vec<(&'a str, &'a str)>,
}

impl<'a> Start<'a> {
    /// Creates settings in which all timeouts have this value.
    pub(crate) fn new(time_out: Duration) -> Self {
        Start {
            host: "one",
            failpoints: "",
            session_timeout: time_out,
            transaction_timeout: time_out,
            interval_ms: 50,
            settings: Vec::new(),
        }
    }

    pub(crate) fn failing(self, failpoints: &'a str) -> Self {
        Start { failpoints, ..self }
    }
}

/// Builds the app.
pub(crate) fn program() -> Result<PathBuf> {
    let program = Program::Example("orders");
    build("integration-tests", program, &["--features", "failpoints"])
}

impl<'a> Scene<'a> {
    /// Creates a topic and a database for an app whose name begins with `name`.
    pub(crate) fn new(
        name: &str,
        program: &'a Path,
        bootstrap: &'a str,
        server: &Cluster,
    ) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let mark = UNIX_EPOCH.elapsed()?.as_millis();
        let app = format!("{name}-{mark:x}-{nth}").replace([' ', '_'], "-");
        let mut client = Client::connect(bootstrap, PATIENCE)?;
        client.create_topic(&format!("{app}-in"), PARTITIONS, 1, &[])?;
        let url = server.database("bookings")?;
        run(&url, &tables())?;
        Ok(Scene {
            app,
            url,
            client,
            sent: 0,
            members: Vec::new(),
            bootstrap,
            program,
            producer: Producer::new(bootstrap)?,
            dir: TempDir::new()?,
        })
    }

    /// Starts a process, and returns its index.
    pub(crate) fn start(&mut self, how: &Start<'_>) -> Result<usize> {
        let session = how.session_timeout.as_millis();
        let transaction = how.transaction_timeout.as_millis();
        let mut command = Command::new(self.program);
        command
            .env("EOS_BOOTSTRAP_SERVERS", self.bootstrap)
            .env("APP", &self.app)
            .env("DATABASE", &self.url)
            .env("RUST_LOG", "info,eos_core=debug,eos_postgres=debug")
            .env("EOS_STATE_DIR", self.state(how.host))
            .env("EOS_SESSION_TIMEOUT_MS", session.to_string())
            .env("EOS_HEARTBEAT_INTERVAL_MS", (session / 10).to_string())
            .env("EOS_TRANSACTION_TIMEOUT_MS", transaction.to_string())
            .env("EOS_COMMIT_PACE", "fixed")
            .env("EOS_COMMIT_INTERVAL_MS", how.interval_ms.to_string())
            .env("EOS_FAILPOINTS", how.failpoints)
            .env("EOS_FAILPOINTS_LOG", self.fired_log())
            .envs(how.settings.iter().copied());
        let nth = self.members.len();
        let log = self.dir.path().join(format!("process-{nth}.log"));
        self.members.push(Member::spawn(command, log)?);
        Ok(nth)
    }

    /// Returns the state directory of a host.
    pub(crate) fn state(&self, host: &str) -> PathBuf {
        self.dir.path().join("state").join(host)
    }

    pub(crate) fn topic(&self) -> String {
        format!("{}-in", self.app)
    }

    fn fired_log(&self) -> PathBuf {
        self.dir.path().join("fired")
    }

    /// Returns the number of lines of the log of faults that contain `about`.
    pub(crate) fn fired(&self, about: &str) -> usize {
        let log = fs::read_to_string(self.fired_log()).unwrap_or_default();
        log.lines().filter(|line| line.contains(about)).count()
    }

    /// Sends orders to all partitions in turn.
    pub(crate) fn send(&mut self, orders: u64) -> Result<()> {
        let now = i64::try_from(UNIX_EPOCH.elapsed()?.as_millis())?;
        let topic = self.topic();
        for n in self.sent..self.sent + orders {
            let partition = i32::try_from(n % u64::from(PARTITIONS.unsigned_abs()))?;
            let key = format!("o{n}");
            let value = format!("{{\"sku\":\"s{}\",\"units\":1}}", n * 7 % ARTICLES as u64);
            let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
            self.producer
                .send(&topic, partition, key, value, &[], now)?;
        }
        self.sent += orders;
        self.producer.flush()
    }

    /// Queries a value of the positions of the app, such as `sum(next_offset)`.
    pub(crate) fn positions(&self, what: &str) -> Result<String> {
        let app = &self.app;
        let query = format!("SELECT coalesce({what}, 0) FROM eos.positions WHERE app = '{app}'");
        Ok(value(&self.url, &query)?)
    }

    /// Waits until the positions have passed all orders that were sent.
    pub(crate) fn await_taken(&self) -> Result<()> {
        let sent = self.sent.to_string();
        wait_until(PATIENCE, "all orders are taken", || {
            thread::sleep(PAUSE);
            Ok(self.positions("sum(next_offset)")? == sent)
        })
    }

    /// Waits until a process has taken over all partitions.
    pub(crate) fn await_owner(&self) -> Result<()> {
        wait_until(PATIENCE, "all positions are taken over", || {
            Ok(self.positions("count(*)")? == PARTITIONS.to_string())
        })
    }

    /// Returns how many times the logs of all processes contain `text`.
    pub(crate) fn logged(&self, text: &str) -> usize {
        let logs = self.members.iter().map(Member::log);
        logs.map(|log| log.matches(text).count()).sum()
    }

    /// Stops these processes, which must not have ended by themselves.
    pub(crate) fn stop(&mut self, members: &[usize]) -> Result<()> {
        for nth in members {
            self.members[*nth].check()?;
            self.members[*nth].ask_to_stop()?;
        }
        for nth in members {
            self.members[*nth].await_end(PATIENCE)?;
        }
        Ok(())
    }

    /// Waits until the app has taken all orders, at most for `patience`, and judges the rows.
    pub(crate) fn judge(&self, patience: Duration) -> Result<Verdict> {
        let verdict = judge(&read(&Question {
            bootstrap: self.bootstrap,
            topic: &self.topic(),
            database: &self.url,
            app: &self.app,
            patience,
        })?);
        ensure!(verdict.orders as u64 == self.sent, "{verdict}");
        Ok(verdict)
    }

    /// Fails unless each order is booked once.
    pub(crate) fn must_be_clean(&self) -> Result<Verdict> {
        let verdict = self.judge(PATIENCE)?;
        ensure!(verdict.is_clean(), "{verdict}\n{verdict:#?}");
        Ok(verdict)
    }

    /// Returns the tails of all logs.
    pub(crate) fn tails(&self) -> String {
        self.members.iter().map(|member| member.tail(60)).collect()
    }
}

//! The topics, the records and the processes of one case.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use kafka_wire::{Client, Isolation, Producer};
use serde::Deserialize;
use tempfile::TempDir;

use super::member::Member;
use crate::judge::{self, Expectation, Question, Verdict};
use crate::wait::wait_until;

/// The time limit of a request to the cluster. An open transaction may delay the response to an offset query.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The time limit for the end of a process: it commits, closes and leaves the group.
const STOP_LIMIT: Duration = Duration::from_secs(40);

/// Returns whether the apps use `group.protocol=consumer` (`EOS_GROUP_PROTOCOL=consumer`). With this protocol, the
/// brokers set the session timeout.
pub(super) fn is_kip_848() -> bool {
    std::env::var("EOS_GROUP_PROTOCOL").is_ok_and(|protocol| protocol == "consumer")
}

/// The settings of every process of a case.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// `session.timeout.ms`.
    pub session: Duration,
    /// `heartbeat.interval.ms`.
    pub heartbeat: Duration,
    /// `transaction.timeout.ms`.
    pub transaction: Duration,
    /// `commit.interval.ms`, with `commit.pace=fixed`.
    pub interval: Duration,
}

/// The topics and processes of one case.
#[derive(Debug)]
pub struct Scene {
    app: String,
    bootstrap: String,
    program: PathBuf,
    settings: Settings,
    client: Client,
    producer: Producer,
    dir: TempDir,
    /// The number of sent records by partition of the input.
    sent: Vec<u64>,
    /// The processes in the order of their starts, including those that ended.
    pub members: Vec<Member>,
}

#[derive(Deserialize)]
struct Line {
    seq: u64,
    by: u32,
}

impl Scene {
    /// Creates the topics of a case. `program` is the example `two_outputs`.
    ///
    /// # Errors
    /// When the cluster does not create the topics.
    pub fn new(
        program: &Path,
        bootstrap: &str,
        name: &str,
        partitions: i32,
        settings: Settings,
    ) -> Result<Scene> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mark = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let app = format!("{name}-{mark:x}-{nth}").replace('_', "-");
        let mut client = Client::connect(bootstrap, TIMEOUT)?;
        for end in ["in", "a", "b"] {
            client.create_topic(&format!("{app}-{end}"), partitions, 1, &[])?;
        }
        let mut dir = TempDir::new()?;
        if std::env::var_os("EOS_KEEP_LOGS").is_some() {
            dir.disable_cleanup(true);
            eprintln!("{app}: logs stay in {}", dir.path().display());
        }
        Ok(Scene {
            app,
            bootstrap: bootstrap.to_owned(),
            program: program.to_owned(),
            settings,
            client,
            producer: Producer::new(bootstrap)?,
            dir,
            sent: vec![0; usize::try_from(partitions)?],
            members: Vec::new(),
        })
    }

    /// Starts a process with these failpoints and without the `undefended` defences. Returns its index in `members`.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn start(&mut self, failpoints: &str, undefended: &str) -> Result<usize> {
        let mut command = Command::new(&self.program);
        let ms = |time: Duration| time.as_millis().to_string();
        command
            .env("EOS_BOOTSTRAP_SERVERS", &self.bootstrap)
            .env("APP", &self.app)
            .env("RUST_LOG", "info,eos_core=debug")
            .env("EOS_STATE_DIR", self.dir.path().join("state"))
            .env("EOS_TRANSACTION_TIMEOUT_MS", ms(self.settings.transaction))
            .env("EOS_COMMIT_PACE", "fixed")
            .env("EOS_COMMIT_INTERVAL_MS", ms(self.settings.interval))
            .env("EOS_FAILPOINTS", failpoints)
            .env("EOS_FAILPOINTS_LOG", self.fired_log())
            .env("EOS_UNDEFENDED", undefended);
        if !is_kip_848() {
            command
                .env("EOS_SESSION_TIMEOUT_MS", ms(self.settings.session))
                .env("EOS_HEARTBEAT_INTERVAL_MS", ms(self.settings.heartbeat));
        }
        let nth = self.members.len();
        let log = self.dir.path().join(format!("process-{nth}.log"));
        self.members.push(Member::spawn(command, log)?);
        Ok(nth)
    }

    /// Sends `records` more records, to all partitions in turn.
    ///
    /// # Errors
    /// When the cluster does not accept them.
    pub fn send(&mut self, records: u64) -> Result<()> {
        for _ in 0..records {
            let partition = self.total() % self.sent.len() as u64;
            self.put(usize::try_from(partition)?)?;
        }
        self.producer.flush()
    }

    /// Sends `records` more records to one partition.
    ///
    /// # Errors
    /// As [`Scene::send`].
    pub fn send_to(&mut self, partition: usize, records: u64) -> Result<()> {
        for _ in 0..records {
            self.put(partition)?;
        }
        self.producer.flush()
    }

    fn put(&mut self, partition: usize) -> Result<()> {
        let seq = self.total();
        // A key stays in one partition. Otherwise its outputs could be in any order.
        let key = format!("{partition}-{}", seq % 7);
        let value = format!("{{\"seq\":{seq}}}");
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
        let (topic, key, value) = (self.input(), key.as_bytes(), value.as_bytes());
        self.producer.send(
            &topic,
            i32::try_from(partition)?,
            Some(key),
            Some(value),
            &[],
            i64::try_from(now)?,
        )?;
        self.sent[partition] += 1;
        Ok(())
    }

    /// Returns the number of records that were sent so far, which is also the number of the next record.
    pub fn total(&self) -> u64 {
        self.sent.iter().sum()
    }

    /// Waits until the committed offset of each partition is the number of its sent records. At the start, this is
    /// offset 0.
    ///
    /// # Errors
    /// When an offset is not committed after `patience`, or the cluster does not respond.
    pub fn await_committed(&mut self, patience: Duration) -> Result<()> {
        let wanted: Vec<Option<i64>> = self.sent.iter().map(|n| i64::try_from(*n).ok()).collect();
        let mut last = Vec::new();
        let reached = wait_until(patience, "everything is committed", || {
            let committed = self.client.committed(&self.app, &self.input())?;
            last = committed.into_iter().map(|known| Some(known?.0)).collect();
            Ok(last == wanted)
        });
        reached.with_context(|| format!("{wanted:?} sent, {last:?} committed"))
    }

    /// Waits until `times` failpoints have fired in all processes together.
    ///
    /// # Errors
    /// When fewer have fired after `patience`.
    pub fn await_fired(&self, times: usize, patience: Duration) -> Result<()> {
        wait_until(patience, "the fault fires", || {
            Ok(self.fired().len() >= times)
        })
    }

    /// Returns a line for each failpoint that fired.
    pub fn fired(&self) -> Vec<String> {
        let log = fs::read_to_string(self.fired_log()).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Returns the ids of the processes that wrote the committed outputs of each record, by the record's number.
    ///
    /// # Errors
    /// When the outputs can't be read.
    pub fn makers(&mut self) -> Result<BTreeMap<u64, Vec<u32>>> {
        let mut makers: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for topic in self.outputs() {
            self.client
                .read_all(&topic, Isolation::ReadCommitted, |_, record| {
                    let value = record.value.as_deref().unwrap_or_default();
                    if let Ok(Line { seq, by }) = serde_json::from_slice(value) {
                        makers.entry(seq).or_default().push(by);
                    }
                })?;
        }
        Ok(makers)
    }

    /// Stops the processes from index `first` on, which must end with exit code 0. Then judges the output, and deletes
    /// the topics.
    ///
    /// # Errors
    /// When a process ends in another way, or the topics can't be judged.
    pub fn stop_and_judge(&mut self, first: usize) -> Result<(Verdict, String)> {
        let running = self.members.get_mut(first..).unwrap_or_default();
        for member in &mut *running {
            member.check()?;
            member.ask_to_stop()?;
        }
        for member in running {
            member.await_end(STOP_LIMIT)?;
        }
        let (outputs, input) = (self.outputs(), self.input());
        let question = Question::of_app(&self.bootstrap, &self.app, &input, &outputs);
        let (evidence, verdict) = question.judge(Expectation::Finished)?;
        ensure!(
            evidence.input.len() as u64 == self.total(),
            "the input is not what was sent"
        );
        let text = judge::text(&evidence, &verdict);
        for topic in outputs.iter().chain([&input]) {
            self.client.delete_topic(topic)?;
        }
        Ok((verdict, text))
    }

    /// Returns the ends of all logs, and the failpoints that fired.
    pub fn tails(&self, lines: usize) -> String {
        let tails: String = self.members.iter().map(|m| m.tail(lines)).collect();
        format!("{tails}--- fired\n{}", self.fired().join("\n"))
    }

    fn input(&self) -> String {
        format!("{}-in", self.app)
    }

    fn outputs(&self) -> Vec<String> {
        ["a", "b"].map(|end| format!("{}-{end}", self.app)).into()
    }

    fn fired_log(&self) -> PathBuf {
        self.dir.path().join("fired")
    }
}

//! The environment of all benchmarks: a broker, topics, a directory, and the processes of the sides.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kafka_launcher::{Cluster, ClusterOptions, Compiler, external};
use kafka_wire::{Client, Isolation, Node, Producer, requests};
use tempfile::TempDir;

use crate::check::{self, Check};
use crate::counted::{self, Counted};
use crate::joined_check::{self, JoinedCheck};
use crate::joined_records::{self, is_right, time_ms};
use crate::postgres::connect::Connect;
use crate::postgres::database::{Database, Server};
use crate::postgres::table_check;
use crate::proc;
use crate::records::{Input, KEYS};
use crate::running::Running;
use crate::side::{Side, Task};
use crate::streams::Streams;
use crate::windowed_check::{self, Events, WindowedCheck};
use crate::work::{COUNTS, SEEN, Work};

const PATIENCE: Duration = Duration::from_secs(60);

/// The time that the broker keeps the files of a deleted topic. The default is a minute, and the deletion would then
/// slow down another side.
const DELETE_AFTER: Duration = Duration::from_secs(1);

/// The time from the base of event times to the start of the benchmark.
const EVENT_AGE: Duration = Duration::from_secs(3_600);

/// The mean size of a batch of the input.
const BATCH_BYTES: usize = (1 << 20) / 6;

/// A broker, a client, and the other servers of a benchmark.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) bootstrap: String,
    pub(crate) client: Client,
    /// The number of partitions of every topic.
    pub(crate) partitions: i32,
    /// The number of different keys in the input of [`Bench::filled`].
    pub(crate) keys: u64,
    /// The base of event times, in milliseconds since the epoch: a record has the time `begin + event_ms(seq)`.
    begin: i64,
    /// Distinguishes this run's topics and groups from those of others on the same broker.
    run: String,
    dir: TempDir,
    /// The database server of works that write rows.
    server: Option<Server>,
    connect: Option<Connect>,
    /// Stopped when dropped, after everything that uses it.
    cluster: Option<Cluster>,
}

/// A task with its own topics.
#[derive(Debug)]
pub(crate) struct Play {
    pub(crate) task: Task,
    pub(crate) side: Side,
    topics: Vec<String>,
    database: Option<Database>,
}

impl Bench {
    /// Starts a broker that compiles as one in production does, or uses `EOS_BOOTSTRAP_SERVERS`.
    pub(crate) fn open(partitions: i32) -> Result<Self> {
        let mut cluster = None;
        let bootstrap = match external() {
            Some(bootstrap) => bootstrap,
            None => {
                let options = ClusterOptions::default()
                    .compiler(Compiler::Full)
                    .heap_mb(1024)
                    .property(
                        "log.segment.delete.delay.ms",
                        DELETE_AFTER.as_millis().to_string(),
                    );
                let started = cluster.insert(Cluster::start(&options)?);
                started.bootstrap().to_owned()
            }
        };
        let client = Client::connect(&bootstrap, PATIENCE)?;
        Ok(Self {
            bootstrap,
            client,
            partitions,
            keys: KEYS,
            begin: now_ms()? - i64::try_from(EVENT_AGE.as_millis())?,
            run: format!("bench-{}", std::process::id()),
            dir: tempfile::tempdir().context("create a temporary directory")?,
            server: None,
            connect: None,
            cluster,
        })
    }

    /// Starts a database server, for works that write rows.
    pub(crate) fn start_database(&mut self) -> Result<()> {
        if self.server.is_none() {
            self.server = Some(Server::start()?);
        }
        Ok(())
    }

    /// Builds Kafka Connect, so that no round waits for Maven.
    pub(crate) fn build_connect(&mut self) -> Result<()> {
        self.connect = Some(Connect::build()?);
        Ok(())
    }

    /// Returns the CPU time of the database server so far.
    pub(crate) fn database_cpu(&self) -> Result<Option<Duration>> {
        self.server.as_ref().map(Server::cpu).transpose()
    }

    /// Returns the CPU time of the broker so far, or `None` if the benchmark did not start it.
    pub(crate) fn broker_cpu(&self) -> Result<Option<Duration>> {
        let Some(cluster) = &self.cluster else {
            return Ok(None);
        };
        let nodes = cluster.node_pids().into_iter().map(proc::cpu);
        nodes.sum::<Result<Duration>>().map(Some)
    }

    /// Creates a topic of this run.
    pub(crate) fn topic(&mut self, name: &str) -> Result<String> {
        let topic = format!("{}-{name}", self.run);
        self.client.create_topic(&topic, self.partitions, 1, &[])?;
        Ok(topic)
    }

    /// Creates a topic with the first `records`. They have event times if the work needs them, otherwise the current
    /// time. For a join, it is the left topic.
    pub(crate) fn filled(&mut self, name: &str, work: Work, records: u64) -> Result<String> {
        self.filled_side(name, work, records, false)
    }

    /// Creates the right topic of a join.
    pub(crate) fn filled_right(&mut self, name: &str, work: Work, records: u64) -> Result<String> {
        self.filled_side(name, work, records, true)
    }

    fn filled_side(&mut self, name: &str, work: Work, records: u64, right: bool) -> Result<String> {
        let topic = self.topic(name)?;
        // Batches have the same size for every number of partitions.
        let buffer = BATCH_BYTES * self.partitions.unsigned_abs() as usize;
        let mut producer = Producer::new(&self.bootstrap)?.buffering(buffer);
        let mut input = Input::of(work, self.keys);
        let now = now_ms()?;
        for seq in (0..records).filter(|seq| is_right(*seq, work) == right) {
            input.set(seq);
            let time = match work.has_event_times() {
                true => self.begin + time_ms(seq, work),
                false => now,
            };
            let (key, value) = (Some(&input.key[..]), Some(&input.value[..]));
            producer.send(
                &topic,
                input.partition(self.partitions),
                key,
                value,
                &[],
                time,
            )?;
        }
        producer.flush()?;
        Ok(topic)
    }

    /// Creates a task for one side, with an output of its own. `name` is unique in this run.
    pub(crate) fn play(
        &mut self,
        side: Side,
        name: &str,
        input: &str,
        work: Work,
        records: u64,
        commit_interval: Duration,
    ) -> Result<Play> {
        let output = self.topic(name)?;
        let server = self.server.as_ref().filter(|_| work.writes_rows());
        let database = server.map(|server| server.database(work, self.keys));
        let database = database.transpose()?;
        let task = Task {
            bootstrap: self.bootstrap.clone(),
            group: format!("{}-{name}", self.run),
            input: input.to_owned(),
            output,
            work,
            records,
            commit_interval,
            pause: Duration::ZERO,
            sibling: None,
            stays: false,
            database: database.as_ref().map(|database| database.url.clone()),
            state: self.dir.path().join(name),
        };
        let mut topics = vec![task.output.clone()];
        if side == Side::Streams {
            let warm = Streams::warm_up_output(&task);
            self.client.create_topic(&warm, self.partitions, 1, &[])?;
            topics.push(warm);
        }
        if work.keeps_state() && !work.joins() {
            // The sides create them and do not delete them.
            let group = &task.group;
            let store = match work {
                Work::Dedup => SEEN,
                _ => COUNTS,
            };
            topics.extend([
                format!("{group}-{input}-changelog"),
                format!("{group}-{store}-changelog"),
                format!("{group}-warm-{store}-changelog"),
            ]);
        }
        Ok(Play {
            task,
            side,
            topics,
            database,
        })
    }

    /// Waits until a broker of ours on this machine has deleted the files of the previous run, and the system has
    /// written its pages to the disk. A fast side would otherwise pay for the side before it (docs/design/0030).
    /// Brokers that we did not start delete at their own time.
    pub(crate) fn settle(&self) -> Result<()> {
        std::thread::sleep(2 * DELETE_AFTER);
        let written = Command::new("sync").status().context("run sync")?;
        ensure!(written.success(), "sync: {written}");
        Ok(())
    }

    /// Starts the side.
    pub(crate) fn start(&self, play: &Play, streams: Option<&Streams>) -> Result<Running> {
        std::fs::create_dir_all(&play.task.state)?;
        let command = match play.side {
            Side::Streams => streams.map(|it| it.command(&play.task)).context(
                "Kafka Streams is to be measured but was not built: this is a mistake in the program",
            )?,
            Side::Connect => {
                let connect = self.connect.as_ref();
                let connect = connect.context("Kafka Connect was not built")?;
                connect.command(&play.task)?
            }
            side => play.task.command(side)?,
        };
        let log = play.task.state.join("log");
        Running::start(play.side.name(), command, log)
    }

    /// Deletes the topics, the database and the files of a play.
    pub(crate) fn clear(&mut self, play: &Play) -> Result<()> {
        for topic in &play.topics {
            self.client.delete_topic(topic)?;
        }
        if play.task.work.joins() {
            // Both sides have internal topics with names of their own.
            let prefix = format!("{}-", play.task.group);
            let cluster = self.client.metadata(None)?;
            let internal =
                |name: &&String| name.starts_with(&prefix) && !play.topics.contains(*name);
            for topic in cluster.topics.keys().filter(internal) {
                self.client.delete_topic(topic)?;
            }
        }
        if let (Some(server), Some(database)) = (&self.server, &play.database) {
            server.remove(database)?;
        }
        std::fs::remove_dir_all(&play.task.state)?;
        Ok(())
    }

    /// Returns the number of records that a group has finished: the sum of its committed offsets on a topic that begins
    /// at 0. Does not wait for the offsets of an open transaction, and returns the ones before them. `None` while the
    /// group has no coordinator.
    pub(crate) fn finished(&mut self, group: &str, topic: &str) -> Option<u64> {
        let partitions = (0..self.partitions).collect();
        let request = requests::offset_fetch(group, topic, partitions, false);
        let answer = self.client.request(Node::Group(group), &request).ok()?;
        let topics = answer.groups.iter().flat_map(|group| &group.topics);
        let partitions = topics.flat_map(|topic| &topic.partitions);
        let offsets = partitions.filter_map(|p| u64::try_from(p.committed_offset).ok());
        Some(offsets.sum())
    }

    /// Returns the number of finished records for all inputs of a play.
    pub(crate) fn finished_of(&mut self, play: &Play) -> Option<u64> {
        let Task { group, input, .. } = &play.task;
        if let Some(database) = positions(play) {
            return database.committed(group, input).ok();
        }
        let done = self.finished(group, input)?;
        let right = play.task.sibling.as_ref();
        right.map_or(Some(done), |right| {
            Some(done + self.finished(group, right)?)
        })
    }

    /// Returns the number of processed orders and customers. An order counts once its result is committed, because a side may
    /// read orders long before it writes their results. The markers of transactions count, too: they are less than a
    /// thousandth of the offsets.
    pub(crate) fn finished_orders(&mut self, play: &Play) -> Option<u64> {
        let output = &play.task.output;
        let ends = self.client.end_offsets(output, Isolation::ReadCommitted);
        let results = ends.ok()?.into_iter().map(|end| u64::try_from(end).ok());
        Some(joined_records::FOREIGN_ROWS + results.sum::<Option<u64>>()?)
    }

    /// Reads and checks a play's whole output, with at most the play's number of records.
    pub(crate) fn check(&mut self, play: &Play) -> Result<Check> {
        let check = Check::new(play.task.work, self.partitions, play.task.records);
        check::read(&mut self.client, &play.task.output, check)
    }

    /// Reads a play's whole output, and fails if it is wrong. Returns the number of output records.
    pub(crate) fn ensure_right(&mut self, play: &Play) -> Result<u64> {
        let Task { work, records, .. } = play.task;
        if work.counts() {
            let counted = Counted::new(work, self.partitions, self.keys);
            counted::read(&mut self.client, &play.task.output, counted)?.complete(records)
        } else if work.has_windows() {
            let events = Events {
                work,
                partitions: self.partitions,
                keys: self.keys,
                begin: self.begin,
            };
            let check = WindowedCheck::new(events);
            windowed_check::read(&mut self.client, &play.task.output, check)?.complete(records)
        } else if work.joins() {
            let check = JoinedCheck::new(work, play.side, self.partitions, self.keys);
            joined_check::read(&mut self.client, &play.task.output, check)?.complete(records)
        } else if let Some(database) = &play.database {
            table_check::ensure_right(database, work, records, self.keys)
        } else {
            let check = self.check(play)?;
            check.complete(records)?;
            Ok(check.count())
        }
    }

    /// Waits until no transaction holds offsets of the group, and checks that the offsets are at the end.
    pub(crate) fn ensure_finished(&mut self, play: &Play) -> Result<()> {
        if let Some(database) = positions(play) {
            let done = database.committed(&play.task.group, &play.task.input)?;
            let records = play.task.records;
            ensure!(
                done == records,
                "the positions cover {done} of {records} records"
            );
            return Ok(());
        }
        let mut committed = self.client.committed(&play.task.group, &play.task.input)?;
        if let Some(right) = play
            .task
            .sibling
            .as_ref()
            .filter(|_| play.task.work.joins())
        {
            committed.extend(self.client.committed(&play.task.group, right)?);
        }
        let sum: i64 = committed.iter().flatten().map(|(offset, _)| offset).sum();
        ensure!(
            u64::try_from(sum) == Ok(play.task.records),
            "the committed offsets add up to {sum}, not to {} records",
            play.task.records
        );
        Ok(())
    }
}

/// Returns the database with the positions of a play. Only eos keeps positions there.
fn positions(play: &Play) -> Option<&Database> {
    play.database.as_ref().filter(|_| play.side == Side::Eos)
}

/// Returns the current time, as the timestamp of a record.
pub(crate) fn now_ms() -> Result<i64> {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(i64::try_from(time.as_millis())?)
}

//! The topics and processes of one test, and its input.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use integration_tests::counted::visible;
use integration_tests::fate::{Fate, Faults, TIME_OUT};
use integration_tests::faults::is_full;
use integration_tests::fleet::Fleet;
use integration_tests::kill::Random;
use integration_tests::partitioner::partition;
use integration_tests::process::{Program, build};
use integration_tests::sweep::Member;
use integration_tests::wait::wait_until;
use kafka_launcher::os::Signal;
use kafka_wire::{Client, Producer};
use tempfile::TempDir;

use super::results::Results;
use crate::common::{KEEP, PATIENCE};

pub(super) const PROCESSES: usize = 2;

/// Returns the current time in milliseconds since the epoch.
pub(super) fn now() -> Result<i64> {
    Ok(i64::try_from(UNIX_EPOCH.elapsed()?.as_millis())?)
}

/// A record of the input.
#[derive(Debug, Clone)]
pub(super) struct Input {
    pub(super) partition: i32,
    pub(super) key: String,
    pub(super) value: String,
    pub(super) time: i64,
}

/// The records of random keys, one every `step` milliseconds, out of order by less than `disorder` milliseconds. The
/// last record of each partition comes `after` milliseconds later.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) records: u64,
    pub(super) keys: u64,
    pub(super) step: i64,
    pub(super) disorder: u64,
    pub(super) after: i64,
    /// Records per second.
    pub(super) rate: u64,
    pub(super) kills: u32,
}

impl Load {
    pub(super) fn records(&self, seed: u64, partitions: i32, begins: i64) -> Vec<Input> {
        let mut random = Random::new(seed);
        let mut all = Vec::new();
        for n in 0..self.records {
            let key = format!("k{}", random.roll() % self.keys);
            let late = (random.roll() % self.disorder) as i64;
            all.push(Input {
                partition: partition(key.as_bytes(), partitions),
                key,
                value: String::from("x"),
                time: begins + n as i64 * self.step + late,
            });
        }
        let last = begins + self.records as i64 * self.step + self.after;
        all.extend(ends(partitions, last));
        all
    }
}

/// Returns the last record of each partition, which closes all earlier windows. Its key belongs to this partition.
pub(super) fn ends(partitions: i32, time: i64) -> Vec<Input> {
    let of = |at: i32| {
        let mut keys = (0..).map(|n| format!("end-{n}"));
        let key = keys.find(|key| partition(key.as_bytes(), partitions) == at);
        Input {
            partition: at,
            key: key.unwrap_or_default(),
            value: String::from("x"),
            time,
        }
    };
    (0..partitions).map(of).collect()
}

/// The topics of an app, and its processes.
pub(super) struct Scene {
    pub(super) app: String,
    pub(super) client: Client,
    pub(super) fleet: Fleet,
    pub(super) producer: Producer,
    bootstrap: String,
    program: PathBuf,
    environment: Vec<(String, String)>,
    dir: TempDir,
}

impl Scene {
    /// Creates the topics and starts the processes. `settings` are additional variables of the processes.
    pub(super) fn new(
        bootstrap: &str,
        pipeline: &str,
        partitions: i32,
        settings: &[(&str, String)],
    ) -> Result<Scene> {
        Scene::with_topics(bootstrap, pipeline, partitions, settings, &[])
    }

    /// As [`Scene::new`], with more topics.
    pub(super) fn with_topics(
        bootstrap: &str,
        pipeline: &str,
        partitions: i32,
        settings: &[(&str, String)],
        more: &[&str],
    ) -> Result<Scene> {
        let ends = [&["in", "out", "late", "wall"], more].concat();
        let mut settings = settings.to_vec();
        settings.push(("PIPELINE", pipeline.to_owned()));
        let mut scene =
            Scene::prepared("timed", bootstrap, pipeline, partitions, &settings, &ends)?;
        let wall = scene.topic("wall");
        (scene.client).configure_topic(&wall, "message.timestamp.type", "LogAppendTime")?;
        scene.start()?;
        Ok(scene)
    }

    /// Creates the topics of an example, without processes. `ends` are the suffixes of their names.
    pub(super) fn prepared(
        example: &str,
        bootstrap: &str,
        name: &str,
        partitions: i32,
        settings: &[(&str, String)],
        ends: &[&str],
    ) -> Result<Scene> {
        let app = format!("kill-{}-{:x}", name.replace('_', "-"), now()?);
        let mut client = Client::connect(bootstrap, PATIENCE)?;
        let brokers = client.metadata(Some(&[]))?.brokers.len();
        let replication = i16::try_from(brokers.min(3))?;
        for end in ends {
            client.create_topic(&format!("{app}-{end}"), partitions, replication, &KEEP)?;
        }
        let dir = TempDir::new()?;
        let program = build(
            "integration-tests",
            Program::Example(example),
            &["--features", "failpoints"],
        )?;
        let time_out = TIME_OUT.as_millis().to_string();
        let mut environment = vec![
            ("EOS_BOOTSTRAP_SERVERS", bootstrap.to_owned()),
            ("APP", app.clone()),
            (
                "EOS_STATE_DIR",
                dir.path().join("state").display().to_string(),
            ),
            ("EOS_NUM_STREAM_THREADS", "2".to_owned()),
            ("EOS_SESSION_TIMEOUT_MS", time_out.clone()),
            ("EOS_TRANSACTION_TIMEOUT_MS", time_out),
            ("RUST_LOG", "info".to_owned()),
            ("RUST_BACKTRACE", "0".to_owned()),
        ];
        environment.extend(settings.iter().cloned());
        let own = |(name, value): (&str, String)| (name.to_owned(), value);
        let environment: Vec<_> = environment.into_iter().map(own).collect();
        let fleet = Fleet::new(&program, environment.clone(), &dir.path().join("logs"))?;
        Ok(Scene {
            app,
            client,
            fleet,
            producer: Producer::new(bootstrap)?,
            bootstrap: bootstrap.to_owned(),
            program,
            environment,
            dir,
        })
    }

    /// Starts the processes.
    pub(super) fn start(&mut self) -> Result<()> {
        for _ in 0..PROCESSES {
            self.fleet.start()?;
        }
        Ok(())
    }

    /// Starts a process of another pipeline on the same topics.
    pub(super) fn beside(&self, pipeline: &str) -> Result<Fleet> {
        let mut environment = self.environment.clone();
        environment.retain(|(name, _)| name != "PIPELINE");
        environment.push(("PIPELINE".to_owned(), pipeline.to_owned()));
        let logs = self.dir.path().join(format!("logs-{pipeline}"));
        let mut fleet = Fleet::new(&self.program, environment, &logs)?;
        fleet.start()?;
        Ok(fleet)
    }

    /// Starts one more process of this pipeline, with its own fault. `nth` is part of the name of its log.
    pub(super) fn faulty(&self, nth: usize, failpoints: &str) -> Result<Member> {
        let mut command = Command::new(&self.program);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env("EOS_FAILPOINTS", failpoints);
        Member::spawn(command, self.dir.path().join(format!("faulty-{nth}.log")))
    }

    pub(super) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    pub(super) fn topic(&self, end: &str) -> String {
        format!("{}-{end}", self.app)
    }

    /// Buffers a record.
    pub(super) fn send(&mut self, input: &Input) -> Result<()> {
        let Input {
            partition,
            key,
            value,
            time,
        } = input;
        self.send_to("in", (*partition, key, Some(value), *time))
    }

    /// Buffers a record for a topic: its partition, key, value and time.
    pub(super) fn send_to(
        &mut self,
        end: &str,
        (partition, key, value, time): (i32, &str, Option<&str>, i64),
    ) -> Result<()> {
        let topic = self.topic(end);
        let (key, value) = (Some(key.as_bytes()), value.map(str::as_bytes));
        self.producer.send(&topic, partition, key, value, &[], time)
    }

    /// Sends records at a steady pace, while faults hit the processes.
    pub(super) fn feed(&mut self, records: &[Input], rate: u64, fate: &mut Fate) -> Result<()> {
        self.feed_with(records, rate, fate, |_| Ok(()))
    }

    /// As [`Scene::feed`]. Meanwhile it calls `also` with the share of sent records, in thousandths.
    pub(super) fn feed_with(
        &mut self,
        records: &[Input],
        rate: u64,
        fate: &mut Fate,
        also: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        self.feed_by(records, rate, fate, Scene::send, also)
    }

    /// As [`Scene::feed_with`], for other records, which `send` buffers.
    pub(super) fn feed_by<T>(
        &mut self,
        records: &[T],
        rate: u64,
        fate: &mut Fate,
        mut send: impl FnMut(&mut Scene, &T) -> Result<()>,
        mut also: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let began = Instant::now();
        for (n, record) in records.iter().enumerate() {
            send(self, record)?;
            if n % 25 == 0 {
                self.producer.flush()?;
                let due = Duration::from_secs_f64(n as f64 / rate as f64);
                thread::sleep(due.saturating_sub(began.elapsed()));
                let done = n * 1_000 / records.len();
                fate.strike(&mut self.fleet, done as u64)?;
                also(done)?;
            }
        }
        self.producer.flush()?;
        fate.thaw(&mut self.fleet)
    }

    /// Waits until a topic has this many committed records. If some are missing, a test still judges the output.
    pub(super) fn await_visible(&mut self, end: &str, count: u64) -> Result<()> {
        let topic = self.topic(end);
        wait_until(PATIENCE, &format!("{topic} has {count} records"), || {
            self.fleet.check()?;
            Ok(visible(&mut self.client, &topic)? >= count)
        })
    }

    /// Waits for the output, stops the processes, and compares the output with the expected results.
    pub(super) fn judge(&mut self, expected: &Results, read: super::results::Reader) -> Result<()> {
        let waited = self.await_visible("out", expected.len());
        let stopped = self.fleet.stop_all(Signal::Term);
        let output = self.topic("out");
        let found = Results::read(&mut self.client, &output, read)?;
        let late = self.topic("late");
        let late = visible(&mut self.client, &late)?;
        let compared = found.must_be(expected);
        compared.with_context(|| format!("{late} records are late"))?;
        ensure!(late == 0, "{late} records are late");
        waited?;
        stopped
    }

    /// Adds the ends of the logs to an error.
    pub(super) fn told<T>(&self, result: Result<T>) -> Result<T> {
        result.with_context(|| format!("logs:\n{}", self.fleet.tails(12)))
    }
}

/// Returns the plan of the faults. A small run has only kills. In a full run, a process also joins and leaves, and one
/// freezes.
pub(super) fn fate(kills: u32) -> Result<Fate> {
    let faults = match is_full() {
        true => Faults::KillsAndMoves,
        false => Faults::Kills,
    };
    Fate::new(faults, kills, seed())
}

/// Returns the seed of the input and of the kills.
pub(super) fn seed() -> u64 {
    let given = std::env::var("EOS_SEED").ok();
    given.and_then(|seed| seed.parse().ok()).unwrap_or(11)
}

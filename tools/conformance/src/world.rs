//! What a scenario has: a broker, names of its own, and what it saw.

use std::fmt::Debug;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use kafka_protocol::messages::{FindCoordinatorRequest, MetadataResponse};
use kafka_protocol::protocol::Request;
use kafka_wire::Connection;
use kafka_wire::requests::{self, text};

/// Errors with which a broker says that something is only not ready yet.
const NOT_READY: [i16; 6] = [3, 5, 14, 15, 16, 51];
/// How long something may be not ready. No answer takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// `client.id`, which brokers name new members after.
const CLIENT: &str = "conformance";

/// When an answer has to be there that is asked for now.
pub(crate) fn soon() -> Instant {
    Instant::now() + PATIENCE
}

/// A named script.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// To which part of Kafka it belongs.
    pub group: &'static str,
    /// What it shows.
    pub name: &'static str,
    /// The script.
    pub run: fn(&mut World) -> Result<()>,
}

/// One broker, as one scenario sees it.
#[derive(Debug)]
pub struct World {
    address: String,
    name: String,
    made: u32,
    conn: Connection,
    pub(crate) wrong: Vec<String>,
    pub(crate) seen: usize,
}

impl World {
    /// Connects to a broker; every name that is made begins with `name`.
    ///
    /// # Errors
    /// When nothing listens there.
    pub fn new(address: &str, name: &str) -> Result<World> {
        let mut world = World {
            address: address.to_owned(),
            name: name.to_owned(),
            made: 0,
            conn: Connection::pinned(address, CLIENT, soon())?,
            wrong: Vec::new(),
            seen: 0,
        };
        // Kafka creates its coordinators' topics at the first request for one.
        for kind in [0, 1] {
            let request = FindCoordinatorRequest::default()
                .with_key(text(name))
                .with_key_type(kind);
            let found = world.settled(|it| it.call(2, &request), |it| it.error_code)?;
            ensure!(
                found.error_code == 0,
                "FindCoordinator: {}",
                found.error_code
            );
        }
        Ok(world)
    }

    /// Another connection to the same broker.
    ///
    /// # Errors
    /// As [`Connection::pinned`].
    pub fn connect(&self) -> Result<Connection> {
        Ok(Connection::pinned(&self.address, CLIENT, soon())?)
    }

    /// Compares what was seen with what Kafka does.
    pub fn same<T: PartialEq + Debug>(&mut self, what: &str, seen: T, expected: T) {
        self.seen += 1;
        if seen != expected {
            let line = format!("{what}: {seen:?}, expected {expected:?}");
            self.wrong.push(line);
        }
    }

    /// A name that is not taken.
    pub fn fresh(&mut self, what: &str) -> String {
        self.made += 1;
        format!("{}-{what}{}", self.name, self.made)
    }

    /// Sends a request and takes its answer.
    ///
    /// # Errors
    /// As [`Connection::exchange_as`].
    pub fn call<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response> {
        Ok(self.conn.exchange_as(version, request, soon())?)
    }

    /// Asks until the answer is not one of "not ready yet", for at most twenty seconds.
    ///
    /// # Errors
    /// As `ask`, and when it takes too long.
    pub fn settled<T>(
        &mut self,
        mut ask: impl FnMut(&mut World) -> Result<T>,
        code: impl Fn(&T) -> i16,
    ) -> Result<T> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = ask(self)?;
            if !NOT_READY.contains(&code(&answer)) {
                return Ok(answer);
            }
            ensure!(Instant::now() < deadline, "still {}", code(&answer));
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until something is so.
    ///
    /// # Errors
    /// As `is`, and when it takes too long.
    pub fn until(
        &mut self,
        what: &str,
        mut is: impl FnMut(&mut World) -> Result<bool>,
    ) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !is(self)? {
            if Instant::now() > deadline {
                bail!("not within {PATIENCE:?}: {what}");
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// A topic with one partition.
    ///
    /// # Errors
    /// As [`World::topic_with`].
    pub fn topic(&mut self) -> Result<String> {
        self.topic_with(1, &[])
    }

    /// A topic, ready to be written to.
    ///
    /// # Errors
    /// When it is not created.
    pub fn topic_with(&mut self, partitions: i32, configs: &[(&str, &str)]) -> Result<String> {
        let name = self.fresh("t");
        let code = self.create(&name, partitions, 1, configs)?;
        ensure!(code == 0, "create {name}: {code}");
        self.until("the topic has its leaders", |world| {
            let metadata = world.metadata(&[&name])?;
            let Some(topic) = metadata.topics.first() else {
                return Ok(false);
            };
            let led = topic
                .partitions
                .iter()
                .filter(|it| it.error_code == 0 && it.leader_id.0 >= 0);
            Ok(topic.error_code == 0 && led.count() == partitions as usize)
        })?;
        // Kafka tells of a leader before that knows of it.
        self.until("its leaders answer", |world| {
            for partition in 0..partitions {
                if world.fetch(&name, partition, 0, 0, 1)?.error != 0 {
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
        Ok(name)
    }

    /// CreateTopics: the error code.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn create(
        &mut self,
        name: &str,
        partitions: i32,
        replicas: i16,
        configs: &[(&str, &str)],
    ) -> Result<i16> {
        let request = requests::create_topic(name, partitions, replicas, configs);
        let answer = self.call(4, &request)?;
        Ok(answer.topics.first().map_or(-1, |topic| topic.error_code))
    }

    /// Metadata of some topics.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn metadata(&mut self, topics: &[&str]) -> Result<MetadataResponse> {
        self.call(9, &requests::metadata(Some(topics)))
    }
}

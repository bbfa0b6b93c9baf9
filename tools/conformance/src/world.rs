//! What a scenario has: a broker, names of its own, and what it saw.

use std::cell::{Cell, RefCell};
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
    pub run: fn(&World) -> Result<()>,
}

/// One broker, as one scenario sees it.
#[derive(Debug)]
pub struct World {
    address: String,
    name: String,
    made: Cell<u32>,
    conn: RefCell<Connection>,
    wrong: RefCell<Vec<String>>,
    compared: Cell<bool>,
}

impl World {
    /// Connects to a broker; every name that is made begins with `name`.
    ///
    /// # Errors
    /// When nothing listens there.
    pub fn new(address: &str, name: &str) -> Result<World> {
        let world = World {
            address: address.to_owned(),
            name: name.to_owned(),
            made: Cell::new(0),
            conn: RefCell::new(Connection::pinned(address, CLIENT, soon())?),
            wrong: RefCell::default(),
            compared: Cell::new(false),
        };
        // Kafka creates its coordinators' topics at the first request for one.
        for kind in [0, 1] {
            let request = FindCoordinatorRequest::default()
                .with_key(text(name))
                .with_key_type(kind);
            let found = world.settled(|| world.call(2, &request), |it| it.error_code)?;
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
    pub fn same<T: PartialEq + Debug>(&self, what: &str, seen: T, expected: T) {
        self.compared.set(true);
        if seen != expected {
            let line = format!("{what}: {seen:?}, expected {expected:?}");
            self.wrong.borrow_mut().push(line);
        }
    }

    /// Compares a result with the expected one.
    ///
    /// # Errors
    /// As the result.
    pub fn returns<T: PartialEq + Debug>(
        &self,
        what: &str,
        result: Result<T>,
        expected: T,
    ) -> Result<()> {
        self.same(what, result?, expected);
        Ok(())
    }

    /// Returns the differences of a scenario, and the error with which it ended.
    pub(crate) fn differences(self, end: Result<()>) -> Vec<String> {
        let mut wrong = self.wrong.into_inner();
        match end {
            Err(error) => wrong.push(format!("{error:#}")),
            Ok(()) if !self.compared.get() => wrong.push("the scenario compares nothing".into()),
            Ok(()) => {}
        }
        wrong
    }

    /// A name that is not taken.
    pub fn fresh(&self, what: &str) -> String {
        let number = self.made.get() + 1;
        self.made.set(number);
        format!("{}-{what}{number}", self.name)
    }

    /// Sends a request and takes its answer.
    ///
    /// # Errors
    /// As [`Connection::exchange_as`].
    pub fn call<R: Request>(&self, version: i16, request: &R) -> Result<R::Response> {
        Ok(self
            .conn
            .borrow_mut()
            .exchange_as(version, request, soon())?)
    }

    /// Asks until the answer is not one of "not ready yet", for at most twenty seconds.
    ///
    /// # Errors
    /// As `ask`, and when it takes too long.
    pub fn settled<T>(
        &self,
        mut ask: impl FnMut() -> Result<T>,
        code: impl Fn(&T) -> i16,
    ) -> Result<T> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = ask()?;
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
    pub fn until(&self, what: &str, mut is: impl FnMut() -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !is()? {
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
    pub fn topic(&self) -> Result<String> {
        self.topic_with(1, &[])
    }

    /// A topic, ready to be written to.
    ///
    /// # Errors
    /// When it is not created.
    pub fn topic_with(&self, partitions: i32, configs: &[(&str, &str)]) -> Result<String> {
        let name = self.fresh("t");
        let code = self.create(&name, partitions, 1, configs)?;
        ensure!(code == 0, "create {name}: {code}");
        self.until("the topic has its leaders", || {
            let metadata = self.metadata(&[&name])?;
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
        self.until("its leaders answer", || {
            for partition in 0..partitions {
                if self.fetch(&name, partition, 0, 0, 1)?.error != 0 {
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
        &self,
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
    pub fn metadata(&self, topics: &[&str]) -> Result<MetadataResponse> {
        self.call(9, &requests::metadata(Some(topics)))
    }
}

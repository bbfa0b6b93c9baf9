//! The environment of a scenario: a broker, unique names, and the differences so far.

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use kafka_protocol::messages::{FindCoordinatorRequest, MetadataResponse};
use kafka_protocol::protocol::Request;
use kafka_wire::Connection;
use kafka_wire::requests::{self, text};

/// Errors of requests that succeed after a while.
const NOT_READY: [i16; 6] = [3, 5, 14, 15, 16, 51];
/// The time limit of retries and of each response.
const PATIENCE: Duration = Duration::from_secs(20);

/// `client.id`. Brokers use it as the prefix of new member ids.
const CLIENT: &str = "conformance";

/// Returns the deadline of a request that is sent now.
pub(crate) fn soon() -> Instant {
    Instant::now() + PATIENCE
}

/// A named script.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// The part of Kafka that the scenario tests.
    pub group: &'static str,
    /// The behaviour that the scenario tests.
    pub name: &'static str,
    /// The script.
    pub run: fn(&World) -> Result<()>,
}

/// A broker for one scenario.
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
    /// Connects to a broker. All names of the scenario begin with `name`.
    ///
    /// # Errors
    /// When it cannot connect, or a coordinator is not ready in time.
    pub fn new(address: &str, name: &str) -> Result<World> {
        let world = World {
            address: address.to_owned(),
            name: name.to_owned(),
            made: Cell::new(0),
            conn: RefCell::new(Connection::pinned(address, CLIENT, soon())?),
            wrong: RefCell::default(),
            compared: Cell::new(false),
        };
        // Kafka creates the topics of its coordinators at the first request for one.
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

    /// Opens another connection to the same broker.
    ///
    /// # Errors
    /// As [`Connection::pinned`].
    pub fn connect(&self) -> Result<Connection> {
        Ok(Connection::pinned(&self.address, CLIENT, soon())?)
    }

    /// Compares a result with that of Kafka, and keeps the difference.
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

    /// Returns an unused name.
    pub fn fresh(&self, what: &str) -> String {
        let number = self.made.get() + 1;
        self.made.set(number);
        format!("{}-{what}{number}", self.name)
    }

    /// Sends a request and returns the response.
    ///
    /// # Errors
    /// As [`Connection::exchange_as`].
    pub fn call<R: Request>(&self, version: i16, request: &R) -> Result<R::Response> {
        Ok(self
            .conn
            .borrow_mut()
            .exchange_as(version, request, soon())?)
    }

    /// Repeats a request while the error code of its response means "not ready yet", for at most twenty seconds.
    ///
    /// # Errors
    /// As `ask`, and after the time limit.
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

    /// Waits until `is` returns true, for at most twenty seconds.
    ///
    /// # Errors
    /// As `is`, and after the time limit.
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

    /// Creates a topic with one partition.
    ///
    /// # Errors
    /// As [`World::topic_with`].
    pub fn topic(&self) -> Result<String> {
        self.topic_with(1, &[])
    }

    /// Creates a topic, and waits until it accepts records.
    ///
    /// # Errors
    /// When the topic is not created.
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
        // In Kafka, a broker can be in the metadata as the leader before it leads.
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

    /// Sends CreateTopics. Returns the error code.
    ///
    /// # Errors
    /// When the broker returns no response.
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

    /// Returns the metadata of some topics.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn metadata(&self, topics: &[&str]) -> Result<MetadataResponse> {
        self.call(9, &requests::metadata(Some(topics)))
    }
}

//! Creates the topics and starts the app.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eos_core::spi::stepped::{Env, Stepped};
use eos_core::{App, Error, Timestamp};
use eos_protocol::Now;

use super::builder::Builder;
use super::faults::{Died, Faults};
use super::{Rebuild, Seat, TestDriver};
use crate::client::Cluster;
use crate::disk::Disk;
use crate::rng::Rng;
use eos_broker::broker::{Broker, BrokerOptions};

/// Only the driver decides when to commit, and a transaction lives for the maximum time of the broker.
const SETTINGS: [(&str, &str); 4] = [
    ("commit.pace", "fixed"),
    ("commit.interval.ms", "600000"),
    ("transaction.timeout.ms", "900000"),
    ("max.poll.interval.ms", "86400000"),
];

/// Records may have any time: the broker keeps old ones and accepts future ones.
const KEEPS: (&str, &str) = ("retention.ms", "-1");
const TAKES: (&str, &str) = ("message.timestamp.after.max.ms", "9223372036854775807");

impl TestDriver {
    #[track_caller]
    pub(super) fn started(
        builder: Builder,
        app: App,
        rebuild: Option<Rebuild>,
    ) -> Result<TestDriver, Error> {
        check(&builder);
        let faults = Faults::default();
        let broker = Broker::new(BrokerOptions::default());
        let cluster = Cluster::watched(broker, builder.begin.0, faults.clone());
        let app = stepped(app, &cluster)?;
        let mut driver = TestDriver {
            app,
            rebuild,
            cluster,
            faults,
            seats: Vec::new(),
            seated: 0,
            begin: builder.begin.0,
            advanced: 0,
            set: Arc::default(),
            holds: false,
            error: None,
            next: BTreeMap::new(),
            crashes: 0,
            loses_state: false,
        };
        driver.make_topics(&builder);
        for _ in 0..builder.instances {
            let seat = driver.seat();
            driver.start(seat)?;
        }
        driver.lift_limits();
        if driver.go().is_err()
            && let Some(error) = driver.error.take().and_then(Arc::into_inner)
        {
            return Err(error);
        }
        driver.spread();
        driver.holds = builder.holds;
        Ok(driver)
    }

    #[track_caller]
    fn make_topics(&self, builder: &Builder) {
        let mut topics = self.app.inputs();
        topics.extend(self.app.outputs());
        topics.sort();
        topics.dedup();
        for told in builder.partitions.keys() {
            let names: Vec<&str> = topics.iter().map(|it| it.as_str()).collect();
            assert!(
                names.contains(&told.as_str()),
                "partitions({told:?}, ..): the app neither reads nor writes such a topic. It has {}",
                names.join(", ")
            );
        }
        for topic in topics {
            let name = topic.as_str();
            let partitions = builder.partitions.get(name).copied().unwrap_or(1);
            let made = self
                .cluster
                .broker(|broker| broker.add_topic(name, partitions, &[KEEPS, TAKES]));
            if let Err(why) = made {
                panic!("the topic {name} can't be created: {why}");
            }
        }
    }

    /// The start of the app creates the app's own topics, as on Kafka.
    fn lift_limits(&self) {
        for topic in self.app.own() {
            let (name, value) = TAKES;
            let set = self
                .cluster
                .broker(|broker| broker.configure_topic(topic.as_str(), name, value));
            assert_eq!(set, Ok(()), "{topic} is there once the app has started");
        }
    }

    /// Adds a seat for one more process.
    pub(super) fn seat(&mut self) -> usize {
        self.seated += 1;
        self.seats.push(Seat {
            instance: self.seated.to_string(),
            disk: Disk::default(),
            process: None,
            stopped: Vec::new(),
        });
        self.seats.len() - 1
    }

    /// Starts the process of a seat, and again if it dies meanwhile.
    pub(super) fn start(&mut self, at: usize) -> Result<(), Error> {
        let env = self.env();
        loop {
            if let Some(rebuild) = &self.rebuild {
                self.app = stepped(rebuild(), &self.cluster)?;
            }
            let seat = &mut self.seats[at];
            let home = Arc::new(self.faults.watch(&seat.disk));
            let (app, workers) = (&self.app, self.app.workers());
            let start = || app.start(&seat.instance, workers, &env, home);
            match catch_unwind(AssertUnwindSafe(start)) {
                Ok(process) => {
                    let process = process?;
                    seat.stopped = vec![false; process.workers.len()];
                    seat.process = Some(process);
                    return Ok(());
                }
                Err(died) if died.is::<Died>() => {
                    self.crashes += 1;
                    self.drop_process(at);
                }
                Err(panic) => resume_unwind(panic),
            }
        }
    }

    fn env(&self) -> Env {
        let (clock, wall, begin) = (self.cluster.clone(), self.cluster.clone(), self.begin);
        let set = Arc::clone(&self.set);
        let chance = Mutex::new(Rng::new(self.crashes.into()));
        let since = move |now: i64| Now(Duration::from_millis((now - begin).unsigned_abs()));
        let next = move || {
            let mut chance = chance.lock().unwrap_or_else(PoisonError::into_inner);
            chance.draw()
        };
        let time_of_day = move || Timestamp(wall.now() + set.load(Ordering::Relaxed));
        Env::new(move || since(clock.now()), next).with_wall_clock(time_of_day)
    }
}

/// The app with the settings of the driver.
fn stepped(mut app: App, cluster: &Cluster) -> Result<Stepped<Cluster>, Error> {
    for (name, value) in SETTINGS {
        app.set(name, value);
    }
    app.stepped(cluster.clone())
}

#[track_caller]
fn check(builder: &Builder) {
    let begin = builder.begin.0;
    assert!(
        begin >= 0,
        "start_at({begin}): brokers accept no time before 1970. Use 0 or more"
    );
    assert!(
        builder.instances > 0,
        "instances(0): the app would have no process. Use 1 or more"
    );
    for (topic, partitions) in &builder.partitions {
        let partitions = *partitions;
        assert!(
            partitions > 0,
            "partitions({topic:?}, {partitions}): a topic has at least one. Use 1 or more"
        );
    }
}

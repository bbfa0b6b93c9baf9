//! Outages of five minutes during a start.
//!
//! An outage begins at each request of a start in turn. The app waits, and no record is lost or doubled. (Before the
//! workers start, `start.deadline` bounds the wait: see `connection_limit` in `integration-tests`.)

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eos_broker::broker::{Broker, BrokerOptions};
use eos_core::spi::stepped::{Env, InMemory, Process, Step, Stepped};
use eos_core::{App, KeyValueStore, Topic};
use eos_protocol::Now;
use eos_testkit::client::{Cluster, Fate, Sent, Watcher, Written};

const BEGIN: i64 = 1_700_000_000_000;
const OUTAGE: i64 = 5 * 60_000;
/// The time limit after the outage.
const PATIENCE: i64 = 5 * 60_000;
const INPUT: &str = "words";
const OUTPUT: &str = "counts";
const PARTITIONS: i32 = 2;
/// The number of records before the tested start.
const BEFORE: usize = 12;

/// Loses all requests for a while, beginning with one request.
#[derive(Debug, Clone, Default)]
struct Outage(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Requests since the start.
    seen: u64,
    /// The number of the request that begins the outage.
    at: Option<u64>,
    until: Option<i64>,
    lost: u64,
}

impl Watcher for Outage {
    fn fate(&mut self, sent: &Sent<'_>) -> Fate {
        let mut state = self.0.lock().unwrap();
        state.seen += 1;
        if state.at == Some(state.seen) {
            state.until = Some(sent.now + OUTAGE);
        }
        if state.until.is_some_and(|until| sent.now < until) {
            state.lost += 1;
            // The client notices a refused connection at once, and retries later.
            return Fate::Lost { after: 1_000 };
        }
        Fate::Arrives { there: 1, back: 1 }
    }
}

fn counting() -> App {
    let mut app = App::new("counting");
    let counts = app.store(&KeyValueStore::<String, u64>::plain("counts"));
    let out = app.output(&Topic::<String, u64>::plain(OUTPUT));
    app.source(&Topic::<String, String>::plain(INPUT))
        .with_store(&counts)
        .for_each(move |ctx, record| {
            let count = ctx
                .store(&counts)
                .update(&record.value, |count| count.unwrap_or(0) + 1)?;
            ctx.emit(&out, record.value, count)
        });
    app
}

struct Course {
    outage: Outage,
    cluster: Cluster,
    app: Stepped<Cluster>,
    env: Env,
    sent: usize,
}

impl Course {
    fn new() -> Course {
        let outage = Outage::default();
        let cluster =
            Cluster::watched(Broker::new(BrokerOptions::default()), BEGIN, outage.clone());
        for topic in [INPUT, OUTPUT] {
            cluster.add_topic(topic, PARTITIONS).unwrap();
        }
        let app = counting().stepped(cluster.clone()).unwrap();
        let clock = cluster.clone();
        let random = AtomicU64::new(1);
        let env = Env::new(
            move || Now(Duration::from_millis((clock.now() - BEGIN).unsigned_abs())),
            move || random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed),
        );
        Course {
            outage,
            cluster,
            app,
            env,
            sent: 0,
        }
    }

    fn send(&mut self, records: usize) {
        for _ in 0..records {
            let word = ["a", "b", "c"][self.sent % 3].as_bytes();
            let record = Written {
                timestamp: self.cluster.now(),
                key: Some(word),
                value: Some(word),
                headers: &[],
            };
            // A word is always in the same partition, so that it has a single count.
            let partition = i32::from(word == b"b");
            self.cluster.produce(INPUT, partition, &record).unwrap();
            self.sent += 1;
        }
    }

    fn start(&self) -> Process<Cluster> {
        let home = Arc::new(InMemory);
        self.app.start("a", 1, &self.env, home).unwrap()
    }

    /// The committed records of the output.
    fn output(&self) -> Vec<(String, u64)> {
        let partitions = 0..PARTITIONS;
        let records = partitions.flat_map(|partition| self.cluster.read(OUTPUT, partition));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        records
            .map(|record| {
                let key = text(record.key.as_deref().unwrap_or_default());
                let count = <[u8; 8]>::try_from(record.value.as_deref().unwrap_or_default());
                (key, u64::from_be_bytes(count.unwrap()))
            })
            .collect()
    }

    /// Steps the process until all input is counted.
    fn run(&self, process: &mut Process<Cluster>) -> Result<(), String> {
        let since = AtomicI64::new(self.cluster.now());
        loop {
            let now = self.cluster.now();
            let mut nap = 50;
            for worker in &mut process.workers {
                match worker.step() {
                    Ok(Step::Busy) => nap = 1,
                    Ok(Step::Idle(_)) => {}
                    Ok(Step::Stopped) => return Err("it stopped by itself".into()),
                    Err(error) => return Err(error.to_string()),
                }
            }
            if self.output().len() >= self.sent {
                return Ok(());
            }
            let late = since.load(Ordering::Relaxed) + OUTAGE + PATIENCE;
            if now > late {
                return Err(format!("{} of {} counted", self.output().len(), self.sent));
            }
            self.cluster.pass(now + nap);
        }
    }

    fn judge(&self) -> Result<(), String> {
        let mut found = self.output();
        found.sort();
        let mut expected = Vec::new();
        for (at, word) in ["a", "b", "c"].into_iter().enumerate() {
            let count = (0..self.sent).filter(|nth| nth % 3 == at).count() as u64;
            expected.extend((1..=count).map(|count| (word.to_owned(), count)));
        }
        expected.sort();
        if found != expected {
            return Err(format!("{found:?} instead of {expected:?}"));
        }
        Ok(())
    }
}

/// A process counts some words and dies; another one starts, restores and continues. Returns the number of requests of
/// the second process, and the number lost in an outage that begins with request `at`.
fn second_start(at: Option<u64>) -> Result<(u64, u64), String> {
    let mut course = Course::new();
    course.send(BEFORE);
    let mut first = course.start();
    course.run(&mut first)?;
    drop(first);
    course.send(BEFORE);
    let mut second = course.start();
    {
        let mut state = course.outage.0.lock().unwrap();
        (state.seen, state.at) = (0, at);
    }
    course.run(&mut second)?;
    course.judge()?;
    let state = course.outage.0.lock().unwrap();
    Ok((state.seen, state.lost))
}

#[test]
fn an_outage_of_five_minutes_at_any_request_of_a_start_is_waited_for() {
    let (requests, none) = second_start(None).unwrap();
    assert!(
        requests > 20 && none == 0,
        "{requests} requests, {none} lost"
    );
    let mut wrong = Vec::new();
    for at in 1..=requests {
        match second_start(Some(at)) {
            Ok((_, 0)) => wrong.push(format!("{at}: nothing was lost")),
            Ok(_) => {}
            Err(why) => wrong.push(format!("{at}: {why}")),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {requests}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

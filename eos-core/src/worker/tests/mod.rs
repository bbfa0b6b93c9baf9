//! The worker against a scripted Kafka: what it calls, in which order, and what is visible at the
//! end. No broker, no threads, no waiting: what takes time is stepped.

mod changelog_identity;
mod coverage;
mod emission;
#[cfg(feature = "failpoints")]
mod failpoints;
mod fuzz;
mod membership;
mod metrics;
mod policies;
mod processors;
mod purging;
mod rebalances;
mod redeploys;
mod siblings;
mod state;
mod stops;
mod tables;
mod topics;
mod transactions;
mod two_sources;
mod windows;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::{
    CallSite, CommitPolicy, Fault, FirstStart, Guarantee, Limits, MaxIdle, Offset, Pace,
    TopicPartition, TransactionalId, WorkerId, code,
};

use super::fake::{Answer, Clock, Fake, abortable, fatal, tp};
use super::*;
use crate::client::{GroupProtocol, SourceEvent};
use crate::{App, Failure, Topic};

struct Bench {
    kafka: Fake,
    clock: Clock,
    worker: Worker<Fake>,
}

fn shout(app: &mut App) {
    app.source(&Topic::<String, String>::plain("in"))
        .try_map(|v| match &v[..] {
            "poison" => Err("poison".into()),
            "panic" => panic!("at the disco"),
            _ => Ok::<_, Failure>(v.to_uppercase()),
        })
        .to(&Topic::plain("out"));
}

/// What the client says of an offset that it did not find.
fn out_of_range(partition: TopicPartition, asked: i64) -> SourceEvent {
    let asked = Offset::new(asked).ok();
    SourceEvent::OutOfRange { partition, asked }
}

fn spec(id: u16, guarantee: Guarantee) -> WorkerSpec {
    WorkerSpec {
        app: "app".into(),
        id: WorkerId(id),
        identity: TransactionalId::new(format!("app-i-{id}")),
        static_member: true,
        guarantee,
        policy: CommitPolicy {
            pace: Pace::Fixed,
            ..CommitPolicy::default()
        },
        max_idle: MaxIdle::default(),
        limits: Limits::default(),
        first_start: FirstStart::Earliest,
        accepted_layout: None,
        transaction_timeout: Duration::from_secs(30),
        protocol: GroupProtocol::Consumer,
        revoke_deadline: Duration::from_secs(20),
        offsets_deadline: Duration::from_secs(60),
        prefetch: 1 << 20,
        output_partitions: vec![1],
        output_limits: vec![Some(1000)],
        input_partitions: BTreeMap::from([("in".into(), 2)]),
        compacted: BTreeSet::default(),
        state: StateSpec::default(),
        purge_queue: Arc::default(),
    }
}

impl Bench {
    fn with(guarantee: Guarantee, declare: impl FnOnce(&mut App)) -> Self {
        Self::with_clock(Clock::default(), guarantee, declare)
    }

    fn with_clock(clock: Clock, guarantee: Guarantee, declare: impl FnOnce(&mut App)) -> Self {
        let kafka = Fake::default();
        for partition in [0, 1] {
            let log = (0..3).map(|n| format!("p{partition}r{n}")).collect();
            kafka.broker().input.insert(tp(partition), log);
        }
        let worker = new_worker(&kafka, &clock, spec(0, guarantee), declare);
        Self {
            kafka,
            clock,
            worker,
        }
    }

    fn new() -> Self {
        Self::with(Guarantee::ExactlyOnce, shout)
    }

    /// A worker that owns partition 0 and has committed its first records.
    fn running() -> Self {
        let mut bench = Self::new();
        bench.assign(&[0]);
        bench.settle();
        bench.kafka.calls();
        bench
    }

    fn assign(&self, partitions: &[i32]) {
        let partitions = partitions.iter().map(|&p| tp(p)).collect();
        self.kafka
            .event("app-i-0-consumer", SourceEvent::Assigned(partitions));
    }

    /// The group has an offset of these partitions: their first records are to come.
    fn begun(&self, partitions: &[TopicPartition]) {
        let mut broker = self.kafka.broker();
        let begun = partitions.iter().map(|p| (p.clone(), (0, String::new())));
        broker.committed.extend(begun);
    }

    fn revoke(&self, partition: i32, lost: bool) {
        let event = SourceEvent::Revoked {
            partitions: vec![tp(partition)],
            lost,
        };
        self.kafka.event("app-i-0-consumer", event);
    }

    fn feed(&self, partition: i32, values: &[&str]) {
        let mut broker = self.kafka.broker();
        let log = broker.input.entry(tp(partition)).or_default();
        log.extend(values.iter().map(|&v| v.to_owned()));
    }

    /// The next transaction that is drained has to be aborted.
    fn next_flush_aborts(&self) {
        let lost = abortable(code::UNKNOWN_PRODUCER_ID);
        self.kafka.answer(CallSite::Flush, [Answer::Fails(lost)]);
    }

    fn step(&mut self) {
        self.worker.step().unwrap();
    }

    /// Lets records flow into a transaction that is not due yet.
    fn open(&mut self, values: &[&str]) {
        self.feed(0, values);
        self.step();
        assert_eq!(self.worker.state(), State::Open);
    }

    /// Steps until nothing happens any more, passing commit intervals.
    fn settle(&mut self) {
        for _ in 0..60 {
            self.step();
            self.clock.pass(Duration::from_millis(50));
        }
    }

    /// A few steps, long enough for one failed commit.
    fn settle_without_commit(&mut self) {
        let before = self.visible();
        for _ in 0..6 {
            self.step();
            self.clock.pass(Duration::from_millis(50));
        }
        assert_eq!(self.visible(), before);
    }

    /// Steps until the worker ends, and says how.
    fn end(&mut self) -> Result<(), WorkerError> {
        for _ in 0..200 {
            if self.worker.step()? == Step::Stopped {
                return Ok(());
            }
            self.clock.pass(Duration::from_millis(50));
        }
        panic!("the worker goes on: {:?}", self.worker);
    }

    /// Steps for so long, while brokers answer, and returns the error with which the worker ends.
    fn end_after(&mut self, time: Duration) -> WorkerError {
        const STRIDE: Duration = Duration::from_secs(10);
        let mut passed = Duration::ZERO;
        while passed < time {
            self.clock.pass(STRIDE);
            passed += STRIDE;
            if let Err(error) = self.worker.step() {
                return error;
            }
        }
        self.end().unwrap_err()
    }

    /// As [`settle`](Self::settle), but the worker may end.
    fn settle_until_error(&mut self, end: &mut Result<(), WorkerError>) {
        for _ in 0..60 {
            if let Err(error) = self.worker.step() {
                *end = Err(error);
                return;
            }
            self.clock.pass(Duration::from_millis(50));
        }
    }

    fn visible(&self) -> Vec<String> {
        self.kafka
            .broker()
            .visible
            .iter()
            .map(|(_, v)| v.clone())
            .collect()
    }

    fn committed(&self, partition: i32) -> Option<i64> {
        self.kafka
            .broker()
            .committed
            .get(&tp(partition))
            .map(|(offset, _)| *offset)
    }

    /// Every record of partition 0 exactly once, in order, and its offset with it.
    #[track_caller]
    fn assert_exact(&self) {
        let script = self.kafka.broker().script.clone();
        let left = script
            .values()
            .map(std::collections::VecDeque::len)
            .sum::<usize>();
        assert_eq!(left, 0, "not every scripted fault has fired: {script:?}");
        let expected: Vec<String> = self
            .kafka
            .broker()
            .input
            .get(&tp(0))
            .into_iter()
            .flatten()
            .map(|v| v.to_uppercase())
            .collect();
        assert_eq!(self.visible(), expected);
        assert_eq!(self.committed(0), Some(expected.len() as i64));
    }
}

fn new_worker(
    kafka: &Fake,
    clock: &Clock,
    spec: WorkerSpec,
    declare: impl FnOnce(&mut App),
) -> Worker<Fake> {
    let mut app = App::new("app");
    declare(&mut app);
    let topology = app.check().unwrap();
    Worker::new(
        spec,
        clock.env(),
        topology,
        Arc::new(kafka.clone()),
        Arc::default(),
    )
    .unwrap()
}

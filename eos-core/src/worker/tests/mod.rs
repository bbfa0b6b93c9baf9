//! Tests of the worker against a scripted Kafka.
//!
//! They check the calls, their order, and the visible records. There is no broker and no thread, and time passes in
//! steps.

mod backlog;
mod changelog_identity;
mod coverage;
mod emission;
#[cfg(feature = "failpoints")]
mod failpoints;
mod fuzz;
mod guarantees;
mod membership;
mod metrics;
mod own_moments;
mod pauses;
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
mod unreadable_rows;
mod windows;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::{
    CallSite, CommitPolicy, Fault, FirstStart, Guarantee, Limits, MaxIdle, Offset, Pace, TaskId,
    TopicName, TopicPartition, TransactionalId, WorkerId, code,
};

use super::fake::{Answer, Clock, Fake, abortable, fatal, tp};
use super::*;
use crate::client::{GroupProtocol, SourceEvent};
use crate::metrics::{Totals, WorkerMetrics};
use crate::{App, Failure, PlainTopic, Topic};

/// The default duration of a step.
const STEP: Duration = Duration::from_millis(50);

struct Bench {
    kafka: Fake,
    clock: Clock,
    worker: Worker<Fake>,
}

fn text(name: &str) -> PlainTopic<String, String> {
    Topic::plain(name)
}

fn texts(values: &[&str]) -> Vec<String> {
    values.iter().map(|&value| value.to_owned()).collect()
}

fn shout(app: &mut App) {
    app.source(&text("in"))
        .try_map(|v| match &v[..] {
            "poison" => Err("poison".into()),
            "panic" => panic!("at the disco"),
            _ => Ok::<_, Failure>(v.to_uppercase()),
        })
        .to(&Topic::plain("out"));
}

/// Returns the client's event for an offset that is not in the log.
fn out_of_range(partition: TopicPartition, asked: i64) -> SourceEvent {
    let asked = Offset::new(asked).ok();
    SourceEvent::OutOfRange { partition, asked }
}

pub(in crate::worker) fn spec(id: u16, guarantee: Guarantee) -> WorkerSpec {
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
        // The clock begins at 0, and records may have any time.
        most_ahead: None,
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
        pauses: Arc::default(),
        globals: Arc::default(),
        views: Arc::default(),
    }
}

impl Bench {
    fn with(guarantee: Guarantee, declare: impl FnOnce(&mut App)) -> Self {
        Self::with_clock(Clock::default(), guarantee, declare)
    }

    fn with_clock(clock: Clock, guarantee: Guarantee, declare: impl FnOnce(&mut App)) -> Self {
        let bench = Self::on_empty(clock, spec(0, guarantee), declare);
        for partition in [0, 1] {
            let log = (0..3).map(|n| format!("p{partition}r{n}")).collect();
            bench.kafka.broker().input.insert(tp(partition), log);
        }
        bench
    }

    /// A worker with a Kafka that has no records.
    fn of(spec: WorkerSpec, declare: impl FnOnce(&mut App)) -> Self {
        Self::on_empty(Clock::default(), spec, declare)
    }

    fn on_empty(clock: Clock, spec: WorkerSpec, declare: impl FnOnce(&mut App)) -> Self {
        let kafka = Fake::default();
        let worker = new_worker(&kafka, &clock, spec, declare);
        Self {
            kafka,
            clock,
            worker,
        }
    }

    /// Replaces the worker by another one.
    fn replace(&mut self, spec: WorkerSpec, declare: impl FnOnce(&mut App)) {
        self.worker = new_worker(&self.kafka, &self.clock, spec, declare);
    }

    fn new() -> Self {
        Self::with(Guarantee::ExactlyOnce, shout)
    }

    /// A worker that owns partition 0 and has committed its first records.
    fn running() -> Self {
        let bench = Self::started(Guarantee::ExactlyOnce, shout);
        bench.kafka.calls();
        bench
    }

    /// As [`Bench::running`], with another app, and with the calls of the start.
    fn started(guarantee: Guarantee, declare: impl FnOnce(&mut App)) -> Self {
        let mut bench = Self::with(guarantee, declare);
        bench.assign(&[0]);
        bench.settle();
        bench
    }

    /// A worker that owns both partitions and has committed their first records.
    fn running_both() -> Self {
        let mut bench = Self::new();
        bench.assign(&[0, 1]);
        bench.settle();
        bench
    }

    /// Sends this event to the source of the worker.
    fn receives(&self, event: SourceEvent) {
        self.kafka.event("app-i-0-consumer", event);
    }

    fn assign(&self, partitions: &[i32]) {
        self.assign_these(partitions.iter().map(|&p| tp(p)));
    }

    fn assign_these(&self, partitions: impl IntoIterator<Item = TopicPartition>) {
        self.receives(SourceEvent::Assigned(partitions.into_iter().collect()));
    }

    /// Commits offset 0 of these partitions: their first records are next.
    fn begun(&self, partitions: &[TopicPartition]) {
        let mut broker = self.kafka.broker();
        let begun = partitions.iter().map(|p| (p.clone(), (0, String::new())));
        broker.committed.extend(begun);
    }

    fn revoke(&self, partition: i32, lost: bool) {
        self.revoke_this(tp(partition), lost);
    }

    fn revoke_this(&self, partition: TopicPartition, lost: bool) {
        let partitions = vec![partition];
        self.receives(SourceEvent::Revoked { partitions, lost });
    }

    fn feed(&self, partition: i32, values: &[&str]) {
        self.feed_to(tp(partition), values);
    }

    fn feed_to(&self, partition: TopicPartition, values: &[&str]) {
        let mut broker = self.kafka.broker();
        let log = broker.input.entry(partition).or_default();
        log.extend(texts(values));
    }

    /// Makes the next call fail without an effect.
    fn fails(&self, call: CallSite, fault: Fault) {
        self.kafka.answer(call, [Answer::Fails(fault)]);
    }

    /// Makes the next call succeed, but report a failure.
    fn done_but(&self, call: CallSite, fault: Fault) {
        self.kafka.answer(call, [Answer::DoneBut(fault)]);
    }

    /// Makes the next `times` calls stay pending.
    fn pending(&self, call: CallSite, times: usize) {
        self.kafka.answer(call, vec![Answer::Pending; times]);
    }

    /// Makes the next flush fail, so that the worker must abort the transaction.
    fn next_flush_aborts(&self) {
        self.fails(CallSite::Flush, abortable(code::UNKNOWN_PRODUCER_ID));
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

    fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step();
            self.clock.pass(STEP);
        }
    }

    #[track_caller]
    fn steps_until(&mut self, done: impl Fn(&Self) -> bool) {
        let mut left = 1000;
        while !done(self) {
            assert!(left > 0, "the condition stays false: {:?}", self.worker);
            self.steps(1);
            left -= 1;
        }
    }

    /// Steps through several commit intervals, until the worker is idle.
    fn settle(&mut self) {
        self.steps(60);
    }

    /// Feeds these records to partition 0, and steps until the worker is idle.
    fn take(&mut self, values: &[&str]) {
        self.feed(0, values);
        self.settle();
    }

    /// Runs a few steps, long enough for one failed commit.
    fn settle_without_commit(&mut self) {
        let before = self.visible();
        self.steps(6);
        assert_eq!(self.visible(), before);
    }

    /// Steps until the worker ends, and returns its result.
    fn end(&mut self) -> Result<(), WorkerError> {
        self.end_within(200)
    }

    fn end_within(&mut self, steps: usize) -> Result<(), WorkerError> {
        for _ in 0..steps {
            if self.worker.step()? == Step::Stopped {
                return Ok(());
            }
            self.clock.pass(STEP);
        }
        panic!("the worker still runs: {:?}", self.worker);
    }

    /// Steps until the worker ends with such an error, and returns the text of the error.
    #[track_caller]
    fn end_with(&mut self, is: impl FnOnce(&WorkerError) -> bool) -> String {
        let error = self.end().unwrap_err();
        assert_error(&error, is);
        error.to_string()
    }

    /// Steps for this time, while brokers respond, and returns the error with which the worker ends.
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

    fn visible(&self) -> Vec<String> {
        let broker = self.kafka.broker();
        broker.visible.iter().map(|(_, v)| v.clone()).collect()
    }

    fn committed(&self, partition: i32) -> Option<i64> {
        self.committed_of(&tp(partition))
    }

    fn committed_of(&self, partition: &TopicPartition) -> Option<i64> {
        let broker = self.kafka.broker();
        broker.committed.get(partition).map(|(offset, _)| *offset)
    }

    /// Checks the visible records and the committed offset of partition 0.
    #[track_caller]
    fn assert_done(&self, visible: &[&str], committed: i64) {
        assert_eq!(self.visible(), visible);
        assert_eq!(self.committed(0), Some(committed));
    }

    fn metrics(&self) -> WorkerMetrics {
        self.worker.shared.meter.read(self.clock.env().now())
    }

    fn totals(&self) -> Totals {
        self.metrics().totals
    }

    /// Checks that the calls since the last check contain this one.
    #[track_caller]
    fn assert_called(&self, call: &str) {
        let calls = self.kafka.calls();
        assert!(times(&calls, call) > 0, "{call} in {calls:?}");
    }

    fn calls_begin_with(&self, start: &str) -> bool {
        let calls = self.kafka.calls();
        calls.iter().any(|call| call.starts_with(start))
    }

    /// Checks that the calls since the last check do not contain this one.
    #[track_caller]
    fn assert_not_called(&self, call: &str) {
        let calls = self.kafka.calls();
        assert!(times(&calls, call) == 0, "{call} in {calls:?}");
    }

    #[track_caller]
    fn settle_exactly(&mut self) {
        self.settle();
        self.assert_exact();
    }

    /// Checks that each record of partition 0 is visible exactly once, in order, and committed.
    #[track_caller]
    fn assert_exact(&self) {
        let script = self.kafka.broker().script.clone();
        let fired = script.values().all(|left| left.is_empty());
        assert!(fired, "not every scripted fault has fired: {script:?}");
        let input = self.kafka.broker().input.get(&tp(0)).cloned();
        let input = input.unwrap_or_default().into_iter();
        let expected: Vec<String> = input.map(|v| v.to_uppercase()).collect();
        assert_eq!(self.visible(), expected);
        assert_eq!(self.committed(0), Some(expected.len() as i64));
    }
}

#[track_caller]
fn assert_error<E: std::fmt::Display>(error: &E, is: impl FnOnce(&E) -> bool) {
    assert!(is(error), "{error}");
}

/// Returns the number of these calls.
fn times(calls: &[String], call: &str) -> usize {
    calls.iter().filter(|c| *c == call).count()
}

/// Returns the index of the first such call, or `usize::MAX` if there is none.
fn place(calls: &[String], call: &str) -> usize {
    calls.iter().position(|c| c == call).unwrap_or(usize::MAX)
}

/// Checks that the first calls of these kinds are in this order, and that none is missing.
#[track_caller]
fn assert_order(calls: &[String], order: &[&str]) {
    let places: Vec<usize> = order.iter().map(|call| place(calls, call)).collect();
    let in_order = places.is_sorted() && !places.contains(&usize::MAX);
    assert!(in_order, "{order:?} in {calls:?}");
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

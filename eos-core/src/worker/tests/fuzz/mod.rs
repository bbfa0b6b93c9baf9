//! Random courses of one worker under every fault of the scripted Kafka, with an exact oracle. They cover faults that
//! the simulation leaves out.
//!
//! `EOS_SEEDS=20000 cargo test -p eos-core --no-default-features --features failpoints --lib fuzz::` runs more seeds
//! than a test run has time for. A failure prints the seed and the course.

mod merged;
mod windows;

use super::state::Disk;
use super::*;
use crate::Backoff;
use crate::ErrorPolicy;
use crate::worker::fake::Broker;

/// Seeds of each shape, unless `EOS_SEEDS` gives another number.
const SEEDS: u64 = 300;
/// Actions of a course.
const ACTIONS: u32 = 120;
/// Steps after the last fault.
const HEALING: u32 = 1_500;

/// A small generator: the same course for the same seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// An app with its input and its oracle.
trait Shape {
    fn spec(&self, disk: &Disk) -> WorkerSpec;

    fn declare(&self, clock: Clock, app: &mut App);

    /// Returns the input partition of group `p` that takes the next record, and the beginning of its value.
    fn input(&self, rng: &mut Rng, p: i32) -> (TopicPartition, String);

    /// Compares the committed results with those of one loop over the input.
    fn judge(&self, broker: &Broker) -> Result<(), String>;
}

/// Compares the number of committed records of a partition with the number of all its records.
fn judge_committed(broker: &Broker, partition: &TopicPartition) -> Result<(), String> {
    let log = broker.input[partition].len();
    let committed = broker.committed.get(partition).map_or(0, |it| it.0);
    match committed == log as i64 {
        true => Ok(()),
        false => Err(format!("{partition}: committed {committed} of {log}")),
    }
}

/// Returns the policy of records that fail, and the closure that makes them fail: `bad` and `panic` always, `flaky`
/// once, and `slow` takes longer than a transaction may.
fn trouble(clock: Clock, retry: bool) -> (ErrorPolicy, impl Fn(String) -> Result<String, Failure>) {
    let policy = match retry {
        true => ErrorPolicy::retry(2, Backoff::fixed(Duration::from_millis(70)))
            .then(ErrorPolicy::skip()),
        false => ErrorPolicy::skip(),
    };
    let tries = Arc::new(std::sync::Mutex::new(BTreeMap::<String, u32>::new()));
    let closure = move |value: String| {
        if value.contains("bad") {
            return Err("bad".into());
        }
        assert!(!value.contains("panic"), "at the disco");
        if value.contains("slow") {
            clock.pass(Duration::from_secs(25));
        }
        if retry && value.contains("flaky") {
            let mut tries = tries.lock().unwrap();
            let count = tries.entry(value.clone()).or_default();
            *count += 1;
            if *count % 3 == 1 {
                return Err("flaky".into());
            }
        }
        Ok(value)
    };
    (policy, closure)
}

/// Returns whether such a record has an effect.
fn counts(value: &str) -> bool {
    !value.contains("bad") && !value.contains("panic")
}

struct Course<'a> {
    shape: &'a dyn Shape,
    rng: Rng,
    disk: Disk,
    bench: Bench,
    owned: [bool; 2],
    times: [i64; 2],
    sent: u64,
    trace: Vec<String>,
}

impl<'a> Course<'a> {
    fn new(shape: &'a dyn Shape, seed: u64) -> Self {
        let (clock, disk) = (Clock::default(), Disk::default());
        let declare = |app: &mut App| shape.declare(clock.clone(), app);
        let bench = Bench::on_empty(clock.clone(), shape.spec(&disk), declare);
        for topic in ["in", "in2"] {
            for p in [0, 1] {
                bench.feed_to(partition(topic, p), &[]);
            }
        }
        Self {
            shape,
            rng: Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x1234_5678),
            disk,
            bench,
            owned: [false; 2],
            times: [100; 2],
            sent: 0,
            trace: Vec::new(),
        }
    }

    fn run(&mut self) -> Result<(), String> {
        for _ in 0..ACTIONS {
            self.act();
            for _ in 0..self.rng.below(5) {
                let pause = self.rng.below(80);
                self.step(pause)?;
            }
        }
        self.note("heal");
        for p in [0, 1] {
            if !self.owned[p] {
                self.bench.assign(&[p as i32]);
            }
        }
        self.owned = [true; 2];
        self.bench.kafka.broker().script.clear();
        for _ in 0..HEALING {
            self.step(50)?;
        }
        let broker = self.bench.kafka.broker();
        self.shape.judge(&broker)
    }

    fn note(&mut self, what: impl Into<String>) {
        self.trace.push(what.into());
    }

    fn act(&mut self) {
        match self.rng.below(16) {
            0..=4 => self.feed(),
            5 => {
                self.note("flush aborts");
                self.bench.next_flush_aborts();
            }
            6 => {
                let fault = fatal(code::LOCAL_FENCED);
                let done = self.rng.one_in(2);
                self.note(format!("commit in doubt, done {done}"));
                match done {
                    true => self.bench.done_but(CallSite::Commit, fault),
                    false => self.bench.fails(CallSite::Commit, fault),
                }
            }
            7 => {
                self.note("generation");
                let fault = Fault::plain(code::ILLEGAL_GENERATION);
                self.bench.fails(CallSite::SendOffsets, fault);
            }
            8 => {
                self.note("unanswered");
                self.bench.kafka.broker().unanswered = true;
            }
            9 => {
                let k = self.rng.below(4);
                self.note(format!("{k} sends pending"));
                self.bench.pending(CallSite::Send, k as usize);
            }
            10 | 11 => self.reassign(),
            12 if self.rng.one_in(3) => self.restart(),
            13 => {
                self.note("pending calls");
                let (committed, seeks) = (self.rng.below(3), self.rng.below(3));
                self.bench.pending(CallSite::Committed, committed as usize);
                self.bench.pending(CallSite::Seek, seeks as usize);
            }
            _ => {}
        }
    }

    fn feed(&mut self) {
        let p = usize::from(self.rng.one_in(2));
        for _ in 0..=self.rng.below(4) {
            self.times[p] += self.rng.below(6) as i64;
            let back = match self.rng.one_in(3) {
                true => self.rng.below(40) as i64,
                false => 0,
            };
            let kind = match self.rng.below(24) {
                0 => "bad",
                1 => "slow",
                2 => "panic",
                3 => "flaky",
                _ => "",
            };
            self.sent += 1;
            let (partition, begins) = self.shape.input(&mut self.rng, p as i32);
            let time = (self.times[p] - back).max(0);
            let value = format!("{begins}{}{kind}@{time}", self.sent);
            self.note(format!("feed {value}"));
            self.bench.feed_to(partition, &[&value]);
        }
    }

    fn reassign(&mut self) {
        let p = usize::from(self.rng.one_in(2));
        if self.owned[p] {
            let lost = self.rng.one_in(2);
            self.note(format!("revoke {p}, lost {lost}"));
            self.bench.revoke(p as i32, lost);
        } else {
            self.note(format!("assign {p}"));
            self.bench.assign(&[p as i32]);
        }
        self.owned[p] = !self.owned[p];
    }

    fn restart(&mut self) {
        let wipe = self.rng.one_in(3);
        self.note(format!("restart, wipe {wipe}"));
        self.bench.kafka.broker().events.clear();
        self.bench.kafka.broker().script.clear();
        let (shape, clock) = (self.shape, self.bench.clock.clone());
        let declare = |app: &mut App| shape.declare(clock, app);
        self.bench.replace(shape.spec(&self.disk), declare);
        if wipe {
            self.disk.wipe();
        }
        self.assign_owned();
    }

    fn assign_owned(&mut self) {
        for p in [0, 1] {
            if self.owned[p] {
                self.bench.assign(&[p as i32]);
            }
        }
    }

    fn step(&mut self, pause: u64) -> Result<(), String> {
        self.bench
            .worker
            .step()
            .map_err(|error| format!("the worker ended: {error}"))?;
        self.bench.clock.pass(Duration::from_millis(pause));
        self.rejoin();
        Ok(())
    }

    /// Lets the group accept a worker that joins again.
    fn rejoin(&mut self) {
        let calls = self.bench.kafka.calls();
        if !calls.iter().any(|call| call.starts_with("subscribe")) {
            return;
        }
        let mut broker = self.bench.kafka.broker();
        if broker.membership.as_ref().is_some_and(|(g, _)| *g < 0) {
            broker.membership = None;
            drop(broker);
            self.note("joined again");
            self.assign_owned();
        }
    }
}

fn partition(topic: &str, p: i32) -> TopicPartition {
    TopicPartition::new(topic, eos_protocol::Partition::new(p).unwrap())
}

/// Raises the limits, so that no course gives up: any number of faults may be drawn.
fn patient(mut spec: WorkerSpec) -> WorkerSpec {
    spec.limits.fences = 100_000;
    spec.limits.aborts_in_a_row = 100_000;
    spec.offsets_deadline = Duration::from_secs(360_000);
    spec.state.patience = Duration::from_secs(360_000);
    spec
}

/// Runs the course that this seed draws.
fn course(shape: &dyn Shape, seed: u64) -> Result<(), String> {
    let mut course = Course::new(shape, seed);
    let run = std::panic::AssertUnwindSafe(|| course.run());
    let ended = std::panic::catch_unwind(run);
    let panic = |panic: Box<dyn std::any::Any + Send>| {
        let text = crate::panics::panic_text(&*panic);
        Err(format!("panic: {text}"))
    };
    ended.unwrap_or_else(panic).map_err(|why| {
        let trace = course.trace.join("\n");
        format!("seed {seed}: {why}\n{trace}\n{:?}", course.bench.worker)
    })
}

/// Runs all seeds, even if some of them fail.
fn fuzz(shape: &dyn Shape) {
    let seeds = std::env::var("EOS_SEEDS").map_or(SEEDS, |it| it.parse().unwrap());
    let wrong: Vec<_> = (0..seeds)
        .filter_map(|seed| course(shape, seed).err())
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {seeds} courses went wrong. {}",
        wrong.len(),
        wrong[0]
    );
}

/// Checks that one of the seeds fails without the defence, so that the oracle detects the faults that it prevents.
#[cfg(feature = "failpoints")]
fn finds(shape: &dyn Shape, defence: &str) {
    let faults = crate::failpoints::Failpoints::parse("", defence).unwrap();
    let _undefended = faults.enter();
    let found = (0..SEEDS).any(|seed| course(shape, seed).is_err());
    assert!(found, "no seed of {SEEDS} finds that {defence} is missing");
}

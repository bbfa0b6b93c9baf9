//! One run: processes of an app on one thread, under virtual time, while things go wrong.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eos_core::stepped::{Env, Process, Step, Stepped, StopMode};
use eos_protocol::{Now, Timestamp, partition_for};

use super::check::{self, Copied, Given};
use super::disks::{Disks, InMemory, ProcessDisk, Unlocked};
use super::fault::{Fault, Kind, Place};
use super::nemesis::{Died, Nemesis, Order};
use super::rng::Rng;
use super::shape::{APP, INPUT, OUTPUTS, Shape};
use crate::broker::{Broker, BrokerOptions};
use crate::client::{Cluster, Written};
use crate::watched::Watched;

/// When a run begins, in milliseconds since the epoch.
const BEGIN: i64 = 1_700_000_000_000;
/// How many records come at least.
const RECORDS: usize = 40;
/// How many faults are drawn at least.
const FAULTS: usize = 6;
/// For how long things go wrong at most, in milliseconds, if that is often enough.
const MOST: i64 = 60_000;
/// How long everything may take once all goes well again, in milliseconds.
const PATIENCE: i64 = 240_000;
/// How long everything has to be settled before it is judged: what the brokers have committed, workers have to
/// hear of, and an answer may take seconds.
const QUIET: i64 = 10_000;
/// How often records come again after all is settled.
const ENCORES: u32 = 2;
/// So few bytes that a restore takes several batches.
const RESTORE_BATCH: usize = 60;
/// A database of a task is open once.
const TASK_LOCK: &str = "task_lock";
/// Processes that come later.
const JOINERS: [&str; 3] = ["c", "d", "e"];
/// How often a process may end with an error in a row.
const ENDS_IN_A_ROW: u32 = 60;

/// What to simulate.
#[derive(Debug, Clone)]
pub struct Run {
    /// Everything follows from it.
    pub seed: u64,
    /// What the app does.
    pub shape: Shape,
    /// How many faults are drawn.
    pub faults: usize,
    /// These and no others.
    pub plan: Option<Vec<Fault>>,
    /// Whether a trace is kept.
    pub traced: bool,
    /// A defence of the runtime that is taken away, to see whether that is found: its name among the
    /// `failpoints` of `eos-core`, which needs the feature `failpoints`; or `task_lock`, the one that is not the
    /// runtime's but the disk's.
    pub without: Option<&'static str>,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Of which run.
    pub run: Run,
    /// What went wrong on purpose, in order.
    pub fired: Vec<Fault>,
    /// How often each place was passed.
    pub passed: BTreeMap<Place, u64>,
    /// What must not have happened.
    pub violations: Vec<String>,
    /// With which errors workers ended, and how often.
    pub errors: BTreeMap<String, u32>,
    /// How many records came.
    pub records: usize,
    /// Virtual milliseconds.
    pub took_ms: i64,
    /// What happened, if it was to be told.
    pub trace: Vec<String>,
}

impl Run {
    /// A run with a shape and a number of faults that follow from the seed.
    #[must_use]
    pub fn of_seed(seed: u64) -> Run {
        let mut rng = Rng::new(seed ^ 0x7368_6170_6500);
        let shape = rng.of(&Shape::ALL).copied().unwrap_or(Shape::Counting);
        Run {
            seed,
            shape,
            faults: FAULTS + rng.below(7),
            plan: None,
            traced: false,
            without: None,
        }
    }

    /// Runs it, with databases in memory.
    ///
    /// # Panics
    /// If there is no defence of the name in [`without`](Run::without).
    #[must_use]
    pub fn run(self) -> Outcome {
        self.run_on(&InMemory)
    }

    /// Runs it, with databases on these disks.
    ///
    /// # Panics
    /// If there is no defence of the name in [`without`](Run::without).
    #[must_use]
    pub fn run_on(self, disks: &dyn Disks) -> Outcome {
        if self.without == Some(TASK_LOCK) {
            return Simulation::new(self, &Unlocked).run();
        }
        #[cfg(feature = "failpoints")]
        let _entered =
            self.without.map(
                |name| match eos_core::failpoints::Failpoints::parse("", name) {
                    Ok(failpoints) => failpoints.enter(),
                    Err(unreadable) => panic!("{unreadable}"),
                },
            );
        Simulation::new(self, disks).run()
    }
}

/// A place for a process: what outlives it.
struct Seat {
    instance: String,
    workers: u16,
    disk: Box<dyn ProcessDisk>,
    home: Watched,
    process: Option<Process<Cluster>>,
    /// By worker: it has stopped as asked.
    stopped: Vec<bool>,
    frozen_until: Option<i64>,
    /// It is not stepped until then.
    stalled_until: i64,
    starts_at: i64,
    ends_in_a_row: u32,
}

impl Seat {
    fn new(instance: &str, nemesis: &Nemesis, disks: &dyn Disks) -> Seat {
        let disk = disks.disk(instance);
        Seat {
            home: nemesis.watch(disk.home(), instance),
            instance: instance.to_owned(),
            workers: 1,
            disk,
            process: None,
            stopped: Vec::new(),
            frozen_until: None,
            stalled_until: i64::MIN,
            starts_at: i64::MIN,
            ends_in_a_row: 0,
        }
    }
}

struct Simulation<'a> {
    disks: &'a dyn Disks,
    run: Run,
    rng: Rng,
    cluster: Cluster,
    nemesis: Nemesis,
    app: Stepped<Cluster>,
    seats: Vec<Seat>,
    /// By how much the wall clock is off.
    wall: Arc<Mutex<i64>>,
    inputs: Vec<Given>,
    partitions: i32,
    violations: Vec<String>,
    errors: BTreeMap<String, u32>,
}

impl<'a> Simulation<'a> {
    fn new(run: Run, disks: &'a dyn Disks) -> Simulation<'a> {
        let mut rng = Rng::new(run.seed);
        let nemesis = match &run.plan {
            Some(faults) => Nemesis::of(run.seed, faults.clone()),
            None => Nemesis::drawing(run.seed, run.faults),
        };
        if run.traced {
            nemesis.trace();
        }
        let options = BrokerOptions {
            marker_delay_ms: rng.between(0, 30),
            marker_spread_ms: rng.between(0, 20),
            ..BrokerOptions::default()
        };
        let cluster = Cluster::watched(Broker::new(options), BEGIN, nemesis.clone());
        // In half of the runs a fetch brings a batch or two, so that a restore takes several.
        if rng.one_in(2) {
            cluster.fetch_at_most(i32::try_from(rng.between(100, 400)).unwrap_or(200));
        }
        let partitions = i32::try_from(rng.between(1, 4)).unwrap_or(1);
        for topic in [INPUT].into_iter().chain(OUTPUTS) {
            if let Err(why) = cluster.add_topic(topic, partitions) {
                unreachable!("{topic}: {why}");
            }
        }
        let app = match run.shape.app().stepped(cluster.clone()) {
            Ok(app) => app.restore_batch(RESTORE_BATCH),
            Err(error) => unreachable!("the simulated app makes sense: {error}"),
        };
        let seats = ["a", "b"].map(|name| Seat {
            workers: u16::try_from(rng.between(1, 2)).unwrap_or(1),
            starts_at: BEGIN + rng.between(0, 500),
            ..Seat::new(name, &nemesis, disks)
        });
        Simulation {
            disks,
            run,
            rng,
            cluster,
            nemesis,
            app,
            seats: seats.into(),
            wall: Arc::default(),
            inputs: Vec::new(),
            partitions,
            violations: Vec::new(),
            errors: BTreeMap::new(),
        }
    }

    fn run(mut self) -> Outcome {
        let mut rests_since = None;
        let mut settled_since = None;
        let mut encores = 0;
        let mut round = 0_u64;
        loop {
            round += 1;
            let now = self.cluster.now();
            self.nemesis.at(now);
            let time = now - BEGIN;
            let over = time >= MOST && self.nemesis.fired().len() >= FAULTS || time >= 3 * MOST;
            let enough = self.inputs.len() >= RECORDS && self.nemesis.is_done();
            if rests_since.is_none() {
                if over || enough {
                    self.nemesis.rest();
                    self.nemesis.note(|| "all goes well from here on".into());
                    rests_since = Some(now);
                } else {
                    self.feed();
                }
            }
            self.obey();
            let idle = self.step_all();
            if !self.violations.is_empty() {
                break;
            }
            if let Some(since) = rests_since
                && round.is_multiple_of(8)
            {
                settled_since = if self.is_settled() {
                    settled_since.or(Some(now))
                } else {
                    None
                };
                if settled_since.is_some_and(|at| now - at >= QUIET) {
                    if encores == ENCORES {
                        break;
                    }
                    self.encore(encores);
                    encores += 1;
                    settled_since = None;
                    rests_since = Some(now);
                    continue;
                }
                if now - since > PATIENCE {
                    let why = self.stands_still();
                    self.violations.push(why);
                    break;
                }
            }
            let next = match idle {
                None => now + 1,
                Some(nap) => {
                    let event = self.cluster.next_event().unwrap_or(i64::MAX);
                    (now + nap).min(event.max(now + 1)).max(now + 1)
                }
            };
            let next = if rests_since.is_none() {
                next.min(now + self.rng.between(1, 15))
            } else {
                next
            };
            self.cluster.pass(next);
        }
        self.finish()
    }

    /// Once more records come, after all is settled: to those that run, and then to those that were killed and
    /// come back to what their disks hold. What was sought wrongly or restored wrongly shows only then.
    fn encore(&mut self, nth: u32) {
        if nth > 0 {
            self.nemesis.note(|| "every process is killed".into());
            for seat in 0..self.seats.len() {
                let pause = self.rng.between(0, 500);
                self.over(seat, pause, "dies");
            }
        }
        for _ in 0..12 {
            self.feed_one();
        }
    }

    fn finish(mut self) -> Outcome {
        self.violations.extend(self.cluster.misuses());
        if self.violations.is_empty() {
            let databases = self.databases();
            let found = check::violations(
                &self.cluster,
                self.run.shape,
                self.partitions,
                &self.inputs,
                &databases,
            );
            self.violations.extend(found);
        }
        Outcome {
            fired: self.nemesis.fired(),
            passed: self.nemesis.passed(),
            violations: self.violations,
            errors: self.errors,
            records: self.inputs.len(),
            took_ms: self.cluster.now() - BEGIN,
            trace: self.nemesis.take_trace(),
            run: self.run,
        }
    }

    /// What all processes leave behind: they are dead from here on.
    fn databases(&mut self) -> Vec<Copied> {
        let mut found = Vec::new();
        for seat in &mut self.seats {
            let known = seat.home.known();
            seat.process = None;
            seat.disk.released();
            for (home, open) in known {
                let read = match seat.home.look(&home) {
                    Ok(Some(database)) => {
                        Copied::read(home.task, open, &*database).map_err(|error| error.to_string())
                    }
                    Ok(None) => Err("somebody has it open".into()),
                    Err(error) => Err(error.to_string()),
                };
                match read {
                    Ok(copy) => found.push(copy),
                    Err(why) => self
                        .violations
                        .push(format!("the database of task {}: {why}", home.task)),
                }
            }
        }
        found
    }

    /// Some records come.
    fn feed(&mut self) {
        // Enough to do at first; then as much as keeps everything going.
        let seldom = if self.inputs.len() < RECORDS { 3 } else { 12 };
        if !self.rng.one_in(seldom) {
            return;
        }
        for _ in 0..self.rng.between(1, 3) {
            self.feed_one();
        }
    }

    fn feed_one(&mut self) {
        let seq = self.inputs.len() as u64;
        let letter = char::from(b'a' + self.rng.below(3) as u8);
        let digit = self.rng.below(4);
        let key = format!("{letter}{digit}");
        let value = format!("{seq} {digit}");
        let count = u32::try_from(self.partitions).unwrap_or(1);
        let partition = partition_for(key.as_bytes(), count).get();
        let record = Written {
            timestamp: self.cluster.now(),
            key: Some(key.as_bytes()),
            value: Some(value.as_bytes()),
            headers: &[],
        };
        match self.cluster.produce(INPUT, partition, &record) {
            Ok(offset) => self.inputs.push(Given {
                seq,
                key,
                partition,
                offset,
            }),
            Err(code) => self
                .violations
                .push(format!("the input is refused: {code}")),
        }
    }

    /// Does what faults ask for.
    fn obey(&mut self) {
        let now = self.cluster.now();
        for order in self.nemesis.orders() {
            match order {
                Order::Freeze(client_id) => {
                    let until = now + self.rng.between(300, 8_000);
                    if let Some(seat) = self.seat_of(&client_id) {
                        let prefix = format!("{APP}-{}-", seat.instance);
                        seat.frozen_until = Some(until);
                        self.cluster.freeze(&prefix);
                    }
                }
                Order::Join => {
                    if let Some(name) = JOINERS.get(self.seats.len().saturating_sub(2)) {
                        self.seats.push(Seat {
                            starts_at: now,
                            ..Seat::new(name, &self.nemesis, self.disks)
                        });
                    }
                }
                Order::Stall(client_id, time) => {
                    if let Some(seat) = self.seat_of(&client_id) {
                        seat.stalled_until = now + time;
                    }
                }
                Order::Leave(client_id) => {
                    let mode = if self.rng.one_in(2) {
                        StopMode::Leave
                    } else {
                        StopMode::Restart
                    };
                    if let Some(seat) = self.seat_of(&client_id)
                        && let Some(process) = &mut seat.process
                    {
                        for worker in &mut process.workers {
                            worker.stop(mode);
                        }
                    }
                }
                Order::Clock => {
                    let by = self.rng.between(-172_800_000, 172_800_000);
                    *self.wall.lock().unwrap_or_else(PoisonError::into_inner) += by;
                }
            }
        }
        for seat in &mut self.seats {
            if seat.frozen_until.is_some_and(|until| until <= now) {
                seat.frozen_until = None;
                self.cluster.thaw(&format!("{APP}-{}-", seat.instance));
            }
        }
    }

    fn seat_of(&mut self, client_id: &str) -> Option<&mut Seat> {
        let of = |seat: &&mut Seat| {
            let prefix = format!("{APP}-{}-", seat.instance);
            client_id.is_empty() || client_id.starts_with(&prefix)
        };
        self.seats.iter_mut().find(of)
    }

    fn env(&mut self) -> Env {
        let (clock, wall) = (self.cluster.clone(), self.cluster.clone());
        let off = Arc::clone(&self.wall);
        // Another one for each start: a name that was used before a crash must not come again.
        let chance = Mutex::new(Rng::new(self.rng.next()));
        let since = |now: i64| Now(Duration::from_millis((now - BEGIN).unsigned_abs()));
        Env::new(
            move || since(clock.now()),
            move || {
                let mut chance = chance.lock().unwrap_or_else(PoisonError::into_inner);
                chance.next()
            },
        )
        .with_wall_clock(move || {
            let off = *off.lock().unwrap_or_else(PoisonError::into_inner);
            Timestamp(wall.now() + off)
        })
    }

    /// Steps every worker once, in an order of chance. Nothing if any of them has more to do, else how long
    /// all of them have not.
    fn step_all(&mut self) -> Option<i64> {
        let mut order: Vec<usize> = (0..self.seats.len()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, self.rng.below(at + 1));
        }
        let mut nap = Some(50);
        for seat in order {
            let idle = self.step(seat);
            nap = nap.zip(idle).map(|(one, other)| one.min(other));
        }
        nap
    }

    fn step(&mut self, at: usize) -> Option<i64> {
        const LONG: Option<i64> = Some(1_000);
        let now = self.cluster.now();
        if self.seats[at].frozen_until.is_some() || self.seats[at].stalled_until > now {
            return LONG;
        }
        if self.seats[at].process.is_none() {
            if now < self.seats[at].starts_at {
                return Some(self.seats[at].starts_at - now);
            }
            self.start(at);
            return None;
        }
        let mut nap = LONG;
        let workers = usize::from(self.seats[at].workers);
        for number in 0..workers {
            let seat = &mut self.seats[at];
            let Some(process) = &mut seat.process else {
                return None;
            };
            if seat.stopped[number] || seat.frozen_until.is_some() {
                continue;
            }
            let worker = &mut process.workers[number];
            let stepped = catch_unwind(AssertUnwindSafe(|| worker.step()));
            match stepped {
                Ok(Ok(Step::Busy)) => nap = None,
                Ok(Ok(Step::Idle(time))) => {
                    let time = i64::try_from(time.as_millis()).unwrap_or(1_000);
                    nap = nap.map(|nap| nap.min(time.max(1)));
                }
                Ok(Ok(Step::Stopped)) => {
                    seat.stopped[number] = true;
                    if seat.stopped.iter().all(|it| *it) {
                        let pause = self.rng.between(0, 2_000);
                        self.over(at, pause, "stopped");
                        return None;
                    }
                }
                Ok(Err(error)) => {
                    self.ended(at, &error);
                    return None;
                }
                Err(panic) => {
                    let Some(Died(kind)) = panic.downcast_ref::<Died>() else {
                        let text = panic
                            .downcast_ref::<String>()
                            .cloned()
                            .or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
                        let text = text.unwrap_or_default();
                        self.violations.push(format!("a worker panicked: {text}"));
                        return None;
                    };
                    let kind = *kind;
                    self.die(at, kind);
                    return None;
                }
            }
        }
        if self.rng.one_in(40)
            && let Some(process) = &self.seats[at].process
        {
            process.purge();
        }
        nap
    }

    fn start(&mut self, at: usize) {
        let env = self.env();
        let seat = &mut self.seats[at];
        let home = Arc::new(seat.home.clone());
        match self.app.start(&seat.instance, seat.workers, &env, home) {
            Ok(process) => {
                let instance = seat.instance.clone();
                self.nemesis.note(|| format!("process {instance} starts"));
                seat.stopped = vec![false; process.workers.len()];
                seat.process = Some(process);
            }
            Err(error) => self
                .violations
                .push(format!("process {} does not start: {error}", seat.instance)),
        }
    }

    fn over(&mut self, at: usize, pause: i64, how: &str) {
        let now = self.cluster.now();
        let seat = &mut self.seats[at];
        let instance = seat.instance.clone();
        self.nemesis.note(|| format!("process {instance} {how}"));
        seat.process = None;
        seat.disk.released();
        seat.starts_at = now + pause;
        seat.stalled_until = i64::MIN;
        seat.ends_in_a_row = 0;
    }

    fn die(&mut self, at: usize, kind: Kind) {
        let pause = self.rng.between(0, 5_000);
        self.over(at, pause, "dies");
        let back = self.rng.between(1, 4).unsigned_abs() as usize;
        let disk = &self.seats[at].disk;
        match kind {
            Kind::CrashAndLoseDisk => disk.lose(),
            Kind::CrashAndOlderDisk => disk.go_back(back),
            _ => {}
        }
    }

    /// A worker ended with an error: its process ends, and is started again.
    fn ended(&mut self, at: usize, error: &eos_core::WorkerError) {
        let name: String = format!("{error:?}")
            .chars()
            .take_while(|it| it.is_alphanumeric())
            .collect();
        *self.errors.entry(name).or_default() += 1;
        let in_a_row = self.seats[at].ends_in_a_row + 1;
        let pause = self.rng.between(100, 1_000);
        self.over(at, pause, &format!("ends: {error}"));
        self.seats[at].ends_in_a_row = in_a_row;
        if let Some(why) = check::never(error) {
            self.violations.push(format!("{why}: {error}"));
        } else if in_a_row > ENDS_IN_A_ROW {
            let instance = &self.seats[at].instance;
            self.violations.push(format!(
                "process {instance} ended {in_a_row} times in a row: {error}"
            ));
        }
    }

    /// Everybody runs, and everything is committed.
    fn is_settled(&self) -> bool {
        let runs = |seat: &Seat| seat.process.is_some() && seat.frozen_until.is_none();
        self.seats.iter().all(runs)
            && check::is_committed(&self.cluster, self.run.shape)
            && self.each_has_one_owner()
    }

    /// A zombie that has just come back may still have a database open that is somebody else's by now.
    fn each_has_one_owner(&self) -> bool {
        let known = self.seats.iter().flat_map(|seat| seat.home.known());
        let open = known.filter(|(_, open)| *open);
        let mut tasks: Vec<_> = open.map(|(home, _)| home).collect();
        let all = tasks.len();
        tasks.sort();
        tasks.dedup();
        tasks.len() == all
    }

    fn stands_still(&self) -> String {
        let mut text = format!("it stands still for {} s; offsets", PATIENCE / 1_000);
        let topics = check::topics(self.run.shape);
        for topic in &topics {
            for partition in 0..self.partitions {
                let committed = self.cluster.committed(APP, topic, partition);
                let ends = self.cluster.ends(topic, partition);
                text += &format!("\n  {topic}-{partition}: {committed:?} of {ends:?}");
            }
        }
        for seat in &self.seats {
            let workers = seat.process.as_ref().map(|it| &it.workers);
            text += &format!("\n  {}: {workers:?}", seat.instance);
        }
        text
    }
}

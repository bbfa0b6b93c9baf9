//! Process slots of a simulation.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eos_core::Error;
use eos_core::errors::{GlobalError, WorkerError};
use eos_core::run::Resume;
use eos_core::spi::stepped::{Env, Home, HomeError, Process, Step, Stepped, StopMode};
use eos_protocol::{CommitCause, Now, Offset, Timestamp, TopicPartition};

use super::clocks::Clocks;
use super::disks::{Disks, ProcessDisk};
use super::fault::Kind;
use super::nemesis::{Died, Nemesis, Order};
use super::remains::{Copied, Found, GlobalCopy};
use super::topics::APP;
use eos_testkit::client::Cluster;
use eos_testkit::crash_backend::CrashHome;
use eos_testkit::rng::Rng;

/// The names of processes that start with the run, and of those that join later.
const FIRST: [&str; 2] = ["a", "b"];
const JOINERS: [&str; 3] = ["c", "d", "e"];
/// The number of tolerated errors of each kind in a run. Each error requires that a request arrives late at the wrong
/// moment, which occurs about once in a hundred runs.
const TWO_OWNERS: u32 = 3;

/// All processes of a run. A call that draws by chance takes the run's generator, and one that can find a violation
/// takes its findings.
pub(super) struct Processes<'a> {
    cluster: Cluster,
    nemesis: Nemesis,
    disks: &'a dyn Disks,
    app: Stepped<Cluster>,
    slots: Vec<Slot>,
    clocks: Clocks,
    /// The start of the run, in milliseconds since the epoch.
    begin: i64,
    /// The number of workers that ended with each error.
    errors: BTreeMap<String, u32>,
}

/// A slot for a process. It outlives the process.
struct Slot {
    /// Declared before its disk, so that it is dropped first.
    process: Option<Process<Cluster>>,
    instance: String,
    workers: u16,
    disk: Box<dyn ProcessDisk>,
    home: CrashHome,
    /// Whether each worker has stopped as requested.
    stopped: Vec<bool>,
    frozen_until: Option<i64>,
    /// The time until which the workers are not stepped.
    stalled_until: i64,
    /// The time until which the thread of the global tables sleeps.
    reader_sleeps_until: i64,
    starts_at: i64,
}

impl Slot {
    fn new(instance: &str, nemesis: &Nemesis, disks: &dyn Disks) -> Slot {
        let disk = disks.disk(instance);
        let home = nemesis.watch(disk.home(), instance).overlapping();
        Slot {
            home: match disks.position_first() {
                true => home.position_first(),
                false => home,
            },
            instance: instance.to_owned(),
            workers: 1,
            disk,
            process: None,
            stopped: Vec::new(),
            frozen_until: None,
            stalled_until: i64::MIN,
            reader_sleeps_until: i64::MIN,
            starts_at: i64::MIN,
        }
    }
}

/// The longest time that the thread of the global tables sleeps, in milliseconds.
const READER_SLEEPS: i64 = 200;
/// The time between two steps of an idle process, in milliseconds.
const LONG: Option<i64> = Some(1_000);

impl<'a> Processes<'a> {
    pub(super) fn new(
        app: Stepped<Cluster>,
        clocks: &Clocks,
        nemesis: &Nemesis,
        disks: &'a dyn Disks,
        rng: &mut Rng,
    ) -> Processes<'a> {
        let begin = clocks.now();
        let slots = FIRST.map(|name| Slot {
            workers: u16::try_from(rng.between(1, 2)).unwrap_or(1),
            starts_at: begin + rng.between(0, 500),
            ..Slot::new(name, nemesis, disks)
        });
        Processes {
            cluster: clocks.cluster().clone(),
            nemesis: nemesis.clone(),
            disks,
            app,
            slots: slots.into(),
            clocks: clocks.clone(),
            begin,
            errors: BTreeMap::new(),
        }
    }

    pub(super) fn errors(&self) -> &BTreeMap<String, u32> {
        &self.errors
    }

    /// Kills every process.
    pub(super) fn kill_all(&mut self, rng: &mut Rng, found: &mut Found) {
        for slot in 0..self.slots.len() {
            let pause = rng.between(0, 500);
            self.slots[slot].home.dies();
            self.over(slot, pause, found, "dies");
        }
    }

    /// Returns whether every process runs, and every database has one owner.
    pub(super) fn run_well(&self) -> bool {
        let runs = |slot: &Slot| slot.process.is_some() && slot.frozen_until.is_none();
        self.slots.iter().all(runs) && self.each_has_one_owner()
    }

    /// Returns whether every process has read all records of its global tables.
    pub(super) fn have_read_globals(&self) -> bool {
        let mut processes = self.slots.iter().filter_map(|slot| slot.process.as_ref());
        processes.all(|process| {
            let read = |(of, next): (TopicPartition, Offset)| {
                let (topic, partition) = (of.topic.as_str(), of.partition.get());
                !(self.cluster).has_records_from(topic, partition, next.get())
            };
            process.globals_are_open() && process.global_offsets().into_iter().all(read)
        })
    }

    /// Describes the state of every worker, one process per line.
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for slot in &self.slots {
            let workers = slot.process.as_ref().map(|it| &it.workers);
            // Writing to a String cannot fail.
            let _ = write!(text, "\n  {}: {workers:?}", slot.instance);
        }
        text
    }

    /// Returns whether no two workers have the same database open. A resumed zombie may still hold a database that has
    /// a new owner.
    fn each_has_one_owner(&self) -> bool {
        let known = self.slots.iter().flat_map(|slot| slot.home.known());
        let open = known.filter(|(_, by)| *by > 0);
        let mut tasks: Vec<_> = open.map(|(home, _)| home).collect();
        let all = tasks.len();
        tasks.sort();
        tasks.dedup();
        tasks.len() == all
    }

    /// Finds two workers of one process that have the same database open. This must never happen.
    pub(super) fn look_for_two_owners(&self, found: &mut Found) {
        for slot in &self.slots {
            if let Some((home, by)) = slot.home.known().into_iter().find(|(_, by)| *by > 1) {
                let (task, process) = (home.task, &slot.instance);
                found.wrong.push(format!(
                    "{by} workers of process {process} have the database of task {task} open"
                ));
            }
        }
    }

    /// Ends all processes and reads their databases.
    pub(super) fn databases(&mut self, found: &mut Found) -> Vec<Copied> {
        let mut copies = Vec::new();
        for slot in 0..self.slots.len() {
            self.count_behaviour(slot, found);
        }
        for slot in &mut self.slots {
            let known = slot.home.known();
            slot.process = None;
            slot.disk.released();
            copies.extend(Copied::all(&slot.home, known, found));
        }
        copies
    }

    /// Reads the copies of a global table. All processes have ended. No process was frozen, so each had read the table.
    pub(super) fn globals(
        &self,
        table: &str,
        keys: &BTreeSet<&str>,
        found: &mut Found,
    ) -> Vec<(String, GlobalCopy)> {
        let mut copies = Vec::new();
        for slot in &self.slots {
            let read = || -> Result<GlobalCopy, HomeError> {
                let engine = slot.home.open_global(table)?;
                let mut copy = GlobalCopy::new();
                for key in keys {
                    let mut row = Vec::new();
                    if engine.get(key.as_bytes(), &mut row)? {
                        copy.insert((*key).to_owned(), row);
                    }
                }
                Ok(copy)
            };
            match read() {
                Ok(copy) => copies.push((slot.instance.clone(), copy)),
                Err(error) => found
                    .wrong
                    .push(format!("the copy of process {}: {error}", slot.instance)),
            }
        }
        copies
    }

    /// Executes the orders of faults.
    pub(super) fn obey(&mut self, rng: &mut Rng, found: &mut Found) {
        let now = self.cluster.now();
        for order in self.nemesis.orders() {
            match order {
                Order::Freeze(client_id) => {
                    let until = now + rng.between(300, 8_000);
                    if let Some(at) = self.slot_of(&client_id) {
                        let slot = &mut self.slots[at];
                        let prefix = format!("{APP}-{}-", slot.instance);
                        slot.frozen_until = Some(until);
                        self.cluster.freeze(&prefix);
                    }
                }
                Order::Join => {
                    if let Some(name) = JOINERS.get(self.slots.len().saturating_sub(2)) {
                        self.slots.push(Slot {
                            starts_at: now,
                            ..Slot::new(name, &self.nemesis, self.disks)
                        });
                    }
                }
                Order::Stall(client_id, time) => {
                    if let Some(at) = self.slot_of(&client_id) {
                        let slot = &mut self.slots[at];
                        slot.stalled_until = now + time;
                    }
                }
                Order::Leave(client_id) => {
                    let mode = if rng.one_in(2) {
                        StopMode::Leave
                    } else {
                        StopMode::Restart
                    };
                    if let Some(at) = self.slot_of(&client_id) {
                        self.stop(at, mode, rng, found);
                    }
                }
                Order::Clock => {
                    let by = rng.between(-172_800_000, 172_800_000);
                    self.clocks.jump(by);
                }
            }
        }
        for slot in &mut self.slots {
            if slot.frozen_until.is_some_and(|until| until <= now) {
                slot.frozen_until = None;
                self.cluster.thaw(&format!("{APP}-{}-", slot.instance));
            }
        }
    }

    fn slot_of(&self, client_id: &str) -> Option<usize> {
        let of = |slot: &Slot| {
            let prefix = format!("{APP}-{}-", slot.instance);
            client_id.is_empty() || client_id.starts_with(&prefix)
        };
        self.slots.iter().position(of)
    }

    /// Requests a clean stop of every worker. A worker that waits for its database may die during its stop.
    fn stop(&mut self, at: usize, mode: StopMode, rng: &mut Rng, found: &mut Found) {
        let Some(process) = &mut self.slots[at].process else {
            return;
        };
        let workers = &mut process.workers;
        let stopped = catch_unwind(AssertUnwindSafe(|| {
            workers.iter_mut().for_each(|worker| worker.stop(mode));
        }));
        if let Err(panic) = stopped {
            let instance = self.slots[at].instance.clone();
            self.nemesis
                .note(|| format!("process {instance} dies in its clean stop"));
            self.handle_panic(at, &*panic, rng, found);
        }
    }

    fn env(&self, rng: &mut Rng) -> Env {
        let (clock, clocks) = (self.cluster.clone(), self.clocks.clone());
        // Each start has its own generator, because a name from before a crash must not be repeated.
        let chance = Mutex::new(Rng::new(rng.draw()));
        let begin = self.begin;
        let since = move |now: i64| Now(Duration::from_millis((now - begin).unsigned_abs()));
        Env::new(
            move || since(clock.now()),
            move || {
                let mut chance = chance.lock().unwrap_or_else(PoisonError::into_inner);
                chance.draw()
            },
        )
        .with_wall_clock(move || Timestamp(clocks.wall()))
        .with_unstoppable_calls()
    }

    /// Steps every worker once, in a random order. Returns for how many milliseconds all of them are idle, or `None` if
    /// one of them is busy.
    pub(super) fn step_all(&mut self, rng: &mut Rng, found: &mut Found) -> Option<i64> {
        let mut order: Vec<usize> = (0..self.slots.len()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, rng.below(at + 1));
        }
        let mut nap = Some(50);
        for slot in order {
            let idle = self.step(slot, rng, found);
            nap = nap.zip(idle).map(|(one, other)| one.min(other));
        }
        nap
    }

    fn step(&mut self, at: usize, rng: &mut Rng, found: &mut Found) -> Option<i64> {
        let now = self.cluster.now();
        if self.slots[at].frozen_until.is_some() || self.slots[at].stalled_until > now {
            return LONG;
        }
        if self.slots[at].process.is_none() {
            if now < self.slots[at].starts_at {
                return Some(self.slots[at].starts_at - now);
            }
            self.start(at, rng, found);
            return None;
        }
        let mut nap = self.step_globals(at, rng, found);
        let workers = usize::from(self.slots[at].workers);
        for number in 0..workers {
            let slot = &mut self.slots[at];
            let Some(process) = &mut slot.process else {
                return None;
            };
            if slot.stopped[number] || slot.frozen_until.is_some() {
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
                    slot.stopped[number] = true;
                    if slot.stopped.iter().all(|it| *it) {
                        let pause = rng.between(0, 2_000);
                        self.over(at, pause, found, "stopped");
                        return None;
                    }
                }
                Ok(Err(error)) => {
                    self.ended(at, &error, rng, found);
                    return None;
                }
                Err(panic) => {
                    self.handle_panic(at, &*panic, rng, found);
                    return None;
                }
            }
        }
        if let Some(process) = &self.slots[at].process {
            resume(process, rng, found);
        }
        if rng.one_in(40)
            && let Some(process) = &self.slots[at].process
        {
            process.purge();
        }
        nap
    }

    /// Reads the global tables of a process for a moment. Returns for how many milliseconds it is idle, or `None` if it is
    /// busy or has ended.
    fn step_globals(&mut self, at: usize, rng: &mut Rng, found: &mut Found) -> Option<i64> {
        if self.app.globals().is_empty() {
            return LONG;
        }
        let (now, slot) = (self.cluster.now(), &mut self.slots[at]);
        // It has a thread of its own, which may be slower than those of the workers.
        if slot.reader_sleeps_until > now {
            return Some(slot.reader_sleeps_until - now);
        }
        if rng.one_in(8) {
            slot.reader_sleeps_until = now + rng.between(1, READER_SLEEPS);
        }
        let process = slot.process.as_mut()?;
        match catch_unwind(AssertUnwindSafe(|| process.step_globals())) {
            Ok(Ok(Step::Idle(time))) => {
                let time = i64::try_from(time.as_millis()).unwrap_or(1_000);
                LONG.map(|nap| nap.min(time))
            }
            Ok(Ok(_)) => None,
            Ok(Err(error)) => {
                self.reader_ended(at, &error, rng, found);
                None
            }
            Err(panic) => {
                self.handle_panic(at, &*panic, rng, found);
                None
            }
        }
    }

    /// Handles a panic of a worker or a reader, which is either a planned death of its process or a violation.
    fn handle_panic(&mut self, at: usize, panic: &dyn Any, rng: &mut Rng, found: &mut Found) {
        if let Some(Died(kind)) = panic.downcast_ref::<Died>() {
            self.die(at, *kind, rng, found);
            return;
        }
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
        let text = text.unwrap_or_default();
        found.wrong.push(format!("a process panicked: {text}"));
    }

    fn start(&mut self, at: usize, rng: &mut Rng, found: &mut Found) {
        let env = self.env(rng);
        let slot = &mut self.slots[at];
        let home = Arc::new(slot.home.clone());
        match self.app.start(&slot.instance, slot.workers, &env, home) {
            Ok(process) => {
                let instance = slot.instance.clone();
                self.nemesis.note(|| format!("process {instance} starts"));
                slot.stopped = vec![false; process.workers.len()];
                slot.process = Some(process);
            }
            Err(error) => found
                .wrong
                .push(format!("process {} does not start: {error}", slot.instance)),
        }
    }

    fn over(&mut self, at: usize, pause: i64, found: &mut Found, how: &str) {
        self.count_behaviour(at, found);
        let now = self.cluster.now();
        let slot = &mut self.slots[at];
        let instance = slot.instance.clone();
        self.nemesis.note(|| format!("process {instance} {how}"));
        slot.process = None;
        slot.disk.released();
        slot.starts_at = now + pause;
        slot.stalled_until = i64::MIN;
    }

    /// Adds the behaviour of a process up to its end.
    fn count_behaviour(&self, at: usize, found: &mut Found) {
        let Some(process) = &self.slots[at].process else {
            return;
        };
        let totals = process.metrics().totals;
        let did = [
            ("records were tried again", totals.retried),
            (
                "commits came before a slow record",
                totals.commits.by(CommitCause::Slow),
            ),
        ];
        for (what, times) in did {
            if times > 0 {
                *found.seen.entry(what).or_default() += times;
            }
        }
    }

    fn die(&mut self, at: usize, kind: Kind, rng: &mut Rng, found: &mut Found) {
        let pause = rng.between(0, 5_000);
        self.slots[at].home.dies();
        self.over(at, pause, found, "dies");
        let back = rng.between(1, 4).unsigned_abs() as usize;
        let disk = &self.slots[at].disk;
        match kind {
            Kind::CrashAndLoseDisk => disk.lose(),
            Kind::CrashAndOlderDisk => disk.go_back(back),
            _ => {}
        }
    }

    /// Ends a process with an error. It starts again later. Returns how often the error has occurred.
    fn fail<E>(&mut self, at: usize, error: &E, rng: &mut Rng, found: &mut Found) -> u32
    where
        E: fmt::Debug + fmt::Display,
    {
        let name: String = format!("{error:?}")
            .chars()
            .take_while(|it| it.is_alphanumeric())
            .collect();
        let times = self.errors.entry(name).or_default();
        *times += 1;
        let times = *times;
        let pause = rng.between(100, 1_000);
        self.over(at, pause, found, &format!("ends: {error}"));
        times
    }

    /// Ends the process of a reader of global tables that returned an error. The wall clock jumps by up to two days, so a
    /// reader may fail because unread tombstones could be compacted away.
    fn reader_ended(&mut self, at: usize, error: &Error, rng: &mut Rng, found: &mut Found) {
        let may = match error {
            Error::Global(error) => {
                self.fail(at, error, rng, found);
                matches!(
                    **error,
                    GlobalError::Stale { .. } | GlobalError::SlowStart { .. }
                )
            }
            _ => false,
        };
        if !may {
            found
                .wrong
                .push(format!("the reader of the global tables failed: {error}"));
        }
    }

    /// Ends the process of a worker that returned an error.
    fn ended(&mut self, at: usize, error: &WorkerError, rng: &mut Rng, found: &mut Found) {
        let times = self.fail(at, error, rng, found);
        if let Some(why) = never(error) {
            found.wrong.push(format!("{why}: {error}"));
        } else if times > TWO_OWNERS {
            found.wrong.push(format!(
                "workers ended {times} times with what may happen {TWO_OWNERS} times: {error}"
            ));
        }
    }
}

/// Decides about paused tasks, now and then. A record that is retried fails again.
fn resume(process: &Process<Cluster>, rng: &mut Rng, found: &mut Found) {
    for paused in process.paused() {
        let how = match rng.below(12) {
            0 => Resume::Retry,
            1..=3 => Resume::DeadLetter,
            _ => continue,
        };
        match process.resume(paused.id, how) {
            Ok(()) => found.saw("tasks were resumed", 1),
            Err(error) => found.wrong.push(format!("a task is not resumed: {error}")),
        }
    }
}

/// Returns the reason why a worker must not end with this error, if there is one. The simulation neither loses
/// acknowledged records nor removes permissions. However, a late request of the previous process may fence a worker.
fn never(error: &WorkerError) -> Option<&'static str> {
    match error {
        WorkerError::TwoOwners { .. } => None,
        WorkerError::Restart(_) | WorkerError::Start(_) => {
            Some("a task is refused although nothing was lost")
        }
        WorkerError::OffsetOutOfRange { .. } => {
            Some("an offset is gone although no record was deleted")
        }
        WorkerError::Changelog(_) | WorkerError::OtherStore { .. } => {
            Some("a changelog holds what is not its own")
        }
        WorkerError::Record { .. } | WorkerError::Results { .. } => Some("a record failed"),
        WorkerError::Store { .. } => Some("a database failed"),
        WorkerError::OutOfOrder(_) => Some("a record came out of order"),
        WorkerError::TopicChanged(_) => Some("a topic is another one"),
        _ => Some("a worker ended although it could have gone on"),
    }
}

//! A place for a process, and what is done to it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eos_core::stepped::{Env, Process, Step, StopMode};
use eos_protocol::{CommitCause, Now, Timestamp};

use super::check;
use super::disks::{Disks, ProcessDisk};
use super::fault::Kind;
use super::nemesis::{Died, Nemesis, Order};
use super::rng::Rng;
use super::shape::APP;
use super::simulation::{BEGIN, Simulation};
use crate::client::Cluster;
use crate::watched::Watched;

/// Processes that come later.
const JOINERS: [&str; 3] = ["c", "d", "e"];
/// How often workers of a run may end with the error that is tolerated. It takes a request that arrives late at the
/// wrong moment, which is rare: about once in a hundred runs.
const TWO_OWNERS: u32 = 3;

/// A place for a process: what outlives it.
pub(super) struct Seat {
    /// Before its disk, so that it is dropped before it.
    pub(super) process: Option<Process<Cluster>>,
    pub(super) instance: String,
    pub(super) workers: u16,
    pub(super) disk: Box<dyn ProcessDisk>,
    pub(super) home: Watched,
    /// By worker: it has stopped as asked.
    pub(super) stopped: Vec<bool>,
    pub(super) frozen_until: Option<i64>,
    /// It is not stepped until then.
    pub(super) stalled_until: i64,
    pub(super) starts_at: i64,
}

impl Seat {
    pub(super) fn new(instance: &str, nemesis: &Nemesis, disks: &dyn Disks) -> Seat {
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
        }
    }
}

impl Simulation<'_> {
    /// Does what faults ask for.
    pub(super) fn obey(&mut self) {
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
    pub(super) fn step_all(&mut self) -> Option<i64> {
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

    pub(super) fn over(&mut self, at: usize, pause: i64, how: &str) {
        self.count_what_it_did(at);
        let now = self.cluster.now();
        let seat = &mut self.seats[at];
        let instance = seat.instance.clone();
        self.nemesis.note(|| format!("process {instance} {how}"));
        seat.process = None;
        seat.disk.released();
        seat.starts_at = now + pause;
        seat.stalled_until = i64::MIN;
    }

    /// Adds the behaviour that a process showed until its end.
    pub(super) fn count_what_it_did(&mut self, at: usize) {
        let Some(process) = &self.seats[at].process else {
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
                *self.seen.entry(what).or_default() += times;
            }
        }
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
        let times = self.errors.entry(name).or_default();
        *times += 1;
        let times = *times;
        let pause = self.rng.between(100, 1_000);
        self.over(at, pause, &format!("ends: {error}"));
        if let Some(why) = check::never(error) {
            self.violations.push(format!("{why}: {error}"));
        } else if times > TWO_OWNERS {
            self.violations.push(format!(
                "workers ended {times} times with what may happen {TWO_OWNERS} times: {error}"
            ));
        }
    }
}

//! The processes of a scale run, each with one worker.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eos_core::metrics::RestoreKind;
use eos_core::spi::stepped::{Env, Home, HomeError, Process, Step, Stepped, StopMode, TaskHome};
use eos_protocol::{Now, TaskId, Timestamp};
use eos_state::StoreBackend;

use crate::remains::{Copied, Found};
use crate::topics::APP;
use eos_testkit::client::Cluster;
use eos_testkit::crash_backend::CrashHome;
use eos_testkit::disk::Disk;
use eos_testkit::rng::Rng;

/// The owner of each task, and the number of its changes.
#[derive(Debug, Default)]
struct Owners {
    of: BTreeMap<TaskId, usize>,
    moved: u64,
}

/// The databases of a process. Each opening makes the process the owner of the task.
#[derive(Debug)]
struct Watched {
    home: CrashHome,
    slot: usize,
    owners: Arc<Mutex<Owners>>,
}

impl Home for Watched {
    fn open(&self, task: &TaskHome) -> Result<Option<Box<dyn StoreBackend>>, HomeError> {
        let opened = self.home.open(task)?;
        if opened.is_some() {
            let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
            let before = owners.of.insert(task.task, self.slot);
            owners.moved += u64::from(before.is_some_and(|it| it != self.slot));
        }
        Ok(opened)
    }

    fn discard(&self, task: &TaskHome) -> Result<bool, HomeError> {
        self.home.discard(task)
    }
}

/// The work of processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Work {
    /// The number of tasks that changed their owner.
    pub moved: u64,
    /// The number of restores of each kind.
    pub restores: BTreeMap<RestoreKind, u64>,
    /// The number of records that restores read from changelogs.
    pub restored_records: u64,
    /// The number of committed transactions.
    pub commits: u64,
    /// The number of aborted transactions.
    pub aborts: u64,
    /// The number of killed processes.
    pub killed: u64,
    /// The number of processes that stopped and started again.
    pub restarted: u64,
}

impl Work {
    /// Returns the number of restores of this kind.
    #[must_use]
    pub fn restores(&self, kind: RestoreKind) -> u64 {
        self.restores.get(&kind).copied().unwrap_or(0)
    }

    fn add(&mut self, process: &Process<Cluster>) {
        let totals = process.metrics().totals;
        for (kind, count) in totals.restores.iter() {
            *self.restores.entry(kind).or_default() += count;
        }
        self.restored_records += totals.restored_records;
        self.commits += totals.commits.total();
        self.aborts += totals.aborts;
    }

    /// Returns the work since an earlier time.
    pub(super) fn since(&self, before: &Work) -> Work {
        let restores = self.restores.iter();
        let restores = restores.map(|(kind, count)| (*kind, count - before.restores(*kind)));
        Work {
            moved: self.moved - before.moved,
            restores: restores.collect(),
            restored_records: self.restored_records - before.restored_records,
            commits: self.commits - before.commits,
            aborts: self.aborts - before.aborts,
            killed: self.killed - before.killed,
            restarted: self.restarted - before.restarted,
        }
    }
}

/// The wanted state of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// No process.
    Nothing,
    Running,
    /// Stops, and starts again after a pause in milliseconds.
    Restart(i64),
}

/// A slot for a process. It outlives the process.
struct Slot {
    /// Declared before its disk, so that it is dropped first.
    process: Option<Process<Cluster>>,
    instance: String,
    disk: Disk,
    home: CrashHome,
    wanted: Wanted,
    /// The time of the next start or step.
    due: i64,
}

/// All processes of a run.
pub(super) struct Fleet {
    cluster: Cluster,
    app: Stepped<Cluster>,
    slots: Vec<Slot>,
    owners: Arc<Mutex<Owners>>,
    /// The work of the ended processes.
    ended: Work,
    rng: Rng,
    /// The start of the run, in milliseconds since the epoch.
    begin: i64,
}

impl Fleet {
    pub(super) fn new(app: Stepped<Cluster>, cluster: &Cluster, seed: u64) -> Fleet {
        Fleet {
            cluster: cluster.clone(),
            app,
            slots: Vec::new(),
            owners: Arc::default(),
            ended: Work::default(),
            rng: Rng::new(seed ^ 0x666c_6565_7400),
            begin: cluster.now(),
        }
    }

    /// Adds processes, each of which starts within `spread` milliseconds.
    pub(super) fn add(&mut self, processes: usize, spread: i64) {
        for _ in 0..processes {
            let disk = Disk::default();
            let home = CrashHome::new(Arc::new(disk.clone()), |_, _| {}).overlapping();
            self.slots.push(Slot {
                process: None,
                instance: self.slots.len().to_string(),
                disk,
                home,
                wanted: Wanted::Running,
                due: self.cluster.now() + self.rng.between(0, spread),
            });
        }
    }

    /// Returns the slots with a process.
    pub(super) fn running(&self) -> Vec<usize> {
        let all = self.slots.iter().enumerate();
        let running = all.filter(|(_, slot)| slot.process.is_some());
        running.map(|(at, _)| at).collect()
    }

    /// Kills a process with its disk, without a request to the brokers. It does not start again.
    pub(super) fn kill(&mut self, at: usize) {
        self.slots[at].home.dies();
        self.slots[at].wanted = Wanted::Nothing;
        self.over(at);
        self.ended.killed += 1;
    }

    /// Kills a process, which starts again with its disk after a pause in milliseconds.
    pub(super) fn crash(&mut self, at: usize, pause: i64) {
        self.kill(at);
        self.slots[at].wanted = Wanted::Restart(pause);
        self.slots[at].due = self.cluster.now() + pause;
    }

    /// Stops a process, which starts again after a pause in milliseconds.
    pub(super) fn restart(&mut self, at: usize, mode: StopMode, pause: i64) {
        let slot = &mut self.slots[at];
        slot.wanted = Wanted::Restart(pause);
        slot.due = self.cluster.now();
        let workers = slot.process.iter_mut().flat_map(|it| &mut it.workers);
        workers.for_each(|worker| worker.stop(mode));
    }

    /// Returns whether each slot has the wanted process.
    pub(super) fn is_complete(&self) -> bool {
        self.slots.iter().all(|slot| match slot.wanted {
            Wanted::Nothing => true,
            Wanted::Running => slot.process.is_some(),
            Wanted::Restart(_) => false,
        })
    }

    /// Returns the work of all processes so far.
    pub(super) fn work(&self) -> Work {
        let mut work = self.ended.clone();
        let processes = self.slots.iter().filter_map(|it| it.process.as_ref());
        processes.for_each(|process| work.add(process));
        work.moved = self.lock().moved;
        work
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the tasks of each running process.
    pub(super) fn shares(&self) -> Vec<usize> {
        let mut shares = BTreeMap::new();
        for at in self.running() {
            shares.insert(at, 0);
        }
        for slot in self.lock().of.values() {
            if let Some(share) = shares.get_mut(slot) {
                *share += 1;
            }
        }
        shares.into_values().collect()
    }

    /// Steps each worker whose wait is over or whose client has a response. Returns the time of the next step.
    pub(super) fn step(&mut self, found: &mut Found) -> i64 {
        let now = self.cluster.now();
        for client_id in self.cluster.take_arrivals() {
            if let Some(slot) = slot_of(&client_id).and_then(|at| self.slots.get_mut(at)) {
                slot.due = slot.due.min(now);
            }
        }
        let mut next = i64::MAX;
        for at in 0..self.slots.len() {
            if self.slots[at].due <= now {
                self.step_one(at, found);
            }
            next = next.min(self.slots[at].due);
        }
        next
    }

    fn step_one(&mut self, at: usize, found: &mut Found) {
        let now = self.cluster.now();
        let slot = &mut self.slots[at];
        let Some(process) = &mut slot.process else {
            match slot.wanted {
                Wanted::Nothing => slot.due = i64::MAX,
                Wanted::Running | Wanted::Restart(_) => self.start(at, found),
            }
            return;
        };
        let mut due = now + 1_000;
        let mut stopped = true;
        for worker in &mut process.workers {
            match worker.step() {
                Ok(Step::Busy) => due = now + 1,
                Ok(Step::Idle(time)) => {
                    let time = i64::try_from(time.as_millis()).unwrap_or(1_000);
                    due = due.min(now + time.max(1));
                }
                Ok(Step::Stopped) => continue,
                Err(error) => {
                    let instance = &slot.instance;
                    found
                        .wrong
                        .push(format!("a worker of process {instance} ended: {error}"));
                }
            }
            stopped = false;
        }
        slot.due = due;
        if stopped {
            let pause = match slot.wanted {
                Wanted::Restart(pause) => pause,
                Wanted::Nothing | Wanted::Running => 0,
            };
            self.over(at);
            self.slots[at].due = now + pause;
        }
    }

    fn start(&mut self, at: usize, found: &mut Found) {
        let env = self.env();
        let slot = &mut self.slots[at];
        let home = Arc::new(Watched {
            home: slot.home.clone(),
            slot: at,
            owners: Arc::clone(&self.owners),
        });
        slot.due = self.cluster.now() + 1;
        match self.app.start(&slot.instance, 1, &env, home) {
            Ok(process) => {
                self.ended.restarted += u64::from(matches!(slot.wanted, Wanted::Restart(_)));
                slot.process = Some(process);
                slot.wanted = Wanted::Running;
            }
            Err(error) => found
                .wrong
                .push(format!("process {} does not start: {error}", slot.instance)),
        }
    }

    fn env(&mut self) -> Env {
        let (clock, wall) = (self.cluster.clone(), self.cluster.clone());
        let begin = self.begin;
        let chance = Mutex::new(Rng::new(self.rng.draw()));
        Env::new(
            move || Now(Duration::from_millis((clock.now() - begin).unsigned_abs())),
            move || {
                let mut chance = chance.lock().unwrap_or_else(PoisonError::into_inner);
                chance.draw()
            },
        )
        .with_wall_clock(move || Timestamp(wall.now()))
    }

    /// Ends a process.
    fn over(&mut self, at: usize) {
        let slot = &mut self.slots[at];
        if let Some(process) = slot.process.take() {
            self.ended.add(&process);
        }
        slot.disk.released();
    }

    /// Ends all processes and reads their databases.
    pub(super) fn databases(&mut self, found: &mut Found) -> Vec<Copied> {
        let mut copies = Vec::new();
        for at in 0..self.slots.len() {
            let known = self.slots[at].home.known();
            self.over(at);
            copies.extend(Copied::all(&self.slots[at].home, known, found));
        }
        copies
    }
}

/// Returns the slot of a client: `<app>-<slot>-<worker>`.
fn slot_of(client_id: &str) -> Option<usize> {
    let rest = client_id.strip_prefix(APP)?.strip_prefix('-')?;
    rest.split('-').next()?.parse().ok()
}

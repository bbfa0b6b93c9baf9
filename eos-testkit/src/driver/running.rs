//! Steps the workers until no work is left.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use eos_core::Error;
use eos_core::boundary::Ledgered;
use eos_core::spi::State;
use eos_core::spi::stepped::{InputStanding, Step, Worker};
use eos_protocol::{Offset, TopicPartition};

use super::TestDriver;
use super::faults::Died;
use crate::client::Cluster;

/// The maximum time until all records are processed, in milliseconds of the broker's time.
const PATIENCE: i64 = 900_000;
/// The number of steps after which an app that is still busy counts as one that feeds itself.
const MOST_STEPS: u32 = 200_000;
/// The maximum wait for an idle worker, in milliseconds.
const NAP: i64 = 50;
/// The number of busy rounds after which time advances anyway: a worker may wait for it.
const ROUNDS: u32 = 64;
/// The number of steps while a large time passes at once, and the longest step in milliseconds.
const STEPS: i64 = 256;
const SELDOM: i64 = 30_000;
/// The longest step in milliseconds if inputs can be idle. Workers query them twice a second, and idle time without
/// recent responses does not count.
const EVIDENCE: i64 = 400;
/// The longest step in milliseconds while the app works. A real worker takes several steps within the timeouts of its
/// transaction.
const BUSY: i64 = 1_200;

/// The error that ended the app.
pub(super) type Ended = Arc<Error>;

impl TestDriver {
    /// Runs the app until all records are processed, and committed unless the driver holds.
    #[track_caller]
    pub(super) fn go(&mut self) -> Result<(), Ended> {
        self.go_on(!self.holds)
    }

    #[track_caller]
    pub(super) fn go_on(&mut self, commits: bool) -> Result<(), Ended> {
        self.until(|driver| {
            if !driver.has_read_all() {
                return false;
            }
            if commits && driver.commit_open() {
                return false;
            }
            driver.is_ready(commits)
        })
    }

    /// Runs the app until the condition holds.
    #[track_caller]
    pub(super) fn until(
        &mut self,
        mut done: impl FnMut(&mut TestDriver) -> bool,
    ) -> Result<(), Ended> {
        let began = self.cluster.now();
        let (mut busy, mut idle, mut steps) = (0_u32, 0_u32, 0_u32);
        loop {
            steps += 1;
            assert!(steps <= MOST_STEPS, "{}", self.is_busy());
            if let Some(error) = &self.error {
                return Err(Arc::clone(error));
            }
            if self.is_down() {
                return Ok(());
            }
            let nap = self.step_all()?;
            let now = self.cluster.now();
            let next = match nap {
                None => {
                    (busy, idle) = (busy + 1, 0);
                    now + i64::from(busy.is_multiple_of(ROUNDS))
                }
                Some(_) if done(self) => return Ok(()),
                Some(nap) => {
                    (busy, idle) = (0, idle + 1);
                    let event = self.cluster.next_event().unwrap_or(i64::MAX);
                    // The broker responds at once to new requests: no time has to pass for them.
                    match idle {
                        1 => now,
                        _ => (now + nap).min(event).max(now + 1),
                    }
                }
            };
            self.cluster.pass(next);
            if now - began > PATIENCE {
                panic!("{}", self.stands_still());
            }
        }
    }

    fn is_busy(&self) -> String {
        let (inputs, outputs) = (self.app.inputs(), self.app.outputs());
        let both = inputs.iter().filter(|topic| outputs.contains(topic));
        let both: Vec<&str> = both.map(|topic| topic.as_str()).collect();
        let hint = match &both[..] {
            [] => "No topic is both read and written".to_owned(),
            both => format!("It reads and writes {}", both.join(", ")),
        };
        format!(
            "the app is still busy after {MOST_STEPS} steps: does it write records that it reads again? {hint}. \
             `app.describe()?.guarantees()` shows each edge"
        )
    }

    /// Advances time by this many milliseconds, even while workers are busy.
    pub(super) fn elapse(&mut self, time: i64) -> Result<(), Ended> {
        let until = self.cluster.now() + time;
        let longest = match self.app.closes_when_idle() {
            true => EVIDENCE,
            false => SELDOM,
        };
        while self.cluster.now() < until && !self.is_down() {
            let now = self.cluster.now();
            let nap = self.step_all()?.unwrap_or(1);
            let event = self.cluster.next_event().map_or(NAP, |event| event - now);
            let most = match nap.min(event) >= NAP {
                true => longest,
                false => longest.min(BUSY),
            };
            let leap = ((until - now) / STEPS).min(most);
            self.cluster.pass((now + nap.max(leap)).min(until));
        }
        self.cluster.pass(until.max(self.cluster.now()));
        Ok(())
    }

    /// Steps every worker once. Returns the time for which all of them are idle, in milliseconds. Returns `None` if one
    /// has work.
    fn step_all(&mut self) -> Result<Option<i64>, Ended> {
        let mut nap = Some(NAP);
        for at in 0..self.seats.len() {
            let idle = self.step(at)?;
            nap = nap.zip(idle).map(|(one, other)| one.min(other));
        }
        Ok(nap)
    }

    fn step(&mut self, at: usize) -> Result<Option<i64>, Ended> {
        let mut nap = self.step_globals(at)?;
        let count = self.seats[at].stopped.len();
        for number in 0..count {
            let seat = &mut self.seats[at];
            let Some(process) = &mut seat.process else {
                return Ok(nap);
            };
            if seat.stopped[number] {
                continue;
            }
            let worker = &mut process.workers[number];
            match catch_unwind(AssertUnwindSafe(|| worker.step())) {
                Ok(Ok(Step::Busy)) => nap = None,
                Ok(Ok(Step::Idle(time))) => {
                    let time = i64::try_from(time.as_millis()).unwrap_or(NAP);
                    nap = nap.map(|nap| nap.min(time.max(1)));
                }
                Ok(Ok(Step::Stopped)) => {
                    nap = None;
                    seat.stopped[number] = true;
                    if seat.stopped.iter().all(|it| *it) {
                        self.drop_process(at);
                    }
                }
                Ok(Err(error)) => return Err(self.end(error.into())),
                Err(died) if died.is::<Died>() => {
                    self.crashed(at)?;
                    return Ok(None);
                }
                Err(panic) => resume_unwind(panic),
            }
        }
        Ok(nap)
    }

    /// Reads the global tables of a process. Returns as [`step_all`](Self::step_all).
    fn step_globals(&mut self, at: usize) -> Result<Option<i64>, Ended> {
        let Some(process) = &mut self.seats[at].process else {
            return Ok(Some(NAP));
        };
        match catch_unwind(AssertUnwindSafe(|| process.step_globals())) {
            Ok(Ok(Step::Idle(_))) => Ok(Some(NAP)),
            Ok(Ok(_)) => Ok(None),
            Ok(Err(error)) => Err(self.end(error)),
            Err(died) if died.is::<Died>() => {
                self.crashed(at)?;
                Ok(None)
            }
            Err(panic) => resume_unwind(panic),
        }
    }

    pub(super) fn drop_process(&mut self, at: usize) {
        let seat = &mut self.seats[at];
        seat.process = None;
        seat.disk.released();
    }

    /// Ends the app with this error, in all its processes.
    pub(super) fn end(&mut self, error: Error) -> Ended {
        for at in 0..self.seats.len() {
            self.drop_process(at);
        }
        Arc::clone(self.error.insert(Arc::new(error)))
    }

    pub(super) fn workers(&self) -> impl Iterator<Item = &Worker<Ledgered<Cluster>>> {
        let processes = self.seats.iter().filter_map(|seat| seat.process.as_ref());
        processes.flat_map(|process| &process.workers)
    }

    /// Whether all processes are down.
    pub(super) fn is_down(&self) -> bool {
        self.seats.iter().all(|seat| seat.process.is_none())
    }

    pub(super) fn standings(&self) -> Vec<InputStanding> {
        self.workers().flat_map(Worker::standings).collect()
    }

    /// Whether each partition that the app reads has one owner, and this owner has taken all its records or is paused.
    fn has_read_all(&self) -> bool {
        let standings = self.standings();
        let all = self.app.reads();
        let widths = all.iter().map(|it| self.cluster.partitions(it.as_str()));
        let partitions: i32 = widths.sum();
        usize::try_from(partitions) == Ok(standings.len())
            && standings.iter().all(|it| it.paused || self.unread(it) == 0)
            && self.have_read_globals()
    }

    /// Whether each process has read all records of its global tables.
    fn have_read_globals(&self) -> bool {
        let mut processes = self.seats.iter().filter_map(|seat| seat.process.as_ref());
        processes.all(|process| {
            let mut read = process.global_offsets().into_iter();
            process.globals_are_open() && read.all(|(of, next)| self.unread_from(&of, next) == 0)
        })
    }

    /// The number of unprocessed records of a partition.
    fn unread(&self, it: &InputStanding) -> usize {
        self.unread_from(&it.partition, it.next)
    }

    fn unread_from(&self, of: &TopicPartition, next: Offset) -> usize {
        let (topic, partition) = (of.topic.as_str(), of.partition.get());
        let (stable, _) = self.cluster.ends(topic, partition);
        if stable <= next.get() {
            return 0;
        }
        let rest = self.cluster.read_from(topic, partition, next.get());
        rest.len()
    }

    /// Requests the commit of open transactions. Returns whether there are any.
    pub(super) fn commit_open(&mut self) -> bool {
        let processes = self.seats.iter_mut().filter_map(|it| it.process.as_mut());
        let workers = processes.flat_map(|process| &mut process.workers);
        let mut any = false;
        for worker in workers {
            any |= worker.commit_now();
        }
        any
    }

    /// Whether every worker is ready for the next record, and no work is under way.
    fn is_ready(&self, committed: bool) -> bool {
        let rests = |state| match state {
            State::Cold | State::Idle => true,
            State::Open => !committed,
            _ => false,
        };
        self.workers().all(|it| it.is_ready() && rests(it.state()))
            && (!committed || self.standings().iter().all(|it| it.next == it.committed))
    }

    fn stands_still(&self) -> String {
        let mut text = format!(
            "the app is not done after {} minutes of the broker's time. Is a record retried \
             forever (`ErrorPolicy::retry_forever`), does a task wait for an input \
             (`max.task.idle.ms`), or does a call of `map_async` never end (`Calls::time_out`)?",
            PATIENCE / 60_000
        );
        for it in self.standings() {
            let unread = self.unread(&it);
            text += &format!(
                "\n  {}: {unread} records to read from offset {} on, committed up to {}",
                it.partition, it.next, it.committed
            );
        }
        for worker in self.workers() {
            text += &format!("\n  {worker:?}");
        }
        text
    }
}

//! Faults of the processes of a working app. Some processes are killed, some join and leave, and one freezes past
//! every timeout and continues.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kafka_launcher::os::Signal;

use crate::fleet::Fleet;
use crate::kill::Random;

/// `session.timeout.ms` and `transaction.timeout.ms` of a process that freezes for longer than both.
pub const TIME_OUT: Duration = Duration::from_secs(6);
/// The least time that the zombie is frozen.
const FREEZE: Duration = Duration::from_secs(9);
/// The point at which the first visitor joins, and the length of its stay if it is the only one. Both are in
/// thousandths of the input.
const JOIN: u64 = 50;
const STAY: u64 = 150;
/// The part of the input for all visits, in thousandths.
const VISITS: u64 = 450;
/// The point at which a process freezes, in thousandths of the input.
const FREEZES: u64 = 550;
/// The time for which partitions may still move after another process left or thawed.
const SETTLE: Duration = Duration::from_secs(3);

/// The kinds of faults in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Faults {
    /// Processes are killed, and new ones are started in their places.
    Kills,
    /// As `Kills`. In addition, processes join and leave, and one freezes.
    KillsAndMoves,
}

/// The plan of the faults. The time of each fault is a share of the input that was sent, in thousandths.
#[derive(Debug)]
pub struct Fate {
    faults: Faults,
    plan: Random,
    kills: u32,
    killed: u32,
    /// The number of processes that join and leave, one after the other.
    visits: u64,
    joined: u64,
    left: u64,
    visitor: Option<usize>,
    frozen: Option<(usize, Instant)>,
    zombie: Option<usize>,
    /// The time of the last departure or thaw. Partitions may move for `SETTLE` after it.
    moving: Instant,
    /// The successors of killed processes that started while no other fault moved partitions.
    calm: Vec<usize>,
}

impl Fate {
    /// Plans `kills` kills, and the other faults of `faults`. `EOS_SEED` overrides the seed.
    ///
    /// # Errors
    /// When `EOS_SEED` is not a number.
    pub fn new(faults: Faults, kills: u32, seed: u64) -> Result<Fate> {
        let seed = std::env::var("EOS_SEED").map_or(Ok(seed), |seed| seed.parse())?;
        Ok(Fate {
            faults,
            plan: Random::new(seed),
            kills,
            killed: 0,
            visits: u64::from(faults == Faults::KillsAndMoves),
            joined: 0,
            left: 0,
            visitor: None,
            frozen: None,
            zombie: None,
            moving: Instant::now(),
            calm: Vec::new(),
        })
    }

    /// Sets the number of processes that join and leave, one after the other. Has no effect with [`Faults::Kills`].
    #[must_use]
    pub fn visits(self, visits: u64) -> Fate {
        match self.faults {
            Faults::Kills => self,
            Faults::KillsAndMoves => Fate { visits, ..self },
        }
    }

    /// Causes the faults that are due when `at` thousandths of the input are sent.
    ///
    /// # Errors
    /// When a process has ended by itself.
    pub fn strike(&mut self, fleet: &mut Fleet, at: u64) -> Result<()> {
        if self.faults == Faults::KillsAndMoves {
            self.move_members(fleet, at)?;
        }
        // The kills are spread over the run. None comes before the first commits or after the last lines.
        let due = 1_000 * u64::from(self.killed + 1) / u64::from(self.kills + 1);
        if at > due && self.killed < self.kills {
            self.kill(fleet)?;
        }
        Ok(())
    }

    fn move_members(&mut self, fleet: &mut Fleet, at: u64) -> Result<()> {
        let visit = |nth: u64, into: u64| JOIN + (nth * VISITS + into) / self.visits;
        if self.joined < self.visits && self.joined == self.left && at >= visit(self.joined, 0) {
            self.joined += 1;
            fleet.start()?;
            self.visitor = fleet.nth(fleet.len() - 1);
        } else if self.left < self.joined && at >= visit(self.left, STAY) {
            self.left += 1;
            // If the visitor was killed meanwhile, the process that was started last leaves in its place.
            let last = self.visitor.take().and_then(|nth| fleet.index_of(nth));
            fleet.stop(last.unwrap_or(fleet.len() - 1), Signal::Interrupt)?;
            self.moving = Instant::now();
        }
        if at >= FREEZES && self.zombie.is_none() {
            fleet.signal(0, Signal::Stop)?;
            self.zombie = fleet.nth(0);
            self.frozen = self.zombie.map(|nth| (nth, Instant::now()));
        }
        if self
            .frozen
            .is_some_and(|(_, since)| since.elapsed() >= FREEZE)
        {
            self.thaw(fleet)?;
        }
        Ok(())
    }

    /// Kills a random process, but never the zombie.
    fn kill(&mut self, fleet: &mut Fleet) -> Result<()> {
        let mut victim = self.plan.index(fleet.len());
        // After its thaw, the zombie must live until it learns that it lost its partitions.
        if self.zombie.is_some() && fleet.nth(victim) == self.zombie {
            victim = (victim + 1) % fleet.len();
        }
        let moving = self.joined > self.left
            || self.frozen.is_some()
            || (self.left > 0 && self.moving.elapsed() < SETTLE);
        fleet.kill_and_restart(victim)?;
        self.killed += 1;
        if !moving {
            self.calm.extend(fleet.nth(fleet.len() - 1));
        }
        Ok(())
    }

    /// Thaws the zombie if it is still frozen. Waits before until it was frozen for `FREEZE`.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn thaw(&mut self, fleet: &mut Fleet) -> Result<()> {
        let Some((nth, since)) = self.frozen.take() else {
            return Ok(());
        };
        thread::sleep(FREEZE.saturating_sub(since.elapsed()));
        let index = fleet.index_of(nth).context("the zombie is gone")?;
        self.moving = Instant::now();
        fleet.signal(index, Signal::Continue)
    }

    /// Returns the successors of killed processes that started while no other fault moved partitions. Each is
    /// identified by the number of its start, as in [`Fleet::text`].
    pub fn calm(&self) -> &[usize] {
        &self.calm
    }

    /// Returns the number of killed processes.
    pub fn killed(&self) -> u32 {
        self.killed
    }

    /// Returns the number of faults: each kill, each join, each departure, and the freeze.
    pub fn count(&self) -> u32 {
        match self.faults {
            Faults::Kills => self.killed,
            Faults::KillsAndMoves => self.killed + 2 * self.left as u32 + 1,
        }
    }

    /// Fails unless all planned faults happened. `processes` is the number of processes at the start of the fleet.
    ///
    /// # Errors
    /// Names the fault that did not happen.
    pub fn check(&self, fleet: &Fleet, processes: usize) -> Result<()> {
        ensure!(
            self.killed == self.kills
                && fleet.started() == processes + (self.joined + u64::from(self.kills)) as usize,
            "not every kill happened: {} of {}, {} processes",
            self.killed,
            self.kills,
            fleet.started()
        );
        if self.faults == Faults::Kills {
            return Ok(());
        }
        let Fate { left, visits, .. } = self;
        ensure!(
            left == visits,
            "{left} of {visits} processes joined and left"
        );
        let zombie = self.zombie.context("no process froze")?;
        let text = fleet.text(zombie);
        ensure!(
            text.contains("lost=true"),
            "the zombie lost nothing:\n{text}"
        );
        Ok(())
    }
}

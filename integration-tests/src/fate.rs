//! What happens to the processes of an app while it works: some are killed, some join and leave, one freezes
//! past every time-out and comes back.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kafka_launcher::os::Signal;

use crate::fleet::Fleet;
use crate::kill::Random;

/// `session.timeout.ms` and `transaction.timeout.ms` of who is to be frozen past them.
pub const TIME_OUT: Duration = Duration::from_secs(6);
/// How long the zombie is frozen.
const FREEZE: Duration = Duration::from_secs(9);
/// When the first visitor joins, and how long it stays if it is the only one.
const JOIN: u64 = 50;
const STAY: u64 = 150;
/// The time for all visits.
const VISITS: u64 = 450;
/// When a process freezes.
const FREEZES: u64 = 550;
/// How long after the others came or went partitions may still move.
const SETTLE: Duration = Duration::from_secs(3);

/// What happens at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Faults {
    /// Processes are killed, and others take their places.
    Kills,
    /// The same; one joins and leaves, and one freezes.
    KillsAndMoves,
}

/// What happens to the processes, by how much of the input was sent, in thousandths.
#[derive(Debug)]
pub struct Fate {
    faults: Faults,
    plan: Random,
    kills: u32,
    killed: u32,
    /// How many processes join and leave, one after the other.
    visits: u64,
    joined: u64,
    left: u64,
    visitor: Option<usize>,
    frozen: Option<(usize, Instant)>,
    zombie: Option<usize>,
    /// Until when partitions move for other reasons than a kill.
    moving: Instant,
    /// Those who took the place of a killed one while nothing else moved.
    calm: Vec<usize>,
}

impl Fate {
    /// So many kills, and what else is told. `EOS_SEED` wins over the seed.
    ///
    /// # Errors
    /// When `EOS_SEED` is no number.
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

    /// So many processes join and leave, one after the other, if any does.
    #[must_use]
    pub fn visits(self, visits: u64) -> Fate {
        match self.faults {
            Faults::Kills => self,
            Faults::KillsAndMoves => Fate { visits, ..self },
        }
    }

    /// What is due when so many thousandths of the input are sent.
    ///
    /// # Errors
    /// When a process has ended by itself.
    pub fn strike(&mut self, fleet: &mut Fleet, at: u64) -> Result<()> {
        if self.faults == Faults::KillsAndMoves {
            self.move_members(fleet, at)?;
        }
        // The kills are spread over the run; none before the first commits, none after the last lines.
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
            // By then it is the successor of another process, if it was killed: the last one started may go.
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

    /// Kills one that never froze.
    fn kill(&mut self, fleet: &mut Fleet) -> Result<()> {
        let mut victim = self.plan.index(fleet.len());
        // One that just went on must live to hear what it lost.
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

    /// The zombie goes on, if one is frozen still. It holds partitions until it is missed.
    ///
    /// # Errors
    /// When it is gone.
    pub fn thaw(&mut self, fleet: &mut Fleet) -> Result<()> {
        let Some((nth, since)) = self.frozen.take() else {
            return Ok(());
        };
        thread::sleep(FREEZE.saturating_sub(since.elapsed()));
        let index = fleet.index_of(nth).context("the zombie is gone")?;
        self.moving = Instant::now();
        fleet.signal(index, Signal::Continue)
    }

    /// Those who took the place of a killed one while nothing else moved, by the number of their start.
    pub fn calm(&self) -> &[usize] {
        &self.calm
    }

    /// How many processes were killed.
    pub fn killed(&self) -> u32 {
        self.killed
    }

    /// How many faults there were.
    pub fn count(&self) -> u32 {
        match self.faults {
            Faults::Kills => self.killed,
            Faults::KillsAndMoves => self.killed + 2 * self.left as u32 + 1,
        }
    }

    /// Fails unless everything happened to a fleet that began with so many processes.
    ///
    /// # Errors
    /// Names what did not.
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

//! The clocks of a simulated run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eos_testkit::client::Cluster;

/// The clock of the cluster, and the wall clock of all processes, which jumps. A clone shares both.
#[derive(Debug, Clone)]
pub(super) struct Clocks {
    cluster: Cluster,
    wall: Arc<Mutex<Wall>>,
}

#[derive(Debug, Default)]
struct Wall {
    /// The difference between the wall clock and the cluster's clock, in milliseconds.
    ahead: i64,
    /// The time of the wall clock while it stands still.
    stands_at: Option<i64>,
    /// The cluster's time at each jump, and the wall clock's after it.
    jumps: Vec<(i64, i64)>,
}

impl Clocks {
    pub(super) fn new(cluster: &Cluster) -> Clocks {
        Clocks {
            cluster: cluster.clone(),
            wall: Arc::default(),
        }
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the time of the cluster, which never goes back.
    pub(super) fn now(&self) -> i64 {
        self.cluster.now()
    }

    /// Returns the time of the wall clock.
    pub(super) fn wall(&self) -> i64 {
        let now = self.now();
        self.state().at(now)
    }

    /// Sets the wall clock forward or back.
    pub(super) fn jump(&self, by: i64) {
        let now = self.now();
        let mut wall = self.state();
        wall.ahead += by;
        wall.stands_at.iter_mut().for_each(|at| *at += by);
        let after = wall.at(now);
        wall.jumps.push((now, after));
    }

    /// Stops the wall clock. From now on it only jumps.
    pub(super) fn stand_still(&self) {
        let now = self.now();
        let mut wall = self.state();
        let at = wall.at(now);
        wall.stands_at = Some(at);
    }

    /// Returns the lowest time to which the wall clock jumped between two times of the cluster.
    pub(super) fn lowest_jump(&self, from: i64, to: i64) -> Option<i64> {
        let wall = self.state();
        let jumps = wall.jumps.iter().filter(|(at, _)| (from..=to).contains(at));
        jumps.map(|(_, wall)| *wall).min()
    }

    /// Returns the cluster's time at the last jump.
    pub(super) fn last_jump(&self) -> Option<i64> {
        let wall = self.state();
        wall.jumps.last().map(|(at, _)| *at)
    }

    fn state(&self) -> MutexGuard<'_, Wall> {
        self.wall.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wall {
    fn at(&self, now: i64) -> i64 {
        self.stands_at.unwrap_or(now + self.ahead)
    }
}

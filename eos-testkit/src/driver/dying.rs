//! Crashes and restarts of processes.

use super::TestDriver;
use super::faults::CrashPoint;
use super::running::Ended;
use crate::client::Edge;
use crate::ledger::ModelLedger;

impl TestDriver {
    /// Kills every process as by SIGKILL, with its open transaction, and starts it again at once. The uncommitted
    /// records are aborted and processed again.
    ///
    /// A transaction is open only after [`hold`](Self::hold). To crash in the middle of a record, use
    /// [`crash_during_next_record`](Self::crash_during_next_record).
    ///
    /// # Panics
    /// If the app ends with an error.
    #[track_caller]
    pub fn crash(&mut self) {
        self.kill();
        self.restart();
    }

    /// Crashes as [`crash`](Self::crash), and deletes the local state. It is restored from the changelog.
    ///
    /// # Panics
    /// If the app ends with an error.
    #[track_caller]
    pub fn crash_and_lose_state(&mut self) {
        self.kill();
        for seat in &self.seats {
            seat.disk.lose();
        }
        self.restart();
    }

    /// Kills every process as by SIGKILL. The processes stay down until [`restart`](Self::restart): piped records
    /// wait in their topic.
    pub fn kill(&mut self) {
        for at in 0..self.seats.len() {
            if self.seats[at].process.is_some() {
                self.crashes += 1;
            }
            self.drop_process(at);
        }
    }

    /// Starts the processes that are down, after [`kill`](Self::kill) or an error, and continues.
    ///
    /// # Panics
    /// If the app ends with an error.
    #[track_caller]
    pub fn restart(&mut self) {
        self.error = None;
        for at in 0..self.seats.len() {
            if self.seats[at].process.is_none()
                && let Err(error) = self.start(at)
            {
                self.end(error);
            }
        }
        self.go_or_panic();
    }

    /// Kills the process at the next record, when only the first of its outputs has left. For a record without
    /// outputs, kills it right before the commit. The process is started again at once.
    ///
    /// It does not reach the commit of an app with a ledger: call [`hold`](Self::hold), pipe the record, and call
    /// [`crash`](Self::crash).
    pub fn crash_during_next_record(&mut self) {
        self.faults.arm_mid_record();
    }

    /// Kills the process the next time it reaches this place, and starts it again at once.
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # use eos_testkit::TestDriver;
    /// use eos_testkit::{CallSite, Edge};
    /// # let lines = Topic::<String, String>::plain("lines");
    /// # let mut app = App::new("a");
    /// # app.source(&lines).to(&Topic::plain("copies"));
    /// # let mut driver = TestDriver::new(app);
    ///
    /// // The transaction is committed, and its process never hears of it.
    /// driver.crash_at(CallSite::Commit, Edge::After);
    /// driver.pipe(&lines, "a", "b");
    /// assert_eq!(driver.crashes(), 1);
    /// ```
    pub fn crash_at(&mut self, point: impl Into<CrashPoint>, edge: Edge) {
        self.faults.arm_at(point.into(), edge);
    }

    /// Kills the process at the `n`-th effect from now on, counted from 1, and starts it again at once. An effect is
    /// a side of a call to the Kafka client with consequences, or of a write to a database.
    /// [`effects`](Self::effects) counts them. To crash at all of them in turn, use
    /// [`crash_everywhere`](crate::crash_everywhere).
    pub fn crash_at_effect(&mut self, n: u64) {
        self.faults.arm_effect(n);
    }

    /// Makes the calls of the app's ledger places of crashes, too.
    pub fn ledger(&mut self, ledger: &ModelLedger) {
        let cluster = self.cluster.clone();
        ledger.watch(move |call, worker, edge| cluster.announce(call, worker, edge));
    }

    /// The number of effects of the app so far.
    #[must_use]
    pub fn effects(&self) -> u64 {
        self.faults.effects()
    }

    /// The place of the last planned crash.
    pub(super) fn last_crash(&self) -> String {
        self.faults
            .last()
            .map_or_else(String::new, |place| place.to_string())
    }

    /// Handles a planned death of a seat's process.
    pub(super) fn crashed(&mut self, at: usize) -> Result<(), Ended> {
        self.crashes += 1;
        self.drop_process(at);
        if self.loses_state {
            self.seats[at].disk.lose();
        }
        self.start(at).map_err(|error| self.end(error))
    }

    #[track_caller]
    pub(super) fn go_or_panic(&mut self) {
        let went = self.go();
        panic_if_ended(went);
    }
}

/// Panics with the app's error, in calls that return none.
#[track_caller]
pub(super) fn panic_if_ended(went: Result<(), Ended>) {
    if let Err(error) = went {
        panic!(
            "the app ended with an error: {error}\n(`try_pipe` returns it, for tests of errors)"
        );
    }
}

//! The passing of time, and moves of tasks between processes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use eos_core::Timestamp;
use eos_core::spi::stepped::StopMode;

use super::TestDriver;
use super::dying::panic_if_ended;

/// Default interval at which a process purges records that are no longer needed, in milliseconds.
const PURGE: i64 = 30_000;
/// The interval in milliseconds, and the number of intervals, that a group gets to reassign its partitions.
const SHARE: i64 = 500;
const SHARES: u32 = 60;

impl TestDriver {
    /// Advances the clock, and runs all due work.
    ///
    /// It does not close windows, because stream time follows record timestamps. Exception: stages with
    /// [`close_when_idle`](eos_core::Stream::close_when_idle). For an app with such a stage, a day takes some seconds.
    ///
    /// # Panics
    /// If the app ends with an error.
    #[track_caller]
    pub fn advance_wall_clock(&mut self, by: Duration) {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.advanced = self.advanced.saturating_add(by);
        let went = self.elapse(by);
        panic_if_ended(went);
        if by >= PURGE {
            for process in self.seats.iter().filter_map(|it| it.process.as_ref()) {
                process.purge();
            }
        }
        self.go_or_panic();
    }

    /// Sets the clocks of all machines to another time, as a time service or an operator does. It may be an earlier time.
    /// Then all due work runs.
    ///
    /// No time passes: timeouts and [`close_when_idle`](eos_core::Stream::close_when_idle) do not depend on this clock.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use eos_core::timers::Clock;
    /// use eos_core::{App, Topic};
    /// use eos_testkit::TestDriver;
    ///
    /// let views = Topic::<String, String>::plain("views");
    /// let ticks = Topic::<String, String>::plain("ticks");
    /// let minute = Duration::from_secs(60);
    /// let mut app = App::new("views-v1");
    /// app.source(&views)
    ///     .on_tick("tick", Clock::Wall, minute, |ctx, tick| ctx.forward(String::new(), tick.at.0.to_string()))
    ///     .process(|_, _| ())
    ///     .to(&ticks);
    ///
    /// let mut driver = TestDriver::new(app);
    /// let begin = driver.now();
    /// driver.advance_wall_clock(minute);
    /// driver.set_wall_clock(begin);
    /// driver.advance_wall_clock(minute);
    /// assert_eq!(driver.read(&ticks).len(), 1);
    /// ```
    ///
    /// # Panics
    /// If the app ends with an error.
    #[track_caller]
    pub fn set_wall_clock(&mut self, to: Timestamp) {
        let passed = self.begin.saturating_add(self.advanced);
        self.set
            .store(to.0.saturating_sub(passed), Ordering::Relaxed);
        self.go_or_panic();
    }

    /// Adds a process, which takes its share of the tasks with their state. Then the process leaves, and the tasks
    /// return. With one partition for each topic there may be no task to move:
    /// [`Builder::partitions`](super::Builder::partitions).
    ///
    /// # Panics
    /// If the app ends with an error.
    #[track_caller]
    pub fn rebalance(&mut self) {
        self.add_instance();
        self.remove_instance();
    }

    /// Adds a process, which takes its share of the tasks.
    ///
    /// # Panics
    /// If the app ends with an error.
    #[track_caller]
    pub fn add_instance(&mut self) {
        let seat = self.seat();
        if let Err(error) = self.start(seat) {
            self.end(error);
        }
        self.go_or_panic();
        self.spread();
    }

    /// Removes the last added process: it commits its open transaction, and its tasks move to the others.
    ///
    /// # Panics
    /// If it is the only one, or the app ends with an error.
    #[track_caller]
    pub fn remove_instance(&mut self) {
        let last = self.seats.len() - 1;
        assert!(
            last > 0,
            "remove_instance(): it is the only one. Call `add_instance()` before, or `kill()` instead"
        );
        let mut asked = None;
        let went = self.until(|driver| {
            // A process that died during its stop has restarted without the request to stop.
            if asked != Some(driver.crashes) {
                asked = Some(driver.crashes);
                driver.stop(last);
            }
            driver.seats[last].process.is_none()
        });
        panic_if_ended(went);
        self.seats.truncate(last);
        self.go_or_panic();
    }

    fn stop(&mut self, at: usize) {
        for worker in self.seats[at]
            .process
            .iter_mut()
            .flat_map(|it| &mut it.workers)
        {
            worker.stop(StopMode::Leave);
        }
    }

    /// Continues until every worker has its share: the group learns of a new member step by step.
    #[track_caller]
    pub(super) fn spread(&mut self) {
        for _ in 0..SHARES {
            if self.is_spread() || self.is_down() {
                return;
            }
            let went = self.elapse(SHARE);
            panic_if_ended(went);
            self.go_or_panic();
        }
    }

    fn is_spread(&self) -> bool {
        let shares = self.workers().map(|worker| worker.standings().len());
        let shares: Vec<usize> = shares.collect();
        let idle = shares.iter().filter(|share| **share == 0).count();
        let several = shares.iter().any(|share| *share > 1);
        idle == 0 || !several
    }
}

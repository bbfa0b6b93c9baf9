//! A simulation of many processes under a steady load.
//!
//! The seeds of [`Run`](crate::Run) cover faults at every action with a few workers. A scale run has hundreds of
//! processes and thousands of partitions instead, and a few large events, one after the other.

mod fleet;
mod load;
mod report;
mod scenario;
mod traffic;

use std::time::Duration;

use eos_core::App;
use eos_core::spi::stepped::StopMode;

use super::check;
use super::clocks::Clocks;
use super::plain::COUNTING;
use super::remains::{Found, Left};
use super::topics::{APP, INPUT, OUTPUTS};
use super::without::take_away;
use eos_broker::broker::{Broker, BrokerOptions};
use eos_testkit::client::Cluster;
use eos_testkit::ledger::ModelLedger;
use eos_testkit::rng::Rng;

use fleet::Fleet;
use load::Load;
use traffic::Counter;

pub use fleet::Work;
pub use report::ScaleReport;
pub use scenario::{Scenario, Settled};
pub use traffic::Traffic;

/// The start of a run, in milliseconds since the epoch.
const BEGIN: i64 = 1_700_000_000_000;
/// The interval of the checks of the committed offsets, in milliseconds.
const LOOK: i64 = 100;
/// The wait from which a record is late, in milliseconds.
const LATE: i64 = 2_000;
/// The time that all partitions must flow before a scenario is settled, in milliseconds. A member that checks the
/// group's coverage, or that lost its session, acts within it.
const HOLD: i64 = 15_000;
/// The time that all partitions must flow before the next process restarts, in milliseconds.
const READY: i64 = 1_000;
/// The time that a stopped process is away, in milliseconds.
const AWAY: i64 = 2_000;
/// The longest time until all partitions flow, in milliseconds.
const PATIENCE: i64 = 600_000;
/// The duration of the scenario without an event, in milliseconds.
const STEADY: i64 = 30_000;
/// The delay of markers after the response to EndTxn, in milliseconds.
const MARKER_DELAY: i64 = 5;

/// The parameters of a scale run.
#[derive(Debug, Clone)]
pub struct Scale {
    /// The number of processes after the doubling, each with one worker.
    pub processes: usize,
    /// The number of partitions of each topic.
    pub partitions: usize,
    /// The time between two records of a partition.
    pub period: Duration,
    /// Whether workers are static members of the group.
    pub static_members: bool,
    /// `commit.interval.ms` under `commit.pace=fixed`. `None` for the default pace.
    pub commit_interval: Option<Duration>,
    /// The seed.
    pub seed: u64,
    /// See [`Run::without`](crate::Run::without).
    pub without: Option<&'static str>,
}

impl Default for Scale {
    fn default() -> Self {
        Scale {
            processes: 200,
            partitions: 2_000,
            period: Duration::from_secs(2),
            static_members: true,
            commit_interval: None,
            seed: 0,
            without: None,
        }
    }
}

impl Scale {
    /// Runs all scenarios, one after the other, and checks the remains.
    ///
    /// # Panics
    /// See [`Run::run`](crate::Run::run).
    #[must_use]
    pub fn run(self) -> ScaleReport {
        let _away = self.without.map(|name| match take_away(name) {
            Ok(away) => away,
            Err(why) => panic!("{why}"),
        });
        Sim::new(self).run()
    }

    fn app(&self, cluster: &Cluster) -> App {
        let mut app = App::new(APP);
        app.set("static.membership", self.static_members);
        if let Some(interval) = self.commit_interval {
            app.set("commit.interval.ms", interval.as_millis())
                .set("commit.pace", "fixed");
        }
        (COUNTING.declare)(&mut app, &Clocks::new(cluster));
        app
    }
}

struct Sim {
    scale: Scale,
    cluster: Cluster,
    counter: Counter,
    fleet: Fleet,
    load: Load,
    rng: Rng,
    found: Found,
    scenarios: Vec<Settled>,
    /// The time of the next check of the committed offsets.
    look_at: i64,
    /// Whether all partitions flowed at the last check.
    flows: bool,
}

impl Sim {
    fn new(scale: Scale) -> Sim {
        let mut options = BrokerOptions::default();
        options.marker_delay_ms = MARKER_DELAY;
        // Kafka's default.
        options.group_initial_rebalance_delay_ms = 3_000;
        options.offsets_topic_num_partitions = 50;
        options.partitions_max = usize::MAX;
        options.log_memory_max_bytes = usize::MAX;
        let counter = Counter::new(scale.seed);
        let cluster = Cluster::watched(Broker::new(options), BEGIN, counter.clone());
        let partitions = i32::try_from(scale.partitions).unwrap_or(i32::MAX);
        for topic in [INPUT].iter().chain(&OUTPUTS) {
            if let Err(why) = cluster.add_topic(topic, partitions) {
                unreachable!("{topic}: {why}");
            }
        }
        let app = match scale.app(&cluster).stepped(cluster.clone()) {
            Ok(app) => app,
            Err(error) => unreachable!("the simulated app makes sense: {error}"),
        };
        let period = i64::try_from(scale.period.as_millis()).unwrap_or(i64::MAX);
        Sim {
            fleet: Fleet::new(app, &cluster, scale.seed),
            load: Load::new(scale.partitions, period, LATE + period, BEGIN),
            rng: Rng::new(scale.seed),
            counter,
            cluster,
            scale,
            found: Found::default(),
            scenarios: Vec::new(),
            look_at: BEGIN,
            flows: false,
        }
    }

    fn run(mut self) -> ScaleReport {
        let half = self.scale.processes / 2;
        self.scenario(Scenario::Start, |sim| sim.fleet.add(half, 1_000));
        let rest = self.scale.processes - half;
        self.scenario(Scenario::Double, |sim| sim.fleet.add(rest, 1_000));
        self.scenario(Scenario::Steady, |sim| sim.pass(STEADY));
        self.scenario(Scenario::RollingRestart, Sim::restart_all);
        let tenth = self.scale.processes.div_ceil(10);
        self.scenario(Scenario::Crash, |sim| {
            for at in sim.some(tenth) {
                sim.fleet.crash(at, AWAY);
            }
        });
        self.scenario(Scenario::Loss, |sim| {
            for at in sim.some(tenth) {
                sim.fleet.kill(at);
            }
        });
        self.scenario(Scenario::Replacement, |sim| sim.fleet.add(tenth, 1_000));
        self.finish()
    }

    /// Runs a scenario until all partitions flow.
    fn scenario(&mut self, scenario: Scenario, act: impl FnOnce(&mut Sim)) {
        if !self.found.wrong.is_empty() {
            return;
        }
        let begin = self.cluster.now();
        let before = self.fleet.work();
        self.counter.take();
        self.load.begin(begin);
        self.flows = false;
        act(self);
        let settled = self.until_flows(HOLD);
        let time = |at: i64| Duration::from_millis((at - begin).unsigned_abs());
        self.scenarios.push(Settled {
            scenario,
            processes: self.fleet.running().len(),
            settled: settled.map(time),
            took: time(self.cluster.now()),
            longest_wait: Duration::from_millis(self.load.longest().unsigned_abs()),
            late_partitions: self.load.late(),
            work: self.fleet.work().since(&before),
            traffic: self.counter.take(),
            shares: self.fleet.shares(),
        });
    }

    /// Restarts the processes one at a time, as a StatefulSet does.
    fn restart_all(&mut self) {
        for at in self.fleet.running() {
            self.fleet.restart(at, StopMode::Restart, AWAY);
            self.flows = false;
            if self.until_flows(READY).is_none() {
                return;
            }
        }
    }

    /// Draws some of the running processes.
    fn some(&mut self, processes: usize) -> Vec<usize> {
        let mut running = self.fleet.running();
        let mut drawn = Vec::new();
        while drawn.len() < processes && !running.is_empty() {
            drawn.push(running.swap_remove(self.rng.below(running.len())));
        }
        drawn
    }

    /// Runs until all processes run and all partitions have flowed for `hold` milliseconds. Returns the start of that
    /// time, or `None` after a violation.
    fn until_flows(&mut self, hold: i64) -> Option<i64> {
        let begin = self.cluster.now();
        let mut since = None;
        loop {
            self.round();
            let now = self.cluster.now();
            since = match self.flows && self.fleet.is_complete() {
                true => since.or(Some(now)),
                false => None,
            };
            if since.is_some_and(|at| now - at >= hold) {
                return since;
            }
            if !self.found.wrong.is_empty() {
                return None;
            }
            if now - begin > PATIENCE {
                let wrong = format!("it stands still for {} s", PATIENCE / 1_000);
                self.found.wrong.push(wrong);
                return None;
            }
        }
    }

    /// Lets time pass.
    fn pass(&mut self, time: i64) {
        let until = self.cluster.now() + time;
        while self.cluster.now() < until && self.found.wrong.is_empty() {
            self.round();
        }
    }

    /// Does everything that is due, and passes time until the next event.
    fn round(&mut self) {
        let now = self.cluster.now();
        self.load.feed(&self.cluster, &mut self.found);
        let step = self.fleet.step(&mut self.found);
        if self.look_at <= now {
            self.look_at = now + LOOK;
            self.flows = self.load.look(&self.cluster);
        }
        let event = self.cluster.next_event().unwrap_or(i64::MAX);
        let load = self.load.next().unwrap_or(i64::MAX);
        let next = event.min(load).min(step).min(self.look_at);
        self.cluster.pass(next.max(now + 1));
    }

    /// Waits until all records are committed, and checks the remains.
    fn finish(mut self) -> ScaleReport {
        self.load.end();
        self.load.begin(self.cluster.now());
        let begin = self.cluster.now();
        while self.found.wrong.is_empty() && !check::is_committed(&self.cluster, &COUNTING) {
            if self.cluster.now() - begin > PATIENCE {
                let wrong = "the last records are not committed";
                self.found.wrong.push(wrong.to_owned());
            }
            self.pass(1_000);
        }
        self.found.wrong.extend(self.cluster.misuses());
        let records = self.load.given.len();
        if self.found.wrong.is_empty() {
            let databases = self.fleet.databases(&mut self.found);
            let clocks = Clocks::new(&self.cluster);
            let left = Left {
                before_start: 0,
                cluster: &self.cluster,
                changelog: COUNTING.changelog,
                partitions: i32::try_from(self.scale.partitions).unwrap_or(i32::MAX),
                given: &self.load.given,
                before_last: records,
                after_faults: records,
                databases: &databases,
                globals: &[],
                clocks: &clocks,
                ledger: &ModelLedger::new("none"),
                foreign: &[],
            };
            check::judge(&COUNTING, left, &mut self.found);
        }
        ScaleReport {
            records,
            took: Duration::from_millis((self.cluster.now() - BEGIN).unsigned_abs()),
            scale: self.scale,
            scenarios: self.scenarios,
            violations: self.found.wrong,
        }
    }
}

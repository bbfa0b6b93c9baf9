//! The course of a run: faults, recovery, settling, and checks.

use std::collections::BTreeSet;
use std::time::Duration;

use eos_client::Client;
use eos_protocol::{Guarantee, Offset, Partition, TopicPartition, partition_for};

use super::case::Case;
use super::clocks::Clocks;
use super::disks::{Disks, InMemory, PositionFirst, Unlocked};
use super::foreign::{self, Foreign};
use super::nemesis::Nemesis;
use super::parked::Replayer;
use super::processes::Processes;
use super::record::{Draft, Given};
use super::remains::{Found, Left};
use super::run::{FAULTS, Outcome, Run};
use super::topics::{APP, INPUT};
use super::without::{COMPACTION, DATA_WITH_POSITION, TASK_LOCK, take_away};
use super::{cases, check, ledger};
use eos_broker::broker::{Broker, BrokerOptions};
use eos_testkit::client::{Cluster, Written};
use eos_testkit::ledger::ModelLedger;
use eos_testkit::rng::Rng;

/// The start of a run, in milliseconds since the epoch.
const BEGIN: i64 = 1_700_000_000_000;
/// The letters and digits that keys consist of.
const LETTERS: usize = 3;
const DIGITS: usize = 4;
/// The minimum number of records.
const RECORDS: usize = 40;
/// The maximum duration of the faults, in milliseconds, if enough faults occur within it.
const MOST: i64 = 60_000;
/// The timeout of the recovery after the last fault, in milliseconds.
const PATIENCE: i64 = 240_000;
/// The time that a run must be settled before the checks, in milliseconds. Workers still have to receive the responses
/// to commits, and a response may take seconds.
const QUIET: i64 = 10_000;
/// The number of times that more records arrive after the run is settled.
const ENCORES: u32 = 2;
/// The time from the begin of one burst of records to the next, and of the burst, in milliseconds, if the input has
/// pauses.
const BURSTS: i64 = 8_000;
const BURST: i64 = 3_000;
/// The largest random jump of the wall clock in both directions, in milliseconds. Faults make larger jumps.
const SMALL_JUMP: i64 = 1_700;
/// The longest time that a topic can have as a setting.
const FOR_EVER: &str = "9223372036854775807";
/// The jump of the wall clock when more records arrive after the run is settled, in milliseconds.
const LEAP: i64 = 5_000;
/// The number of rows of each key that a global table has at the start of a run.
const FIRST_ROWS: usize = 2;
/// Multiplies the delay between two markers in one of eight seeds. The delays of all markers are shorter than the timeout of a
/// transaction.
const MARKER_SLOWDOWN: i64 = 8;
/// The size of a restore's write, in bytes of memory. It is so small that a restore takes several writes.
const RESTORE_BATCH: usize = 240;

struct Simulation<'a> {
    run: Run,
    case: Case,
    rng: Rng,
    cluster: Cluster,
    clocks: Clocks,
    ledger: ModelLedger,
    foreign: Foreign,
    nemesis: Nemesis,
    processes: Processes<'a>,
    found: Found,
    replayer: Replayer,
    inputs: Vec<Given>,
    partitions: i32,
    /// The number of rows of a global table at the start.
    before_start: usize,
    /// The number of records when the last ones arrived.
    before_last: usize,
    /// The time of the next compaction, if changelogs are compacted.
    compact_at: Option<i64>,
    /// The number of records when the run had first settled.
    after_faults: usize,
}

impl Run {
    /// Runs the simulation, with databases in memory.
    ///
    /// # Panics
    /// If there is no defence of the name in [`without`](Run::without), or it cannot be removed because the feature
    /// `failpoints` is missing. [`check_defence`](super::check_defence) checks this without a panic.
    #[must_use]
    pub fn run(self) -> Outcome {
        self.run_on(&InMemory)
    }

    /// Runs the simulation, with databases on these disks.
    ///
    /// # Panics
    /// If there is no defence of the name in [`without`](Run::without), or it cannot be removed because the feature
    /// `failpoints` is missing. [`check_defence`](super::check_defence) checks this without a panic.
    #[must_use]
    pub fn run_on(self, disks: &dyn Disks) -> Outcome {
        match self.without {
            Some(TASK_LOCK) => return Simulation::new(self, &Unlocked).run(),
            Some(DATA_WITH_POSITION) => return Simulation::new(self, &PositionFirst).run(),
            _ => {}
        }
        let of_runtime = self
            .without
            .filter(|name| *name != COMPACTION && !ledger::defences().any(|it| it == *name));
        let _away = of_runtime.map(|name| match take_away(name) {
            Ok(away) => away,
            Err(why) => panic!("{why}"),
        });
        Simulation::new(self, disks).run()
    }
}

impl<'a> Simulation<'a> {
    fn new(run: Run, disks: &'a dyn Disks) -> Simulation<'a> {
        let case = cases::of(run.shape);
        let mut rng = Rng::new(run.seed);
        let run_seed = run.seed;
        let nemesis = match &run.plan {
            Some(faults) => Nemesis::of(run.seed, faults.clone()),
            None => Nemesis::drawing(run.seed, run.faults),
        };
        if run.traced {
            nemesis.trace();
        }
        let mut options = BrokerOptions::default();
        options.marker_delay_ms = rng.between(0, 30);
        options.marker_spread_ms = rng.between(0, 20);
        if run.seed % 8 == 5 {
            // The broker writes markers slowly, so a restore may begin before the last marker.
            options.marker_spread_ms *= MARKER_SLOWDOWN;
        }
        let cluster = Cluster::watched(Broker::new(options), BEGIN, nemesis.clone());
        // In half of the runs a fetch returns one or two batches, so that a restore takes several fetches.
        if rng.one_in(2) {
            cluster.fetch_at_most(i32::try_from(rng.between(100, 400)).unwrap_or(200));
        }
        let partitions = i32::try_from(rng.between(1, 4)).unwrap_or(1);
        // The app creates its own topics, with their settings.
        let given = |topic: &&&str| !topic.starts_with("sim-");
        let topics = case.inputs.iter().chain(case.outputs).chain(&case.global);
        for topic in topics.filter(given) {
            if let Err(why) = cluster.add_topic(topic, partitions) {
                unreachable!("{topic}: {why}");
            }
            // The moments of a wall clock that is days ahead are times of records.
            if case.by_wall_clock
                && let Err(why) = cluster.broker(|broker| {
                    broker.configure_topic(topic, "message.timestamp.after.max.ms", FOR_EVER)
                })
            {
                unreachable!("{topic}: {why}");
            }
        }
        if let Some(topic) = case.global
            && let Err(why) =
                cluster.broker(|broker| broker.configure_topic(topic, "cleanup.policy", "compact"))
        {
            unreachable!("{topic}: {why}");
        }
        let clocks = Clocks::new(&cluster);
        let ledger = ledger::of_run(run.seed, run.without);
        let announces = cluster.clone();
        ledger.watch(move |call, worker, edge| announces.announce(call, worker, edge));
        let app = match case.app(&clocks, &ledger).stepped(cluster.clone()) {
            Ok(app) => app.restore_batch(RESTORE_BATCH),
            Err(error) => unreachable!("the simulated app makes sense: {error}"),
        };
        let processes = Processes::new(app, &clocks, &nemesis, disks, &mut rng);
        Simulation {
            run,
            case,
            rng,
            cluster,
            clocks,
            ledger,
            foreign: Foreign::default(),
            nemesis,
            processes,
            found: Found::default(),
            replayer: Replayer::default(),
            inputs: Vec::new(),
            partitions,
            before_start: 0,
            before_last: 0,
            compact_at: Rng::new(run_seed ^ 0x636f_6d70_6163_7400)
                .one_in(2)
                .then_some(BEGIN)
                // No fence keeps late records out of the changelog, and a late one would replace a newer value.
                .filter(|_| case.guarantee == Guarantee::ExactlyOnce),
            after_faults: 0,
        }
    }

    fn run(mut self) -> Outcome {
        self.fill_global();
        let mut rests_since = None;
        let mut settled_since = None;
        let mut encores = 0;
        let mut round = 0_u64;
        loop {
            round += 1;
            let now = self.cluster.now();
            self.nemesis.at(now);
            let time = now - BEGIN;
            let over = time >= MOST && self.nemesis.fired().len() >= FAULTS || time >= 3 * MOST;
            let enough = self.fed() >= RECORDS && self.nemesis.is_done();
            if rests_since.is_none() {
                if over || enough {
                    self.rest();
                    rests_since = Some(now);
                } else {
                    self.feed();
                }
            }
            self.processes.obey(&mut self.rng, &mut self.found);
            self.compact();
            self.foreign
                .decide(&self.cluster, rests_since.is_some(), &mut self.found);
            self.replay(rests_since.is_none());
            let idle = self.processes.step_all(&mut self.rng, &mut self.found);
            self.processes.look_for_two_owners(&mut self.found);
            if !self.found.wrong.is_empty() {
                break;
            }
            if let Some(since) = rests_since
                && round.is_multiple_of(8)
            {
                settled_since = if self.is_settled() {
                    settled_since.or(Some(now))
                } else {
                    None
                };
                if settled_since.is_some_and(|at| now - at >= QUIET) {
                    if encores == ENCORES {
                        break;
                    }
                    self.encore(encores);
                    encores += 1;
                    settled_since = None;
                    rests_since = Some(now);
                    continue;
                }
                if now - since > PATIENCE {
                    let why = self.stands_still();
                    self.found.wrong.push(why);
                    break;
                }
            }
            let next = match idle {
                None => now + 1,
                Some(nap) => {
                    let event = self.cluster.next_event().unwrap_or(i64::MAX);
                    (now + nap).min(event.max(now + 1)).max(now + 1)
                }
            };
            let next = if rests_since.is_none() {
                next.min(now + self.rng.between(1, 15))
            } else {
                next
            };
            self.cluster.pass(next);
        }
        self.finish()
    }

    /// Ends the faults.
    fn rest(&mut self) {
        self.nemesis.rest();
        self.ledger.calm();
        self.nemesis.note(|| "all goes well from here on".into());
        if self.case.by_wall_clock {
            self.clocks.stand_still();
        }
    }

    /// Compacts the changelogs every second or two like Kafka's cleaner, in half of the runs. Without the defence
    /// [`COMPACTION`] it deletes old records instead.
    fn compact(&mut self) {
        let now = self.cluster.now();
        let Some(at) = self.compact_at.filter(|at| *at <= now) else {
            return;
        };
        self.compact_at = Some(at.max(now) + self.rng.between(500, 3_000));
        if self.run.without == Some(COMPACTION) {
            if let Some(topic) = self.case.changelog {
                for partition in 0..self.cluster.partitions(topic) {
                    let (stable, _) = self.cluster.ends(topic, partition);
                    let before = Offset::new(stable / 2).unwrap_or(Offset::ZERO);
                    let Ok(partition) = Partition::new(partition) else {
                        continue;
                    };
                    let partition = TopicPartition::new(topic, partition);
                    let old = [(partition, before)];
                    if let Err(error) = self.cluster.delete_records(&old, Duration::ZERO) {
                        self.found
                            .wrong
                            .push(format!("records can't be deleted: {error}"));
                    }
                }
            }
            return;
        }
        let compacted = self.cluster.broker(|broker| broker.compact(now));
        if compacted > 0 {
            *self
                .found
                .seen
                .entry("changelogs were compacted")
                .or_default() += 1;
        }
    }

    /// Replays dead letters, if the shape has a replay.
    fn replay(&mut self, fails: bool) {
        let Some(letters) = self.case.letters.filter(|_| self.rng.one_in(24)) else {
            return;
        };
        let topic = (letters, self.partitions);
        let (rng, found) = (&mut self.rng, &mut self.found);
        self.replayer.act(&self.cluster, topic, fails, rng, found);
    }

    /// Adds more records after the run is settled. The first time, the running processes process them. The second time,
    /// all processes are killed first and restart with the contents of their disks. Only these records reveal a wrong
    /// seek or a wrong restore.
    fn encore(&mut self, nth: u32) {
        if nth > 0 {
            self.nemesis.note(|| "every process is killed".into());
            self.processes.kill_all(&mut self.rng, &mut self.found);
        }
        if nth == 0 {
            self.after_faults = self.inputs.len();
        }
        self.before_last = self.inputs.len();
        if self.case.by_wall_clock {
            self.clocks.jump(LEAP);
        }
        for _ in 0..12 {
            self.feed_one();
        }
        // A process that has started has read these rows.
        if let Some(topic) = self.case.global.filter(|_| nth > 0) {
            for key in keys() {
                if self.rng.one_in(2) {
                    let plain = Draft::plain(self.cluster.now());
                    self.give(key, Draft { topic, ..plain });
                }
            }
        }
    }

    fn finish(mut self) -> Outcome {
        self.found.wrong.extend(self.cluster.misuses());
        if self.found.wrong.is_empty() {
            let databases = self.processes.databases(&mut self.found);
            let globals = self.case.global.map_or_else(Vec::new, |table| {
                let keys = self.inputs.iter().filter(|it| it.topic == table);
                let keys: BTreeSet<&str> = keys.map(|it| &it.key[..]).collect();
                self.processes.globals(table, &keys, &mut self.found)
            });
            let left = Left {
                cluster: &self.cluster,
                changelog: self.case.changelog,
                partitions: self.partitions,
                given: &self.inputs,
                before_start: self.before_start,
                before_last: self.before_last,
                after_faults: self.after_faults,
                databases: &databases,
                globals: &globals,
                clocks: &self.clocks,
                ledger: &self.ledger,
                foreign: self.foreign.all(),
            };
            check::judge(&self.case, left, &mut self.found);
        }
        Outcome {
            seen: self.found.seen,
            fired: self.nemesis.fired(),
            passed: self.nemesis.passed(),
            violations: self.found.wrong,
            errors: self.processes.errors().clone(),
            records: self.inputs.len(),
            took_ms: self.cluster.now() - BEGIN,
            trace: self.nemesis.take_trace(),
            run: self.run,
        }
    }

    /// Adds some records.
    fn feed(&mut self) {
        if self.case.by_wall_clock && self.rng.one_in(150) {
            let by = self.rng.between(-SMALL_JUMP, SMALL_JUMP);
            self.nemesis
                .note(|| format!("the wall clock jumps by {by} ms"));
            self.clocks.jump(by);
        }
        if self.case.pauses && (self.cluster.now() - BEGIN) % BURSTS >= BURST {
            return;
        }
        // The rate is high at first, and later just enough to keep all workers busy.
        let seldom = if self.fed() < RECORDS { 3 } else { 12 };
        if !self.rng.one_in(seldom) {
            return;
        }
        for _ in 0..self.rng.between(1, 3) {
            self.feed_one();
        }
    }

    /// Returns the number of records since the start.
    fn fed(&self) -> usize {
        self.inputs.len() - self.before_start
    }

    /// Writes the first rows of the global table, if there is one.
    fn fill_global(&mut self) {
        let Some(topic) = self.case.global else {
            return;
        };
        for _ in 0..FIRST_ROWS {
            for key in keys() {
                let plain = Draft::plain(self.cluster.now());
                self.give(key, Draft { topic, ..plain });
            }
        }
        self.before_start = self.inputs.len();
    }

    fn feed_one(&mut self) {
        let key = (self.rng.below(LETTERS), self.rng.below(DIGITS));
        let draft = (self.case.draft)(&mut self.rng, self.cluster.now());
        self.give(key, draft);
    }

    /// Adds a record. Its key has this letter and this digit.
    fn give(&mut self, (letter, digit): (usize, usize), draft: Draft) {
        let seq = self.inputs.len() as u64;
        let letter = char::from(b'a' + letter as u8);
        let key = format!("{letter}{digit}");
        let count = u32::try_from(self.partitions).unwrap_or(1);
        let partition = partition_for(key.as_bytes(), count).get();
        let Draft {
            topic,
            timestamp,
            tombstone,
            kind,
        } = draft;
        let value = kind.value(seq, digit);
        let behind = match self.case.sibling.filter(|_| topic == INPUT) {
            Some(sibling) => self.cluster.committed(APP, sibling, partition),
            None => Ok(None),
        };
        let record = Written {
            timestamp,
            key: Some(key.as_bytes()),
            value: (!tombstone).then_some(&value[..]),
            headers: &[],
        };
        let arrived = self.cluster.now();
        match self.write(topic, partition, &record) {
            Ok(offset) => self.inputs.push(Given {
                seq,
                topic,
                key,
                partition,
                offset,
                timestamp,
                tombstone,
                kind,
                behind: behind.ok().flatten().unwrap_or(0),
                arrived,
            }),
            Err(code) => self
                .found
                .wrong
                .push(format!("the input is refused: {code}")),
        }
    }

    /// Writes a record to the input. Other producers may write before it, or write it.
    fn write(&mut self, topic: &str, partition: i32, record: &Written<'_>) -> Result<i64, i16> {
        if self.case.pauses && self.foreign.is_decided() && self.rng.one_in(25) {
            let (lasts, commits) = foreign::drawn(&mut self.rng);
            let written =
                (self.foreign).write(&self.cluster, partition, record, (lasts, commits))?;
            if commits {
                return Ok(written);
            }
        }
        self.cluster.produce(topic, partition, record)
    }

    /// Returns whether every process runs, and everything is committed.
    fn is_settled(&self) -> bool {
        let replayed = |letters| {
            let (replayer, partitions) = (&self.replayer, self.partitions);
            replayer.is_done(&self.cluster, letters, partitions)
        };
        self.processes.run_well()
            && self.processes.have_read_globals()
            && match self.case.ledger {
                Some(_) => check::is_in_ledger(&self.cluster, &self.ledger, &self.case),
                None => check::is_committed(&self.cluster, &self.case),
            }
            && self.case.letters.is_none_or(replayed)
    }

    fn stands_still(&self) -> String {
        let mut text = format!("it stands still for {} s; offsets", PATIENCE / 1_000);
        for topic in self.case.topics() {
            for partition in 0..self.partitions {
                let committed = self.cluster.committed(APP, topic, partition);
                let ends = self.cluster.ends(topic, partition);
                text += &format!("\n  {topic}-{partition}: {committed:?} of {ends:?}");
            }
        }
        text + &self.processes.describe()
    }
}

/// Returns every key, as a letter and a digit.
fn keys() -> impl Iterator<Item = (usize, usize)> {
    (0..LETTERS).flat_map(|letter| (0..DIGITS).map(move |digit| (letter, digit)))
}

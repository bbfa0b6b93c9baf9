//! The course of a run: things go wrong, all goes well, it settles, and is judged.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eos_core::client::Client;
use eos_core::stepped::Stepped;
use eos_protocol::{Offset, Partition, TopicPartition, partition_for};

use super::check::{self, Copied, Given, Left};
use super::disks::Disks;
use super::nemesis::Nemesis;
use super::rng::Rng;
use super::run::{FAULTS, Outcome, Run};
use super::seats::Seat;
use super::shape::{APP, Draft};
use super::without::COMPACTION;
use crate::broker::{Broker, BrokerOptions};
use crate::client::{Cluster, Written};

/// When a run begins, in milliseconds since the epoch.
pub(super) const BEGIN: i64 = 1_700_000_000_000;
/// How many records come at least.
const RECORDS: usize = 40;
/// For how long things go wrong at most, in milliseconds, if that is often enough.
const MOST: i64 = 60_000;
/// How long everything may take once all goes well again, in milliseconds.
const PATIENCE: i64 = 240_000;
/// How long everything has to be settled before it is judged: what the brokers have committed, workers have to
/// hear of, and an answer may take seconds.
const QUIET: i64 = 10_000;
/// How often records come again after all is settled.
const ENCORES: u32 = 2;
/// So few bytes that a restore takes several batches.
const RESTORE_BATCH: usize = 60;

pub(super) struct Simulation<'a> {
    pub(super) disks: &'a dyn Disks,
    pub(super) run: Run,
    pub(super) rng: Rng,
    pub(super) cluster: Cluster,
    pub(super) nemesis: Nemesis,
    pub(super) app: Stepped<Cluster>,
    pub(super) seats: Vec<Seat>,
    /// By how much the wall clock is off.
    pub(super) wall: Arc<Mutex<i64>>,
    pub(super) inputs: Vec<Given>,
    pub(super) partitions: i32,
    pub(super) violations: Vec<String>,
    pub(super) errors: BTreeMap<String, u32>,
    pub(super) seen: BTreeMap<&'static str, u64>,
    /// The number of records when the last ones arrived.
    before_last: usize,
    /// The time of the next compaction, if changelogs are compacted.
    compact_at: Option<i64>,
    /// The number of records when the run had first settled.
    after_faults: usize,
}

impl<'a> Simulation<'a> {
    pub(super) fn new(run: Run, disks: &'a dyn Disks) -> Simulation<'a> {
        let mut rng = Rng::new(run.seed);
        let run_seed = run.seed;
        let nemesis = match &run.plan {
            Some(faults) => Nemesis::of(run.seed, faults.clone()),
            None => Nemesis::drawing(run.seed, run.faults),
        };
        if run.traced {
            nemesis.trace();
        }
        let options = BrokerOptions {
            marker_delay_ms: rng.between(0, 30),
            marker_spread_ms: rng.between(0, 20),
            ..BrokerOptions::default()
        };
        let cluster = Cluster::watched(Broker::new(options), BEGIN, nemesis.clone());
        // In half of the runs a fetch brings a batch or two, so that a restore takes several.
        if rng.one_in(2) {
            cluster.fetch_at_most(i32::try_from(rng.between(100, 400)).unwrap_or(200));
        }
        let partitions = i32::try_from(rng.between(1, 4)).unwrap_or(1);
        for topic in run.shape.inputs().iter().chain(run.shape.outputs()) {
            if let Err(why) = cluster.add_topic(topic, partitions) {
                unreachable!("{topic}: {why}");
            }
        }
        let app = match run.shape.app(&cluster).stepped(cluster.clone()) {
            Ok(app) => app.restore_batch(RESTORE_BATCH),
            Err(error) => unreachable!("the simulated app makes sense: {error}"),
        };
        let seats = ["a", "b"].map(|name| Seat {
            workers: u16::try_from(rng.between(1, 2)).unwrap_or(1),
            starts_at: BEGIN + rng.between(0, 500),
            ..Seat::new(name, &nemesis, disks)
        });
        Simulation {
            disks,
            run,
            rng,
            cluster,
            nemesis,
            app,
            seats: seats.into(),
            wall: Arc::default(),
            inputs: Vec::new(),
            partitions,
            violations: Vec::new(),
            errors: BTreeMap::new(),
            seen: BTreeMap::new(),
            before_last: 0,
            compact_at: Rng::new(run_seed ^ 0x636f_6d70_6163_7400)
                .one_in(2)
                .then_some(BEGIN),
            after_faults: 0,
        }
    }

    pub(super) fn run(mut self) -> Outcome {
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
            let enough = self.inputs.len() >= RECORDS && self.nemesis.is_done();
            if rests_since.is_none() {
                if over || enough {
                    self.nemesis.rest();
                    self.nemesis.note(|| "all goes well from here on".into());
                    rests_since = Some(now);
                } else {
                    self.feed();
                }
            }
            self.obey();
            self.compact();
            let idle = self.step_all();
            self.look_for_two_owners();
            if !self.violations.is_empty() {
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
                    self.violations.push(why);
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

    /// In half of the runs Kafka's cleaner compacts the changelogs every second or two. Without the defence
    /// [`COMPACTION`] it deletes old records instead.
    fn compact(&mut self) {
        let now = self.cluster.now();
        let Some(at) = self.compact_at.filter(|at| *at <= now) else {
            return;
        };
        self.compact_at = Some(at.max(now) + self.rng.between(500, 3_000));
        if self.run.without == Some(COMPACTION) {
            let changelog = check::changelog(self.run.shape);
            for topic in changelog.iter() {
                for partition in 0..self.cluster.partitions(topic) {
                    let (stable, _) = self.cluster.ends(topic, partition);
                    let before = Offset::new(stable / 2).unwrap_or(Offset::ZERO);
                    let Ok(partition) = Partition::new(partition) else {
                        continue;
                    };
                    let partition = TopicPartition::new(topic.as_str(), partition);
                    let old = [(partition, before)];
                    if let Err(error) = self.cluster.delete_records(&old, Duration::ZERO) {
                        self.violations
                            .push(format!("records can't be deleted: {error}"));
                    }
                }
            }
            return;
        }
        let compacted = self.cluster.broker(|broker| broker.compact(now));
        if compacted > 0 {
            *self.seen.entry("changelogs were compacted").or_default() += 1;
        }
    }

    /// Once more records come, after all is settled: to those that run, and then to those that were killed and
    /// come back to what their disks hold. What was sought wrongly or restored wrongly shows only then.
    fn encore(&mut self, nth: u32) {
        if nth > 0 {
            self.nemesis.note(|| "every process is killed".into());
            for seat in 0..self.seats.len() {
                let pause = self.rng.between(0, 500);
                self.over(seat, pause, "dies");
            }
        }
        if nth == 0 {
            self.after_faults = self.inputs.len();
        }
        self.before_last = self.inputs.len();
        for _ in 0..12 {
            self.feed_one();
        }
    }

    fn finish(mut self) -> Outcome {
        self.violations.extend(self.cluster.misuses());
        if self.violations.is_empty() {
            let databases = self.databases();
            let found = check::judged(Left {
                cluster: &self.cluster,
                shape: self.run.shape,
                partitions: self.partitions,
                given: &self.inputs,
                before_last: self.before_last,
                after_faults: self.after_faults,
                databases: &databases,
            });
            self.violations.extend(found.wrong);
            self.seen.extend(found.seen);
        }
        Outcome {
            seen: self.seen,
            fired: self.nemesis.fired(),
            passed: self.nemesis.passed(),
            violations: self.violations,
            errors: self.errors,
            records: self.inputs.len(),
            took_ms: self.cluster.now() - BEGIN,
            trace: self.nemesis.take_trace(),
            run: self.run,
        }
    }

    /// What all processes leave behind: they are dead from here on.
    fn databases(&mut self) -> Vec<Copied> {
        let mut found = Vec::new();
        for seat in 0..self.seats.len() {
            self.count_what_it_did(seat);
        }
        for seat in &mut self.seats {
            let known = seat.home.known();
            seat.process = None;
            seat.disk.released();
            for (home, by) in known {
                let read = match seat.home.look(&home) {
                    Ok(Some(database)) => Copied::read(home.task, by > 0, &*database)
                        .map_err(|error| error.to_string()),
                    Ok(None) => Err("somebody has it open".into()),
                    Err(error) => Err(error.to_string()),
                };
                match read {
                    Ok(copy) => found.push(copy),
                    Err(why) => self
                        .violations
                        .push(format!("the database of task {}: {why}", home.task)),
                }
            }
        }
        found
    }

    /// Some records come.
    fn feed(&mut self) {
        // Enough to do at first; then as much as keeps everything going.
        let seldom = if self.inputs.len() < RECORDS { 3 } else { 12 };
        if !self.rng.one_in(seldom) {
            return;
        }
        for _ in 0..self.rng.between(1, 3) {
            self.feed_one();
        }
    }

    fn feed_one(&mut self) {
        let seq = self.inputs.len() as u64;
        let letter = char::from(b'a' + self.rng.below(3) as u8);
        let digit = self.rng.below(4);
        let key = format!("{letter}{digit}");
        let count = u32::try_from(self.partitions).unwrap_or(1);
        let partition = partition_for(key.as_bytes(), count).get();
        let Draft {
            topic,
            timestamp,
            tombstone,
            kind,
        } = self.run.shape.draft(&mut self.rng, self.cluster.now());
        let value = kind.value(seq, digit);
        let behind = match self.run.shape.sibling(topic) {
            Some(sibling) => self.cluster.committed(APP, sibling, partition),
            None => Ok(None),
        };
        let record = Written {
            timestamp,
            key: Some(key.as_bytes()),
            value: (!tombstone).then_some(&value[..]),
            headers: &[],
        };
        match self.cluster.produce(topic, partition, &record) {
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
            }),
            Err(code) => self
                .violations
                .push(format!("the input is refused: {code}")),
        }
    }

    /// Everybody runs, and everything is committed.
    fn is_settled(&self) -> bool {
        let runs = |seat: &Seat| seat.process.is_some() && seat.frozen_until.is_none();
        self.seats.iter().all(runs)
            && check::is_committed(&self.cluster, self.run.shape)
            && self.each_has_one_owner()
    }

    /// A zombie that has just come back may still have a database open that is somebody else's by now.
    fn each_has_one_owner(&self) -> bool {
        let known = self.seats.iter().flat_map(|seat| seat.home.known());
        let open = known.filter(|(_, by)| *by > 0);
        let mut tasks: Vec<_> = open.map(|(home, _)| home).collect();
        let all = tasks.len();
        tasks.sort();
        tasks.dedup();
        tasks.len() == all
    }

    /// Two workers of a process must not have the same database open, not for a moment.
    fn look_for_two_owners(&mut self) {
        for seat in &self.seats {
            if let Some((home, by)) = seat.home.known().into_iter().find(|(_, by)| *by > 1) {
                let (task, process) = (home.task, &seat.instance);
                self.violations.push(format!(
                    "{by} workers of process {process} have the database of task {task} open"
                ));
            }
        }
    }

    fn stands_still(&self) -> String {
        let mut text = format!("it stands still for {} s; offsets", PATIENCE / 1_000);
        let topics = check::topics(self.run.shape);
        for topic in &topics {
            for partition in 0..self.partitions {
                let committed = self.cluster.committed(APP, topic, partition);
                let ends = self.cluster.ends(topic, partition);
                text += &format!("\n  {topic}-{partition}: {committed:?} of {ends:?}");
            }
        }
        for seat in &self.seats {
            let workers = seat.process.as_ref().map(|it| &it.workers);
            text += &format!("\n  {}: {workers:?}", seat.instance);
        }
        text
    }
}

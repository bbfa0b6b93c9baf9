//! Start-up and rebalance under a steady load.
//!
//! One process starts. Then a second process joins it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use kafka_wire::{Isolation, Producer};
use serde_json::{Value, json};

use crate::bench::{Bench, Play, now_ms};
use crate::check::{self, Check};
use crate::counted::{self, Counted};
use crate::options::Options;
use crate::records::{Input, is_kept};
use crate::running::Running;
use crate::side::Side;
use crate::stats::rounded;
use crate::streams::Streams;
use crate::work::Work;

/// The time that a start or a rebalance may take.
const PATIENCE: Duration = Duration::from_secs(180);
/// The time before the second process starts.
const CALM: Duration = Duration::from_secs(3);
/// The interval of the checks of the output.
const LOOK: Duration = Duration::from_millis(5);
/// The most records per second over all partitions, and the shortest time between two records of a partition.
const MOST_PER_SECOND: u32 = 5_000;
const PACE: Duration = Duration::from_millis(20);
/// The most records that are sent in one run.
const MOST: u64 = 3_000_000;

/// The times of one run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lifecycle {
    /// From the start of the process to a commit on every partition, in milliseconds.
    pub(crate) start_ms: f64,
    /// From the start of the second process until half of the partitions are its own and every partition has new
    /// commits, in milliseconds.
    pub(crate) rebalance_ms: f64,
    /// The longest time without a commit on a partition during the rebalance, in milliseconds.
    pub(crate) pause_ms: f64,
}

impl Lifecycle {
    pub(crate) fn json(&self, side: Side, work: Work, partitions: i32) -> Value {
        json!({
            "benchmark": "lifecycle",
            "side": side.name(),
            "work": work.name(),
            "partitions": partitions,
            "start_ms": rounded(self.start_ms),
            "rebalance_ms": rounded(self.rebalance_ms),
            "pause_ms": rounded(self.pause_ms),
            "verified": true,
        })
    }
}

/// Starts one process, then another, and checks the output.
pub(crate) fn run(
    bench: &mut Bench,
    side: Side,
    work: Work,
    options: &Options,
    streams: Option<&Streams>,
) -> Result<Lifecycle> {
    let name = format!("life-{}-{}-{}", work.name(), bench.partitions, side.name());
    let input = bench.topic(&format!("{name}-in"))?;
    let mut play = bench.play(side, &name, &input, work, MOST, options.interval())?;
    let trickle = Trickle::start(bench, &input, work)?;
    bench.settle()?;

    let begun = Instant::now();
    let mut first = bench.start(&play, streams)?;
    let mut ends = Ends::new(bench, &play)?;
    ends.wait_for_growth(bench, &mut [&mut first])?;
    let start = begun.elapsed();

    thread::sleep(CALM);
    let own = play.task.state.clone();
    play.task.state = own.with_extension("second");
    let begun = Instant::now();
    let mut ends = Ends::new(bench, &play)?;
    let mut second = bench.start(&play, streams)?;
    while !is_shared(bench, &play)? {
        ends.look(bench, &mut [&mut first, &mut second])?;
    }
    ends.renew();
    ends.wait_for_growth(bench, &mut [&mut first, &mut second])?;
    let rebalance = begun.elapsed();

    let sent = trickle.stop()?;
    let begun = Instant::now();
    while bench.finished(&play.task.group, &input) != Some(sent) {
        ensure!(
            begun.elapsed() < PATIENCE,
            "not all of {sent} records are committed"
        );
        first.check()?;
        second.check()?;
        thread::sleep(LOOK);
    }
    second.stop()?;
    first.stop()?;
    ensure_right(bench, &play, sent)?;
    std::fs::remove_dir_all(&play.task.state)?;
    play.task.state = own;
    bench.clear(&play)?;
    bench.client.delete_topic(&input)?;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(Lifecycle {
        start_ms: ms(start),
        rebalance_ms: ms(rebalance),
        pause_ms: ms(ends.pause),
    })
}

/// Returns whether two members have half of the partitions each.
pub(crate) fn is_shared(bench: &mut Bench, play: &Play) -> Result<bool> {
    let group = bench.client.group_members(&play.task.group)?;
    let half = bench.partitions.unsigned_abs() as usize / 2;
    let mut members = group.members.iter();
    Ok(group.state == "Stable"
        && group.members.len() == 2
        && members.all(|member| member.assigned >= half))
}

/// The committed output of each partition over time.
struct Ends {
    topic: String,
    /// The ends that every partition has to exceed.
    before: Vec<i64>,
    /// The latest ends, and when they were reached.
    latest: Vec<(i64, Instant)>,
    begun: Instant,
    /// The longest time without growth of a partition so far.
    pause: Duration,
}

impl Ends {
    fn new(bench: &mut Bench, play: &Play) -> Result<Self> {
        let topic = play.task.output.clone();
        let before = bench.client.end_offsets(&topic, Isolation::ReadCommitted)?;
        let begun = Instant::now();
        Ok(Ends {
            topic,
            latest: before.iter().map(|end| (*end, begun)).collect(),
            before,
            begun,
            pause: Duration::ZERO,
        })
    }

    /// Requires growth from here on.
    fn renew(&mut self) {
        self.before = self.latest.iter().map(|(end, _)| *end).collect();
    }

    fn look(&mut self, bench: &mut Bench, running: &mut [&mut Running]) -> Result<()> {
        thread::sleep(LOOK);
        for running in running {
            running.check()?;
        }
        let ends = bench
            .client
            .end_offsets(&self.topic, Isolation::ReadCommitted)?;
        let now = Instant::now();
        for ((latest, since), end) in self.latest.iter_mut().zip(ends) {
            self.pause = self.pause.max(now - *since);
            if end > *latest {
                (*latest, *since) = (end, now);
            }
        }
        let took = self.begun.elapsed();
        ensure!(
            took < PATIENCE,
            "{} of {} partitions have no new results after {} s",
            self.silent(),
            self.before.len(),
            took.as_secs()
        );
        Ok(())
    }

    fn wait_for_growth(&mut self, bench: &mut Bench, running: &mut [&mut Running]) -> Result<()> {
        while self.silent() > 0 {
            self.look(bench, running)?;
        }
        Ok(())
    }

    /// Returns the number of partitions that did not grow.
    fn silent(&self) -> usize {
        let grown = self.latest.iter().zip(&self.before);
        grown.filter(|((end, _), before)| end <= before).count()
    }
}

/// Checks the output of the sent records: each right, in order, and none missing.
fn ensure_right(bench: &mut Bench, play: &Play, sent: u64) -> Result<()> {
    let (work, output) = (play.task.work, &play.task.output);
    let count = if work.counts() {
        let counted = Counted::new(work, bench.partitions, bench.keys);
        counted::read(&mut bench.client, output, counted)?.so_far()?
    } else {
        let check = Check::new(work, bench.partitions, MOST);
        let check = check::read(&mut bench.client, output, check)?;
        check.so_far()?;
        check.count()
    };
    ensure!(count == sent, "{count} of {sent} records are in the output");
    Ok(())
}

/// A thread that sends records to each partition at a steady pace. The work drops none of these records.
struct Trickle {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64>>,
}

impl Trickle {
    fn start(bench: &Bench, topic: &str, work: Work) -> Result<Self> {
        let mut producer = Producer::new(&bench.bootstrap)?;
        let (topic, partitions) = (topic.to_owned(), bench.partitions);
        let pace = PACE.max(Duration::from_secs(1) * partitions.unsigned_abs() / MOST_PER_SECOND);
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut queues = Queues::new(partitions, work);
            let (mut input, mut sent) = (Input::default(), 0);
            let mut due = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                let time = now_ms()?;
                for partition in 0..partitions {
                    input.set(queues.next(partition)?);
                    let (key, value) = (Some(&input.key[..]), Some(&input.value[..]));
                    producer.send(&topic, partition, key, value, &[], time)?;
                    sent += 1;
                }
                producer.flush()?;
                due += pace;
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            Ok(sent)
        });
        Ok(Trickle { stop, thread })
    }

    /// Ends the thread, and returns the number of records.
    fn stop(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| Err(anyhow!("the thread that sends records panicked")))
    }
}

/// Record numbers by partition, in order.
struct Queues {
    work: Work,
    /// The next number that has no queue yet.
    next: u64,
    queues: Vec<VecDeque<u64>>,
    input: Input,
}

impl Queues {
    fn new(partitions: i32, work: Work) -> Self {
        Queues {
            work,
            next: 0,
            queues: vec![VecDeque::new(); partitions.unsigned_abs() as usize],
            input: Input::default(),
        }
    }

    /// Returns the next number of a partition, without those whose records the work drops.
    fn next(&mut self, partition: i32) -> Result<u64> {
        let partitions = i32::try_from(self.queues.len())?;
        loop {
            let queue = self.queues.get_mut(partition.unsigned_abs() as usize);
            if let Some(number) = queue.and_then(VecDeque::pop_front) {
                return Ok(number);
            }
            ensure!(self.next < MOST, "the run takes too long: {MOST} records");
            let number = self.next;
            self.next += 1;
            if is_kept(number, self.work) {
                self.input.set(number);
                let at = self.input.partition(partitions).unsigned_abs() as usize;
                self.queues[at].push_back(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_gets_its_own_records_in_order() {
        let mut queues = Queues::new(32, Work::Map);
        let mut last = vec![None; 32];
        let mut input = Input::default();
        for _ in 0..50 {
            for partition in 0..32 {
                let number = queues.next(partition).unwrap();
                input.set(number);
                assert_eq!(input.partition(32), partition);
                assert!(is_kept(number, Work::Map));
                assert!(last[partition as usize] < Some(number));
                last[partition as usize] = Some(number);
            }
        }
    }
}

//! A steady load, and each record's wait until its commit.

use std::collections::VecDeque;

use eos_protocol::partition_for;

use crate::record::{Given, Kind};
use crate::remains::Found;
use crate::topics::{APP, INPUT};
use eos_testkit::client::{Cluster, Written};

/// The number of keys of each partition.
const KEYS: usize = 4;

/// A partition of the input.
#[derive(Debug, Default)]
struct Partition {
    keys: Vec<String>,
    /// The offsets and times of the records that are not committed.
    waiting: VecDeque<(i64, i64)>,
    /// The number of committed records since the start of the scenario, of those that arrived in it.
    committed: u64,
    /// Whether a record waited for too long in this scenario.
    was_late: bool,
}

/// The records of a run.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) given: Vec<Given>,
    partitions: Vec<Partition>,
    /// The time between two records of a partition, in milliseconds.
    period: i64,
    /// The difference between the numbers of two partitions that receive records one after the other.
    stride: usize,
    /// The start of the load.
    begin: i64,
    /// The start of the scenario.
    since: i64,
    /// The time after which a waiting record is late, in milliseconds.
    late: i64,
    /// The longest wait of a record of the scenario.
    longest: i64,
    on: bool,
}

impl Load {
    /// Creates a load of one record for each partition and period.
    pub(super) fn new(partitions: usize, period: i64, late: i64, now: i64) -> Load {
        let mut load = Load {
            given: Vec::new(),
            partitions: Vec::new(),
            period,
            stride: stride(partitions),
            begin: now,
            since: now,
            late,
            longest: 0,
            on: true,
        };
        load.partitions.resize_with(partitions, Partition::default);
        let count = u32::try_from(partitions).unwrap_or(1);
        let mut lacking = partitions;
        for number in 0_u64.. {
            if lacking == 0 {
                break;
            }
            let key = format!("k{number}");
            let place = usize::try_from(partition_for(key.as_bytes(), count).get()).unwrap_or(0);
            let keys = &mut load.partitions[place].keys;
            if keys.len() < KEYS {
                keys.push(key);
                lacking -= usize::from(keys.len() == KEYS);
            }
        }
        load
    }

    /// Returns the time of the next record.
    pub(super) fn next(&self) -> Option<i64> {
        let nth = i64::try_from(self.given.len()).unwrap_or(i64::MAX);
        let all = i64::try_from(self.partitions.len()).unwrap_or(1);
        self.on.then(|| self.begin + nth * self.period / all)
    }

    /// Writes the records that are due.
    pub(super) fn feed(&mut self, cluster: &Cluster, found: &mut Found) {
        let now = cluster.now();
        while self.next().is_some_and(|at| at <= now) {
            if let Err(code) = self.feed_one(cluster, now) {
                found.wrong.push(format!("the input is refused: {code}"));
                self.on = false;
            }
        }
    }

    fn feed_one(&mut self, cluster: &Cluster, now: i64) -> Result<(), i16> {
        let nth = self.given.len();
        let all = self.partitions.len();
        // Neighbouring partitions belong to the same process. The stride spreads the records of a process over the
        // period.
        let (turn, place) = (nth / all, nth * self.stride % all);
        let partition = &mut self.partitions[place];
        let key = partition.keys[turn % KEYS].clone();
        let (seq, number) = (nth as u64, i32::try_from(place).unwrap_or(0));
        let kind = Kind::Good;
        let record = Written {
            timestamp: now,
            key: Some(key.as_bytes()),
            value: Some(&kind.value(seq, turn % KEYS)),
            headers: &[],
        };
        let offset = cluster.produce(INPUT, number, &record)?;
        partition.waiting.push_back((offset, now));
        self.given.push(Given {
            seq,
            topic: INPUT,
            key,
            partition: number,
            offset,
            timestamp: now,
            tombstone: false,
            kind,
            behind: 0,
            arrived: now,
        });
        Ok(())
    }

    /// Ends the load.
    pub(super) fn end(&mut self) {
        self.on = false;
    }

    /// Begins a scenario.
    pub(super) fn begin(&mut self, now: i64) {
        self.since = now;
        self.longest = 0;
        for it in &mut self.partitions {
            it.committed = 0;
            it.was_late = false;
        }
    }

    /// Reads the committed offsets. Returns whether each partition has committed a record of this scenario, and no
    /// record waits for too long.
    pub(super) fn look(&mut self, cluster: &Cluster) -> bool {
        let now = cluster.now();
        let mut flows = true;
        let committed = cluster.all_committed(APP, INPUT);
        for (partition, committed) in self.partitions.iter_mut().zip(committed) {
            let committed = committed.unwrap_or(0);
            while let Some((_, at)) = partition.waiting.front().filter(|it| it.0 < committed) {
                self.longest = self.longest.max(now - at);
                partition.committed += u64::from(*at >= self.since);
                partition.waiting.pop_front();
            }
            let oldest = partition.waiting.front().map_or(0, |(_, at)| now - at);
            self.longest = self.longest.max(oldest);
            partition.was_late |= oldest > self.late;
            flows &= oldest <= self.late && (partition.committed > 0 || !self.on);
        }
        flows
    }

    /// Returns the longest wait of a record in this scenario, in milliseconds.
    pub(super) fn longest(&self) -> i64 {
        self.longest
    }

    /// Returns the number of partitions in which a record waited for too long.
    pub(super) fn late(&self) -> usize {
        self.partitions.iter().filter(|it| it.was_late).count()
    }
}

/// Returns the golden section of a count, or the next number that is coprime to the count.
fn stride(count: usize) -> usize {
    let shares = |it: usize| (2..=it).any(|by| it.is_multiple_of(by) && count.is_multiple_of(by));
    let mut stride = (count * 618 / 1_000).max(1);
    while shares(stride) {
        stride += 1;
    }
    stride
}

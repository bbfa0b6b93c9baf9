//! The command line.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::{Parser, ValueEnum};

use crate::side::Side;
use crate::work::Work;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// JSON map and filter: records/s and CPU per record of every side
    Throughput,
    /// Counts by key: every update written, and the last one per commit
    Count,
    /// Records with the id of an earlier one dropped
    Dedup,
    /// Counts by tumbling and hopping window, by session, and final results of windows
    Windows,
    /// A stream or table joined with another one, by equal keys and by a foreign key; a hot key
    Joins,
    /// Writes to PostgreSQL: inserts, upserts and statements, compared with a bare loop and Kafka Connect
    Postgres,
    /// Latency of new messages while old ids of the inbox are deleted
    Pruning,
    /// Memory of windows and sessions, by the number of keys
    WindowsMemory,
    /// From produce to a read_committed consumer, at a fixed rate
    Latency,
    /// Peak resident memory behind a slow closure
    Memory,
    /// 64 partitions of two topics that are merged by time, one full and one empty
    Siblings,
    /// Bytes in, bytes out, beside the bare loop
    PassThrough,
    /// Bytes in, bytes out, with and without the look at unanswered requests
    Quarantine,
    /// From SIGKILL to new results, by the size of the state
    Restart,
    /// From SIGKILL to new results with pending timers and open sessions, and a restore of them
    Pending,
    /// State rebuilt from its changelog: records/s, beside a bare reader
    Restore,
    /// Latency of the other tasks of a process while it restores three
    RestoreLatency,
    /// 6 to 512 partitions and as many tasks in a process: speed, memory, file descriptors, start-up, rebalance
    Partitions,
    /// Memory and disk of three stores: many keys, and many tasks
    StateMemory,
    /// All of them, one after the other
    All,
}

/// eos beside a bare librdkafka loop and Kafka Streams; every output is checked.
#[derive(Debug, Clone, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
pub(crate) struct Options {
    /// What is measured
    #[arg(value_enum, default_value = "all")]
    pub(crate) what: What,
    /// How many records [default: throughput, count and pruning 10,000,000; pass-through and siblings 6,000,000;
    /// partitions and state-memory 5,000,000; dedup, joins, restore, restore-latency, windows and windows-memory 3,000,000;
    /// memory 2,000,000; postgres 1,000,000]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) records: Option<u64>,
    /// Rounds that count [default: 3; latency 1; quarantine 7]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: Option<u32>,
    /// Throughput, count, dedup, windows, joins and postgres: rounds that only warm the broker and do not count.
    /// Each work after the first one has at most one such round
    // After one round the broker's JIT compiler still made a record cost half as much again as later. This burdened
    // the first side of the first counted round. After two rounds the compiler still used a tenth of a core.
    #[arg(long, default_value_t = 3)]
    pub(crate) warm_up_rounds: u32,
    /// Which sides, separated by commas: bare, eos, eos-at-least-once, eos-default,
    /// eos-unguarded, streams, connect
    /// [default: those that the benchmark compares]
    #[arg(long, value_delimiter = ',', value_parser = side)]
    pub(crate) sides: Option<Vec<Side>>,
    /// Between two commits, in milliseconds
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) interval_ms: u64,
    /// Throughput, count, dedup, windows and joins: how many records Kafka Streams passes before the run that counts, in its JVM
    #[arg(long, default_value_t = 3_000_000)]
    pub(crate) warm_up: u64,
    /// Restart, pending and windows-memory: the numbers of keys, separated by commas [default: restart
    /// 10000,1000000,10000000; pending 1000000; windows-memory 10000,100000,1000000]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keys: Option<Vec<u64>>,
    /// Partitions: the numbers of partitions, separated by commas; ratios are to the first
    /// [default: map 6,32,128,512; count 6,12,32,128,200,500]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) partitions: Option<Vec<i32>>,
    /// Count, windows, joins, postgres, windows-memory, pending and partitions: measure only this work
    #[arg(long)]
    pub(crate) work: Option<Work>,
    /// The heap of Kafka Streams, in MB [default: 512; count with every update 256, which keeps its speed]
    #[arg(long, value_parser = clap::value_parser!(u32).range(64..))]
    pub(crate) heap_mb: Option<u32>,
    /// Latency and restore-latency: records per second
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rate: u64,
    /// Latency and memory: how long is measured
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
    /// Latency: how long each side works before that
    #[arg(long, default_value_t = 20)]
    pub(crate) warm_up_seconds: u64,
    /// Writes the results into docs/benchmarks.md
    #[arg(long)]
    pub(crate) write: bool,
}

impl Options {
    /// Returns the heap of Kafka Streams for this work, in MB: the smallest in which it is as fast as in a larger one.
    pub(crate) fn heap_mb(&self, work: Option<Work>) -> u32 {
        let least = match work {
            Some(Work::Count) => 256,
            _ => 512,
        };
        self.heap_mb.unwrap_or(least)
    }

    /// Returns the numbers of keys of `--keys`, or these defaults.
    pub(crate) fn keys(&self, usual: &[u64]) -> Vec<u64> {
        self.keys.clone().unwrap_or_else(|| usual.to_vec())
    }

    /// Returns the work of `--work` if the list has it, or the whole list.
    pub(crate) fn works(&self, all: &[Work]) -> Vec<Work> {
        let asked = |work: &&Work| self.work.is_none_or(|only| only == **work);
        all.iter().filter(asked).copied().collect()
    }

    /// Returns the time between two commits.
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }

    /// Returns the sides of `--sides`, or these defaults.
    ///
    /// # Errors
    /// If `--sides` has a side that the benchmark can't measure.
    pub(crate) fn sides(&self, usual: &[Side], possible: &[Side]) -> Result<Vec<Side>> {
        let Some(asked) = &self.sides else {
            return Ok(usual.to_vec());
        };
        ensure!(!asked.is_empty(), "--sides names none");
        for side in asked {
            if !possible.contains(side) {
                let names: Vec<_> = possible.iter().map(|side| side.name()).collect();
                bail!(
                    "--sides {}: this benchmark measures {}",
                    side.name(),
                    names.join(", ")
                );
            }
        }
        Ok(asked.clone())
    }
}

fn side(name: &str) -> Result<Side, String> {
    Side::named(name).ok_or_else(|| {
        "unknown side. Use bare, eos, eos-at-least-once, eos-default, eos-unguarded, streams or connect"
            .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_that_a_benchmark_lacks_is_named_with_those_that_it_has() {
        let parse = |args: &[&str]| Options::try_parse_from([&["bench"], args].concat());
        let options = parse(&["latency", "--sides", "bare,eos"]).unwrap();
        let error = options.sides(&[Side::Eos], &[Side::Eos, Side::Streams]);
        assert_eq!(
            error.unwrap_err().to_string(),
            "--sides bare: this benchmark measures eos, streams"
        );
        let usual = parse(&[]).unwrap().sides(&[Side::Eos], &[Side::Eos]);
        assert_eq!(usual.unwrap(), [Side::Eos]);
        assert!(parse(&["--sides", "flink"]).is_err());
    }
}

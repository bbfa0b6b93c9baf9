//! Reading records, and where a partition begins and ends.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kafka_protocol::messages::fetch_response::PartitionData;

use super::Client;
use super::routing::Node;
use crate::batch::{Record, visible};
use crate::connection::check;
use crate::requests;

/// How much one fetch may bring: large, because a reader of a whole topic pays per round trip.
const MAX_BYTES: i32 = 8 << 20;

/// How long a leader may wait for data at the end of the log.
const MAX_WAIT: Duration = Duration::from_millis(250);

/// Which records a reader sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// All of them, those of open and aborted transactions too.
    ReadUncommitted,
    /// Those outside transactions and those of committed ones, up to the last stable offset.
    ReadCommitted,
}

/// What one fetch brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The visible records from the asked offset on. Markers are never among them.
    pub records: Vec<Record>,
    /// Where to continue. Beyond the last record when hidden ones followed it.
    pub next_offset: i64,
    /// The end of what is replicated.
    pub high_watermark: i64,
    /// The end of what is decided: the first offset of the oldest open transaction, if any.
    pub last_stable_offset: i64,
}

impl Isolation {
    /// As the protocol writes it.
    pub(super) fn level(self) -> i8 {
        match self {
            Isolation::ReadUncommitted => 0,
            Isolation::ReadCommitted => 1,
        }
    }
}

impl Client {
    /// Reads a partition from an offset on: up to 8 MB, nothing when there is nothing new.
    ///
    /// # Errors
    /// When the offset lies outside the log, a batch is corrupt or compressed, or the leader does
    /// not answer in time.
    pub fn fetch(
        &mut self,
        topic: &str,
        partition: i32,
        from: i64,
        isolation: Isolation,
    ) -> Result<Fetched> {
        let data = self.fetch_data(topic, partition, from, isolation)?;
        decoded(data, from, isolation)
            .with_context(|| format!("fetch {topic}-{partition} from offset {from}"))
    }

    /// What the leader answers, not decoded.
    pub(super) fn fetch_data(
        &mut self,
        topic: &str,
        partition: i32,
        from: i64,
        isolation: Isolation,
    ) -> Result<PartitionData> {
        let (level, wait) = (isolation.level(), MAX_WAIT.as_millis() as i32);
        let request = requests::fetch(topic, partition, from, level, wait, MAX_BYTES);
        let what = format!("fetch {topic}-{partition} from offset {from}");
        self.retry(&what, |client, deadline| {
            let answer = client.exchange(Node::Leader(topic, partition), &request, deadline)?;
            check(answer.error_code, || "fetch session".to_owned())?;
            let mut partitions = answer.responses.into_iter().flat_map(|t| t.partitions);
            let data = partitions.next().context("answer without the partition")?;
            check(data.error_code, || format!("{topic}-{partition}"))?;
            Ok(data)
        })
    }

    /// Reads a whole topic, partition by partition, up to its end at the time of the call.
    ///
    /// # Errors
    /// As [`Client::fetch`], and when the log ends before the end the leader named.
    pub fn read_all(
        &mut self,
        topic: &str,
        isolation: Isolation,
        mut each: impl FnMut(i32, &Record),
    ) -> Result<()> {
        let starts = self.start_offsets(topic)?;
        let ends = self.end_offsets(topic, isolation)?;
        for (partition, (start, end)) in (0..).zip(starts.into_iter().zip(ends)) {
            self.read_range(topic, partition, start..end, isolation, |record| {
                each(partition, record);
            })?;
        }
        Ok(())
    }

    fn read_range(
        &mut self,
        topic: &str,
        partition: i32,
        range: std::ops::Range<i64>,
        isolation: Isolation,
        mut each: impl FnMut(&Record),
    ) -> Result<()> {
        let end = range.end;
        self.walk(topic, partition, range, isolation, |data, from| {
            let fetched = decoded(data, from, isolation)?;
            let within = |record: &&Record| record.offset < end;
            fetched
                .records
                .iter()
                .take_while(within)
                .for_each(&mut each);
            Ok(fetched.next_offset)
        })
    }

    /// Fetches a range of a partition; `take` is given each answer with the offset that it was asked
    /// for, and says where to go on.
    pub(super) fn walk(
        &mut self,
        topic: &str,
        partition: i32,
        range: std::ops::Range<i64>,
        isolation: Isolation,
        mut take: impl FnMut(PartitionData, i64) -> Result<i64>,
    ) -> Result<()> {
        let mut position = range.start;
        let mut moved = Instant::now();
        while position < range.end {
            let data = self.fetch_data(topic, partition, position, isolation)?;
            let next = take(data, position)
                .with_context(|| format!("fetch {topic}-{partition} from offset {position}"))?;
            if next > position {
                (position, moved) = (next, Instant::now());
            } else if moved.elapsed() > self.timeout() {
                bail!(
                    "{topic}-{partition} gives nothing from offset {position} on though it should \
                     end at {}: the log was truncated, or a transaction hangs",
                    range.end
                );
            }
        }
        Ok(())
    }
}

/// Decodes a partition's answer, without what the isolation hides.
fn decoded(data: PartitionData, from: i64, isolation: Isolation) -> Result<Fetched> {
    let (high_watermark, last_stable_offset) = (data.high_watermark, data.last_stable_offset);
    let data = match isolation {
        Isolation::ReadUncommitted => data.with_aborted_transactions(None),
        Isolation::ReadCommitted => data,
    };
    let mut records = Vec::new();
    let next_offset = visible(data, from, |record| records.push(record))?;
    Ok(Fetched {
        records,
        next_offset,
        high_watermark,
        last_stable_offset,
    })
}

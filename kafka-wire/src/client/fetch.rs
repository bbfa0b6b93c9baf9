//! Fetches of records from partitions.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kafka_protocol::messages::fetch_response::PartitionData;

use super::Client;
use super::routing::Node;
use crate::batch::{Record, visible};
use crate::connection::check;
use crate::requests;

/// The limit of one fetch, in bytes. It is large, because a reader of a whole topic pays per round trip.
const MAX_BYTES: i32 = 8 << 20;

/// The time that a leader may wait for data at the end of the log.
const MAX_WAIT: Duration = Duration::from_millis(250);

/// The records that a reader receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// All records, including those of open and aborted transactions.
    ReadUncommitted,
    /// Records outside transactions and of committed transactions, up to the last stable offset.
    ReadCommitted,
}

/// The result of one fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The visible records from the requested offset on, without markers.
    pub records: Vec<Record>,
    /// The offset of the next fetch. It is beyond the last record if hidden records followed it.
    pub next_offset: i64,
    /// The high watermark: the end of the replicated data.
    pub high_watermark: i64,
    /// The last stable offset: the first offset of the oldest open transaction, or the high watermark.
    pub last_stable_offset: i64,
}

impl Isolation {
    /// Returns the protocol's code.
    pub(super) fn level(self) -> i8 {
        match self {
            Isolation::ReadUncommitted => 0,
            Isolation::ReadCommitted => 1,
        }
    }
}

impl Client {
    /// Reads a partition from an offset on, up to 8 MiB. Returns no records if there are no new ones.
    ///
    /// # Errors
    /// If the offset lies outside the log, a batch is corrupt or compressed, or the leader does not respond in time.
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

    /// Returns the leader's response, not decoded.
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
            let data = partitions
                .next()
                .context("response without the partition")?;
            check(data.error_code, || format!("{topic}-{partition}"))?;
            Ok(data)
        })
    }

    /// Reads a whole topic, partition by partition, up to its end at the time of the call.
    ///
    /// # Errors
    /// See [`Client::fetch`]. Also fails if the log ends before the end offset that the leader returned.
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

    /// Fetches a range of a partition. `take` receives each response with its requested offset, and returns the next
    /// offset.
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
                    "{topic}-{partition} returns no records from offset {position} on, although it \
                     should end at {}: the log was truncated, or a transaction hangs",
                    range.end
                );
            }
        }
        Ok(())
    }
}

/// Decodes a partition's response, without the records that the isolation level hides.
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

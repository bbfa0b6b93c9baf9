//! Start and end offsets of partitions.

use anyhow::{Context, Result};

use super::Client;
use super::fetch::Isolation;
use super::routing::Node;
use crate::connection::check;
use crate::requests;

/// Special timestamps of ListOffsets.
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;

impl Client {
    /// Returns the end offset of each partition: the high watermark, or with [`Isolation::ReadCommitted`] the last
    /// stable offset.
    ///
    /// # Errors
    /// If the topic does not exist or its leaders do not respond in time.
    pub fn end_offsets(&mut self, topic: &str, isolation: Isolation) -> Result<Vec<i64>> {
        self.list_offsets(topic, LATEST, isolation)
    }

    /// Returns the first offset that each partition still has.
    ///
    /// # Errors
    /// See [`Client::end_offsets`].
    pub fn start_offsets(&mut self, topic: &str) -> Result<Vec<i64>> {
        self.list_offsets(topic, EARLIEST, Isolation::ReadUncommitted)
    }

    fn list_offsets(
        &mut self,
        topic: &str,
        timestamp: i64,
        isolation: Isolation,
    ) -> Result<Vec<i64>> {
        let what = format!("list the offsets of {topic}");
        let partitions =
            self.retry(&what, |client, deadline| client.partitions(topic, deadline))?;
        (0..partitions)
            .map(|partition| {
                let level = isolation.level();
                let request = requests::list_offsets(topic, partition, timestamp, level);
                self.retry(&what, |client, deadline| {
                    let leader = Node::Leader(topic, partition);
                    let answer = client.exchange(leader, &request, deadline)?;
                    let mut partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
                    let found = partitions
                        .next()
                        .context("response without the partition")?;
                    check(found.error_code, || format!("{topic}-{partition}"))?;
                    Ok(found.offset)
                })
            })
            .collect()
    }
}

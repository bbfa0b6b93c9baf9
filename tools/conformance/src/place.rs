//! Offsets of one group in one partition.

use anyhow::{Context, Result};
use kafka_wire::requests::{self, text};

use crate::groups::ready;
use crate::transactions::Producer;
use crate::world::World;

/// The metadata of an offset that [`Place::send`] commits.
pub(crate) const METADATA: &str = "of a transaction";

/// The generation and the member id of a client that is not a member.
const NO_MEMBER: (i32, &str) = (-1, "");

/// Partition 0 of a topic, and a group that commits its offsets.
#[derive(Debug)]
pub struct Place<'w> {
    world: &'w World,
    /// `group.id`.
    pub group: String,
    /// The topic's name.
    pub topic: String,
}

impl World {
    /// Creates a topic for a group that does not exist yet.
    ///
    /// # Errors
    /// When the topic is not created.
    pub fn place(&self) -> Result<Place<'_>> {
        self.place_of(&self.fresh("g"))
    }

    /// Creates a topic for a given group.
    ///
    /// # Errors
    /// When the topic is not created.
    pub fn place_of(&self, group: &str) -> Result<Place<'_>> {
        Ok(self.place_in(group, self.topic()?))
    }

    /// Combines a given topic and group.
    pub fn place_in(&self, group: &str, topic: String) -> Place<'_> {
        Place {
            world: self,
            group: group.to_owned(),
            topic,
        }
    }
}

impl Place<'_> {
    /// Sends OffsetCommit as a client that is not a member. Returns the error code.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn commit(&self, offset: i64, metadata: &str) -> Result<i16> {
        self.commit_as(offset, metadata, NO_MEMBER, 8)
    }

    /// Sends OffsetCommit with offset 5 and metadata `m` as (generation, member id). Returns the error code.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn commit_by(&self, by: (i32, &str)) -> Result<i16> {
        self.commit_as(5, "m", by, 8)
    }

    /// Sends OffsetCommit in a given version. Returns the error code.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn commit_as(
        &self,
        offset: i64,
        metadata: &str,
        by: (i32, &str),
        version: i16,
    ) -> Result<i16> {
        let request = requests::offset_commit(&self.group, &self.topic, 0, offset, metadata, by);
        let call = || {
            let answer = self.world.call(version, &request)?;
            let topic = answer.topics.first().context("no topic")?;
            let it = topic.partitions.first().context("no partition")?;
            Ok(it.error_code)
        };
        ready(call, |code| *code)
    }

    /// Sends OffsetFetch. Returns the error code, the offset and the metadata.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn committed(&self, stable: bool) -> Result<(i16, i64, String)> {
        let request = requests::offset_fetch(&self.group, &self.topic, vec![0], stable);
        let call = || {
            let answer = self.world.call(9, &request)?;
            let group = answer.groups.first().context("no group")?;
            if group.error_code != 0 {
                return Ok((group.error_code, -1, String::new()));
            }
            let topic = group.topics.first().context("no topic")?;
            let it = topic.partitions.first().context("no partition")?;
            let metadata = it.metadata.as_deref().unwrap_or_default().to_owned();
            Ok((it.error_code, it.committed_offset, metadata))
        };
        ready(call, |it| it.0)
    }

    /// Fetches the stable committed offset.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn offset(&self) -> Result<i64> {
        Ok(self.committed(true)?.1)
    }

    /// Compares the stable committed offset.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn holds(&self, what: &str, expected: (i16, i64, &str)) -> Result<()> {
        let (code, offset, metadata) = expected;
        let expected = (code, offset, metadata.to_owned());
        self.world.returns(what, self.committed(true), expected)
    }

    /// Sends TxnOffsetCommit as a client that is not a member. Returns the error code.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn send(&self, producer: &Producer, offset: i64) -> Result<i16> {
        self.send_by(producer, offset, NO_MEMBER, None)
    }

    /// Sends TxnOffsetCommit as (generation, member id) with an instance id. Returns the error code.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn send_by(
        &self,
        producer: &Producer,
        offset: i64,
        by: (i32, &str),
        instance: Option<&str>,
    ) -> Result<i16> {
        let call = || self.send_once(producer, offset, by, instance);
        self.world.settled(call, |code| *code)
    }

    /// Sends TxnOffsetCommit once. Returns the error code.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn send_once(
        &self,
        producer: &Producer,
        offset: i64,
        by: (i32, &str),
        instance: Option<&str>,
    ) -> Result<i16> {
        let (id, identity, place) = (&producer.id, producer.identity(), (&*self.topic, 0));
        let request =
            requests::txn_offset_commit(id, identity, &self.group, place, offset, METADATA)
                .with_generation_id(by.0)
                .with_member_id(text(by.1))
                .with_group_instance_id(instance.map(text));
        let answer = self.world.call(3, &request)?;
        let topic = answer.topics.first().context("no topic")?;
        let it = topic.partitions.first().context("no partition")?;
        Ok(it.error_code)
    }
}

//! The calls of the consumer.

use std::time::Duration;

use eos_client::GroupMetadata;
use eos_protocol::{TopicName, TopicPartition};

use super::{
    Client, Entry, Failure, PartitionList, Queue, c_string, check_code, codes, copy_text, millis,
    sys,
};
use crate::tail::Known;

/// An end of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OffsetSpec {
    /// The log start offset.
    First,
    /// The end, for a reader of committed records.
    End,
}

impl Client {
    pub(crate) fn subscribe(&self, topics: &[TopicName]) -> Result<(), Failure> {
        let list = PartitionList::topics(topics)?;
        // SAFETY: a live consumer and a live list, which is copied.
        check_code(unsafe { codes::rd_kafka_subscribe(self.raw(), list.raw()) })
    }

    pub(crate) fn unsubscribe(&self) -> Result<(), Failure> {
        // SAFETY: a live consumer.
        check_code(unsafe { codes::rd_kafka_unsubscribe(self.raw()) })
    }

    /// Returns whether the partitions of the current rebalance are already lost.
    pub(crate) fn assignment_lost(&self) -> bool {
        // SAFETY: a live consumer.
        unsafe { sys::rd_kafka_assignment_lost(self.raw()) != 0 }
    }

    pub(crate) fn incremental_assign(&self, list: &PartitionList) -> Result<(), Failure> {
        // SAFETY: a live consumer and a live list, which is copied; the error is ours.
        unsafe { Failure::check(sys::rd_kafka_incremental_assign(self.raw(), list.raw())) }
    }

    pub(crate) fn incremental_unassign(&self, list: &PartitionList) -> Result<(), Failure> {
        // SAFETY: a live consumer and a live list, which is copied; the error is ours.
        unsafe { Failure::check(sys::rd_kafka_incremental_unassign(self.raw(), list.raw())) }
    }

    /// Returns the known offsets of a partition without a query to a broker. They are the high watermark of the last
    /// fetch, and the position, which is also past transaction markers.
    pub(crate) fn known(&self, of: &TopicPartition) -> Result<Known, Failure> {
        let topic = c_string(of.topic.as_str())?;
        let (mut low, mut high) = (-1, -1);
        // SAFETY: a live consumer, a C string, and two integers to write to.
        let code = unsafe {
            codes::rd_kafka_get_watermark_offsets(
                self.raw(),
                topic.as_ptr(),
                of.partition.get(),
                &raw mut low,
                &raw mut high,
            )
        };
        // The offsets of a partition are unknown before its first fetch.
        if code != codes::NO_ERROR {
            high = -1;
        }
        let list = PartitionList::of([of])?;
        // SAFETY: a live consumer and a live list.
        check_code(unsafe { codes::rd_kafka_position(self.raw(), list.raw()) })?;
        let position = list.entries().first().map_or(-1, |entry| entry.offset);
        Ok(Known { high, position })
    }

    /// Seeks and waits for the version barrier. The result of each partition is in its entry.
    pub(crate) fn seek(
        &self,
        list: &PartitionList,
        at_most: Duration,
    ) -> Result<Vec<Entry>, Failure> {
        // SAFETY: a live consumer and a live list; the error is ours.
        unsafe {
            Failure::check(sys::rd_kafka_seek_partitions(
                self.raw(),
                list.raw(),
                millis(at_most),
            ))?;
        }
        Ok(list.entries())
    }

    /// Reads the group's offsets, stable ones only for a reader of committed records. Blocks.
    pub(crate) fn committed(
        &self,
        list: &PartitionList,
        at_most: Duration,
    ) -> Result<Vec<Entry>, Failure> {
        // SAFETY: a live consumer and a live list.
        check_code(unsafe { codes::rd_kafka_committed(self.raw(), list.raw(), millis(at_most)) })?;
        Ok(list.entries())
    }

    /// Reads the ends or the beginnings of partitions. Blocks. For a reader of committed records an end is the last
    /// stable offset.
    pub(crate) fn offsets(
        &self,
        of: &[TopicPartition],
        spec: OffsetSpec,
        at_most: Duration,
    ) -> Result<Vec<Entry>, Failure> {
        // Kafka's own values in place of a timestamp, which librdkafka forwards.
        let time = match spec {
            OffsetSpec::First => sys::RD_KAFKA_OFFSET_BEGINNING,
            OffsetSpec::End => sys::RD_KAFKA_OFFSET_END,
        };
        let mut list = PartitionList::new(of.len());
        for partition in of {
            list.push(partition, time.into(), None)?;
        }
        // SAFETY: a live consumer and a live list.
        check_code(unsafe {
            codes::rd_kafka_offsets_for_times(self.raw(), list.raw(), millis(at_most))
        })?;
        Ok(list.entries())
    }

    /// Commits offsets. The result arrives as an event on `answer`.
    pub(crate) fn commit(&self, offsets: &PartitionList, answer: &Queue) -> Result<(), Failure> {
        // SAFETY: a live consumer, list (which is copied) and queue.
        check_code(unsafe {
            codes::rd_kafka_commit_queue(
                self.raw(),
                offsets.raw(),
                answer.raw(),
                None,
                std::ptr::null_mut(),
            )
        })
    }

    /// Returns the current group metadata, with a round trip to librdkafka's main thread.
    pub(crate) fn member(&self) -> Option<Member> {
        // SAFETY: a live consumer; the object is ours.
        Member::own(unsafe { sys::rd_kafka_consumer_group_metadata(self.raw()) })
    }

    /// Begins to close. From now on the group's events arrive on `events`, which must not be the consumer's own queue.
    pub(crate) fn begin_close(&self, events: &Queue) -> Result<(), Failure> {
        // SAFETY: a live consumer and queue; the error is ours.
        unsafe { Failure::check(sys::rd_kafka_consumer_close_queue(self.raw(), events.raw())) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        // SAFETY: a live consumer.
        unsafe { sys::rd_kafka_consumer_closed(self.raw()) != 0 }
    }
}

/// A member of a group, as of one moment.
#[derive(Debug)]
pub struct Member {
    ptr: std::ptr::NonNull<sys::rd_kafka_consumer_group_metadata_t>,
    generation_id: i32,
    member_id: String,
}

// SAFETY: plain memory without ties to a thread or to the consumer.
unsafe impl Send for Member {}

impl Member {
    pub(super) fn own(ptr: *mut sys::rd_kafka_consumer_group_metadata_t) -> Option<Self> {
        let ptr = std::ptr::NonNull::new(ptr)?;
        // SAFETY: live; the string is copied.
        let (generation_id, member_id) = unsafe {
            (
                sys::rd_kafka_consumer_group_metadata_generation_id(ptr.as_ptr()),
                copy_text(sys::rd_kafka_consumer_group_metadata_member_id(
                    ptr.as_ptr(),
                )),
            )
        };
        Some(Self {
            ptr,
            generation_id,
            member_id,
        })
    }

    pub(super) fn raw(&self) -> *const sys::rd_kafka_consumer_group_metadata_t {
        self.ptr.as_ptr()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { sys::rd_kafka_consumer_group_metadata_destroy(self.ptr.as_ptr()) };
    }
}

impl GroupMetadata for Member {
    fn generation_id(&self) -> i32 {
        self.generation_id
    }

    fn member_id(&self) -> &str {
        &self.member_id
    }
}

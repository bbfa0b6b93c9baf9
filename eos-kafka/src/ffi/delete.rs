//! The deletion of records.

use std::ptr::NonNull;
use std::time::Duration;

use eos_protocol::{Offset, TopicPartition};

use super::admin::Options;
use super::list::{self, Entry};
use super::{Client, Event, Failure, PartitionList, Queue, c_string, sys};

/// librdkafka's longest timeout. It does not end a request: see [`Client::order_deletion`].
const LONGEST: Duration = Duration::from_secs(3600);

impl Client {
    /// Requests the deletion of all records before an offset in each of these partitions. The leaders respond once
    /// their followers have deleted them, or after `within`.
    ///
    /// Only for a client without brokers. [`Client::meet`] follows it, once. To find the leaders,
    /// `rd_kafka_DeleteRecords` begins work on the calling thread that librdkafka's main thread continues as soon as
    /// topics arrive, and frees (docs/design/0025). Without a broker no topics arrive. The request's own timeout would
    /// also continue that work, so it is practically infinite: the caller that waits for the result drops the client.
    pub(crate) fn order_deletion(
        &self,
        before: &[(TopicPartition, Offset)],
        within: Duration,
        answer: &Queue,
    ) -> Result<(), Failure> {
        let operation = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DELETERECORDS;
        let options = Options::new(self, operation, LONGEST)?.propagated(within)?;
        let mut list = PartitionList::new(before.len());
        for (partition, offset) in before {
            list.push(partition, offset.get(), None)?;
        }
        let order = Order::new(&list)?;
        let mut orders = [order.0.as_ptr()];
        // SAFETY: a live instance, options and queue, and one live order, which is copied.
        unsafe {
            sys::rd_kafka_DeleteRecords(
                self.raw(),
                orders.as_mut_ptr(),
                orders.len(),
                options.raw(),
                answer.raw(),
            );
        }
        Ok(())
    }

    /// Adds the bootstrap brokers to a client without brokers.
    pub(crate) fn meet(&self, bootstrap: &str) -> Result<(), Failure> {
        let brokers = c_string(bootstrap)?;
        // SAFETY: a live instance and a C string, which is copied.
        let known = unsafe { sys::rd_kafka_brokers_add(self.raw(), brokers.as_ptr()) };
        if known > 0 {
            return Ok(());
        }
        let text = format!("no broker in {bootstrap:?}");
        Err(Failure::new(eos_protocol::code::LOCAL_INVALID_ARG, text))
    }
}

impl Event<'_> {
    /// Returns the result of [`Client::order_deletion`]: the new log start offset of each partition, or a code.
    pub(crate) fn deleted(&self) -> Vec<Entry> {
        // SAFETY: a live event, which keeps its result, which keeps the list; null for other events.
        unsafe {
            let result = sys::rd_kafka_event_DeleteRecords_result(self.raw());
            if result.is_null() {
                return Vec::new();
            }
            list::entries(sys::rd_kafka_DeleteRecords_result_offsets(result))
        }
    }
}

/// A request to delete records.
struct Order(NonNull<sys::rd_kafka_DeleteRecords_t>);

impl Order {
    fn new(before: &PartitionList) -> Result<Self, Failure> {
        // SAFETY: a live list, which is copied.
        let order = unsafe { sys::rd_kafka_DeleteRecords_new(before.raw()) };
        let order = NonNull::new(order).map(Self);
        order.ok_or_else(|| Failure::of(super::codes::CRIT_SYS_RESOURCE))
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { sys::rd_kafka_DeleteRecords_destroy(self.0.as_ptr()) };
    }
}

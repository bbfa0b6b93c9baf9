//! Events of queues.

use std::marker::PhantomData;
use std::ptr::NonNull;

use super::{Entry, Failure, codes, copy_text, list, sys};

/// An event. It does not outlive its queue.
#[derive(Debug)]
pub(crate) struct Event<'q>(NonNull<sys::rd_kafka_event_t>, PhantomData<&'q ()>);

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// The group assigns these partitions.
    Assign,
    /// The group revokes these partitions.
    Revoke,
    /// The instance reports an error.
    Error,
    /// Messages were not delivered. Delivered messages are not reported.
    Delivery,
    /// A commit through the consumer is done.
    OffsetCommit,
    /// A query has its response.
    Answer,
    /// An event that is not the result of a request.
    Other,
}

impl Event<'_> {
    pub(super) fn own(event: *mut sys::rd_kafka_event_t) -> Option<Self> {
        NonNull::new(event).map(|event| Self(event, PhantomData))
    }

    pub(super) fn raw(&self) -> *mut sys::rd_kafka_event_t {
        self.0.as_ptr()
    }

    pub(crate) fn kind(&self) -> EventKind {
        // SAFETY: a live event.
        match unsafe { sys::rd_kafka_event_type(self.raw()) } {
            sys::RD_KAFKA_EVENT_REBALANCE if self.code() == codes::ASSIGN_PARTITIONS => {
                EventKind::Assign
            }
            sys::RD_KAFKA_EVENT_REBALANCE => EventKind::Revoke,
            sys::RD_KAFKA_EVENT_ERROR => EventKind::Error,
            sys::RD_KAFKA_EVENT_DR => EventKind::Delivery,
            sys::RD_KAFKA_EVENT_OFFSET_COMMIT => EventKind::OffsetCommit,
            sys::RD_KAFKA_EVENT_DESCRIBETOPICS_RESULT
            | sys::RD_KAFKA_EVENT_DESCRIBECONSUMERGROUPS_RESULT
            | sys::RD_KAFKA_EVENT_DESCRIBECLUSTER_RESULT
            | sys::RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT
            | sys::RD_KAFKA_EVENT_CREATETOPICS_RESULT
            | sys::RD_KAFKA_EVENT_DELETERECORDS_RESULT => EventKind::Answer,
            _ => EventKind::Other,
        }
    }

    pub(crate) fn code(&self) -> i32 {
        // SAFETY: a live event.
        unsafe { codes::rd_kafka_event_error(self.raw()) }
    }

    /// Returns the error of the event, or `Ok` if it has none.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let code = self.code();
        if code == codes::NO_ERROR {
            return Ok(());
        }
        // SAFETY: a live event; the string is copied.
        let text = unsafe { copy_text(sys::rd_kafka_event_error_string(self.raw())) };
        let mut failure = Failure::new(code, text);
        // For any other event librdkafka 2.12.1 reads beyond its end: a response to a query is smaller than an error,
        // and the flag lies after it.
        if self.kind() == EventKind::Error {
            // SAFETY: a live event, and an error.
            failure.fault.fatal = unsafe { sys::rd_kafka_event_error_is_fatal(self.raw()) } != 0;
        }
        Err(failure)
    }

    /// Returns the partitions of a rebalance or of a commit.
    pub(crate) fn partitions(&self) -> Vec<Entry> {
        // SAFETY: a live event, which keeps the list; null for events without one.
        unsafe { list::entries(sys::rd_kafka_event_topic_partition_list(self.raw())) }
    }

    /// Returns the first failure among the messages of a delivery report. Messages that we purged ourselves do not
    /// count.
    pub(crate) fn failed_delivery(&self) -> Option<Failure> {
        let mut first = None;
        loop {
            // SAFETY: a live event, which keeps its messages.
            let (message, code) = unsafe {
                let message = sys::rd_kafka_event_message_next(self.raw());
                if message.is_null() {
                    return first;
                }
                (message, codes::of_message(message))
            };
            let ours = matches!(
                code,
                codes::NO_ERROR | codes::PURGE_QUEUE | codes::PURGE_INFLIGHT
            );
            if !ours && first.is_none() {
                let mut failure = Failure::of(code);
                // SAFETY: the event keeps its messages; the name of a message's topic is a C string.
                let (topic, partition) = unsafe {
                    let name = sys::rd_kafka_topic_name((*message).rkt);
                    (copy_text(name), (*message).partition)
                };
                failure.text = format!("a record for {topic}-{partition}: {}", failure.text);
                first = Some(failure);
            }
        }
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { sys::rd_kafka_event_destroy(self.raw()) };
    }
}

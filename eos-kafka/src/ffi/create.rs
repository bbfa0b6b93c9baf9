//! The creation of topics.

use std::ffi::{c_char, c_int};
use std::ptr::NonNull;
use std::time::Duration;

use eos_client::NewTopic;

use super::admin::{Options, results};
use super::{Client, Event, Failure, Queue, c_string, check_code, codes, copy_text, sys};

/// The brokers' default replication factor (KIP-464, Kafka 2.4).
const DEFAULT_REPLICATION: c_int = -1;

impl Client {
    /// Sends a request to the controller to create these topics.
    pub(crate) fn ask_to_create(
        &self,
        topics: &[NewTopic],
        within: Duration,
        answer: &Queue,
    ) -> Result<(), Failure> {
        let operation = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_CREATETOPICS;
        let options = Options::new(self, operation, within)?.propagated(within)?;
        let topics: Vec<_> = topics.iter().map(Wanted::new).collect::<Result<_, _>>()?;
        let mut pointers: Vec<_> = topics.iter().map(Wanted::raw).collect();
        // SAFETY: a live instance, options and queue, and live topics, which are copied.
        unsafe {
            sys::rd_kafka_CreateTopics(
                self.raw(),
                pointers.as_mut_ptr(),
                pointers.len(),
                options.raw(),
                answer.raw(),
            );
        }
        Ok(())
    }
}

impl Event<'_> {
    /// Returns the result of [`Client::ask_to_create`], for each topic.
    pub(crate) fn created(&self) -> Vec<(String, Result<(), Failure>)> {
        // SAFETY: a live event, which keeps its result; null for other events. Strings are copied.
        unsafe {
            let result = sys::rd_kafka_event_CreateTopics_result(self.raw());
            let topics = results(result, sys::rd_kafka_CreateTopics_result_topics).iter();
            let outcomes = topics.map(|&topic| {
                let code = codes::rd_kafka_topic_result_error(topic);
                let outcome = if code == codes::NO_ERROR {
                    Ok(())
                } else {
                    let text = copy_text(sys::rd_kafka_topic_result_error_string(topic));
                    Err(Failure::new(code, text))
                };
                (copy_text(sys::rd_kafka_topic_result_name(topic)), outcome)
            });
            outcomes.collect()
        }
    }
}

/// A topic to create.
struct Wanted(NonNull<sys::rd_kafka_NewTopic_t>);

impl Wanted {
    fn new(topic: &NewTopic) -> Result<Self, Failure> {
        let name = c_string(topic.name.as_str())?;
        let partitions = c_int::try_from(topic.partitions).unwrap_or(c_int::MAX);
        let mut reason = [0 as c_char; 256];
        // SAFETY: a C string, which is copied, and a buffer of the size that is given.
        let wanted = unsafe {
            sys::rd_kafka_NewTopic_new(
                name.as_ptr(),
                partitions,
                DEFAULT_REPLICATION,
                reason.as_mut_ptr(),
                reason.len(),
            )
        };
        let Some(wanted) = NonNull::new(wanted).map(Self) else {
            // SAFETY: librdkafka terminated the string.
            let reason = unsafe { copy_text(reason.as_ptr()) };
            let text = format!("topic {}: {reason}", topic.name);
            return Err(Failure::new(eos_protocol::code::LOCAL_INVALID_ARG, text));
        };
        for (key, value) in &topic.settings {
            let (key, value) = (c_string(key)?, c_string(value)?);
            // SAFETY: a live topic and C strings, which are copied.
            check_code(unsafe {
                codes::rd_kafka_NewTopic_set_config(wanted.raw(), key.as_ptr(), value.as_ptr())
            })?;
        }
        Ok(wanted)
    }

    fn raw(&self) -> *mut sys::rd_kafka_NewTopic_t {
        self.0.as_ptr()
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { sys::rd_kafka_NewTopic_destroy(self.raw()) };
    }
}

//! Which of all topics of a name there is.

use super::admin::results;
use super::{Event, codes, copy_text, sys};
use crate::client::TopicId;

impl Event<'_> {
    /// The topics that [`Client::ask_topics`](super::Client::ask_topics) asked for, those that are
    /// there and have an id.
    pub(in crate::kafka) fn topic_ids(&self) -> Vec<(String, TopicId)> {
        // SAFETY: a live event, which keeps its result; null for other events.
        unsafe {
            let result = sys::rd_kafka_event_DescribeTopics_result(self.raw());
            let topics = results(result, sys::rd_kafka_DescribeTopics_result_topics).iter();
            topics.filter_map(|&topic| topic_id(topic)).collect()
        }
    }
}

/// # Safety
/// `topic` is live.
unsafe fn topic_id(topic: *const sys::rd_kafka_TopicDescription_t) -> Option<(String, TopicId)> {
    // SAFETY: live, by the caller's contract; error and id belong to the topic, the name is copied.
    unsafe {
        let error = codes::rd_kafka_TopicDescription_error(topic);
        if !error.is_null() && codes::rd_kafka_error_code(error) != codes::NO_ERROR {
            return None;
        }
        let id = sys::rd_kafka_TopicDescription_topic_id(topic);
        if id.is_null() {
            return None;
        }
        let high = sys::rd_kafka_Uuid_most_significant_bits(id).cast_unsigned();
        let low = sys::rd_kafka_Uuid_least_significant_bits(id).cast_unsigned();
        let id = u128::from(high) << 64 | u128::from(low);
        let name = copy_text(sys::rd_kafka_TopicDescription_name(topic));
        // Kafka's `Uuid.ZERO_UUID` stands for "none".
        (id != 0).then_some((name, TopicId(id)))
    }
}

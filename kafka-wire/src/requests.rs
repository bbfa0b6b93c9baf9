//! Requests and their parts, in short.

use kafka_protocol::messages::TopicName;
use kafka_protocol::protocol::StrBytes;

/// A string in the protocol's form.
pub fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

/// A topic name in the protocol's form.
pub fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

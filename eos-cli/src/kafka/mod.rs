//! `eos kafka`: a Kafka that stays until it is stopped, and topics and records by hand.
//!
//! ```text
//! local     up | down | status
//!   ├── place      the state of each checkout's Kafka, in the user's cache
//!   └── embedded   without a JVM: the broker of eos-broker
//! by_hand   topic | produce | read
//! ```

mod by_hand;
mod embedded;
mod local;
mod place;

pub(crate) use by_hand::{Header, NewTopic, create_topics, produce, read};
pub(crate) use embedded::serve_embedded;
pub(crate) use local::{Up, down, environment, status, up};

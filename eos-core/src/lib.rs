//! Kafka stream processing in which every effect happens exactly once, whatever dies.

pub mod client;
#[cfg(feature = "kafka")]
mod kafka;

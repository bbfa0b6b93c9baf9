//! Exactly-once stream processing on Kafka: the vocabulary and every decision, as pure functions.
#![forbid(unsafe_code)]

mod errors;
mod guarantee;
mod ids;

pub use errors::{CallSite, Calls, ErrorClass, Fault, Row, TABLE, classify, code};
pub use guarantee::Guarantee;
pub use ids::{
    AppId, Generation, InstanceId, Negative, Nonce, Offset, Partition, ProducerEpoch, Seq, StageId,
    TaskId, Timestamp, TopicName, TopicPartition, TransactionalId, WorkerId,
};

//! What cargo cannot do, as a library: the local Kafka and a small Kafka client that tests share.

pub mod wire;

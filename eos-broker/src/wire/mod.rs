//! The broker model behind TCP on loopback, for librdkafka, Kafka's Java clients and everything else
//! that speaks Kafka's protocol.
//!
//! ```text
//! embedded    EmbeddedKafka: listens, owns the threads, is controlled by tests
//!   ├── connection   one thread for each: frames in, answers out, one request at a time
//!   ├── clock        one thread that lets time pass in the model
//!   ├── frame        bytes to a request and an answer to bytes
//!   └── shape        what a request's bytes have to look like, before anything is allocated for it
//! ```

mod clock;
mod connection;
mod embedded;
mod frame;
#[cfg(test)]
mod fuzz;
mod limits;
mod shape;
mod shared;

pub use embedded::{Builder, EmbeddedKafka, StartError};
pub use limits::Limits;
pub use shared::Traffic;

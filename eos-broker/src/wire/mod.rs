//! The broker model behind TCP on loopback.
//!
//! It serves librdkafka, Kafka's Java clients and all other clients of Kafka's protocol.
//!
//! ```text
//! embedded    EmbeddedKafka: listens, owns the threads, is controlled by tests
//!   ├── connection   one thread per connection: requests in, responses out, one at a time
//!   ├── clock        one thread that lets time pass in the model
//!   ├── frame        the decoder of requests, and the encoder of responses
//!   └── shape        the check of a request's lengths, before memory is allocated for it
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

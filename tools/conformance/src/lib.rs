//! A suite of behaviours that runs on the embedded broker and on Apache Kafka.
//!
//! Each scenario is a small script that sends requests to one broker. It has an exact expected result: error codes,
//! offsets, visibility, generations. Both brokers must return it.
//!
//! ```text
//! scenarios   the behaviours, by group
//! world       the broker of a scenario: unique names, one or more connections, short forms of requests; each request
//!             has an explicit version
//! run         every scenario on both brokers, and the table
//! ```
#![forbid(unsafe_code)]

mod groups;
mod place;
mod reading;
mod run;
pub mod scenarios;
mod transactions;
mod world;

pub use groups::Member;
pub use place::Place;
pub use reading::{Batch, Seen};
pub use run::{Report, compare};
pub use transactions::Producer;
pub use world::{Scenario, World};

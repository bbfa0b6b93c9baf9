//! One suite of behaviours, on the embedded broker and on Apache Kafka in the same run.
//!
//! Each scenario is a small script against one broker, over the wire, with an exact expected result:
//! error codes, offsets, visibility, generations. Both brokers have to give it.
//!
//! ```text
//! scenarios   what is compared, by group
//! world       the broker of a scenario: fresh names, one connection or several, requests in short; each request
//!             names its version
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

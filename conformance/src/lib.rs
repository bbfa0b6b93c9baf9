//! One suite of behaviours, on the embedded broker and on Apache Kafka in the same run.
//!
//! Each scenario is a small script against one broker, over the wire, with an exact expected result:
//! error codes, offsets, visibility, generations. Both brokers have to give it.
//!
//! ```text
//! scenarios   what is compared, by group
//! world       what a scenario has: fresh names, one connection or several, requests in short
//! connection  one socket, any request in any version
//! run         every scenario on both brokers, and the table
//! ```

mod connection;
mod groups;
mod reading;
mod run;
pub mod scenarios;
mod transactions;
mod world;

pub use connection::Connection;
pub use groups::Member;
pub use reading::{Batch, Seen};
pub use run::{Report, compare};
pub use transactions::Producer;
pub use world::{Scenario, World};

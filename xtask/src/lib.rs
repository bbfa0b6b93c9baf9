//! What cargo cannot do, as a library: set-up, a local Kafka, and a small Kafka client that tests
//! share.
//!
//! [`kafka`] starts real brokers from the official jars, without Docker; [`wire`] talks to them
//! without librdkafka; [`setup`] brings what both and the build need. `cargo xtask` is a thin
//! front on these.

#[cfg(not(unix))]
compile_error!("xtask starts and signals processes the Unix way: use Linux, macOS, or WSL 2");

mod paths;
mod run;

pub mod bench;
pub mod demo;
pub mod faults;
pub mod kafka;
pub mod os;
pub mod setup;
pub mod sim;
pub mod test;

pub mod wire;

pub use paths::{cache_dir, workspace_root};

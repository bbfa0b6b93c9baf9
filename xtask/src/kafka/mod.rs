//! Apache Kafka on this machine: real brokers from the official jars, without Docker.
//!
//! ```text
//! install   jars by Maven into the user's cache, formatted once, class archive made once
//!    └── layout   ids, ports, directories ──► properties
//!          └── node   one JVM  ◄── spawner: a thread whose end is the JVMs' end
//!                └── cluster   start, ready, kill, freeze, stop; removed when dropped
//!                      ├── provide   what tests and the demo ask for
//!                      ├── local     `cargo xtask kafka up | down | status`
//!                      │     └── embedded   without a JVM: the broker of eos-testkit
//!                      └── by_hand   `cargo xtask kafka topic | produce | read`
//! ```
//!
//! What it deliberately leaves out: TLS, SASL, separate controllers, and other Kafka versions.

mod archive;
mod by_hand;
mod cluster;
mod compose;
mod detached;
mod docker;
mod embedded;
mod error;
mod faults;
mod follow;
mod format;
mod home;
mod ids;
mod install;
mod java;
mod layout;
mod line;
mod local;
mod node;
mod options;
mod place;
mod ports;
mod process;
mod properties;
mod prove;
mod provide;
mod ready;
mod remap;
mod scratch;
mod smoke;
mod spawner;
mod yaml;

pub(crate) use install::{is_downloaded, prepare};
pub(crate) use java::{Java, OLDEST as OLDEST_JAVA};

pub use by_hand::{NewTopic, create_topics, produce, produce_to, read};
pub use cluster::Cluster;
pub use detached::Detached;
pub use docker::usable as docker_usable;
pub use embedded::serve_embedded;
pub use error::StartError;
pub use follow::Follower;
pub use install::java_program;
pub use java::Compiler;
pub use line::Keys;
pub use local::{Up, down, environment, status, up};
pub use options::ClusterOptions;
pub use prove::prove_compose;
pub use provide::{
    APP_BOOTSTRAP_VAR, BOOTSTRAP_VAR, Provided, SHARED_VAR, SKIP_VAR, external, for_tests, missing,
    own_for_tests, print_skipped, provide, provide_embedded, skipped,
};
pub(crate) use provide::{SKIPPED, is_ci, is_skipped};
pub use smoke::smoke;

/// The version of Kafka that is started.
///
/// 4.3.1, not 4.3.0: that release leaks native memory in Kafka Streams, our peer in benchmarks.
pub const VERSION: &str = "4.3.1";

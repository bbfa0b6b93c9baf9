//! Real Kafka brokers from the official jars, without Docker.
//!
//! ```text
//! install   downloads jars with Maven into the user's cache; formats and archives classes once
//!    └── layout   ids, ports, directories ──► properties
//!          └── node   one JVM  ◄── spawner: a thread whose end also ends the JVMs
//!                └── cluster   start, ready, kill, freeze, stop; removed when dropped
//!                      ├── provide    the broker of a test or a benchmark: named by the user, or started
//!                      └── detached   a cluster that outlives the process that started it
//! docker    the same cluster in containers, from `docker-compose.yml`; prove: that file without Docker
//! os, paths, run   signals, directories and other programs, also for users of this crate
//! ```
//!
//! Not supported: TLS, SASL, separate controllers, and other Kafka versions.

#[cfg(not(unix))]
compile_error!(
    "kafka-launcher starts and signals processes the Unix way: use Linux, macOS, or WSL 2"
);

mod archive;
mod cluster;
mod compose;
mod detached;
pub mod docker;
mod error;
mod faults;
mod format;
mod home;
mod ids;
mod install;
mod java;
mod layout;
mod node;
mod options;
pub mod os;
pub mod paths;
pub mod ports;
mod process;
mod properties;
mod prove;
mod provide;
pub mod ready;
mod remap;
pub mod run;
mod scratch;
mod smoke;
mod spawner;
mod yaml;

pub use cluster::Cluster;
pub use detached::Detached;
pub use error::{MissingPrograms, StartError};
pub use install::{download, is_downloaded, java_program};
pub use java::{Compiler, OLDEST as OLDEST_JAVA, is_installed as is_java_installed};
pub use layout::NodeLayout;
pub use options::ClusterOptions;
pub use paths::{cache_dir, checkout, workspace_root};
pub use process::ProcessId;
pub use prove::prove_compose;
pub use provide::{
    BOOTSTRAP_VAR, PROGRAMS_VAR, Provided, SHARED_VAR, SKIP_VAR, SKIPPED, external, for_tests,
    is_ci, is_skipped, missing, own_for_tests, print_skipped, provide, skipped,
};
pub use scratch::kill_orphans;
pub use smoke::smoke;

/// The version of Kafka that the launcher starts.
///
/// 4.3.1, not 4.3.0, because that release leaks native memory in Kafka Streams, which the benchmarks compare with.
pub const VERSION: &str = "4.3.1";

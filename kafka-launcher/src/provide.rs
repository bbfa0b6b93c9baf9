//! The Kafka cluster of a test, demo or benchmark.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{Cluster, ClusterOptions, install, ready};

/// The variable with the addresses of the user's own cluster. If it is set, no cluster is started. For apps it
/// overrides the address in the program (`bootstrap.servers` of eos-core).
pub const BOOTSTRAP_VAR: &str = "EOS_BOOTSTRAP_SERVERS";

/// The first word of a line of [`print_skipped`].
pub const SKIPPED: &str = "SKIPPED";

/// The variable with the addresses of the cluster for all tests that only need *a* broker. `cargo xtask test` starts
/// this cluster, or passes on the addresses of the user's own cluster.
pub const SHARED_VAR: &str = "TEST_KAFKA_BOOTSTRAP_SERVERS";

/// The variable with the directory of the programs that tests start. `cargo xtask test` has compiled them.
pub const PROGRAMS_VAR: &str = "TEST_PROGRAMS_DIR";

/// If this variable is 1, tests that need a real Kafka print `SKIPPED` and pass. Without it, they fail if Kafka is
/// missing.
pub const SKIP_VAR: &str = "EOS_SKIP_KAFKA";

/// A cluster for the caller.
#[derive(Debug)]
pub enum Provided {
    /// The user's cluster, from `EOS_BOOTSTRAP_SERVERS`.
    External {
        /// Its addresses.
        bootstrap: String,
    },
    /// A cluster that was started for the caller, and is removed when dropped.
    Started(Box<Cluster>),
}

impl Provided {
    /// Returns the addresses for clients.
    pub fn bootstrap(&self) -> &str {
        match self {
            Provided::External { bootstrap } => bootstrap,
            Provided::Started(cluster) => cluster.bootstrap(),
        }
    }

    /// Returns the cluster, if its nodes may be killed.
    pub fn cluster(&mut self) -> Option<&mut Cluster> {
        match self {
            Provided::External { .. } => None,
            Provided::Started(cluster) => Some(cluster),
        }
    }
}

/// Returns the addresses in `EOS_BOOTSTRAP_SERVERS`, if it is set.
pub fn external() -> Option<String> {
    named_by(BOOTSTRAP_VAR)
}

fn named_by(variable: &str) -> Option<String> {
    let given = std::env::var(variable).ok()?;
    Some(given.trim().to_owned()).filter(|given| !given.is_empty())
}

/// Returns the reason why this machine cannot start a broker, with the fix.
pub fn missing() -> Option<String> {
    if is_skipped() {
        return Some(format!("{SKIP_VAR}=1 disables real brokers: unset it"));
    }
    install::missing().map(|missing| missing.to_string())
}

/// Returns the user's cluster if one is named, or else a new one with 1 or 3 nodes.
///
/// # Errors
/// If the named cluster does not respond, or no cluster can be started.
pub fn provide(nodes: u8) -> Result<Provided> {
    let Some(bootstrap) = external() else {
        let cluster = Cluster::start(&ClusterOptions::default().nodes(nodes))?;
        return Ok(Provided::Started(Box::new(cluster)));
    };
    let addresses = [bootstrap.clone()];
    let deadline = Instant::now() + Duration::from_secs(10);
    ready::wait(&addresses, usize::from(nodes), deadline, || Ok(())).with_context(|| {
        format!("{BOOTSTRAP_VAR} names a cluster that is not usable: correct it, or unset it to have one started")
    })?;
    eprintln!("Using the Kafka at {bootstrap} ({BOOTSTRAP_VAR}), starting nothing.");
    Ok(Provided::External { bootstrap })
}

/// Returns the cluster of [`SHARED_VAR`] if one node is enough, or else as [`provide`]. Returns `None` if [`SKIP_VAR`]
/// is set.
///
/// # Errors
/// See [`provide`]. Also fails if Java or Maven is missing.
pub fn for_tests(nodes: u8) -> Result<Option<Provided>> {
    if let (1, Some(bootstrap)) = (nodes, named_by(SHARED_VAR)) {
        return Ok(Some(Provided::External { bootstrap }));
    }
    if external().is_none() && skipped()? {
        return Ok(None);
    }
    provide(nodes).map(Some)
}

/// Returns a cluster of the test's own, independent of `EOS_BOOTSTRAP_SERVERS`. It is for tests that need brokers
/// with certain properties, or topics and groups with fixed names. Skips like [`for_tests`].
///
/// # Errors
/// If no cluster can be started, for example because Java or Maven is missing.
pub fn own_for_tests(options: &ClusterOptions) -> Result<Option<Cluster>> {
    if skipped()? {
        return Ok(None);
    }
    Cluster::start(options).map(Some)
}

/// Returns whether [`SKIP_VAR`] skips the tests on a real Kafka, and prints this to standard error.
///
/// # Errors
/// If Kafka cannot be started here and [`SKIP_VAR`] is not set, because a test that finds no broker fails. Also if
/// [`SKIP_VAR`] is set in continuous integration.
pub fn skipped() -> Result<bool> {
    let Some(why) = missing() else {
        return Ok(false);
    };
    if !is_skipped() {
        bail!("this test needs a real Kafka: {why}\n({SKIP_VAR}=1 skips such tests)");
    }
    if is_ci() {
        bail!("CI must not skip tests on a real Kafka: unset {SKIP_VAR}");
    }
    print_skipped("it needs a real Kafka");
    Ok(true)
}

/// Prints to standard error that a test is skipped. It bypasses the capture of `cargo test`, which would hide the line.
pub fn print_skipped(why: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    // An error of a closed standard error is ignored.
    let _ = writeln!(std::io::stderr(), "{SKIPPED} {name}: {why}");
}

/// Returns whether the user skips the tests on a real Kafka.
pub fn is_skipped() -> bool {
    std::env::var(SKIP_VAR).is_ok_and(|value| value == "1")
}

/// Returns whether this is a continuous integration run, where a skip would hide a failure.
pub fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

//! The Kafka that a test, the demo or a benchmark runs on: the user's own, or one just started.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{Cluster, ClusterOptions, install, ready};

/// Names the user's own cluster; then nothing is started.
pub const BOOTSTRAP_VAR: &str = "KAFKA_BOOTSTRAP_SERVERS";

/// How a line of [`print_skipped`] begins.
pub const SKIPPED: &str = "SKIPPED";

/// Tells an app where Kafka is, whatever its program says (`bootstrap.servers` of eos-core).
pub const APP_BOOTSTRAP_VAR: &str = "EOS_BOOTSTRAP_SERVERS";

/// Names the one-node cluster that `cargo xtask test` starts for all tests that only need *a* broker.
pub const SHARED_VAR: &str = "TEST_KAFKA_BOOTSTRAP_SERVERS";

/// Tells tests in which directory the programs are that they start; `cargo xtask test` has compiled them.
pub const PROGRAMS_VAR: &str = "TEST_PROGRAMS_DIR";

/// Set to 1, tests that need a real Kafka print `SKIPPED` and pass. Without it they fail where Kafka is missing.
pub const SKIP_VAR: &str = "EOS_SKIP_KAFKA";

/// A cluster that can be used.
#[derive(Debug)]
pub enum Provided {
    /// The user's, named by `KAFKA_BOOTSTRAP_SERVERS`.
    External {
        /// Its addresses.
        bootstrap: String,
    },
    /// Started for the caller; gone when dropped.
    Started(Box<Cluster>),
}

impl Provided {
    /// Where clients connect.
    pub fn bootstrap(&self) -> &str {
        match self {
            Provided::External { bootstrap } => bootstrap,
            Provided::Started(cluster) => cluster.bootstrap(),
        }
    }

    /// The cluster, if its nodes may be killed.
    pub fn cluster(&mut self) -> Option<&mut Cluster> {
        match self {
            Provided::External { .. } => None,
            Provided::Started(cluster) => Some(cluster),
        }
    }
}

/// The addresses in `KAFKA_BOOTSTRAP_SERVERS`, if it is set.
pub fn external() -> Option<String> {
    named_by(BOOTSTRAP_VAR)
}

fn named_by(variable: &str) -> Option<String> {
    let given = std::env::var(variable).ok()?;
    Some(given.trim().to_owned()).filter(|given| !given.is_empty())
}

/// What prevents this machine from starting a broker, with the fix.
pub fn missing() -> Option<String> {
    if is_skipped() {
        return Some(format!("{SKIP_VAR}=1 disables real brokers: unset it"));
    }
    install::missing()
}

/// The user's cluster if one is named, else a new one with 1 or 3 nodes.
///
/// # Errors
/// When the named cluster does not answer, or none can be started.
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
    eprintln!("Using the Kafka at {bootstrap} ({BOOTSTRAP_VAR}); nothing is started.");
    Ok(Provided::External { bootstrap })
}

/// The cluster of [`SHARED_VAR`] if one node is enough, else as [`provide`]; none if [`SKIP_VAR`] is set.
///
/// # Errors
/// As [`provide`]; also when Java or Maven is missing.
pub fn for_tests(nodes: u8) -> Result<Option<Provided>> {
    if let (1, Some(bootstrap)) = (nodes, named_by(SHARED_VAR)) {
        return Ok(Some(Provided::External { bootstrap }));
    }
    if external().is_none() && skipped()? {
        return Ok(None);
    }
    provide(nodes).map(Some)
}

/// A cluster of the test's own, whatever `KAFKA_BOOTSTRAP_SERVERS` says: for tests that need
/// brokers with certain properties, or topics and groups under fixed names. Skips as [`for_tests`].
///
/// # Errors
/// When none can be started, Java or Maven missing included.
pub fn own_for_tests(options: &ClusterOptions) -> Result<Option<Cluster>> {
    if skipped()? {
        return Ok(None);
    }
    Cluster::start(options).map(Some)
}

/// Whether [`SKIP_VAR`] leaves out the tests on a real Kafka; prints that to standard error.
///
/// # Errors
/// When Kafka can't be started here and [`SKIP_VAR`] is not set: a test that finds no broker fails. Also when
/// [`SKIP_VAR`] is set in continuous integration.
pub fn skipped() -> Result<bool> {
    let Some(why) = missing() else {
        return Ok(false);
    };
    if !is_skipped() {
        bail!("this test needs a real Kafka: {why}\n({SKIP_VAR}=1 leaves such tests out)");
    }
    if is_ci() {
        bail!("CI must not skip tests on a real Kafka: unset {SKIP_VAR}");
    }
    print_skipped("it needs a real Kafka");
    Ok(true)
}

/// Prints that a test is skipped to standard error, past the capture of `cargo test`, which would hide it.
pub fn print_skipped(why: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    // A closed standard error has no reader to inform.
    let _ = writeln!(std::io::stderr(), "{SKIPPED} {name}: {why}");
}

/// Whether the user wants to do without.
pub fn is_skipped() -> bool {
    std::env::var(SKIP_VAR).is_ok_and(|value| value == "1")
}

/// Whether this is a continuous integration run, where skipping would hide a failure.
pub fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

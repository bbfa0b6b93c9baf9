//! When a cluster is usable: every node answers a Metadata request and knows all the others.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use kafka_wire::Client;

/// Between two questions to a node that is not ready.
const PAUSE: Duration = Duration::from_millis(25);

/// For one question. A node that is coming up may take the connection and say nothing yet.
const QUESTION_LIMIT: Duration = Duration::from_secs(2);

/// Waits until each address names `nodes` live brokers and a controller.
///
/// `still_possible` is asked now and then: an error ends the wait, since a dead JVM never answers.
///
/// # Errors
/// When an address is not ready at the deadline, or `still_possible` returns an error.
pub fn wait(
    addresses: &[String],
    nodes: usize,
    deadline: Instant,
    mut still_possible: impl FnMut() -> Result<()>,
) -> Result<()> {
    for address in addresses {
        while let Err(not_yet) = ask(address, nodes) {
            still_possible()?;
            if Instant::now() >= deadline {
                return Err(not_yet).context(format!("{address} is not ready"));
            }
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// Whether a node is ready, and if not, why not.
///
/// # Errors
/// When it is not ready.
pub fn ask(address: &str, nodes: usize) -> Result<()> {
    let metadata = Client::connect(address, QUESTION_LIMIT)?.metadata(Some(&[]))?;
    let known = metadata.brokers.len();
    if known < nodes {
        bail!("it knows {known} of {nodes} brokers");
    }
    if metadata.controller.is_none() {
        bail!("it knows no controller");
    }
    Ok(())
}

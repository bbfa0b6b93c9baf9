//! The readiness check of a cluster.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use kafka_wire::Client;

/// The pause between two requests to a node that is not ready.
const PAUSE: Duration = Duration::from_millis(25);

/// The timeout of one request. A starting node may accept the connection without a response.
const QUESTION_LIMIT: Duration = Duration::from_secs(2);

/// Waits until each address lists `nodes` live brokers and a controller.
///
/// The wait calls `still_possible` regularly. An error of it ends the wait, because a dead JVM never responds.
///
/// # Errors
/// If an address is not ready at the deadline, or `still_possible` returns an error.
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

/// Checks with a Metadata request whether a node is ready and lists all the others.
///
/// # Errors
/// If the node is not ready, with the reason.
pub fn ask(address: &str, nodes: usize) -> Result<()> {
    let metadata = Client::connect(address, QUESTION_LIMIT)?.metadata(Some(&[]))?;
    let known = metadata.brokers.len();
    if known < nodes {
        bail!("it reports {known} of {nodes} brokers");
    }
    if metadata.controller.is_none() {
        bail!("it reports no controller");
    }
    Ok(())
}

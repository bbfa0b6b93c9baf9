//! Everything that can end an app.

use std::{fmt, io};

use crate::config::SettingsError;
use crate::runtime::{PreflightError, SlotError};
use crate::topology::TopologyError;
use crate::worker::WorkerError;

/// What an app's calls answer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an app did not start, or ended by itself. The text names the value, the reason and the fix.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The graph makes no sense.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A setting is out of range.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// This process has no identity.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// The cluster is not fit for the app.
    #[error(transparent)]
    Preflight(#[from] PreflightError),
    /// The metrics can't be served.
    #[cfg(feature = "prometheus")]
    #[error(transparent)]
    Metrics(#[from] crate::metrics::EndpointError),
    /// A worker could not go on.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// A stop did not end in time.
    #[error(
        "the app did not stop within {waited_s} s; what was open is decided by the next start. \
         End the process"
    )]
    StopTimedOut {
        /// How long, in seconds.
        waited_s: u64,
    },
    /// Calls of the Kafka client did not come back, one after the other.
    #[error(
        "{times} times a call of the Kafka client did not come back to worker {worker}, long past \
         every time-out; what was open is decided by the next start. End the process: the threads \
         that hang stay until then"
    )]
    Hangs {
        /// The worker's number.
        worker: usize,
        /// How often.
        times: u32,
    },
    /// A thread could not be started.
    #[error("a thread could not be started: {0}")]
    Thread(io::Error),
    /// A worker's thread ended by a panic of the library: a defect.
    #[error("a worker ended unexpectedly; what it had open is decided by the next start")]
    Gone,
}

/// As it is displayed: a `main` that answers `eos_core::Result` prints its error by `Debug`, and who
/// runs it needs the text with the fix.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_main_prints_is_the_text_with_the_fix() {
        let text = "91f0".to_owned();
        let error = Error::from(SettingsError::Layout { text });
        assert!(format!("{error:?}").starts_with("accept.layout = \"91f0\" is no layout"));
    }
}

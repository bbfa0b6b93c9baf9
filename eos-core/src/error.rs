//! Everything that can end an app.

use std::{fmt, io};

use crate::config::SettingsError;
use crate::failure::{BoxError, Failure};
use crate::runtime::{PreflightError, SlotError};
use crate::topology::TopologyError;
use crate::worker::WorkerError;

/// The result of an app's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an app did not start, or ended by itself. The text names the value, the reason and the fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The graph makes no sense.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// This build lacks a feature of eos-core.
    #[error(
        "this build of eos-core lacks the feature `{feature}`, which {needed_by} needs. Add it in Cargo.toml: \
         eos-core = {{ version = \"{}\", features = [\"{feature}\"] }}",
        env!("CARGO_PKG_VERSION")
    )]
    FeatureMissing {
        /// The feature.
        feature: &'static str,
        /// The call or the setting.
        needed_by: String,
    },
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

/// The error of a `main`: it prints the message and its causes, where an [`Error`] would print its fields.
///
/// Any error converts by `?`, a [`Failure`] included:
///
/// ```no_run
/// use eos_core::{App, Report};
///
/// #[tokio::main]
/// async fn main() -> Result<(), Report> {
///     let brokers = std::env::var("BROKERS")?;
///     let app = App::new("pricing-v1");
///     app.run(&brokers).await?;
///     Ok(())
/// }
/// ```
pub struct Report(Failure);

impl<E: Into<BoxError>> From<E> for Report {
    fn from(error: E) -> Self {
        Self(error.into().into())
    }
}

impl From<Failure> for Report {
    fn from(failure: Failure) -> Self {
        Self(failure)
    }
}

/// The message: `main` prints its error by `Debug`.
impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_main_prints_is_the_text_with_the_fix() {
        let text = "91f0".to_owned();
        let error = Error::from(SettingsError::Layout { text });
        let report = Report::from(error);
        assert!(format!("{report:?}").starts_with("accept.layout = \"91f0\" is no layout"));
        let report = Report::from(Failure::permanent("text"));
        assert_eq!(format!("{report:?}"), "text");
    }
}

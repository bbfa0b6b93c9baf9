//! Errors that end an app.

use std::{fmt, io};

use crate::config::SettingsError;
use crate::failure::{BoxError, Failure};
use crate::runtime::{GlobalError, PreflightError, SlotError};
use crate::topology::TopologyError;
use crate::worker::WorkerError;

/// The result of an app's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that prevents the start of an app or ends it. The message names the value, the cause and the fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The graph of the app is invalid.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// This build lacks a feature of eos-core.
    #[error(
        "this build of eos-core lacks the feature `{feature}`, which {needed_by} needs. Add \
         features = [\"{feature}\"] to the dependency eos-core in Cargo.toml"
    )]
    FeatureMissing {
        /// The feature.
        feature: &'static str,
        /// The call or the setting that needs the feature.
        needed_by: String,
    },
    /// The configuration is invalid.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// This process could not acquire an identity.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// The preflight checks of the cluster failed.
    #[error(transparent)]
    Preflight(#[from] PreflightError),
    /// The metrics can't be served.
    #[cfg(feature = "prometheus")]
    #[error(transparent)]
    Metrics(#[from] crate::metrics::EndpointError),
    /// A worker stopped with an error.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// A global table failed.
    #[error(transparent)]
    Global(Box<GlobalError>),
    /// The app did not stop in time.
    #[error(
        "the app did not stop within {waited_s} s. End the process; the next start resolves open \
         transactions"
    )]
    StopTimedOut {
        /// The wait in seconds.
        waited_s: u64,
    },
    /// Several calls of the Kafka client in a row did not return.
    #[error(
        "worker {worker}: {times} calls of the Kafka client did not return, long past every timeout. End the \
         process, because the hanging threads can't be stopped; the next start resolves open transactions"
    )]
    Hangs {
        /// The worker's number.
        worker: usize,
        /// The number of calls.
        times: u32,
    },
    /// A thread could not be started.
    #[error("a thread could not be started: {0}")]
    Thread(io::Error),
    /// A worker's thread ended by a panic in the library. This is a bug in eos.
    #[error(
        "a worker ended unexpectedly (a bug in eos). Restart the process; the next start resolves open transactions"
    )]
    Gone,
}

impl From<GlobalError> for Error {
    fn from(error: GlobalError) -> Self {
        Self::Global(Box::new(error))
    }
}

/// An error for `main` that prints its message and causes. An [`Error`] would print its fields.
///
/// Any error converts by `?`, including [`Failure`]:
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

/// Prints the message, because `main` prints its error by `Debug`.
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
    use crate::boundary::{LedgerError, LedgerFailure};

    #[test]
    fn what_main_prints_is_the_text_with_the_fix() {
        let text = "91f0".to_owned();
        let error = Error::from(SettingsError::Layout { text });
        let report = Report::from(error);
        assert!(
            format!("{report:?}").starts_with("accept.layout = \"91f0\" is not a valid layout")
        );
        let report = Report::from(Failure::permanent("text"));
        assert_eq!(format!("{report:?}"), "text");
        // The message of the error contains that of its source.
        let report = Report::from(PreflightError::LedgerUnfit {
            ledger: "postgres shop".into(),
            source: LedgerError::new(LedgerFailure::Fatal, "table stock does not exist"),
        });
        assert_eq!(
            format!("{report:?}"),
            "postgres shop does not fit the app: table stock does not exist"
        );
    }
}

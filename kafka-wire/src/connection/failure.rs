//! What an unsuccessful request means for the caller: try again, or give up.

use std::io;

use kafka_protocol::ResponseError;

/// Why a request brought no answer to use.
#[derive(Debug)]
pub enum Failure {
    /// A later attempt may succeed: an election, a loading coordinator, a lost connection.
    Retry(anyhow::Error),
    /// No later attempt will.
    Final(anyhow::Error),
}

impl Failure {
    /// A retriable failure described by `text`.
    pub(crate) fn retry(text: impl Into<String>) -> Self {
        Failure::Retry(anyhow::Error::msg(text.into()))
    }

    /// The error inside, whichever kind it is.
    pub(crate) fn into_error(self) -> anyhow::Error {
        match self {
            Failure::Retry(error) | Failure::Final(error) => error,
        }
    }
}

impl From<Failure> for anyhow::Error {
    fn from(failure: Failure) -> Self {
        failure.into_error()
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure::Final(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Retry(error.into())
    }
}

/// Turns a Kafka error code into a [`Failure`], naming what it hit.
pub(crate) fn check(code: i16, what: impl FnOnce() -> String) -> Result<(), Failure> {
    let Some(error) = ResponseError::try_from_code(code) else {
        return Ok(());
    };
    // The error itself stays in the chain, for callers who must tell one code from another.
    let described = anyhow::Error::new(error).context(format!("{}: broker error {code}", what()));
    Err(if retriable(error) {
        Failure::Retry(described)
    } else {
        Failure::Final(described)
    })
}

/// As Kafka's own client sees it; `kafka_protocol` takes the first of these for final, though it
/// only says that the markers of the transaction before are still being written.
fn retriable(error: ResponseError) -> bool {
    error == ResponseError::ConcurrentTransactions || error.is_retriable()
}

/// Whether a broker said so, in contrast to silence or a lost connection.
pub(crate) fn is_answer(error: &anyhow::Error) -> bool {
    error.downcast_ref::<ResponseError>().is_some()
}

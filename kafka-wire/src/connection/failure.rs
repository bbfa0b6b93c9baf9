//! The classification of failed requests: retriable or final.

use std::io;

use kafka_protocol::ResponseError;

/// The reason why a request has no usable response.
#[derive(Debug)]
pub enum Failure {
    /// A later attempt may succeed: an election, a loading coordinator, a lost connection.
    Retry(anyhow::Error),
    /// No later attempt can succeed.
    Final(anyhow::Error),
}

impl Failure {
    /// Returns a retriable failure with the description `text`.
    pub(crate) fn retry(text: impl Into<String>) -> Self {
        Failure::Retry(anyhow::Error::msg(text.into()))
    }

    /// Returns the error inside, of either kind.
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

/// Converts a Kafka error code into a [`Failure`]. `what` names the failed operation.
pub(crate) fn check(code: i16, what: impl FnOnce() -> String) -> Result<(), Failure> {
    let Some(error) = ResponseError::try_from_code(code) else {
        return Ok(());
    };
    // The error itself stays in the chain, for callers that must distinguish error codes.
    let described = anyhow::Error::new(error).context(format!("{}: broker error {code}", what()));
    Err(if retriable(error) {
        Failure::Retry(described)
    } else {
        Failure::Final(described)
    })
}

/// Returns whether Kafka's own client retries the error. `kafka_protocol` treats the first of these as final, although
/// it only means that the broker is still writing the markers of the previous transaction.
fn retriable(error: ResponseError) -> bool {
    error == ResponseError::ConcurrentTransactions || error.is_retriable()
}

/// Returns whether a broker returned the error, in contrast to a timeout or a lost connection.
pub(crate) fn is_answer(error: &anyhow::Error) -> bool {
    error.downcast_ref::<ResponseError>().is_some()
}

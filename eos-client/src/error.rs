//! The error of a client call, with Kafka's error code.

use eos_protocol::{CallSite, ErrorClass, Fault, classify};

/// The error of a client call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {text} (code {code})", code = fault.code)]
pub struct ClientError {
    /// The failed call.
    pub call: CallSite,
    /// librdkafka's error code and flags.
    pub fault: Fault,
    /// The error text of librdkafka or of the broker.
    pub text: String,
}

impl ClientError {
    /// Returns an error without transaction flags.
    pub fn new(call: CallSite, code: i32, text: impl Into<String>) -> Self {
        Self {
            call,
            fault: Fault::plain(code),
            text: text.into(),
        }
    }

    /// Returns the error class. One table classifies the errors of all calls.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        classify(self.call, self.fault)
    }
}

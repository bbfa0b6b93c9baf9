//! What went wrong in a client call, in Kafka's own numbers.

use eos_protocol::{CallSite, ErrorClass, Fault, classify};

/// A client call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {text} (code {code})", code = fault.code)]
pub struct ClientError {
    /// The call.
    pub call: CallSite,
    /// librdkafka's error code and flags.
    pub fault: Fault,
    /// What librdkafka or the broker says of it.
    pub text: String,
}

impl ClientError {
    /// An error that carries no transaction flags.
    pub fn new(call: CallSite, code: i32, text: impl Into<String>) -> Self {
        Self {
            call,
            fault: Fault::plain(code),
            text: text.into(),
        }
    }

    /// What follows from it: one table decides, for all calls.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        classify(self.call, self.fault)
    }
}

//! The declaration of a global table.

use std::sync::Arc;

use eos_protocol::TopicName;

use crate::error_policy::{ErrorPolicy, LastResort};
use crate::global::CheckRows;

/// A declared global table.
pub(crate) struct GlobalSpec {
    pub(crate) name: Arc<str>,
    pub(crate) topic: TopicName,
    pub(crate) rows: Arc<dyn CheckRows>,
    pub(crate) policy: ErrorPolicy,
    /// The number of declarations before it.
    pub(super) number: usize,
    /// Whether a stream is joined with it.
    pub(super) is_joined: bool,
}

impl GlobalSpec {
    pub(crate) fn new(name: &str, topic: &str, rows: Arc<dyn CheckRows>) -> Self {
        Self {
            name: name.into(),
            topic: topic.into(),
            rows,
            policy: ErrorPolicy::fail(),
            number: 0,
            is_joined: false,
        }
    }

    /// Whether records that can't be decoded are skipped. Otherwise they stop the app.
    pub(crate) fn skips(&self) -> bool {
        *self.policy.last() == LastResort::Skip
    }
}

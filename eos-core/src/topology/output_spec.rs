//! The output topics.

use std::any::Any;
use std::fmt;

use eos_protocol::TopicName;

/// An output topic, with its types erased.
pub(crate) struct OutputSpec {
    pub(crate) name: TopicName,
    pub(crate) topic: Box<dyn Any + Send + Sync>,
    /// The number of sources, nodes and such outputs that were declared before it, if `Ctx::emit` writes to it.
    pub(super) number: Option<usize>,
}

impl fmt::Debug for OutputSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.name, f)
    }
}

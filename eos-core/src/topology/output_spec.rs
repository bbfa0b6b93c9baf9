//! Topics that are written to.

use std::any::Any;
use std::fmt;

use eos_protocol::TopicName;

/// A topic that is written to, with its types erased.
pub(crate) struct OutputSpec {
    pub(crate) name: TopicName,
    pub(crate) topic: Box<dyn Any + Send + Sync>,
    /// If `Ctx::emit` writes to it: how many sources, nodes and such outputs were declared before.
    pub(super) number: Option<usize>,
}

impl fmt::Debug for OutputSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.name, f)
    }
}

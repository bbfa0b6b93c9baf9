//! The declaration of calls, and a call before its start.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use eos_protocol::calls::{CallId, CallPlan};

use crate::async_calls::CallFuture;

/// The declaration of a node of calls.
#[derive(Debug, Clone)]
pub(crate) struct CallSpec {
    pub(crate) name: Arc<str>,
    pub(crate) plan: CallPlan,
}

/// A call of an admitted record, which the worker starts.
pub(crate) struct PreparedCall {
    /// The place of the node.
    pub(crate) place: usize,
    /// The record without its value.
    pub(crate) rest: Box<dyn Any + Send>,
    pub(crate) begin: Box<dyn BeginCall>,
}

impl fmt::Debug for PreparedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedCall")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

/// Makes the future of each try.
pub(crate) trait BeginCall: Send {
    fn begin(&self, id: CallId) -> CallFuture;
}

//! Asynchronous calls: their order, limits, deadlines and ids.
//!
//! A task *admits* records ahead of their turn and starts their calls. It *merges* them in the order of admission, each
//! one after all of its calls have ended. [`CallQueue`] decides which call may start, whether a result counts, and
//! which record is next. It holds no record and no result.

mod id;
mod origin;
mod plan;
mod queue;
#[cfg(test)]
mod queue_test;

pub use id::{CallId, CallPlace};
pub use origin::{CallOrigin, origin};
pub use plan::{CallPlan, CallPlanError, CallRetry};
pub use queue::{CallEnd, CallQueue, Counted, Ticket};

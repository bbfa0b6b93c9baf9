//! The interface between a worker and the executor of its calls.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use eos_protocol::TaskId;
use eos_protocol::calls::Ticket;

use crate::failure::Failure;
use crate::panics::panic_text;

/// A call. It ends with the value that the closure returned.
pub(crate) type CallFuture = Pin<Box<dyn Future<Output = Result<CallResult, Failure>> + Send>>;

/// The result of a call, of the type that its node expects.
pub(crate) type CallResult = Box<dyn Any + Send>;

/// The reason why a call has no result.
#[derive(Debug)]
pub(crate) enum CallError {
    Failed(Failure),
    Panicked(String),
}

/// One try of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CallKey {
    pub(crate) task: TaskId,
    pub(crate) ticket: Ticket,
}

/// An ended call.
pub(crate) type EndedCall = (CallKey, Result<CallResult, CallError>);

/// Creates the executor of a worker. Ended calls wake the waker.
pub(crate) type MakeExecutor = Arc<dyn Fn(Waker) -> Box<dyn Executor> + Send + Sync>;

/// Runs the calls of one worker. A dropped executor aborts them.
///
/// It has no deadlines: the worker measures them on its own clock.
pub(crate) trait Executor: Send {
    /// Starts a call. No user code runs before this returns, except in tests.
    fn start(&mut self, key: CallKey, call: CallFuture);

    /// Replaces the waker: a worker that joins the group again has another consumer.
    fn wake_by(&mut self, _waker: Waker) {}

    /// Requests the end of a call. A result may still arrive.
    fn abort(&mut self, key: CallKey);

    /// Requests the end of all calls of a task.
    fn abort_task(&mut self, task: TaskId);

    /// Takes the calls that have ended.
    fn take_ended(&mut self) -> Vec<EndedCall>;

    /// Returns the longest time until the next [`take_ended`](Self::take_ended), if calls run and nothing wakes the
    /// worker.
    fn nap(&self) -> Option<Duration>;
}

/// Polls a call. A panic ends it.
pub(super) fn poll_call(
    call: &mut CallFuture,
    cx: &mut Context<'_>,
) -> Poll<Result<CallResult, CallError>> {
    let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx)));
    match polled {
        Ok(polled) => polled.map_err(CallError::Failed),
        Err(panic) => Poll::Ready(Err(CallError::Panicked(panic_text(&*panic)))),
    }
}

//! An executor without threads, for tests and simulations.

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use eos_protocol::TaskId;

use super::executor::{CallFuture, CallKey, EndedCall, Executor, poll_call};

/// The time between two polls. A call may wait for the clock of the test, which wakes nothing.
const NAP: Duration = Duration::from_millis(5);

/// Polls all calls in each step of the worker. So results arrive in an order that depends on the calls only.
pub(crate) struct Polled {
    calls: BTreeMap<CallKey, CallFuture>,
    /// Whether an abort ends a call. A thread that blocks can't be aborted.
    aborts: bool,
}

impl Polled {
    pub(crate) fn new(aborts: bool) -> Self {
        Self {
            calls: BTreeMap::new(),
            aborts,
        }
    }
}

impl Executor for Polled {
    fn start(&mut self, key: CallKey, call: CallFuture) {
        self.calls.insert(key, call);
    }

    fn abort(&mut self, key: CallKey) {
        if self.aborts {
            self.calls.remove(&key);
        }
    }

    fn abort_task(&mut self, task: TaskId) {
        if self.aborts {
            self.calls.retain(|key, _| key.task != task);
        }
    }

    fn take_ended(&mut self) -> Vec<EndedCall> {
        let mut ended = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        self.calls
            .retain(|key, call| match poll_call(call, &mut cx) {
                Poll::Ready(result) => {
                    ended.push((*key, result));
                    false
                }
                Poll::Pending => true,
            });
        ended
    }

    fn nap(&self) -> Option<Duration> {
        (!self.calls.is_empty()).then_some(NAP)
    }
}

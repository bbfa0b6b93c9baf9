//! Asynchronous calls: limits, the argument of a closure, and executors.

mod executor;
#[cfg_attr(
    not(feature = "kafka"),
    allow(dead_code, reason = "without the adapter there is no client to run on")
)]
mod on_tokio;
mod polled;

use std::time::Duration;

use eos_protocol::Timestamp;
use eos_protocol::calls::{CallId, CallPlan, CallRetry};

use crate::client::Headers;
use crate::error_policy::Backoff;

pub(crate) use executor::{CallError, CallFuture, CallKey, CallResult, Executor, MakeExecutor};
pub(crate) use on_tokio::CallRuntime;
pub(crate) use polled::Polled;

/// The limits of the calls of [`map_async`](crate::Stream::map_async).
///
/// ```
/// # use std::time::Duration;
/// # use eos_core::{Backoff, Calls};
/// let calls = Calls::at_once(64)
///     .time_out(Duration::from_secs(5))
///     .retry(3, Backoff::exponential(Duration::from_millis(200), Duration::from_secs(2)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "give it to `map_async`"]
pub struct Calls {
    plan: CallPlan,
}

impl Calls {
    /// Limits the calls of each task: at most `n` run at once, and at most `4 * n` records wait for their results.
    /// The task admits no further record once the waiting records have 64 MiB. Results are not counted.
    ///
    /// A task is one partition number of one stage. So the called service receives at most `n` calls at once from each
    /// task.
    pub const fn at_once(n: usize) -> Self {
        Self {
            plan: CallPlan {
                at_once: n,
                time_out: None,
                retry: None,
            },
        }
    }

    /// Sets the longest time of one try. After that, the try fails, and its result is dropped. The default is no limit:
    /// a call that never ends then blocks its task.
    pub const fn time_out(mut self, after: Duration) -> Self {
        self.plan.time_out = Some(after);
        self
    }

    /// Tries a failed call again, at most `times` times. Errors, panics and timeouts are failures.
    /// [Permanent failures](crate::Failure::permanent) are not tried again.
    ///
    /// Meanwhile, other calls continue. After the last try, the record fails, and the
    /// [`ErrorPolicy`](crate::ErrorPolicy) of its source applies.
    pub const fn retry(mut self, times: u32, backoff: Backoff) -> Self {
        let (backoff, is_jittered) = backoff.waits();
        self.plan.retry = Some(CallRetry {
            times,
            backoff,
            is_jittered,
        });
        self
    }

    pub(crate) fn plan(self) -> CallPlan {
        self.plan
    }
}

/// The argument of the closure of [`map_async_record`](crate::Stream::map_async_record): a record, and the id of the
/// call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Call<K, V> {
    /// The id of the call, for the called service as an idempotency key. A repeated call has the same id.
    pub id: CallId,
    /// The key of the record.
    pub key: K,
    /// The value of the record.
    pub value: V,
    /// The timestamp of the record in milliseconds since 1970; `None` if it has none.
    pub timestamp: Option<Timestamp>,
    /// The headers of the record.
    pub headers: Headers,
}

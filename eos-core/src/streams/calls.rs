//! Asynchronous calls on the records of a stream.

use std::future::Future;
use std::sync::Arc;

use eos_protocol::calls::CallId;

use super::Stream;
use crate::async_calls::{Call, Calls};
use crate::failure::Failure;
use crate::record::Record;
use crate::topology::{CallSpec, Kind, MapAsync, Mistake};

/// Asynchronous calls.
impl<K: Send + 'static, V: Clone + Send + 'static, P> Stream<K, V, P> {
    /// Replaces each value by the result of an asynchronous call, for example a request to a service.
    ///
    /// **A call may be repeated**: after a crash, an aborted transaction or a rebalance, uncommitted records are read
    /// again, and their calls start again. A service with side effects needs the id of the call:
    /// [`map_async_record`](Self::map_async_record).
    ///
    /// Many calls run at once, but records leave in the order in which they arrived. [`Calls`] sets the limits. The
    /// calls of records with the same key run one after another. The key is that of the record in its topic. A commit
    /// does not wait for calls. It covers the records before the first one whose call still runs.
    ///
    /// A call that fails, panics or takes too long fails its record when the record's turn has come. The
    /// [`ErrorPolicy`](crate::ErrorPolicy) of the source then applies. A retry of the policy repeats the call and the
    /// steps in front of it, for this record only.
    ///
    /// `name` names the calls of this step. It is a part of their ids.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use eos_core::{App, Backoff, Calls, Failure, Topic};
    /// # async fn score(order: u64) -> Result<u64, std::io::Error> { Ok(order) }
    /// # let mut app = App::new("a");
    /// let calls = Calls::at_once(64)
    ///     .time_out(Duration::from_secs(5))
    ///     .retry(3, Backoff::fixed(Duration::from_millis(200)));
    /// app.source(&Topic::<String, u64>::plain("orders"))
    ///     .map_async("score", calls, |order| async move { Ok(score(order).await?) })
    ///     .to(&Topic::plain("scores"));
    /// # app.describe().unwrap();
    /// ```
    ///
    /// # Where the calls run
    /// `App::run` runs them on threads of its own, with a tokio runtime. The test driver of eos-testkit polls them without a
    /// runtime, and `time_out` follows its clock.
    ///
    /// # Errors
    /// The app does not start if the limits are invalid, or under
    /// [`Guarantee::AtMostOnce`](crate::Guarantee::AtMostOnce). A stage can't have two `map_async`. In its stage, no
    /// step with a context or a store, no clone and no branch can precede `map_async`. Write the records to a topic
    /// between such steps.
    pub fn map_async<U, Fut>(
        self,
        name: &str,
        calls: Calls,
        f: impl Fn(V) -> Fut + Send + Sync + 'static,
    ) -> Stream<K, U, P>
    where
        U: Send + 'static,
        Fut: Future<Output = Result<U, Failure>> + Send + 'static,
    {
        self.calls(name, calls, |_, value| value, move |_, value| f(value))
    }

    /// Like [`map_async`](Self::map_async), with key, timestamp and headers, and with the id of the call.
    ///
    /// A repeated call has the same [id](Call::id), so the called service can recognise repetitions. The id is derived
    /// from these parts:
    ///
    /// - the app
    /// - the topic, the partition and the offset of the record
    /// - the header `eos-replay-generation`
    /// - the name of the calls, and the number of the call among those of its record
    ///
    /// If a dead letter of this app is written back to its topic with its headers, the calls keep the ids of the failed
    /// record.
    ///
    /// ```
    /// # use eos_core::{App, Calls, Failure, Topic};
    /// # async fn charge(key: String, customer: String, cents: u64) -> Result<String, Failure> { Ok(key) }
    /// # let mut app = App::new("a");
    /// app.source(&Topic::<String, u64>::plain("payments"))
    ///     .map_async_record("charge", Calls::at_once(16), |call| async move {
    ///         charge(call.id.to_string(), call.key, call.value).await
    ///     })
    ///     .to(&Topic::<String, String>::plain("receipts"));
    /// # app.describe().unwrap();
    /// ```
    pub fn map_async_record<U, Fut>(
        self,
        name: &str,
        calls: Calls,
        f: impl Fn(Call<K, V>) -> Fut + Send + Sync + 'static,
    ) -> Stream<K, U, P>
    where
        K: Clone,
        U: Send + 'static,
        Fut: Future<Output = Result<U, Failure>> + Send + 'static,
    {
        let input = |rest: &Record<K, ()>, value| rest.clone().with_value(value);
        self.calls(name, calls, input, move |id, record| {
            let Record {
                key,
                value,
                timestamp,
                headers,
            } = record;
            f(Call {
                id,
                key,
                value,
                timestamp,
                headers,
            })
        })
    }

    fn calls<I, U, Fut>(
        self,
        name: &str,
        calls: Calls,
        input: fn(&Record<K, ()>, V) -> I,
        f: impl Fn(CallId, I) -> Fut + Send + Sync + 'static,
    ) -> Stream<K, U, P>
    where
        I: Clone + Send + 'static,
        U: Send + 'static,
        Fut: Future<Output = Result<U, Failure>> + Send + 'static,
    {
        let plan = calls.plan();
        if let Err(reason) = plan.check() {
            self.graph().wrong(Mistake::Calls {
                name: name.to_owned(),
                reason,
            });
        }
        let name = name.into();
        let at = self.graph().add_calls(CallSpec { name, plan });
        let f = Arc::new(f);
        self.then(Kind::MapAsync(at), move || {
            Box::new(MapAsync::new(input, Arc::clone(&f)))
        })
    }
}

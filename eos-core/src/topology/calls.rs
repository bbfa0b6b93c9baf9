//! The node of asynchronous calls.

use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use eos_protocol::calls::CallId;

use super::fault::Fault;
use super::node::{Next, Node};
use super::nodes::take;
use super::prepared_call::{BeginCall, PreparedCall};
use crate::async_calls::{CallFuture, CallResult};
use crate::ctx::Ctx;
use crate::failure::Failure;
use crate::record::Record;

/// Prepares a call for each record. Forwards the record with the result in the order of the records.
pub(crate) struct MapAsync<K, V, I, F> {
    /// Makes the input of a call.
    input: fn(&Record<K, ()>, V) -> I,
    f: Arc<F>,
}

impl<K, V, I, F> MapAsync<K, V, I, F> {
    pub(crate) fn new(input: fn(&Record<K, ()>, V) -> I, f: Arc<F>) -> Self {
        Self { input, f }
    }
}

struct Begin<I, F, U> {
    input: I,
    f: Arc<F>,
    result: PhantomData<fn() -> U>,
}

impl<I, F, Fut, U> BeginCall for Begin<I, F, U>
where
    I: Clone + Send + 'static,
    F: Fn(CallId, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<U, Failure>> + Send,
    U: Send + 'static,
{
    fn begin(&self, id: CallId) -> CallFuture {
        // The worker calls this, so a panic of the user's `clone` must not end the worker. It fails the call, as a
        // panic of the closure does.
        let input = match catch_unwind(AssertUnwindSafe(|| self.input.clone())) {
            Ok(input) => input,
            Err(panic) => return Box::pin(async move { resume_unwind(panic) }),
        };
        let f = Arc::clone(&self.f);
        // The closure runs on the executor, too: it may block or panic before its first await.
        Box::pin(async move { Ok(Box::new(f(id, input).await?) as CallResult) })
    }
}

impl<K, V, I, F, Fut, U> Node for MapAsync<K, V, I, F>
where
    K: Send + 'static,
    V: 'static,
    I: Clone + Send + 'static,
    F: Fn(CallId, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<U, Failure>> + Send,
    U: Send + 'static,
{
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Some(record) = take::<K, V>(record) else {
            return Ok(());
        };
        let (value, rest) = record.split();
        ctx.prepare(PreparedCall {
            place: next.place(),
            begin: Box::new(Begin {
                input: (self.input)(&rest, value),
                f: Arc::clone(&self.f),
                result: PhantomData,
            }),
            rest: Box::new(rest),
        });
        Ok(())
    }

    fn resume(
        &mut self,
        ctx: &Ctx<'_>,
        rest: Box<dyn Any + Send>,
        result: CallResult,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        match (rest.downcast::<Record<K, ()>>(), result.downcast::<U>()) {
            (Ok(rest), Ok(value)) => next.forward(ctx, &mut Some(rest.with_value(*value))),
            // This node made both, so the types match.
            _ => Ok(()),
        }
    }
}

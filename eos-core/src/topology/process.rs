//! The nodes that run user code with a context.

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use eos_protocol::TaskId;

use super::fault::Fault;
use super::node::{Next, Node};
use super::nodes::take;
use crate::ctx::Ctx;
use crate::failure::Failure;
use crate::process_ctx::{ProcessCtx, ValuesCtx};
use crate::processors::{OnDiscard, Processor, ValueProcessor};
use crate::record::Record;

/// A processor of one task. It is made when the first record comes: what its factory does wrong is then a fault of
/// that record, with a policy, and not one of the worker.
struct Made<P, F> {
    make: Arc<F>,
    processor: Option<P>,
    /// Whether it took a record since the last commit.
    touched: bool,
    lifecycle: Lifecycle<P>,
}

/// What is called on a processor of either kind.
struct Lifecycle<P> {
    init: fn(&mut P, TaskId) -> Result<(), Failure>,
    on_discard: fn(&mut P) -> OnDiscard,
    close: fn(&mut P),
}

impl<P, F: Fn() -> P> Made<P, F> {
    fn new(make: Arc<F>, lifecycle: Lifecycle<P>) -> Self {
        Self {
            make,
            processor: None,
            touched: false,
            lifecycle,
        }
    }

    /// The processor, for a record.
    fn touch(&mut self, task: TaskId) -> Result<&mut P, Fault> {
        let processor = match &mut self.processor {
            Some(processor) => processor,
            none => {
                let mut processor = (self.make)();
                (self.lifecycle.init)(&mut processor, task).map_err(Fault::user)?;
                none.insert(processor)
            }
        };
        self.touched = true;
        Ok(processor)
    }

    fn discard(&mut self) {
        if !std::mem::take(&mut self.touched) {
            return;
        }
        let Some(mut processor) = self.processor.take() else {
            return;
        };
        // One that panics is dropped, as if it had returned `Rebuild`.
        let on_discard = self.lifecycle.on_discard;
        self.processor = guarded("on_discard", move || match on_discard(&mut processor) {
            OnDiscard::Keep => Some(processor),
            OnDiscard::Rebuild => None,
        })
        .flatten();
        // One that stays still has records of the open transaction: `on_discard` is called again if that is aborted.
        self.touched = self.processor.is_some();
    }

    fn close(&mut self) {
        if let Some(mut processor) = self.processor.take() {
            let close = self.lifecycle.close;
            guarded("close", move || close(&mut processor));
        }
    }
}

/// Runs user code outside of a record. A panic in it must not end the worker: the work of other tasks does not
/// depend on it.
fn guarded<T>(what: &str, f: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(f));
    if done.is_err() {
        tracing::warn!("a processor panicked in `{what}` and was dropped");
    }
    done.ok()
}

/// The outcome of user code. A fault that happened behind its `forward`, or in its `emit`, comes before its own.
fn outcome(ctx: &Ctx<'_>, result: Result<(), Failure>) -> Result<(), Fault> {
    match ctx.take_fault() {
        Some(fault) => Err(fault),
        None => result.map_err(Fault::user),
    }
}

/// Processes records, and forwards records with keys of its own.
pub(crate) struct Process<K, V, P, F> {
    made: Made<P, F>,
    stores: Arc<[usize]>,
    types: PhantomData<fn(K, V)>,
}

impl<K, V, P: Processor<K, V>, F: Fn() -> P> Process<K, V, P, F> {
    pub(crate) fn new(make: Arc<F>, stores: Arc<[usize]>) -> Self {
        let lifecycle = Lifecycle {
            init: P::init,
            on_discard: P::on_discard,
            close: P::close,
        };
        Self {
            made: Made::new(make, lifecycle),
            stores,
            types: PhantomData,
        }
    }
}

impl<K, V, P, F> Node for Process<K, V, P, F>
where
    K: 'static,
    V: 'static,
    P: Processor<K, V>,
    F: Fn() -> P + Send + Sync,
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
        let processor = self.made.touch(ctx.task())?;
        let headers = record.headers.clone();
        let ctx = ctx.of(record.timestamp, &headers, &self.stores);
        let ctx = ProcessCtx::new(ctx, next.borrowed());
        let result = processor.process(&ctx, record);
        outcome(&ctx, result)
    }

    fn committed(&mut self) {
        self.made.touched = false;
    }

    fn discard(&mut self) {
        self.made.discard();
    }

    fn close(&mut self) {
        self.made.close();
    }
}

/// Processes records, and forwards values with the keys that they came with.
pub(crate) struct ProcessValues<K, V, P, F> {
    made: Made<P, F>,
    stores: Arc<[usize]>,
    types: PhantomData<fn(K, V)>,
}

impl<K, V, P: ValueProcessor<K, V>, F: Fn() -> P> ProcessValues<K, V, P, F> {
    pub(crate) fn new(make: Arc<F>, stores: Arc<[usize]>) -> Self {
        let lifecycle = Lifecycle {
            init: P::init,
            on_discard: P::on_discard,
            close: P::close,
        };
        Self {
            made: Made::new(make, lifecycle),
            stores,
            types: PhantomData,
        }
    }
}

impl<K, V, P, F> Node for ProcessValues<K, V, P, F>
where
    K: Clone + 'static,
    V: 'static,
    P: ValueProcessor<K, V>,
    F: Fn() -> P + Send + Sync,
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
        let processor = self.made.touch(ctx.task())?;
        let (value, rest) = record.split();
        let ctx = ctx.of(rest.timestamp, &rest.headers, &self.stores);
        let ctx = ValuesCtx::new(ctx, next.borrowed(), &rest.key);
        let result = processor.process(&ctx, rest.lent(value));
        outcome(&ctx, result)
    }

    fn committed(&mut self) {
        self.made.touched = false;
    }

    fn discard(&mut self) {
        self.made.discard();
    }

    fn close(&mut self) {
        self.made.close();
    }
}

/// Runs a closure that ends a chain.
pub(crate) struct ForEach<K, V, F> {
    f: Arc<F>,
    stores: Arc<[usize]>,
    types: PhantomData<fn(K, V)>,
}

impl<K, V, F> ForEach<K, V, F> {
    pub(crate) fn new(f: Arc<F>, stores: Arc<[usize]>) -> Self {
        Self {
            f,
            stores,
            types: PhantomData,
        }
    }
}

impl<K, V, F> Node for ForEach<K, V, F>
where
    K: 'static,
    V: 'static,
    F: Fn(&Ctx<'_>, Record<K, V>) -> Result<(), Failure> + Send + Sync,
{
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        _: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Some(record) = take::<K, V>(record) else {
            return Ok(());
        };
        let headers = record.headers.clone();
        let ctx = ctx.of(record.timestamp, &headers, &self.stores);
        let result = (self.f)(&ctx, record);
        outcome(&ctx, result)
    }
}

/// A closure as a processor: it keeps nothing.
pub(crate) struct Closure<F, K, V> {
    f: Arc<F>,
    types: PhantomData<fn(K, V)>,
}

impl<F, K, V> Closure<F, K, V> {
    pub(crate) fn new(f: Arc<F>) -> Self {
        Self {
            f,
            types: PhantomData,
        }
    }
}

impl<F, K, V, K2, V2> Processor<K, V> for Closure<F, K2, V2>
where
    F: Fn(&ProcessCtx<'_, K2, V2>, Record<K, V>) -> Result<(), Failure> + Send + Sync + 'static,
    K2: 'static,
    V2: 'static,
{
    type Key = K2;
    type Value = V2;

    fn process(
        &mut self,
        ctx: &ProcessCtx<'_, K2, V2>,
        record: Record<K, V>,
    ) -> Result<(), Failure> {
        (self.f)(ctx, record)
    }

    fn on_discard(&mut self) -> OnDiscard {
        OnDiscard::Keep
    }
}

/// A closure as a processor of values: it keeps nothing.
pub(crate) struct ValuesClosure<F, V> {
    f: Arc<F>,
    types: PhantomData<fn(V)>,
}

impl<F, V> ValuesClosure<F, V> {
    pub(crate) fn new(f: Arc<F>) -> Self {
        Self {
            f,
            types: PhantomData,
        }
    }
}

impl<F, K, V, V2> ValueProcessor<K, V> for ValuesClosure<F, V2>
where
    F: Fn(&ValuesCtx<'_, V2>, Record<&K, V>) -> Result<(), Failure> + Send + Sync + 'static,
    V2: 'static,
{
    type Value = V2;

    fn process(&mut self, ctx: &ValuesCtx<'_, V2>, record: Record<&K, V>) -> Result<(), Failure> {
        (self.f)(ctx, record)
    }

    fn on_discard(&mut self) -> OnDiscard {
        OnDiscard::Keep
    }
}

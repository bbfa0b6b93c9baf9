//! The node that ends a chain in user code.

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::fault::Fault;
use super::node::{Next, Node};
use super::nodes::take;
use crate::ctx::Ctx;
use crate::failure::Failure;
use crate::processor::{OnDiscard, Processor};
use crate::record::Record;

/// A processor, made when the first record comes: what its factory does wrong is then a fault of
/// that record, with a policy, and not one of the worker.
pub(crate) struct Process<K, V, P, F> {
    make: Arc<F>,
    processor: Option<P>,
    /// Whether it took a record since the last commit.
    touched: bool,
    types: PhantomData<fn(K, V)>,
}

impl<K, V, P, F> Process<K, V, P, F> {
    pub(crate) fn new(make: Arc<F>) -> Self {
        Self {
            make,
            processor: None,
            touched: false,
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
        _: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Some(record) = take::<K, V>(record) else {
            return Ok(());
        };
        let processor = match &mut self.processor {
            Some(processor) => processor,
            none => {
                let mut processor = (self.make)();
                processor.init(ctx.task()).map_err(Fault::user)?;
                none.insert(processor)
            }
        };
        self.touched = true;
        processor.process(ctx, record).map_err(Fault::user)
    }

    fn committed(&mut self) {
        self.touched = false;
    }

    fn discard(&mut self) {
        if !std::mem::take(&mut self.touched) {
            return;
        }
        let Some(mut processor) = self.processor.take() else {
            return;
        };
        // One that panics is dropped, as if it had asked for it.
        self.processor = guarded("on_discard", move || match processor.on_discard() {
            OnDiscard::Keep => Some(processor),
            OnDiscard::Rebuild => None,
        })
        .flatten();
        // One that stays has records of the open transaction behind it still: it is told again if
        // that is aborted.
        self.touched = self.processor.is_some();
    }

    fn close(&mut self) {
        if let Some(mut processor) = self.processor.take() {
            guarded("close", move || processor.close());
        }
    }
}

/// Runs user code that no record is to blame for. A panic in it must not end the worker: the work
/// of other tasks does not depend on it.
fn guarded<T>(what: &str, f: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(f));
    if done.is_err() {
        tracing::warn!("a processor panicked in `{what}` and was dropped");
    }
    done.ok()
}

/// A closure as a processor: it keeps nothing.
pub(crate) struct Closure<F>(pub(crate) Arc<F>);

impl<K, V, F> Processor<K, V> for Closure<F>
where
    F: for<'c> Fn(&Ctx<'c>, Record<K, V>) -> Result<(), Failure> + Send + Sync + 'static,
{
    fn process(&mut self, ctx: &Ctx<'_>, record: Record<K, V>) -> Result<(), Failure> {
        (self.0)(ctx, record)
    }

    fn on_discard(&mut self) -> OnDiscard {
        OnDiscard::Keep
    }
}

//! The node that runs user code with a context.

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use eos_protocol::{Clock, TaskId};

use super::fault::{DueOf, Fault};
use super::node::{Moment, Next, Node};
use super::nodes::take;
use crate::client::Headers;
use crate::ctx::Ctx;
use crate::failure::Failure;
use crate::panics::panic_text;
use crate::process_ctx::{ProcessCtx, ValuesCtx};
use crate::processors::{OnDiscard, Processor, ValueProcessor};
use crate::record::Record;
use crate::timer::{self, Due, Tick};

/// The error of a step that received a moment without a handler.
pub(super) const NO_HANDLER: &str =
    "the step has a timer, but no handler. Use `Stream::on_timer` instead of `Stream::with_timer`";

/// User code that takes records with a context: a [`Processor`], a [`ValueProcessor`], or a closure that ends a chain.
pub(crate) trait Step<K, V>: Send + 'static {
    fn init(&mut self, task: TaskId) -> Result<(), Failure>;

    fn process<'r>(
        &mut self,
        ctx: Ctx<'r>,
        next: Next<'r>,
        record: Record<K, V>,
    ) -> Result<(), Fault>;

    /// Handles a moment of a timer.
    fn on_timer<'r>(&mut self, ctx: Ctx<'r>, next: Next<'r>, due: Due<K>) -> Result<(), Fault>;

    /// Handles a tick.
    fn on_tick<'r>(
        &mut self,
        _ctx: Ctx<'r>,
        _next: Next<'r>,
        _timer: usize,
        _tick: Tick,
    ) -> Result<(), Fault> {
        Err(Fault::User(NO_HANDLER.into()))
    }

    fn on_discard(&mut self) -> OnDiscard;

    fn close(&mut self);
}

/// Returns the outcome of user code. A fault in its `forward` or `emit` takes precedence over its own error.
pub(super) fn outcome(ctx: &Ctx<'_>, result: Result<(), Failure>) -> Result<(), Fault> {
    match ctx.take_fault() {
        Some(fault) => Err(fault),
        None => result.map_err(Fault::user),
    }
}

/// Forwards records with new keys.
pub(crate) struct Records<P>(pub(crate) P);

impl<K, V, P: Processor<K, V>> Step<K, V> for Records<P> {
    fn init(&mut self, task: TaskId) -> Result<(), Failure> {
        self.0.init(task)
    }

    fn process<'r>(
        &mut self,
        ctx: Ctx<'r>,
        next: Next<'r>,
        record: Record<K, V>,
    ) -> Result<(), Fault> {
        let ctx = ProcessCtx::new(ctx, next);
        let result = self.0.process(&ctx, record);
        outcome(&ctx, result)
    }

    fn on_timer<'r>(&mut self, ctx: Ctx<'r>, next: Next<'r>, due: Due<K>) -> Result<(), Fault> {
        let ctx = ProcessCtx::new(ctx, next);
        let result = self.0.on_timer(&ctx, due);
        outcome(&ctx, result)
    }

    fn on_discard(&mut self) -> OnDiscard {
        self.0.on_discard()
    }

    fn close(&mut self) {
        self.0.close();
    }
}

/// Forwards values with their original keys.
pub(crate) struct Values<P>(pub(crate) P);

impl<K: Clone + 'static, V, P: ValueProcessor<K, V>> Step<K, V> for Values<P> {
    fn init(&mut self, task: TaskId) -> Result<(), Failure> {
        self.0.init(task)
    }

    fn process<'r>(
        &mut self,
        ctx: Ctx<'r>,
        next: Next<'r>,
        record: Record<K, V>,
    ) -> Result<(), Fault> {
        let (value, rest) = record.split();
        let ctx = ValuesCtx::new(ctx.borrowed(), next, &rest.key);
        let result = self.0.process(&ctx, rest.lent(value));
        outcome(&ctx, result)
    }

    fn on_timer<'r>(&mut self, ctx: Ctx<'r>, next: Next<'r>, due: Due<K>) -> Result<(), Fault> {
        let ctx = ValuesCtx::new(ctx.borrowed(), next, &due.key);
        let result = self.0.on_timer(&ctx, due.lent());
        outcome(&ctx, result)
    }

    fn on_discard(&mut self) -> OnDiscard {
        self.0.on_discard()
    }

    fn close(&mut self) {
        self.0.close();
    }
}

/// A closure that ends a chain.
pub(crate) struct End<F>(pub(crate) Arc<F>);

impl<K, V, F> Step<K, V> for End<F>
where
    F: Fn(&Ctx<'_>, Record<K, V>) -> Result<(), Failure> + Send + Sync + 'static,
{
    fn init(&mut self, _: TaskId) -> Result<(), Failure> {
        Ok(())
    }

    fn process<'r>(
        &mut self,
        ctx: Ctx<'r>,
        _: Next<'r>,
        record: Record<K, V>,
    ) -> Result<(), Fault> {
        let result = (self.0)(&ctx, record);
        outcome(&ctx, result)
    }

    fn on_timer<'r>(&mut self, _: Ctx<'r>, _: Next<'r>, _: Due<K>) -> Result<(), Fault> {
        Err(Fault::User(NO_HANDLER.into()))
    }

    fn on_discard(&mut self) -> OnDiscard {
        OnDiscard::Keep
    }

    fn close(&mut self) {}
}

/// The step of one task, created at the first record. So an error of its factory is a fault of that record, with a
/// policy, and not a fault of the worker.
pub(crate) struct Process<K, V, S, F> {
    make: Arc<F>,
    step: Option<S>,
    /// Whether it took a record since the last commit.
    touched: bool,
    /// The stores that the step may use.
    stores: Arc<[usize]>,
    /// The timers whose moments the step handles.
    timers: Arc<[usize]>,
    types: PhantomData<fn(K, V)>,
}

impl<K, V, S, F> Process<K, V, S, F> {
    pub(crate) fn new(make: Arc<F>, stores: Arc<[usize]>, timers: Arc<[usize]>) -> Self {
        Self {
            make,
            step: None,
            touched: false,
            stores,
            timers,
            types: PhantomData,
        }
    }
}

impl<K, V, S, F> Process<K, V, S, F>
where
    K: 'static,
    S: Step<K, V>,
    F: Fn() -> S + Send + Sync,
{
    fn step(&mut self, ctx: &Ctx<'_>) -> Result<&mut S, Fault> {
        self.touched = true;
        Ok(match &mut self.step {
            Some(step) => step,
            none => {
                let mut step = (self.make)();
                step.init(ctx.task()).map_err(Fault::user)?;
                none.insert(step)
            }
        })
    }

    /// Fails the unit if moments of a record's key come no later than the record: they are units of their own, and come
    /// first. The record would replace the moments that their handlers set.
    fn moments_first(&self, ctx: &Ctx<'_>, key: &K) -> Result<(), Fault> {
        let (mut timers, mut any_due) = (Vec::new(), false);
        for &index in self.timers.iter() {
            let own = timer::before_record(ctx, index, key).map_err(Fault::State)?;
            if let Some((timer, is_due)) = own {
                timers.push(timer);
                any_due |= is_due;
            }
        }
        match any_due {
            true => Err(Fault::MomentsFirst(timers)),
            false => Ok(()),
        }
    }

    fn handle(
        &mut self,
        ctx: &Ctx<'_>,
        moment: Moment<'_>,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        // A panic is the fault of the moment.
        let handled = catch_unwind(AssertUnwindSafe(|| self.run_handler(ctx, moment, next)));
        let handled = handled.unwrap_or_else(|panic| match ctx.take_fault() {
            Some(fault @ Fault::MomentsFirst(_)) => Err(fault),
            _ => Err(Fault::Panic(panic_text(&*panic))),
        });
        handled.map_err(|fault| match fault {
            // Moments of a later step come first.
            Fault::MomentsFirst(_) => fault,
            fault => blame(ctx, moment, fault),
        })
    }

    fn run_handler(
        &mut self,
        ctx: &Ctx<'_>,
        moment: Moment<'_>,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Moment {
            store: timer,
            key: encoded,
            at,
            fired,
            missed,
            ..
        } = moment;
        let (stores, headers) = (Arc::clone(&self.stores), Headers::new());
        let spec = ctx.state().specs.get(timer);
        let clock = spec.and_then(|spec| spec.clock).unwrap_or(Clock::Stream);
        let own = ctx.at_moment(clock, at, &headers, &stores);
        if spec.is_some_and(|spec| spec.period.is_some()) {
            let tick = Tick { at, missed, fired };
            return self.step(ctx)?.on_tick(own, next.borrowed(), timer, tick);
        }
        let due = Due {
            key: timer::decode_key(ctx, timer, encoded).map_err(Fault::State)?,
            at,
            fired,
            timer,
            encoded: encoded.to_vec(),
        };
        self.step(ctx)?.on_timer(own, next.borrowed(), due)
    }
}

impl<K, V, S, F> Node for Process<K, V, S, F>
where
    K: 'static,
    V: 'static,
    S: Step<K, V>,
    F: Fn() -> S + Send + Sync,
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
        if !self.timers.is_empty() && ctx.takes_moments() {
            self.moments_first(ctx, &record.key)?;
        }
        let stores = Arc::clone(&self.stores);
        let step = self.step(ctx)?;
        let headers = record.headers.clone();
        let ctx = ctx.of(record.timestamp, &headers, &stores);
        step.process(ctx, next.borrowed(), record)
    }

    fn due_stores(&self) -> &[usize] {
        &self.timers
    }

    fn due(&mut self, ctx: &Ctx<'_>, moment: Moment<'_>, next: &mut Next<'_>) -> Result<(), Fault> {
        self.handle(ctx, moment, next)
    }

    fn committed(&mut self) {
        self.touched = false;
    }

    fn discard(&mut self) {
        if !std::mem::take(&mut self.touched) {
            return;
        }
        let Some(mut step) = self.step.take() else {
            return;
        };
        // A step that panics is dropped, as if it had returned `Rebuild`.
        self.step = guarded("on_discard", move || match step.on_discard() {
            OnDiscard::Keep => Some(step),
            OnDiscard::Rebuild => None,
        })
        .flatten();
        // A kept step still has records of the open transaction: if that is aborted, `on_discard` is called again.
        self.touched = self.step.is_some();
    }

    fn close(&mut self) {
        if let Some(mut step) = self.step.take() {
            guarded("close", move || step.close());
        }
    }
}

/// Returns the fault of a timer's handler.
fn blame(ctx: &Ctx<'_>, moment: Moment<'_>, source: Fault) -> Fault {
    let spec = ctx.state().specs.get(moment.store);
    Fault::Due {
        name: spec.map_or_else(|| "?".into(), |spec| Arc::clone(&spec.name)),
        store: moment.store,
        key: moment.key.into(),
        at: moment.at,
        of: DueOf::Timer,
        source: Box::new(source),
    }
}

/// Runs user code outside of a record. A panic in it must not stop the worker, because the work of other tasks does not
/// depend on it.
fn guarded<T>(what: &str, f: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(f));
    if done.is_err() {
        tracing::warn!("a processor panicked in `{what}` and was dropped");
    }
    done.ok()
}

/// A closure as a processor without state.
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

/// A closure as a processor of values, without state.
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

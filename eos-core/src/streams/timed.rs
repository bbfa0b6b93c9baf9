//! Steps of closures with timers.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Stream;
use crate::ctx::Ctx;
use crate::failure::IntoOutcome;
use crate::keys::{Colocated, Scattered};
use crate::process_ctx::{ProcessCtx, ValuesCtx};
use crate::record::Record;
use crate::store_handle::StoreHandle;
use crate::timer::{Clock, Due, Tick, TimerHandle};
use crate::topology::{
    Closure, End, Handler, Handlers, Kind, Records, TickHandler, Ticks, Timed, Values,
    ValuesClosure,
};

impl<K: 'static, V: 'static, P> Stream<K, V, P> {
    /// Gives the next step a timer, whose moments its [`Processor::on_timer`](crate::Processor::on_timer) handles.
    ///
    /// The next step is [`process_with`](Self::process_with), [`process_values_with`](Self::process_values_with) or
    /// [`for_each_with`](Self::for_each_with). Steps of closures have [`on_timer`](Self::on_timer).
    pub fn with_timer(self, timer: &TimerHandle<K>) -> Self
    where
        P: Colocated,
    {
        self.give_timer(timer.app, timer.index)
    }

    /// Handles the moments of a timer in a closure, which may forward records to the step after the next one, use
    /// stores and emit to outputs.
    ///
    /// The closure belongs to the step that follows: `process`, `process_values` or `for_each`. It runs before later
    /// records of the same key. The worker removes the moment before the closure runs, so the closure may set it again.
    /// [`Ctx::timestamp`] returns the moment, and [`Ctx::headers`] is empty.
    ///
    /// ```
    /// # use eos_core::{App, Timer, Topic};
    /// # use std::time::Duration;
    /// # let mut app = App::new("a");
    /// let silent = app.timer(&Timer::<String>::wall_clock("silent"));
    /// app.source(&Topic::<String, String>::plain("heartbeats"))
    ///     .on_timer(&silent, |ctx, due| ctx.forward(due.key, "silent".to_owned()))
    ///     .process_values(move |ctx, beat| {
    ///         ctx.timer(&silent).set_in(beat.key, Duration::from_secs(300))
    ///     })
    ///     .to(&Topic::plain("alerts"));
    /// ```
    ///
    /// # Exactly-once
    /// The removal of a moment commits together with the effects of its closure.
    ///
    /// # Errors
    /// An error of the closure drops its effects. The strictest error policy of all sources of the task applies to the
    /// moment: the worker stops, skips the moment, retries it, or writes a dead letter. The dead letter has the key of the
    /// moment, a null value, and the header `eos-due` with the timer's name and the moment.
    pub fn on_timer<ForwardedKey: 'static, ForwardedValue: 'static, R: IntoOutcome>(
        self,
        timer: &TimerHandle<K>,
        f: impl Fn(&ProcessCtx<'_, ForwardedKey, ForwardedValue>, Due<K>) -> R + Send + Sync + 'static,
    ) -> WithTimers<K, V, ForwardedKey, ForwardedValue, P>
    where
        P: Colocated,
    {
        WithTimers {
            stream: self,
            handlers: Vec::new(),
            ticks: Vec::new(),
        }
        .on_timer(timer, f)
    }

    /// Calls a closure once per period in each task. It may forward records to the step after the next one, use stores
    /// and emit to outputs.
    ///
    /// The closure belongs to the step that follows: `process` or `for_each`. Ticks are at the multiples of the period
    /// since 1970. The first one is the next multiple after the first start of the task, or for [`Clock::Stream`], after
    /// its first record. The schedule is part of the task's state, under this name. It continues after restarts and moves.
    /// If several ticks become due while the task is away, or if stream time jumps over them, the closure runs once.
    /// [`Tick::missed`] is the number of the others.
    ///
    /// If the machine's clock is set back by less than a period, each tick runs once. If it is set back by more, ticks
    /// run again from the new time on.
    ///
    /// ```
    /// # use eos_core::timers::Clock;
    /// # use eos_core::{App, Topic};
    /// # use std::time::Duration;
    /// # let mut app = App::new("a");
    /// app.source(&Topic::<String, String>::plain("orders"))
    ///     .on_tick("alive", Clock::Wall, Duration::from_secs(60), |ctx, tick| {
    ///         ctx.forward(ctx.task().to_string(), tick.at.0)
    ///     })
    ///     .process(|_, _| ())
    ///     .to(&Topic::plain("alive"));
    /// ```
    ///
    /// # Exactly-once
    /// A tick commits together with the effects of its closure.
    ///
    /// # Errors
    /// As in [`on_timer`](Self::on_timer). A tick that is skipped or becomes a dead letter does not end the schedule.
    pub fn on_tick<ForwardedKey: 'static, ForwardedValue: 'static, R: IntoOutcome>(
        self,
        name: &str,
        clock: Clock,
        period: Duration,
        f: impl Fn(&ProcessCtx<'_, ForwardedKey, ForwardedValue>, Tick) -> R + Send + Sync + 'static,
    ) -> WithTicks<K, V, ForwardedKey, ForwardedValue, P> {
        WithTicks(WithTimers {
            stream: self,
            handlers: Vec::new(),
            ticks: Vec::new(),
        })
        .on_tick(name, clock, period, f)
    }
}

/// A stream whose next step has ticks, and maybe timers. Returned by [`Stream::on_tick`].
///
/// A tick belongs to no key, so a step that keeps keys (`process_values`) can't follow.
#[must_use = "the handler of a tick belongs to the `process` or `for_each` that follows it"]
pub struct WithTicks<K, V, ForwardedKey, ForwardedValue, P>(
    WithTimers<K, V, ForwardedKey, ForwardedValue, P>,
);

impl<K, V, ForwardedKey, ForwardedValue, P> WithTicks<K, V, ForwardedKey, ForwardedValue, P>
where
    K: 'static,
    V: 'static,
    ForwardedKey: 'static,
    ForwardedValue: 'static,
{
    /// Handles another tick. See [`Stream::on_tick`].
    pub fn on_tick<R: IntoOutcome>(
        self,
        name: &str,
        clock: Clock,
        period: Duration,
        f: impl Fn(&ProcessCtx<'_, ForwardedKey, ForwardedValue>, Tick) -> R + Send + Sync + 'static,
    ) -> Self {
        let mut inner = self.0;
        let (stream, tick) = inner.stream.with_tick(name, clock, period);
        let handler: TickHandler<ForwardedKey, ForwardedValue> =
            Box::new(move |ctx, tick| f(ctx, tick).into_outcome());
        inner.ticks.push((tick, handler));
        Self(WithTimers { stream, ..inner })
    }

    /// Handles the moments of a timer. See [`Stream::on_timer`].
    pub fn on_timer<R: IntoOutcome>(
        self,
        timer: &TimerHandle<K>,
        f: impl Fn(&ProcessCtx<'_, ForwardedKey, ForwardedValue>, Due<K>) -> R + Send + Sync + 'static,
    ) -> Self
    where
        P: Colocated,
    {
        Self(self.0.on_timer(timer, f))
    }

    /// Lets the next step use a store. See [`Stream::with_store`].
    pub fn with_store<S: StoreHandle>(self, store: &S) -> Self
    where
        P: Colocated,
    {
        Self(self.0.with_store(store))
    }

    /// Processes each record in a closure. See [`Stream::process`].
    pub fn process<R: IntoOutcome>(
        self,
        f: impl Fn(&ProcessCtx<'_, ForwardedKey, ForwardedValue>, Record<K, V>) -> R
        + Send
        + Sync
        + 'static,
    ) -> Stream<ForwardedKey, ForwardedValue, Scattered> {
        self.0.process(f)
    }
}

impl<K: 'static, V: 'static, P> WithTicks<K, V, Infallible, Infallible, P> {
    /// Ends the stream in a closure. See [`Stream::for_each`].
    pub fn for_each<R: IntoOutcome>(
        self,
        f: impl Fn(&Ctx<'_>, Record<K, V>) -> R + Send + Sync + 'static,
    ) {
        self.0.for_each(f);
    }
}

impl<K, V, ForwardedKey, ForwardedValue, P> fmt::Debug
    for WithTicks<K, V, ForwardedKey, ForwardedValue, P>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WithTicks").field(&self.0).finish()
    }
}

/// A stream whose next step has timers. Returned by [`Stream::on_timer`].
#[must_use = "the handler of a timer belongs to the `process`, `process_values` or `for_each` that follows it"]
pub struct WithTimers<K, V, ForwardedKey, ForwardedValue, P> {
    stream: Stream<K, V, P>,
    handlers: Vec<(usize, Handler<K, ForwardedKey, ForwardedValue>)>,
    ticks: Vec<(usize, TickHandler<ForwardedKey, ForwardedValue>)>,
}

impl<K, V, ForwardedKey, ForwardedValue, P> WithTimers<K, V, ForwardedKey, ForwardedValue, P>
where
    K: 'static,
    V: 'static,
    ForwardedKey: 'static,
    ForwardedValue: 'static,
{
    /// Handles the moments of another timer. See [`Stream::on_timer`].
    pub fn on_timer<R: IntoOutcome>(
        mut self,
        timer: &TimerHandle<K>,
        f: impl Fn(&ProcessCtx<'_, ForwardedKey, ForwardedValue>, Due<K>) -> R + Send + Sync + 'static,
    ) -> Self
    where
        P: Colocated,
    {
        let handler: Handler<K, ForwardedKey, ForwardedValue> =
            Box::new(move |ctx, due| f(ctx, due).into_outcome());
        self.handlers.push((timer.index, handler));
        Self {
            stream: self.stream.with_timer(timer),
            ..self
        }
    }

    /// Lets the next step use a store. See [`Stream::with_store`].
    pub fn with_store<S: StoreHandle>(self, store: &S) -> Self
    where
        P: Colocated,
    {
        Self {
            stream: self.stream.with_store(store),
            ..self
        }
    }

    /// Processes each record in a closure. See [`Stream::process`].
    pub fn process<R: IntoOutcome>(
        self,
        f: impl Fn(&ProcessCtx<'_, ForwardedKey, ForwardedValue>, Record<K, V>) -> R
        + Send
        + Sync
        + 'static,
    ) -> Stream<ForwardedKey, ForwardedValue, Scattered> {
        let f = Arc::new(
            move |ctx: &ProcessCtx<'_, ForwardedKey, ForwardedValue>, record: Record<K, V>| {
                f(ctx, record).into_outcome()
            },
        );
        let (handlers, ticks) = (Handlers::from(self.handlers), Ticks::from(self.ticks));
        self.stream.step(Kind::Process, move || {
            let closure = Closure::<_, ForwardedKey, ForwardedValue>::new(Arc::clone(&f));
            Timed::new(Records(closure), Arc::clone(&handlers), Arc::clone(&ticks))
        })
    }
}

impl<K, V, ForwardedValue, P> WithTimers<K, V, K, ForwardedValue, P>
where
    K: 'static,
    V: 'static,
    ForwardedValue: 'static,
{
    /// Processes each record in a closure that keeps its key. See [`Stream::process_values`]. A handler fails if it
    /// forwards another key than its own.
    pub fn process_values<R: IntoOutcome>(
        self,
        f: impl Fn(&ValuesCtx<'_, ForwardedValue>, Record<&K, V>) -> R + Send + Sync + 'static,
    ) -> Stream<K, ForwardedValue, P>
    where
        K: Clone,
    {
        let f = Arc::new(
            move |ctx: &ValuesCtx<'_, ForwardedValue>, record: Record<&K, V>| {
                f(ctx, record).into_outcome()
            },
        );
        let handlers = Handlers::from(self.handlers);
        self.stream.step(Kind::ProcessValues, move || {
            let closure = ValuesClosure::<_, ForwardedValue>::new(Arc::clone(&f));
            Timed::new(Values(closure), Arc::clone(&handlers), Arc::new([])).keeping_keys()
        })
    }
}

impl<K: 'static, V: 'static, P> WithTimers<K, V, Infallible, Infallible, P> {
    /// Ends the stream in a closure. See [`Stream::for_each`].
    pub fn for_each<R: IntoOutcome>(
        self,
        f: impl Fn(&Ctx<'_>, Record<K, V>) -> R + Send + Sync + 'static,
    ) {
        let f = Arc::new(move |ctx: &Ctx<'_>, record: Record<K, V>| f(ctx, record).into_outcome());
        let (handlers, ticks) = (Handlers::from(self.handlers), Ticks::from(self.ticks));
        let _end: Stream<(), (), P> = self.stream.step(Kind::ForEach, move || {
            Timed::new(
                End(Arc::clone(&f)),
                Arc::clone(&handlers),
                Arc::clone(&ticks),
            )
        });
    }
}

impl<K, V, ForwardedKey, ForwardedValue, P> fmt::Debug
    for WithTimers<K, V, ForwardedKey, ForwardedValue, P>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithTimers")
            .field("timers", &self.handlers.len())
            .field("ticks", &self.ticks.len())
            .finish_non_exhaustive()
    }
}

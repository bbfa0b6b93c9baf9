//! Steps that run user code with a context.

use std::convert::Infallible;
use std::sync::Arc;

use super::Stream;
use crate::ctx::Ctx;
use crate::failure::IntoOutcome;
use crate::keys::Scattered;
use crate::process_ctx::{ProcessCtx, ValuesCtx};
use crate::processors::{Processor, ValueProcessor};
use crate::record::Record;
use crate::topology::{Closure, End, Kind, Process, Records, Step, Values, ValuesClosure};

/// Steps with a context: for stores, outputs and several records at once.
impl<K: 'static, V: 'static, P> Stream<K, V, P> {
    /// Processes each record in a closure that forwards any number of records, with keys and values of any type.
    ///
    /// The closure's first [`forward`](ProcessCtx::forward) determines the types. The closure may change the key, so the
    /// records of one key are [`Scattered`] afterwards. [`process_values`](Self::process_values) keeps the key. The next
    /// steps run inside `forward`.
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// # let lines = Topic::<String, String>::plain("lines");
    /// app.source(&lines)
    ///     .process(|ctx, line| {
    ///         for word in line.value.split_whitespace() {
    ///             ctx.forward(word.to_owned(), 1_u64)?;
    ///         }
    ///         Ok(())
    ///     })
    ///     .to(&Topic::plain("words"));
    /// ```
    ///
    /// # Exactly-once
    /// Forwarded records, emitted records and changes of stores count together or not at all. A failure in a later step
    /// fails the record, even if the closure ignores the error of `forward`.
    pub fn process<ForwardedKey: 'static, ForwardedValue: 'static, R: IntoOutcome>(
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
        self.process_with(move || Closure::<_, ForwardedKey, ForwardedValue>::new(Arc::clone(&f)))
    }

    /// Like [`process`](Self::process), with a [`Processor`] for each task. `make` creates the processor, and a new one
    /// after an aborted transaction.
    pub fn process_with<T: Processor<K, V>>(
        self,
        make: impl Fn() -> T + Send + Sync + 'static,
    ) -> Stream<T::Key, T::Value, Scattered> {
        self.step(Kind::Process, move || Records(make()))
    }

    /// Processes each record in a closure that forwards any number of values with the record's key.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// let counts = app.store(&KeyValueStore::<String, u64>::plain("visits"));
    /// app.source(&Topic::<String, String>::plain("visits"))
    ///     .with_store(&counts)
    ///     .process_values(move |ctx, visit| {
    ///         let n = ctx.store(&counts).update(visit.key, |n| n.unwrap_or(0) + 1)?;
    ///         ctx.forward(format!("visit {n}: {}", visit.value))
    ///     })
    ///     .to(&Topic::plain("numbered-visits"));
    /// ```
    ///
    /// # Exactly-once
    /// See [`process`](Self::process).
    pub fn process_values<ForwardedValue: 'static, R: IntoOutcome>(
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
        self.process_values_with(move || ValuesClosure::<_, ForwardedValue>::new(Arc::clone(&f)))
    }

    /// Like [`process_values`](Self::process_values), with a [`ValueProcessor`] for each task.
    pub fn process_values_with<T: ValueProcessor<K, V>>(
        self,
        make: impl Fn() -> T + Send + Sync + 'static,
    ) -> Stream<K, T::Value, P>
    where
        K: Clone,
    {
        self.step(Kind::ProcessValues, move || Values(make()))
    }

    /// Ends the stream in a closure that may use stores and emit to any number of outputs.
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// # let lines = Topic::<String, String>::plain("lines");
    /// let (words, lengths) = (
    ///     app.output(&Topic::<String, String>::plain("words")),
    ///     app.output(&Topic::<String, u64>::plain("lengths")),
    /// );
    /// app.source(&lines).for_each(move |ctx, line| {
    ///     for word in line.value.split_whitespace() {
    ///         ctx.emit(&words, line.key.clone(), word.to_owned())?;
    ///     }
    ///     ctx.emit(&lengths, line.key, line.value.len() as u64)
    /// });
    /// ```
    ///
    /// # Exactly-once
    /// Emitted records and changes of stores count exactly once. The closure itself runs again after a crash or an
    /// aborted transaction.
    pub fn for_each<R: IntoOutcome>(
        self,
        f: impl Fn(&Ctx<'_>, Record<K, V>) -> R + Send + Sync + 'static,
    ) {
        let f = Arc::new(move |ctx: &Ctx<'_>, record: Record<K, V>| f(ctx, record).into_outcome());
        let _end: Stream<(), (), P> = self.step(Kind::ForEach, move || End(Arc::clone(&f)));
    }

    /// Ends the stream in processors that forward nothing: their `Key` and `Value` are [`Infallible`].
    pub fn for_each_with<T>(self, make: impl Fn() -> T + Send + Sync + 'static)
    where
        T: Processor<K, V, Key = Infallible, Value = Infallible>,
    {
        let _end: Stream<(), (), P> = self.step(Kind::ForEach, move || Records(make()));
    }

    /// A node that runs user code with the stores that this stream has.
    pub(super) fn step<S: Step<K, V>, L, U, Q>(
        mut self,
        kind: Kind,
        make: impl Fn() -> S + Send + Sync + 'static,
    ) -> Stream<L, U, Q> {
        let (make, stores) = (Arc::new(make), self.usable());
        let timers: Arc<[usize]> = std::mem::take(&mut self.timers).into();
        self.graph().handle_timers(&timers);
        self.then(kind, move || {
            let (make, stores) = (Arc::clone(&make), Arc::clone(&stores));
            Box::new(Process::<K, V, S, _>::new(
                make,
                stores,
                Arc::clone(&timers),
            ))
        })
    }
}

//! Processors: structs that process records.

use eos_protocol::TaskId;

use crate::failure::Failure;
use crate::process_ctx::{ProcessCtx, ValuesCtx};
use crate::record::Record;
use crate::timer::Due;

/// Processes the records of one task, and may keep state in memory between records.
///
/// Each task has its own processor. The factory given to [`Stream::process_with`](crate::Stream::process_with) creates
/// the processor when the task's first record arrives. Use [`Stream::process`](crate::Stream::process) for a step
/// without state.
///
/// ```
/// use eos_core::{App, Failure, ProcessCtx, Processor, Record, Topic};
///
/// /// Drops a reading that equals the previous one.
/// #[derive(Default)]
/// struct Changes {
///     last: Option<String>,
/// }
///
/// impl Processor<String, String> for Changes {
///     type Key = String;
///     type Value = String;
///
///     fn process(
///         &mut self,
///         ctx: &ProcessCtx<'_, String, String>,
///         record: Record<String, String>,
///     ) -> Result<(), Failure> {
///         if self.last.as_ref() != Some(&record.value) {
///             self.last = Some(record.value.clone());
///             ctx.forward_record(record)?;
///         }
///         Ok(())
///     }
/// }
///
/// let mut app = App::new("changes-v1");
/// app.source(&Topic::<String, String>::plain("readings"))
///     .process_with(Changes::default)
///     .to(&Topic::plain("changes"));
/// ```
///
/// # Exactly-once
/// Forwarded and emitted records count exactly once, and so do changes of a *store*
/// ([`Ctx::store`](crate::Ctx::store)). The fields of a processor are memory. They are lost in a crash and when the
/// task moves. After an aborted transaction the processor receives the same records again. Undo their effects on the
/// fields in [`on_discard`](Self::on_discard).
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not process records with a key of type `{K}` and a value of type `{V}`",
    label = "no `Processor<{K}, {V}>`",
    note = "implement `eos_core::Processor<{K}, {V}>` for it; `process_with` takes a closure that \
            makes one, `process` takes a closure that processes the records itself"
)]
pub trait Processor<K, V>: Send + 'static {
    /// The type of forwarded keys; [`Infallible`](std::convert::Infallible) if the processor forwards nothing.
    type Key: 'static;
    /// The type of forwarded values; [`Infallible`](std::convert::Infallible) if the processor forwards nothing.
    type Value: 'static;

    /// Called once, before the first record.
    ///
    /// # Errors
    /// A [`Failure`] fails the task's first record, and the [`ErrorPolicy`](crate::ErrorPolicy) of its source applies.
    /// The next record gets a new processor.
    fn init(&mut self, task: TaskId) -> Result<(), Failure> {
        let _ = task;
        Ok(())
    }

    /// Processes a record.
    ///
    /// # Errors
    /// A [`Failure`] fails the record. The effects of the record are dropped, and the
    /// [`ErrorPolicy`](crate::ErrorPolicy) of its source applies.
    fn process(
        &mut self,
        ctx: &ProcessCtx<'_, Self::Key, Self::Value>,
        record: Record<K, V>,
    ) -> Result<(), Failure>;

    /// Handles a due moment of a timer of this step ([`Stream::with_timer`](crate::Stream::with_timer)). It runs before
    /// a later record of the same key.
    ///
    /// # Errors
    /// A [`Failure`] drops the effects of this call. The strictest [`ErrorPolicy`](crate::ErrorPolicy) of all sources
    /// of the task applies to the moment.
    fn on_timer(
        &mut self,
        ctx: &ProcessCtx<'_, Self::Key, Self::Value>,
        due: Due<K>,
    ) -> Result<(), Failure> {
        let _ = (ctx, due);
        Err("the step has a timer, but no handler. Implement `Processor::on_timer`, or use `Stream::on_timer` before a \
             closure"
            .into())
    }

    /// Called when records since the last commit do not count, because the transaction was aborted, the last record
    /// failed, or due moments of a timer run before the last record. The processor may receive the records again. Called only if the processor received any of them.
    ///
    /// By default the factory creates a new processor.
    fn on_discard(&mut self) -> OnDiscard {
        OnDiscard::Rebuild
    }

    /// Called when the task moves to another worker or the app stops. Not called in a crash, nor for a processor that
    /// is rebuilt.
    fn close(&mut self) {}
}

/// A processor that is chosen at run time: `process_with(|| if fast { Box::new(a) as _ } else { .. })`.
#[diagnostic::do_not_recommend]
impl<K, V, P: Processor<K, V> + ?Sized> Processor<K, V> for Box<P> {
    type Key = P::Key;
    type Value = P::Value;

    fn init(&mut self, task: TaskId) -> Result<(), Failure> {
        (**self).init(task)
    }

    fn process(
        &mut self,
        ctx: &ProcessCtx<'_, P::Key, P::Value>,
        record: Record<K, V>,
    ) -> Result<(), Failure> {
        (**self).process(ctx, record)
    }

    fn on_timer(
        &mut self,
        ctx: &ProcessCtx<'_, P::Key, P::Value>,
        due: Due<K>,
    ) -> Result<(), Failure> {
        (**self).on_timer(ctx, due)
    }

    fn on_discard(&mut self) -> OnDiscard {
        (**self).on_discard()
    }

    fn close(&mut self) {
        (**self).close();
    }
}

/// A [`Processor`] that does not change keys. See
/// [`Stream::process_values_with`](crate::Stream::process_values_with).
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not process values with a key of type `{K}` and a value of type `{V}`",
    label = "no `ValueProcessor<{K}, {V}>`",
    note = "implement `eos_core::processor::ValueProcessor<{K}, {V}>` for it; `process_values_with` takes a closure that \
            makes one, `process_values` takes a closure that processes the records itself"
)]
pub trait ValueProcessor<K, V>: Send + 'static {
    /// The type of forwarded values.
    type Value: 'static;

    /// See [`Processor::init`].
    ///
    /// # Errors
    /// See [`Processor::init`].
    fn init(&mut self, task: TaskId) -> Result<(), Failure> {
        let _ = task;
        Ok(())
    }

    /// Processes a record with a borrowed key.
    ///
    /// # Errors
    /// See [`Processor::process`].
    fn process(
        &mut self,
        ctx: &ValuesCtx<'_, Self::Value>,
        record: Record<&K, V>,
    ) -> Result<(), Failure>;

    /// Handles a moment of a timer, and forwards values with its key. See [`Processor::on_timer`].
    ///
    /// # Errors
    /// See [`Processor::on_timer`].
    fn on_timer(&mut self, ctx: &ValuesCtx<'_, Self::Value>, due: Due<&K>) -> Result<(), Failure> {
        let _ = (ctx, due);
        Err(
            "the step has a timer, but no handler. Implement `ValueProcessor::on_timer`, or use `Stream::on_timer` before \
             a closure"
                .into(),
        )
    }

    /// See [`Processor::on_discard`].
    fn on_discard(&mut self) -> OnDiscard {
        OnDiscard::Rebuild
    }

    /// See [`Processor::close`].
    fn close(&mut self) {}
}

#[diagnostic::do_not_recommend]
impl<K, V, P: ValueProcessor<K, V> + ?Sized> ValueProcessor<K, V> for Box<P> {
    type Value = P::Value;

    fn init(&mut self, task: TaskId) -> Result<(), Failure> {
        (**self).init(task)
    }

    fn process(
        &mut self,
        ctx: &ValuesCtx<'_, P::Value>,
        record: Record<&K, V>,
    ) -> Result<(), Failure> {
        (**self).process(ctx, record)
    }

    fn on_timer(&mut self, ctx: &ValuesCtx<'_, P::Value>, due: Due<&K>) -> Result<(), Failure> {
        (**self).on_timer(ctx, due)
    }

    fn on_discard(&mut self) -> OnDiscard {
        (**self).on_discard()
    }

    fn close(&mut self) {
        (**self).close();
    }
}

/// The fate of a processor after its last records were discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDiscard {
    /// The worker drops the processor, and the factory creates a new one for the next record.
    Rebuild,
    /// The worker keeps the processor. Its state does not depend on the discarded records, or it has undone them.
    Keep,
}

//! The layer below closures: structs that process records.

use eos_protocol::TaskId;

use crate::failure::Failure;
use crate::process_ctx::{ProcessCtx, ValuesCtx};
use crate::record::Record;

/// Processes the records of one task, and may keep state of its own between them.
///
/// Each task has a processor of its own. The factory given to
/// [`Stream::process_with`](crate::Stream::process_with) makes it when the task's first record comes.
/// [`Stream::process`](crate::Stream::process) is the short form for a step that keeps nothing.
///
/// ```
/// use eos_core::{App, Failure, ProcessCtx, Processor, Record, Topic};
///
/// /// Leaves out a reading that equals the one before it.
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
/// What a processor forwards or emits counts exactly once. Its fields are memory: they are gone after a crash or when
/// the task moves, and an aborted transaction gives it records again that it has seen.
/// [`on_discard`](Self::on_discard) is where it takes them back. A *store* counts exactly once, too:
/// [`Ctx::store`](crate::Ctx::store).
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not process records with a key of type `{K}` and a value of type `{V}`",
    label = "no `Processor<{K}, {V}>`",
    note = "implement `eos_core::Processor<{K}, {V}>` for it; `process_with` takes a closure that \
            makes one, `process` takes a closure that processes the records itself"
)]
pub trait Processor<K, V>: Send + 'static {
    /// The keys that it forwards; [`Infallible`](std::convert::Infallible) if it forwards nothing.
    type Key: 'static;
    /// The values that it forwards; [`Infallible`](std::convert::Infallible) if it forwards nothing.
    type Value: 'static;

    /// Called once, before the first record.
    ///
    /// # Errors
    /// A [`Failure`] is one of the record that was to come first: its
    /// [`ErrorPolicy`](crate::ErrorPolicy) decides, and the next record begins with a new processor.
    fn init(&mut self, task: TaskId) -> Result<(), Failure> {
        let _ = task;
        Ok(())
    }

    /// Processes a record.
    ///
    /// # Errors
    /// A [`Failure`] fails the record: its effects are dropped and its
    /// [`ErrorPolicy`](crate::ErrorPolicy) decides.
    fn process(
        &mut self,
        ctx: &ProcessCtx<'_, Self::Key, Self::Value>,
        record: Record<K, V>,
    ) -> Result<(), Failure>;

    /// The records since the last commit do not count: the transaction was aborted, or the last one
    /// failed. Called only if this processor took any of them; they may come again.
    ///
    /// By default its factory makes a new one.
    fn on_discard(&mut self) -> OnDiscard {
        OnDiscard::Rebuild
    }

    /// The task moves away, or the app stops. Not called when the process dies, nor for a processor
    /// that is rebuilt.
    fn close(&mut self) {}
}

/// A processor that is chosen when the program runs: `process_with(|| if fast { Box::new(a) as _ } else { .. })`.
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

    fn on_discard(&mut self) -> OnDiscard {
        (**self).on_discard()
    }

    fn close(&mut self) {
        (**self).close();
    }
}

/// A [`Processor`] that keeps the keys of its records: see
/// [`Stream::process_values_with`](crate::Stream::process_values_with).
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not process values with a key of type `{K}` and a value of type `{V}`",
    label = "no `ValueProcessor<{K}, {V}>`",
    note = "implement `eos_core::processor::ValueProcessor<{K}, {V}>` for it; `process_values_with` takes a closure that \
            makes one, `process_values` takes a closure that processes the records itself"
)]
pub trait ValueProcessor<K, V>: Send + 'static {
    /// The values that it forwards.
    type Value: 'static;

    /// As [`Processor::init`].
    ///
    /// # Errors
    /// As there.
    fn init(&mut self, task: TaskId) -> Result<(), Failure> {
        let _ = task;
        Ok(())
    }

    /// Processes a record, whose key is lent.
    ///
    /// # Errors
    /// As [`Processor::process`].
    fn process(
        &mut self,
        ctx: &ValuesCtx<'_, Self::Value>,
        record: Record<&K, V>,
    ) -> Result<(), Failure>;

    /// As [`Processor::on_discard`].
    fn on_discard(&mut self) -> OnDiscard {
        OnDiscard::Rebuild
    }

    /// As [`Processor::close`].
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

    fn on_discard(&mut self) -> OnDiscard {
        (**self).on_discard()
    }

    fn close(&mut self) {
        (**self).close();
    }
}

/// What becomes of a processor whose last records do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDiscard {
    /// It is dropped, and its factory makes a new one for the next record.
    Rebuild,
    /// It goes on: what it keeps does not depend on those records, or it has taken them back.
    Keep,
}

//! The layer below closures: structs that process records.

use eos_protocol::TaskId;

use crate::ctx::Ctx;
use crate::failure::Failure;
use crate::record::Record;

/// Processes the records of one task, and may keep something of its own between them.
///
/// Each task has a processor of its own, made by the factory that was given to
/// [`Stream::process_with`](crate::Stream::process_with) when the task's first record comes.
/// [`Stream::process`](crate::Stream::process) is the short form for what keeps nothing.
///
/// ```
/// use eos_core::{App, Ctx, Failure, Output, Processor, Record, Topic};
///
/// /// Leaves out what is the same as the record before it.
/// struct Changes {
///     out: Output<String, String>,
///     last: Option<String>,
/// }
///
/// impl Processor<String, String> for Changes {
///     fn process(&mut self, ctx: &Ctx<'_>, record: Record<String, String>) -> Result<(), Failure> {
///         if self.last.as_ref() != Some(&record.value) {
///             self.last = Some(record.value.clone());
///             ctx.emit_record(&self.out, record)?;
///         }
///         Ok(())
///     }
/// }
///
/// let mut app = App::new("changes-v1");
/// let out = app.output(&Topic::plain("changes"));
/// app.source(&Topic::plain("readings"))
///     .process_with(move || Changes { out, last: None });
/// ```
///
/// # Exactly-once
/// What a processor emits counts exactly once. What it keeps in its fields is memory: it is gone
/// after a crash or when the task moves, and an aborted transaction gives it records again that it
/// has seen. [`on_discard`](Self::on_discard) is where it takes them back. What a *store* keeps counts
/// exactly once, too: [`Ctx::store`]. (Timers are still to come.)
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not process records with a key of type `{K}` and a value of type `{V}`",
    label = "no `Processor<{K}, {V}>`",
    note = "implement `eos_core::Processor<{K}, {V}>` for it; `process_with` takes a closure that \
            makes one, `process` takes a closure that processes the records itself"
)]
pub trait Processor<K, V>: Send + 'static {
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
    /// A [`Failure`] fails the record: what it emitted is dropped and its
    /// [`ErrorPolicy`](crate::ErrorPolicy) decides.
    fn process(&mut self, ctx: &Ctx<'_>, record: Record<K, V>) -> Result<(), Failure>;

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

/// What becomes of a processor whose last records do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDiscard {
    /// It is dropped, and its factory makes a new one for the next record.
    Rebuild,
    /// It goes on: what it keeps does not depend on those records, or it has taken them back.
    Keep,
}

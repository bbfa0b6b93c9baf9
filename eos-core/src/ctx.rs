//! The one thing that causes effects.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use eos_protocol::{Offset, Partition, TaskId, Timestamp, TopicPartition};

use crate::client::Headers;
use crate::failure::Failure;
use crate::output::Output;
use crate::record::Record;
use crate::store::{KeyValueView, StateAccess, StateError, WindowView};
use crate::topic::WritableTopic;
use crate::topology::{EncodeError, Fault, OutputSpec, Scratch};

/// Where the record at hand came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'r> {
    pub(crate) task: TaskId,
    pub(crate) partition: &'r TopicPartition,
    pub(crate) offset: Offset,
    pub(crate) timestamp: Option<Timestamp>,
    /// The highest time of the task's records, this one included.
    pub(crate) stream_time: Option<Timestamp>,
    pub(crate) headers: &'r Headers,
}

/// Neither `Send` nor `Sync`, and invariant in its lifetime.
type Brand<'r> = (BelongsToOneRecord, fn(&'r ()) -> &'r ());

/// The compiler shows this name when a program sends a context to another thread.
struct BelongsToOneRecord(
    #[allow(
        dead_code,
        reason = "never read: its type makes the context neither Send nor Sync"
    )]
    *mut (),
);

/// The context of one record: what may be done while it is processed.
///
/// Only the runtime makes one, it can't be kept beyond its record and can't be sent to another
/// thread. So nothing can be written outside a transaction. Its methods take `&self`: what you emit
/// is collected, and counts once the record is done: after every chain that reads its topic has
/// taken it without an error. A record that fails leaves no trace.
pub struct Ctx<'r> {
    app: u64,
    outputs: &'r [OutputSpec],
    /// By output.
    partitions: &'r [u32],
    scratch: &'r RefCell<Scratch>,
    state: StateAccess<'r>,
    origin: Origin<'r>,
    /// Of the record that the step was given.
    timestamp: Option<Timestamp>,
    headers: &'r Headers,
    /// Those that the step may use.
    stores: &'r [usize],
    brand: PhantomData<Brand<'r>>,
}

impl<'r> Ctx<'r> {
    pub(crate) fn new(
        app: u64,
        (outputs, partitions): (&'r [OutputSpec], &'r [u32]),
        scratch: &'r RefCell<Scratch>,
        state: StateAccess<'r>,
        origin: Origin<'r>,
    ) -> Self {
        Self {
            app,
            outputs,
            partitions,
            scratch,
            state,
            origin,
            timestamp: origin.timestamp,
            headers: origin.headers,
            stores: &[],
            brand: PhantomData,
        }
    }

    /// The same, for a result of another time.
    pub(crate) fn at(&self, timestamp: Option<Timestamp>) -> Ctx<'_> {
        self.of(timestamp, self.headers, &[])
    }

    /// The same, for a step that may use these stores and was given a record with this time and these headers.
    pub(crate) fn of<'a>(
        &'a self,
        timestamp: Option<Timestamp>,
        headers: &'a Headers,
        stores: &'a [usize],
    ) -> Ctx<'a> {
        Ctx {
            app: self.app,
            outputs: self.outputs,
            partitions: self.partitions,
            scratch: self.scratch,
            state: self.state,
            origin: self.origin,
            timestamp,
            headers,
            stores,
            brand: PhantomData,
        }
    }

    /// The fault of the record that user code may have ignored.
    pub(crate) fn take_fault(&self) -> Option<Fault> {
        self.scratch.borrow_mut().fault.take()
    }

    /// Keeps a fault, so that the record fails whatever user code does with the failure that this returns.
    pub(crate) fn fail(&self, fault: Fault) -> Failure {
        let failure = Failure::from(fault.to_string());
        self.scratch.borrow_mut().fault.get_or_insert(fault);
        failure
    }

    /// Emits a record to an output, with the time and the headers of the record at hand.
    ///
    /// The key decides the partition as Java's default partitioner does; a null key stays at the
    /// partition number of the input.
    ///
    /// # Exactly-once
    /// It is written in the transaction that also commits the input's offset: both or none.
    ///
    /// # Errors
    /// If key or value can't be encoded, or the output belongs to another app. Return it with `?`. The record fails
    /// even if the error is ignored, and its [`ErrorPolicy`](crate::ErrorPolicy) decides.
    #[must_use = "return it with `?`: the record has failed if this is an error"]
    pub fn emit<K: 'static, V: 'static>(
        &self,
        output: &Output<K, V>,
        key: K,
        value: V,
    ) -> Result<(), Failure> {
        self.emit_record(output, self.record(key, value))
    }

    /// A record with the time and the headers of the one at hand.
    pub(crate) fn record<K, V>(&self, key: K, value: V) -> Record<K, V> {
        Record {
            key,
            value,
            timestamp: self.timestamp,
            headers: self.headers.clone(),
        }
    }

    /// Emits a record with a time and headers of its own. Without a time it gets that of the record at hand.
    ///
    /// # Errors
    /// As [`Ctx::emit`].
    #[must_use = "return it with `?`: the record has failed if this is an error"]
    pub fn emit_record<K: 'static, V: 'static>(
        &self,
        output: &Output<K, V>,
        record: Record<K, V>,
    ) -> Result<(), Failure> {
        let topic = (output.app == self.app)
            .then(|| {
                self.outputs
                    .get(output.index)?
                    .topic
                    .downcast_ref::<Arc<dyn WritableTopic<K, V>>>()
            })
            .flatten();
        let Some(topic) = topic else {
            return Err(self.fail(Fault::User(Failure::from(
                "this output was made by another app: make it with `app.output(..)` of this one",
            ))));
        };
        let Record {
            key,
            value,
            timestamp,
            headers,
        } = record;
        let timestamp = timestamp.or(self.timestamp);
        self.write(output.index, &**topic, &key, &value, timestamp, headers)
            .map_err(|fault| self.fail(fault))
    }

    /// A store that the step may use.
    pub(crate) fn usable(&self, app: u64, index: usize) -> Result<usize, StateError> {
        if app != self.app {
            return Err(StateError::OtherApp);
        }
        if self.stores.contains(&index) {
            return Ok(index);
        }
        let store = self.state.specs.get(index).ok_or(StateError::OtherApp)?;
        Err(StateError::Elsewhere {
            store: Arc::clone(&store.name),
        })
    }

    pub(crate) fn windows_at<K: 'static, V: 'static>(&self, index: usize) -> WindowView<'_, K, V> {
        WindowView::new(&self.state, index, self.origin.stream_time)
    }

    /// The record came too late for a window.
    pub(crate) fn came_late(&self) {
        self.scratch.borrow_mut().came_late();
    }

    pub(crate) fn store_at<K: 'static, V: 'static>(&self, index: usize) -> KeyValueView<'_, K, V> {
        KeyValueView::new(&self.state, index)
    }

    pub(crate) fn write<K, V>(
        &self,
        output: usize,
        topic: &(impl WritableTopic<K, V> + ?Sized),
        key: &K,
        value: &V,
        timestamp: Option<Timestamp>,
        headers: Headers,
    ) -> Result<(), Fault> {
        let partitions = self.partitions.get(output).copied().unwrap_or(1).max(1);
        let chosen = topic.choose(key, partitions);
        if let Some(chosen) = chosen.filter(|chosen| *chosen >= partitions) {
            return Err(Fault::Partition {
                topic: topic.name().clone(),
                chosen,
                partitions,
            });
        }
        self.scratch
            .borrow_mut()
            .write(output, topic, (key, chosen), value, timestamp, headers)
            .map_err(|source| {
                Fault::Encode(EncodeError {
                    topic: topic.name().clone(),
                    source,
                })
            })
    }

    /// The task that processes the record.
    #[must_use]
    pub fn task(&self) -> TaskId {
        self.origin.task
    }

    /// The topic of the record.
    #[must_use]
    pub fn topic(&self) -> &str {
        self.origin.partition.topic.as_str()
    }

    /// The partition of the record.
    #[must_use]
    pub fn partition(&self) -> Partition {
        self.origin.partition.partition
    }

    /// The offset of the record.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.origin.offset
    }

    /// The time of the record that this step was given, in milliseconds since 1970; `None` if it carries none.
    #[must_use]
    pub fn timestamp(&self) -> Option<Timestamp> {
        self.timestamp
    }

    /// The highest time of all records that the task has taken, this one included; `None` as long as none
    /// had a time. It never goes back, whatever order records come in, and it commits with the offsets:
    /// a crash does not change it. Records that a filter drops are taken, too; those that fail are not.
    ///
    /// It is what windows go by: they close when it passes their end and grace.
    #[must_use]
    pub fn stream_time(&self) -> Option<Timestamp> {
        self.origin.stream_time
    }

    /// The headers of the record that this step was given.
    #[must_use]
    pub fn headers(&self) -> &Headers {
        self.headers
    }

    /// The record as it was fetched. A step before this one may have changed its time and its headers.
    #[must_use]
    pub fn source(&self) -> SourceRecord<'_> {
        SourceRecord {
            timestamp: self.origin.timestamp,
            headers: self.origin.headers,
        }
    }

    /// Exists for its message only: the context of `for_each` does not forward.
    #[doc(hidden)]
    #[allow(
        clippy::unused_self,
        clippy::missing_errors_doc,
        reason = "it is never called"
    )]
    pub fn forward<K, V>(&self, _key: K, _value: V) -> Result<(), Failure>
    where
        Self: Forwards,
    {
        Ok(())
    }
}

/// No context implements it: see [`Ctx::forward`].
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a `Ctx` does not forward: `for_each` ends the stream",
    label = "nothing comes after this step",
    note = "use `process(..)`, or `process_values(..)` to keep the key: both return a stream",
    note = "a function that forwards takes `&ProcessCtx<'_, K, V>` or `&ValuesCtx<'_, V>`"
)]
pub trait Forwards {}

/// Time and headers of a record as it was fetched. Made by [`Ctx::source`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct SourceRecord<'r> {
    /// Milliseconds since 1970; `None` if the record carries no time.
    pub timestamp: Option<Timestamp>,
    /// The headers.
    pub headers: &'r Headers,
}

impl fmt::Debug for Ctx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ctx")
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

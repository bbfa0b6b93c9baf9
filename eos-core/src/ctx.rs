//! The one thing that causes effects.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use eos_protocol::{Offset, Partition, TaskId, Timestamp, TopicPartition};

use crate::client::Headers;
use crate::failure::Failure;
use crate::output::Output;
use crate::record::Record;
use crate::store::{KeyValueView, StateAccess, StateError, StoreHandle, WindowView};
use crate::topic::WritableTopic;
use crate::topology::{EncodeError, Fault, Next, OutputSpec, Scratch};

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

/// Its name is what the compiler shows to whoever sends a context away.
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
        outputs: &'r [OutputSpec],
        scratch: &'r RefCell<Scratch>,
        state: StateAccess<'r>,
        origin: Origin<'r>,
    ) -> Self {
        Self {
            app,
            outputs,
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
    fn fail(&self, fault: Fault) -> Failure {
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
    fn record<K, V>(&self, key: K, value: V) -> Record<K, V> {
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
            .map_err(|error| self.fail(Fault::Encode(error)))
    }

    /// A store, to read and to write for this record. The stream needs
    /// [`with_store`](crate::Stream::with_store).
    ///
    /// # Exactly-once
    /// Changes count in the transaction that also commits the input's offset and writes the outputs: all or nothing.
    pub fn store<S: StoreHandle>(&self, store: &S) -> S::View<'_> {
        store.view(self)
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
    ) -> Result<(), EncodeError> {
        self.scratch
            .borrow_mut()
            .write(output, topic, key, value, timestamp, headers)
            .map_err(|source| EncodeError {
                topic: topic.name().clone(),
                source,
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

/// The context of a record in [`Stream::process`](crate::Stream::process): forwards records to the next step.
///
/// It derefs to [`Ctx`], so functions that take `&Ctx<'_>` accept it.
pub struct ProcessCtx<'r, K, V> {
    ctx: Ctx<'r>,
    next: RefCell<Next<'r>>,
    types: PhantomData<fn(K, V)>,
}

impl<'r, K: 'static, V: 'static> ProcessCtx<'r, K, V> {
    pub(crate) fn new(ctx: Ctx<'r>, next: Next<'r>) -> Self {
        Self {
            ctx,
            next: RefCell::new(next),
            types: PhantomData,
        }
    }

    /// Forwards a key and a value, with the time and the headers of the record at hand. The steps behind this one run
    /// before `forward` returns (depth first, as in Kafka Streams).
    ///
    /// # Errors
    /// If a step behind this one failed. The record fails even if the error is ignored; return it with `?`.
    #[must_use = "return it with `?`: the record has failed if this is an error"]
    pub fn forward(&self, key: K, value: V) -> Result<(), Failure> {
        self.forward_record(self.ctx.record(key, value))
    }

    /// Forwards a record with a time and headers of its own. Without a time it gets that of the record at hand.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    #[must_use = "return it with `?`: the record has failed if this is an error"]
    pub fn forward_record(&self, record: Record<K, V>) -> Result<(), Failure> {
        forward(&self.ctx, &self.next, record)
    }
}

impl<'r, K, V> Deref for ProcessCtx<'r, K, V> {
    type Target = Ctx<'r>;

    fn deref(&self) -> &Ctx<'r> {
        &self.ctx
    }
}

impl<K, V> fmt::Debug for ProcessCtx<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProcessCtx").field(&self.ctx).finish()
    }
}

/// The context of a record in [`Stream::process_values`](crate::Stream::process_values): forwards values with the
/// record's key to the next step.
///
/// It derefs to [`Ctx`], so functions that take `&Ctx<'_>` accept it.
pub struct ValuesCtx<'r, V> {
    ctx: Ctx<'r>,
    next: RefCell<Next<'r>>,
    key: &'r dyn Any,
    forward: ForwardValue<V>,
}

/// Forwards a value, time and headers with a clone of a key, whose type it knows.
type ForwardValue<V> = fn(
    &Ctx<'_>,
    &RefCell<Next<'_>>,
    &dyn Any,
    V,
    Option<Timestamp>,
    Headers,
) -> Result<(), Failure>;

impl<'r, V: 'static> ValuesCtx<'r, V> {
    pub(crate) fn new<K: Clone + 'static>(ctx: Ctx<'r>, next: Next<'r>, key: &'r K) -> Self {
        Self {
            ctx,
            next: RefCell::new(next),
            key,
            forward: |ctx, next, key, value, timestamp, headers| {
                let Some(key) = key.downcast_ref::<K>() else {
                    return Ok(());
                };
                let key = key.clone();
                let record = Record {
                    key,
                    value,
                    timestamp,
                    headers,
                };
                forward(ctx, next, record)
            },
        }
    }

    /// Forwards a value, with the key, the time and the headers of the record at hand. The steps behind this one run
    /// before `forward` returns (depth first, as in Kafka Streams). Each call clones the key.
    ///
    /// # Errors
    /// If a step behind this one failed. The record fails even if the error is ignored; return it with `?`.
    #[must_use = "return it with `?`: the record has failed if this is an error"]
    pub fn forward(&self, value: V) -> Result<(), Failure> {
        let (timestamp, headers) = (self.ctx.timestamp, self.ctx.headers.clone());
        (self.forward)(&self.ctx, &self.next, self.key, value, timestamp, headers)
    }

    /// Forwards a record with a time and headers of its own, under the key that was lent. Without a time it gets that
    /// of the record at hand.
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// app.source(&Topic::<String, String>::plain("lines"))
    ///     .process_values(|ctx, line| ctx.forward_record(line.header("checked", "yes")))
    ///     .to(&Topic::plain("checked-lines"));
    /// ```
    ///
    /// # Errors
    /// If the key is not the one that the record at hand lends, or as [`forward`](Self::forward).
    #[must_use = "return it with `?`: the record has failed if this is an error"]
    pub fn forward_record<K: 'static>(&self, record: Record<&K, V>) -> Result<(), Failure> {
        let lent = self.key.downcast_ref::<K>();
        if !lent.is_some_and(|lent| std::ptr::eq(lent, record.key)) {
            return Err(self.ctx.fail(Fault::User(Failure::from(
                "`forward_record` of `process_values` was given another key than the record's: to change the key, \
                 use `process`",
            ))));
        }
        let timestamp = record.timestamp.or(self.ctx.timestamp);
        (self.forward)(
            &self.ctx,
            &self.next,
            self.key,
            record.value,
            timestamp,
            record.headers,
        )
    }
}

impl<'r, V> Deref for ValuesCtx<'r, V> {
    type Target = Ctx<'r>;

    fn deref(&self) -> &Ctx<'r> {
        &self.ctx
    }
}

impl<V> fmt::Debug for ValuesCtx<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ValuesCtx").field(&self.ctx).finish()
    }
}

/// Runs the steps behind a context's.
fn forward<K: 'static, V: 'static>(
    ctx: &Ctx<'_>,
    next: &RefCell<Next<'_>>,
    mut record: Record<K, V>,
) -> Result<(), Failure> {
    record.timestamp = record.timestamp.or(ctx.timestamp);
    // Nothing behind the step has this context, so it is never borrowed twice.
    let Ok(mut next) = next.try_borrow_mut() else {
        return Err(Failure::from("a step forwards while it forwards"));
    };
    let forwarded = next.forward(ctx, &mut Some(record));
    drop(next);
    forwarded.map_err(|fault| ctx.fail(fault))
}

impl fmt::Debug for Ctx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ctx")
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

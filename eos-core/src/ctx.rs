//! The one thing that causes effects.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use eos_protocol::{Offset, TaskId, Timestamp, TopicPartition};

use crate::client::Headers;
use crate::codec::OrderedKey;
use crate::failure::Failure;
use crate::output::Output;
use crate::record::Record;
use crate::store::{ByWindow, InOrder, OrderedView, StateAccess, Store, StoreView, WindowView};
use crate::topic::WritableTopic;
use crate::topology::{EncodeError, OutputSpec, Scratch};

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
            brand: PhantomData,
        }
    }

    /// The same, for a result of another time.
    pub(crate) fn at(&self, timestamp: Option<Timestamp>) -> Ctx<'_> {
        Ctx {
            app: self.app,
            outputs: self.outputs,
            scratch: self.scratch,
            state: self.state,
            origin: Origin {
                timestamp,
                ..self.origin
            },
            brand: PhantomData,
        }
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
    /// If key or value can't be encoded, or the output belongs to another app. Hand it on with `?`:
    /// the record fails then, and its [`ErrorPolicy`](crate::ErrorPolicy) decides. If you ignore it,
    /// the record goes on without this output, and counts.
    #[must_use = "hand it on with `?`: ignored, an output that can't be encoded is left out, and the \
                  record counts without it"]
    pub fn emit<K: 'static, V: 'static>(
        &self,
        output: &Output<K, V>,
        key: K,
        value: V,
    ) -> Result<(), Failure> {
        let (timestamp, headers) = (self.origin.timestamp, self.origin.headers.clone());
        self.emit_record(
            output,
            Record {
                key,
                value,
                timestamp,
                headers,
            },
        )
    }

    /// Emits a record with a time and headers of its own. Without a time it gets that of the record at hand.
    ///
    /// # Errors
    /// As [`Ctx::emit`].
    #[must_use = "hand it on with `?`: ignored, an output that can't be encoded is left out, and the \
                  record counts without it"]
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
            .flatten()
            .ok_or(
                "this output was made by another app: make it with `app.output(..)` of this one",
            )?;
        let Record {
            key,
            value,
            timestamp,
            headers,
        } = record;
        let timestamp = timestamp.or(self.origin.timestamp);
        Ok(self.write(output.index, &**topic, &key, &value, timestamp, headers)?)
    }

    /// A store, to read and to write for this record. The stream has to have it:
    /// [`Stream::with_store`](crate::Stream::with_store).
    ///
    /// # Exactly-once
    /// What is written counts in the transaction that also commits the input's offset and writes the
    /// outputs: all or nothing.
    pub fn store<K: 'static, V: 'static>(&self, store: &Store<K, V>) -> StoreView<'_, K, V> {
        if store.app == self.app {
            self.store_at(store.index)
        } else {
            StoreView::of_other_app()
        }
    }

    /// A store in the order of its keys, to read and to write for this record. The stream has to have
    /// it: [`Stream::with_store`](crate::Stream::with_store).
    pub fn ordered_store<K: OrderedKey, V: 'static>(
        &self,
        store: &Store<K, V, InOrder>,
    ) -> OrderedView<'_, K, V> {
        if store.app == self.app {
            OrderedView::new(&self.state, store.index)
        } else {
            OrderedView::of_other_app()
        }
    }

    /// A store of windows, to read and to write for this record. The stream has to have it:
    /// [`Stream::with_store`](crate::Stream::with_store).
    pub fn window_store<K: 'static, V: 'static>(
        &self,
        store: &Store<K, V, ByWindow>,
    ) -> WindowView<'_, K, V> {
        if store.app == self.app {
            self.windows_at(store.index)
        } else {
            WindowView::of_other_app()
        }
    }

    pub(crate) fn windows_at<K: 'static, V: 'static>(&self, index: usize) -> WindowView<'_, K, V> {
        WindowView::new(&self.state, index, self.origin.stream_time)
    }

    /// The record came too late for a window.
    pub(crate) fn came_late(&self) {
        self.scratch.borrow_mut().came_late();
    }

    pub(crate) fn store_at<K: 'static, V: 'static>(&self, index: usize) -> StoreView<'_, K, V> {
        StoreView::new(&self.state, index)
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
    pub fn partition(&self) -> i32 {
        self.origin.partition.partition.get()
    }

    /// The offset of the record.
    #[must_use]
    pub fn offset(&self) -> i64 {
        self.origin.offset.get()
    }

    /// The time of the record as it was read, in milliseconds since 1970; `None` if it carries
    /// none.
    #[must_use]
    pub fn timestamp(&self) -> Option<Timestamp> {
        self.origin.timestamp
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

    /// The headers of the record as it was read.
    #[must_use]
    pub fn headers(&self) -> &Headers {
        self.origin.headers
    }
}

impl fmt::Debug for Ctx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ctx")
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

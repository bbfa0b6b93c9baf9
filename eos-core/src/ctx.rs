//! The context of a record, which collects its effects.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use eos_protocol::identity::Seen;
use eos_protocol::{Clock, Offset, Partition, TaskId, Timestamp, TopicPartition};

use crate::client::Headers;
use crate::failure::Failure;
use crate::output::Output;
use crate::record::Record;
use crate::store::{KeyValueView, StateAccess, StateError, WindowView};
use crate::topic::WritableTopic;
use crate::topology::{EncodeError, Fault, OutputSpec, PreparedCall, Scratch};

/// The origin of the current record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'r> {
    pub(crate) task: TaskId,
    pub(crate) partition: &'r TopicPartition,
    pub(crate) offset: Offset,
    pub(crate) timestamp: Option<Timestamp>,
    /// The highest timestamp of the task's records, including this one.
    pub(crate) stream_time: Option<Timestamp>,
    /// The stream time up to which all due items are handled, if it is known: the one before this record.
    pub(crate) handled_to: Option<Timestamp>,
    /// The time of the machine's clock. `None` if no timer of the task uses it.
    pub(crate) wall_clock: Option<Timestamp>,
    /// Whether due moments of the record's key are handled before it.
    pub(crate) takes_moments: bool,
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

/// The context of one record: emits records, reads and writes stores.
///
/// Only the runtime creates a `Ctx`. A `Ctx` can't outlive its record and can't be sent to another thread, so
/// every write is part of a transaction. Emitted records are collected. They count once every chain that reads
/// the record's topic has processed the record without an error. A failed record has no effects.
pub struct Ctx<'r> {
    app: u64,
    outputs: &'r [OutputSpec],
    /// The number of partitions of each output.
    partitions: &'r [u32],
    scratch: &'r RefCell<Scratch>,
    state: StateAccess<'r>,
    origin: &'r Origin<'r>,
    /// The highest timestamp of the task's records, or the time of the current moment.
    stream_time: Option<Timestamp>,
    /// The timestamp of the record that the step received.
    timestamp: Option<Timestamp>,
    headers: &'r Headers,
    /// The stores that the step may use.
    stores: &'r [usize],
    brand: PhantomData<Brand<'r>>,
}

impl<'r> Ctx<'r> {
    pub(crate) fn new(
        app: u64,
        (outputs, partitions): (&'r [OutputSpec], &'r [u32]),
        scratch: &'r RefCell<Scratch>,
        state: StateAccess<'r>,
        origin: &'r Origin<'r>,
    ) -> Self {
        Self {
            app,
            outputs,
            partitions,
            scratch,
            state,
            origin,
            stream_time: origin.stream_time,
            timestamp: origin.timestamp,
            headers: origin.headers,
            stores: &[],
            brand: PhantomData,
        }
    }

    /// Returns the context for a result with another timestamp.
    pub(crate) fn at(&self, timestamp: Option<Timestamp>) -> Ctx<'_> {
        self.of(timestamp, self.headers, &[])
    }

    /// Returns the context with a shorter lifetime.
    pub(crate) fn borrowed(&self) -> Ctx<'_> {
        self.of(self.timestamp, self.headers, self.stores)
    }

    /// Returns the context for a step with these stores, and a record with this timestamp and these headers.
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
            stream_time: self.stream_time,
            timestamp,
            headers,
            stores,
            brand: PhantomData,
        }
    }

    /// Returns the origin of a record from another partition and offset, which has waited in a store. The stream time of a
    /// step is that of its context, not of this origin.
    pub(crate) fn origin_of<'a>(
        &'a self,
        (partition, offset): (&'a TopicPartition, Offset),
        timestamp: Option<Timestamp>,
        headers: &'a Headers,
    ) -> Origin<'a> {
        Origin {
            partition,
            offset,
            timestamp,
            headers,
            ..*self.origin
        }
    }

    /// Returns the context for a record of this origin.
    pub(crate) fn of_record<'a>(&'a self, origin: &'a Origin<'a>) -> Ctx<'a> {
        let mut ctx = self.of(origin.timestamp, origin.headers, &[]);
        ctx.origin = origin;
        ctx
    }

    /// Returns the context for a moment of a timer of this clock. The moment is its own stream time, but a moment that
    /// was set into the past sees no earlier time than the items before it.
    pub(crate) fn at_moment<'a>(
        &'a self,
        clock: Clock,
        at: Timestamp,
        headers: &'a Headers,
        stores: &'a [usize],
    ) -> Ctx<'a> {
        let mut ctx = self.of(Some(at), headers, stores);
        if clock == Clock::Stream {
            let handled_to = ctx.origin.handled_to.max(Some(at));
            ctx.stream_time = ctx.stream_time.min(handled_to);
        }
        ctx
    }

    /// Takes the fault of the record, which user code may have ignored.
    pub(crate) fn take_fault(&self) -> Option<Fault> {
        self.scratch.borrow_mut().fault.take()
    }

    /// Keeps a fault, so that the record fails even if user code ignores the returned failure.
    pub(crate) fn fail(&self, fault: Fault) -> Failure {
        let failure = Failure::from(fault.to_string());
        self.scratch.borrow_mut().fault.get_or_insert(fault);
        failure
    }

    /// Emits a record to an output, with the timestamp and the headers of the current record.
    ///
    /// The key decides the partition, as in Java's default partitioner. A record with a null key keeps the
    /// partition number of the input.
    ///
    /// # Exactly-once
    /// The record is written in the transaction that also commits the input's offset: both or none.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the key or the value can't be encoded, or if the output belongs to another app. Return
    /// the failure with `?`. The record fails even if the failure is ignored, and the
    /// [`ErrorPolicy`](crate::ErrorPolicy) of its source applies.
    #[must_use = "return it with `?`: the record has failed if this is an error"]
    pub fn emit<K: 'static, V: 'static>(
        &self,
        output: &Output<K, V>,
        key: K,
        value: V,
    ) -> Result<(), Failure> {
        self.emit_record(output, self.record(key, value))
    }

    /// Creates a record with the timestamp and the headers of the current record.
    pub(crate) fn record<K, V>(&self, key: K, value: V) -> Record<K, V> {
        Record {
            key,
            value,
            timestamp: self.timestamp,
            headers: self.headers.clone(),
        }
    }

    /// Emits a record with its own timestamp and headers. A record without a timestamp gets that of the current
    /// record.
    ///
    /// # Errors
    /// See [`Ctx::emit`].
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
                "the output belongs to another app. Declare it with `app.output(..)` of this app",
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
        let name = Arc::clone(&store.name);
        Err(match store.clock {
            Some(_) => StateError::TimerElsewhere { timer: name },
            None => StateError::Elsewhere { store: name },
        })
    }

    /// Returns whether due moments of the record's key are handled before it.
    pub(crate) fn takes_moments(&self) -> bool {
        self.origin.takes_moments
    }

    /// The stores of the task.
    pub(crate) fn state(&self) -> &StateAccess<'r> {
        &self.state
    }

    /// Returns the time of a clock.
    pub(crate) fn time_of(&self, clock: Clock) -> Option<Timestamp> {
        match clock {
            Clock::Stream | Clock::Background => self.stream_time,
            Clock::Wall => self.origin.wall_clock,
        }
    }

    /// Checks the time that a step has given a record for this store. A time ahead of stream time must not be too far ahead of
    /// the machine's clock: the store would keep the record until then.
    pub(crate) fn check_ahead(&self, store: usize, time: Timestamp) -> Result<(), Fault> {
        let limit = self.state.most_ahead;
        let found = limit.and_then(|limit| limit.exceeded(time, self.stream_time));
        let Some((ahead, limit)) = found else {
            return Ok(());
        };
        let spec = self.state.specs.get(store);
        Err(Fault::State(StateError::FutureRecord {
            store: spec.map_or_else(|| "?".into(), |spec| Arc::clone(&spec.name)),
            time,
            ahead,
            limit,
        }))
    }

    pub(crate) fn windows_at<K: 'static, V: 'static>(&self, index: usize) -> WindowView<'_, K, V> {
        WindowView::new(&self.state, index, self.stream_time)
    }

    /// Adds a call of the admitted record.
    pub(crate) fn prepare(&self, call: PreparedCall) {
        self.scratch.borrow_mut().calls.push(call);
    }

    /// Counts the record as late.
    pub(crate) fn came_late(&self) {
        self.scratch.borrow_mut().counts().late += 1;
    }

    /// Counts closed windows of the record.
    pub(crate) fn missed_windows(&self, closed: u64) {
        if closed > 0 {
            self.scratch.borrow_mut().counts().late_windows += closed;
        }
    }

    /// Counts the result of a deduplication.
    pub(crate) fn judged(&self, seen: Seen) {
        let mut scratch = self.scratch.borrow_mut();
        let counts = scratch.counts();
        match seen {
            Seen::Duplicate { .. } => counts.duplicates += 1,
            Seen::TooOld => counts.too_old += 1,
            Seen::NoId => counts.without_id += 1,
            Seen::Stale => counts.stale += 1,
            _ => counts.new_ids += 1,
        }
    }

    /// Counts a gap in a sequence.
    pub(crate) fn found_gap(&self) {
        self.scratch.borrow_mut().counts().gaps += 1;
    }

    /// Notes the number of a record that `reorder_by` forwards at once.
    pub(crate) fn forwards_number(&self, store: usize, key: Vec<u8>) {
        let mut scratch = self.scratch.borrow_mut();
        // `Scratch::take_counts` clears the numbers only if the record has counts.
        scratch.counts();
        scratch.numbers.push((store, key));
    }

    /// Counts a gap that `reorder_by` gives up.
    pub(crate) fn gave_numbers_up(&self) {
        self.scratch.borrow_mut().counts().given_up += 1;
    }

    /// Counts a record of a join that goes out alone.
    pub(crate) fn went_out_alone(&self) {
        self.scratch.borrow_mut().counts().alone += 1;
    }

    /// Counts the missed pairs of a record of a join, because the other record was closed.
    pub(crate) fn missed_closed_partners(&self, missed: u64) {
        if missed > 0 {
            self.scratch.borrow_mut().counts().too_late_pairs += missed;
        }
    }

    pub(crate) fn store_at<K: 'static, V: 'static>(&self, index: usize) -> KeyValueView<'_, K, V> {
        KeyValueView::new(&self.state, index, self.stream_time)
    }

    /// Writes an encoded row to a place of the app's ledger.
    pub(crate) fn write_row(
        &self,
        output: usize,
        key: &[u8],
        row: Option<&[u8]>,
        timestamp: Option<Timestamp>,
        headers: Headers,
    ) {
        let mut scratch = self.scratch.borrow_mut();
        scratch.write_raw(output, Some(key), row, timestamp, headers);
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

    /// Writes an encoded record to a partition.
    pub(crate) fn write_to(
        &self,
        to: (usize, Partition),
        record: (&[u8], &[u8]),
        timestamp: Option<Timestamp>,
        headers: Headers,
    ) {
        let mut scratch = self.scratch.borrow_mut();
        scratch.write_to(to, record, timestamp, headers);
    }

    /// Removes the last output if it is too large for its topic. Returns the limit in bytes.
    pub(crate) fn remove_oversize(&self) -> Option<usize> {
        self.scratch.borrow_mut().remove_oversize()
    }

    /// The number of outputs of the record.
    pub(crate) fn output_count(&self) -> usize {
        self.scratch.borrow().len()
    }

    /// Removes the outputs of the record from index `first` on.
    pub(crate) fn remove_outputs_from(&self, first: usize) {
        self.scratch.borrow_mut().remove_outputs_from(first);
    }

    /// The number of partitions of an output.
    pub(crate) fn partitions_of(&self, output: usize) -> u32 {
        self.partitions.get(output).copied().unwrap_or(1).max(1)
    }

    /// Counts an answer to a former subscription.
    pub(crate) fn left_stale_answer_out(&self) {
        self.scratch.borrow_mut().counts().stale_answers += 1;
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

    /// The timestamp of the record that this step received, in milliseconds since 1970. `None` if it has none.
    #[must_use]
    pub fn timestamp(&self) -> Option<Timestamp> {
        self.timestamp
    }

    /// The highest timestamp of all records that the task has processed, the current one included. `None` if no
    /// record had a timestamp.
    ///
    /// Stream time never decreases. It is committed with the offsets, so a crash does not change it. Records that a
    /// filter drops count, and failed records do not. A window closes when stream time reaches its end plus grace.
    #[must_use]
    pub fn stream_time(&self) -> Option<Timestamp> {
        self.stream_time
    }

    /// The stream time up to which all due items are handled, if it is known. No record arrives at an earlier one.
    pub(crate) fn handled_to(&self) -> Option<Timestamp> {
        self.origin.handled_to
    }

    /// The headers of the record that this step received.
    #[must_use]
    pub fn headers(&self) -> &Headers {
        self.headers
    }

    /// The timestamp and the headers of the record as it was fetched. Earlier steps may have changed both.
    #[must_use]
    pub fn source(&self) -> SourceRecord<'_> {
        SourceRecord {
            timestamp: self.origin.timestamp,
            headers: self.origin.headers,
        }
    }

    /// Exists only for its compiler message, because the context of `for_each` does not forward.
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

/// The timestamp and headers of a record as it was fetched. Returned by [`Ctx::source`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct SourceRecord<'r> {
    /// The timestamp in milliseconds since 1970. `None` if the record has none.
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

//! The state of a task, in changelog and database.

use std::task::Poll;
use std::time::Duration;

use eos_protocol::joins::key_of_head;
use eos_protocol::reorder::Held;
use eos_protocol::state::{
    ChangelogOffsets, CommitRecord, Family, Identity, OwnRows, PerFamily, Position, Standing,
    StoreId,
};
use eos_protocol::windows::{AnyWindows, OpenSessions, SessionsError, SlidingRow};
use eos_protocol::{
    Clock, Guarantee, Offset, Partition, Place, TaskProgress, Timestamp, TopicName,
};
use eos_state::{DueItem, NextDue, StoreError, TaskStore, Write, changelog};

use super::future_timestamps::FutureTimestamps;
use super::trimming::Trimming;
use super::windows::{RowStores, Windows};
use crate::client::{Change, ClientError, Headers, Outgoing, Producer};
use crate::joins::JoinRows;
use crate::reorder::WaitingRows;
use crate::rules;
use crate::store::{StoreSpec, unstamped, window_of};
use crate::topology::Topology;

/// The most changes that the producer takes in one call.
const BATCH: usize = 256;

/// The header of a dead letter with the side of a join that the record belongs to: `left` or `right`.
const JOIN_SIDE: &str = "eos-join-side";

/// A due item that is left out.
#[derive(Debug)]
pub(super) struct Dropped {
    /// The start of the window of a final result.
    pub(super) window: Option<Timestamp>,
    pub(super) key: Option<Vec<u8>>,
    /// The final result, or the value of a waiting record.
    pub(super) value: Option<Vec<u8>>,
    /// The time of a waiting record.
    pub(super) time: Option<Timestamp>,
    /// The input topic and the offset of a waiting record.
    pub(super) origin: Option<(TopicName, Offset)>,
    /// The headers of a waiting record.
    pub(super) headers: Headers,
}

impl Dropped {
    /// Returns the contents of a waiting record.
    fn held(held: Held<'_>) -> Self {
        let mut headers = Headers::new();
        for (name, value) in held.headers {
            headers.push(&*String::from_utf8_lossy(name), value);
        }
        let topic = TopicName::new(String::from_utf8_lossy(held.topic));
        let origin = Offset::new(held.offset).ok().map(|offset| (topic, offset));
        Self {
            window: None,
            key: held.key.map(<[u8]>::to_vec),
            value: held.value.map(<[u8]>::to_vec),
            time: held.time,
            origin,
            headers,
        }
    }
}

/// The state of one task.
#[derive(Debug)]
pub(super) struct TaskState {
    pub(super) store: TaskStore,
    identity: Identity,
    /// The changelogs of the task, by the topology's outputs.
    outputs: PerFamily<Option<usize>>,
    /// The offsets at which a later restore begins.
    pub(super) offsets: ChangelogOffsets,
    /// The windowed stores.
    pub(super) windows: Windows,
    /// The stores of sessions and sliding windows.
    pub(super) row_stores: RowStores,
    /// Warnings about timestamps that are far ahead.
    pub(super) ahead: FutureTimestamps,
    /// The part of the changelog that is no longer needed.
    pub(super) trimming: Option<Trimming>,
    /// The number of records of the sealing transaction that the producer has taken.
    sent: PerFamily<usize>,
    /// Whether the sealing transaction ends with a commit record in this changelog.
    wrote: PerFamily<bool>,
}

/// Changes of stores under their keys in the changelog.
#[derive(Debug, Default)]
struct ChangeBatch<'a> {
    keys: Vec<u8>,
    /// The end of each change's key in `keys`, and its value.
    changes: Vec<(usize, Option<&'a [u8]>)>,
}

impl<'a> ChangeBatch<'a> {
    fn push(&mut self, write: &Write<'a>) {
        changelog::key(write.store, write.key, &mut self.keys);
        self.changes.push((self.keys.len(), write.value));
    }

    fn changes(&self) -> Vec<Change<'_>> {
        let mut start = 0;
        let changes = self.changes.iter().map(|(end, value)| {
            let key = &self.keys[std::mem::replace(&mut start, *end)..*end];
            let value = *value;
            Change { key, value }
        });
        changes.collect()
    }
}

/// Sends changes with these headers. Returns the number of the sent ones, as [`Producer::send_changes`].
fn send_with<P: Producer>(
    producer: &mut P,
    topic: usize,
    partition: Partition,
    changes: &[Change<'_>],
    headers: &Headers,
) -> Result<usize, ClientError> {
    for (sent, change) in changes.iter().enumerate() {
        let record = Outgoing {
            topic,
            partition,
            timestamp: None,
            key: Some(change.key),
            value: change.value,
            headers,
        };
        match producer.send(&record) {
            Poll::Ready(done) => done?,
            Poll::Pending => return Ok(sent),
        }
    }
    Ok(changes.len())
}

impl TaskState {
    pub(super) fn new(
        store: TaskStore,
        identity: Identity,
        outputs: PerFamily<Option<usize>>,
        offsets: ChangelogOffsets,
        (windows, row_stores): (Windows, RowStores),
        trimming: Option<Trimming>,
    ) -> Self {
        Self {
            trimming: trimming.map(|it| it.with_retention_of(windows.stores())),
            windows,
            row_stores,
            ahead: FutureTimestamps::default(),
            store,
            identity,
            outputs,
            offsets,
            sent: PerFamily::default(),
            wrote: PerFamily::default(),
        }
    }

    /// Returns the changelogs in which the sealed transaction ends with a commit record.
    pub(super) fn wrote(&self) -> PerFamily<bool> {
        self.wrote
    }

    /// Returns whether the state has items that become due: moments of timers, or final results.
    pub(super) fn has_due(&self) -> bool {
        self.store.has_due() || self.windows.has_final_results()
    }

    /// As [`has_due`](Self::has_due), for items of one clock.
    pub(super) fn has_due_of(&self, clock: Clock) -> bool {
        self.store.has_due_of(clock) || clock == Clock::Stream && self.windows.has_final_results()
    }

    /// Returns the first item of a clock that is due at this moment. Moments of timers come before final results of the
    /// same moment.
    /// `taken` is the stream time of the records.
    pub(super) fn next_due(
        &mut self,
        clock: Clock,
        now: Timestamp,
        taken: Option<Timestamp>,
    ) -> Result<NextDue, StoreError> {
        let indexed = self.store.next_due(clock, now)?;
        let is_first = match &indexed {
            NextDue::Moved => true,
            NextDue::Item(item) => item.place.moment() <= self.windows.next(),
            NextDue::Nothing => false,
        };
        if clock != Clock::Stream || is_first || !self.windows.has_final_results() {
            return Ok(indexed);
        }
        let result = self.windows.next_final(&self.store, now, taken)?;
        Ok(match (indexed, result) {
            (NextDue::Item(item), Some(result)) if item.place.moment() <= result.due => {
                NextDue::Item(item)
            }
            (_, Some(result)) => NextDue::Item(result),
            (indexed, None) => indexed,
        })
    }

    /// Marks a due item as handled, for the current record.
    pub(super) fn handle_due(&mut self, item: &DueItem) -> Result<(), StoreError> {
        let Place { store, key, .. } = &item.place;
        if item.clock == Clock::Stream {
            self.windows.forget_read_ahead(*store, item.place.moment());
        }
        match store.is_windowed() {
            true => self.windows.emitted(&self.store, *store, key),
            false => self.store.handle_due(item),
        }
    }

    /// Leaves out a due item of this store, for the current record. Returns its contents.
    pub(super) fn drop_due(
        &mut self,
        store: &StoreSpec,
        key: &[u8],
        at: Timestamp,
    ) -> Result<Vec<Dropped>, StoreError> {
        let mut value = Vec::new();
        let dropped = |window, key: &[u8], value: Option<&[u8]>| Dropped {
            window,
            key: Some(key.to_vec()),
            value: value.map(<[u8]>::to_vec),
            time: None,
            origin: None,
            headers: Headers::new(),
        };
        let unreadable = |e: SessionsError| self.store.unreadable(&store.name, e.to_string());
        match store.windows {
            Some(AnyWindows::Fixed(_)) => {
                self.store.get(store.id, key, &mut value)?;
                self.windows.emitted(&self.store, store.id, key)?;
                let own = key.get(8..).unwrap_or_default();
                Ok(vec![dropped(window_of(key), own, unstamped(&value))])
            }
            Some(AnyWindows::Session(windows)) => {
                let mut sessions = match self.store.get_due(store.id, key, &mut value)? {
                    Some(_) => OpenSessions::decode(&value).map_err(unreadable)?,
                    None => OpenSessions::default(),
                };
                self.store.delete_due(store.id, key)?;
                let closed = sessions.take_closed(&windows, at);
                if let Some(due) = sessions.next_due(&windows, store.visits_at_close()) {
                    let mut row = Vec::new();
                    sessions.encode(&mut row);
                    self.store.put_due(store.id, key, due, &row)?;
                }
                let closed = closed.iter();
                Ok(closed
                    .map(|it| dropped(Some(it.first), key, Some(&it.result)))
                    .collect())
            }
            Some(AnyWindows::Sliding(windows)) => {
                let mut row = match self.store.get_due(store.id, key, &mut value)? {
                    Some(_) => SlidingRow::decode(&value).map_err(unreadable)?,
                    None => SlidingRow::default(),
                };
                self.store.delete_due(store.id, key)?;
                let closed = row.take_closed(&windows, at);
                row.forget(&windows, at, store.is_final);
                if let Some(due) = row.next_due(&windows, store.is_final) {
                    let mut bytes = Vec::new();
                    row.encode(&mut bytes);
                    self.store.put_due(store.id, key, due, &bytes)?;
                }
                let closed = closed.iter();
                Ok(closed
                    .map(|it| dropped(Some(it.first), key, Some(&it.result)))
                    .collect())
            }
            None if store.is_alone() => {
                let expiry = self.windows.stores().iter();
                let rows = StoreId::own(&store.name, OwnRows::Joined);
                let expiry = expiry.copied().find(|(id, _)| *id == rows);
                let left = expiry.map(|(_, expiry)| {
                    let rows = JoinRows::new(&self.store, &store.name, &expiry, Some(at));
                    self.store.delete_due(store.id, key)?;
                    rows.take_alone(key, at)
                });
                let own = key_of_head(key).map_or(key, |(key, _)| key);
                let left = left.transpose()?.unwrap_or_default();
                let left = left.into_iter().map(|stored| {
                    let mut headers = Headers::new();
                    headers.push(JOIN_SIDE, Some(stored.side.name().as_bytes()));
                    Dropped {
                        time: Some(stored.time),
                        headers,
                        ..dropped(None, own, Some(&stored.value))
                    }
                });
                Ok(left.collect())
            }
            None => match store.waiting_rows() {
                Some(rows) => {
                    let waiting = WaitingRows::new(&self.store, store);
                    let left = waiting.leave_out(rows, key, at)?;
                    let left = left.iter().map(|row| waiting.held(row).map(Dropped::held));
                    left.collect()
                }
                None => {
                    self.store.delete_due(store.id, key)?;
                    Ok(vec![dropped(None, key, None)])
                }
            },
        }
    }

    /// Returns the last moment of stream time up to which all due items are handled, at most this one.
    fn handled_to(&self, stream_time: Timestamp) -> Result<Timestamp, StoreError> {
        let handled = self.store.handled_to(Clock::Stream, stream_time)?;
        self.windows.handled_to(&self.store, handled)
    }

    /// Returns the time since the earliest unhandled item became due, by its own clock. `None` if the task has no such
    /// items.
    pub(super) fn due_behind(
        &self,
        stream_time: Option<Timestamp>,
        wall_clock: Timestamp,
    ) -> Option<Duration> {
        let since = |now: Timestamp, handled: Result<Timestamp, StoreError>| {
            let first = handled.ok()?.0.saturating_add(1);
            let millis = now.0.saturating_sub(first);
            Some(Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
        };
        // Before the first record with a time, nothing is due.
        let by_stream = (self.has_due_of(Clock::Stream)).then(|| match stream_time {
            Some(time) => since(time, self.handled_to(time)),
            None => Some(Duration::ZERO),
        });
        let by_clock = (self.has_due_of(Clock::Wall))
            .then(|| since(wall_clock, self.store.handled_to(Clock::Wall, wall_clock)));
        by_stream.flatten().max(by_clock.flatten())
    }

    /// Adds the metadata of the windows to the changes of the transaction, at the end of intake.
    pub(super) fn seal_windows(&mut self) -> Result<(), StoreError> {
        let sends = |family| *self.sent.get(family) > 0 || *self.wrote.get(family);
        if !sends(Family::Plain) {
            self.row_stores.seal(&mut self.store)?;
        }
        if !sends(Family::Windowed) {
            self.windows.seal(&mut self.store)?;
            if let Some(trimming) = &mut self.trimming {
                trimming.seal(&mut self.store);
            }
        }
        Ok(())
    }

    /// Sends the changes of the transaction to the producer: the last value of each key, then a commit record. Pending
    /// while the producer's queue is full. The next call resumes at the same change. Without a transaction, each record
    /// names its attempt.
    pub(super) fn send<P: Producer>(
        &mut self,
        producer: &mut P,
        partition: Partition,
        commit: CommitRecord,
        guarantee: Guarantee,
    ) -> Poll<Result<(), ClientError>> {
        let mut headers = Headers::new();
        let last = changelog::commit_record_value(commit);
        if !guarantee.is_transactional() {
            headers.push(changelog::ATTEMPT, Some(&last));
        }
        for family in Family::ALL {
            let Some(topic) = *self.outputs.get(family) else {
                continue;
            };
            let wrote = self.wrote.get_mut(family);
            if *wrote || !self.store.touched(family) {
                continue;
            }
            let sent = self.sent.get_mut(family);
            let windows = self.trimming.as_mut();
            let mut windows = windows.filter(|_| family == Family::Windowed);
            let written = |write: &Write<'_>| write.value.is_some() || rules::writes_tombstones();
            let mut writes = self.store.changes(family).filter(written).skip(*sent);
            loop {
                let mut batch = ChangeBatch::default();
                for write in writes.by_ref().take(BATCH) {
                    if let Some(windows) = &mut windows {
                        windows.wrote(write.key);
                    }
                    batch.push(&write);
                }
                let changes = batch.changes();
                if changes.is_empty() {
                    break;
                }
                let copied = match headers.is_empty() {
                    true => producer.send_changes(topic, partition, &changes)?,
                    false => send_with(producer, topic, partition, &changes, &headers)?,
                };
                *sent += copied;
                if copied < changes.len() {
                    return Poll::Pending;
                }
            }
            std::task::ready!(producer.send(&Outgoing {
                topic,
                partition,
                timestamp: None,
                key: Some(&changelog::commit_record_key(family)),
                value: Some(&last),
                headers: &headers,
            }))?;
            *wrote = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Applies the sealed transaction after its commit.
    pub(super) fn apply(
        &mut self,
        progress: &TaskProgress,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let Some(name) = progress.sealed() else {
            return Ok(());
        };
        if !rules::stores_sealed_ends_only() {
            self.offsets.sealed();
        }
        let inputs = progress.inputs().iter();
        let position = Position {
            identity: self.identity.clone(),
            standing: Standing::At {
                seq: name.seq,
                nonce: name.nonce,
                inputs: inputs.map(|i| (i.partition.clone(), i.next)).collect(),
                commit_records: name.commit_records(),
                stream_time: name.stream_time,
                wall_time: now,
            },
            changelogs: self.offsets.committed(),
        };
        // Due items see their own moments as stream time, so windows stay as long as an item may write to them.
        let handled = name.stream_time.map(|time| self.handled_to(time));
        let handled = match rules::keeps_rows_of_joins() {
            true => handled.transpose()?,
            false => name.stream_time,
        };
        let over = (self.windows).committed(self.wrote.windowed, handled);
        self.row_stores.committed(self.wrote.plain);
        self.settle();
        self.store.begin_apply(position, over)?;
        if let Some(trimming) = &mut self.trimming {
            trimming.committed(handled);
        }
        Ok(())
    }

    /// Discards the transaction and its changes.
    pub(super) fn discard(&mut self) {
        self.offsets.discarded();
        self.windows.discarded();
        if let Some(trimming) = &mut self.trimming {
            trimming.discarded();
        }
        self.settle();
        if rules::drops_aborted_changes() {
            self.store.discard();
        }
    }

    /// Ends the sealing: the producer has all changes.
    pub(super) fn sealed(&mut self) {
        self.offsets.sealed();
        if let Some(trimming) = &mut self.trimming {
            trimming.sealed(self.wrote.windowed);
        }
    }

    fn settle(&mut self) {
        self.sent = PerFamily::default();
        self.wrote = PerFamily::default();
    }

    /// Returns the topics of the task's changelogs.
    pub(super) fn topics<'a>(
        &'a self,
        topology: &'a Topology,
    ) -> impl Iterator<Item = (Family, &'a TopicName)> {
        let outputs = self.outputs.iter();
        outputs.filter_map(|(family, output)| {
            let output = topology.outputs().get((*output)?)?;
            Some((family, &output.name))
        })
    }
}

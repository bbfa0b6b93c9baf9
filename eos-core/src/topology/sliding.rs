//! The node that keeps state per key and sliding window.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use eos_protocol::Timestamp;
use eos_protocol::windows::{OpenSession, Sliding, SlidingRow, Window};

use super::fault::Fault;
use super::node::{Moment, Next, Node};
use super::nodes::take;
use super::row_store::RowStore;
use crate::client::Headers;
use crate::ctx::Ctx;
use crate::record::Record;
use crate::rules;
use crate::windowed_key::Windowed;

/// Combines a record with the windows of its key around it, and with the windows that it defines, and keeps and forwards
/// each new result (`KStreamSlidingWindowAggregate`, KIP-450). A late record leaves unchanged by the second exit.
///
/// A row has all windows of a key that a record may need, and windows that are not removed yet. With final results, the
/// row is due when a window closes, and the node forwards results only then. Otherwise the row is due later
/// (`SlidingRow::next_due`).
pub(crate) struct SlidingAggregate<K, V, A, F> {
    store: usize,
    windows: Sliding,
    f: Arc<F>,
    types: PhantomData<fn(K, V, A)>,
}

impl<K, V, A, F> SlidingAggregate<K, V, A, F> {
    /// `f` combines a record with the result of a window.
    pub(crate) fn new(store: usize, windows: Sliding, f: Arc<F>) -> Self {
        Self {
            store,
            windows,
            f,
            types: PhantomData,
        }
    }
}

/// A record with the stream time that includes it.
struct Taken<'r, K, V> {
    key: &'r K,
    value: &'r V,
    time: Timestamp,
    stream_time: Timestamp,
}

/// A new or changed window of a record: its start, its highest time, and its encoded result.
struct Made {
    start: Timestamp,
    highest: Timestamp,
    result: Vec<u8>,
}

impl<K, V, A, F> SlidingAggregate<K, V, A, F>
where
    K: 'static,
    V: 'static,
    A: 'static,
    F: Fn(&K, &V, Option<A>) -> A + Send + Sync,
{
    fn row<'r>(
        &self,
        store: &RowStore<'_, K, A>,
        bytes: &'r [u8],
    ) -> Result<SlidingRow<'r>, Fault> {
        SlidingRow::decode(bytes).map_err(|e| store.unreadable_row(&e))
    }

    fn write(
        &self,
        store: &RowStore<'_, K, A>,
        key: &[u8],
        row: &SlidingRow<'_>,
    ) -> Result<(), Fault> {
        match row.next_due(&self.windows, store.is_final) {
            Some(due) => {
                let mut bytes = Vec::new();
                row.encode(&mut bytes);
                store.put(key, due, &bytes)
            }
            None => store.delete(key),
        }
    }

    /// Adds a record to a window with this start, highest time and earlier result, unless the window is closed.
    fn add(
        &self,
        store: &RowStore<'_, K, A>,
        of: &Taken<'_, K, V>,
        (start, highest): (Timestamp, Timestamp),
        before: Option<&[u8]>,
    ) -> Result<Option<Made>, Fault> {
        if self.windows.is_closed(start, of.stream_time) || start < store.closed_before {
            return Ok(None);
        }
        let before = before.map(|bytes| store.decode_result(bytes)).transpose()?;
        let result = (self.f)(of.key, of.value, before);
        Ok(Some(Made {
            start,
            highest: highest.max(of.time),
            result: store.encode_result(&result)?,
        }))
    }

    /// Returns the windows that a record changes or makes, in the order in which Kafka Streams updates them
    /// (`processReverse`, and `processEarly` for a record that is earlier than the length of a window).
    fn made(
        &self,
        store: &RowStore<'_, K, A>,
        row: &SlidingRow<'_>,
        of: &Taken<'_, K, V>,
    ) -> Result<Vec<Made>, Fault> {
        let (difference, time) = (self.windows.difference_ms(), of.time);
        let is_early = time.0 < difference;
        let (left, right) = (Timestamp(time.0 - difference), Timestamp(time.0 + 1));
        let from = Timestamp((time.0 - 2 * difference).max(0));
        let mut made = Vec::new();
        let mut starts = Vec::new();
        // The time of the last record before this one, and the windows whose results the new windows continue.
        let (mut previous, mut before, mut after, mut combined) = (None, None, None, None);
        let (mut has_left, mut has_right) = (false, false);
        for window in row.between(from, right) {
            starts.push(window.first);
            let end = window.first.0.saturating_add(difference);
            let is_previous = window.last < time;
            if window.first == right {
                has_right = true;
            } else if is_early && window.first.0 == 0 {
                combined = Some(window);
                previous = Some(window.last).filter(|_| is_previous).or(previous);
            } else if end < time.0 {
                before = Some(window);
                previous = Some(window.last);
            } else {
                if end == time.0 {
                    has_left = true;
                    previous = Some(window.last).filter(|_| is_previous).or(previous);
                } else {
                    after = Some(window);
                }
                let span = (window.first, window.last);
                made.extend(self.add(store, of, span, Some(&window.result))?);
            }
        }
        if !is_early {
            made.reverse();
        }
        let after = after.or(combined.filter(|_| is_early));
        let own_right = after.filter(|window| !has_right && window.last > time);
        let own_right = own_right.map(|window| Made {
            start: right,
            highest: window.last,
            result: window.result.to_vec(),
        });
        let right_of_previous = previous.map(|previous: Timestamp| Timestamp(previous.0 + 1));
        let right_of_previous = right_of_previous.filter(|start| {
            !starts.contains(start) && start.0.saturating_add(difference) >= time.0
        });
        let (first, last) = match is_early {
            true => (own_right, None),
            false => (None, own_right),
        };
        made.extend(first);
        if let Some(start) = right_of_previous {
            made.extend(self.add(store, of, (start, time), None)?);
        }
        if is_early {
            let highest = combined.map_or(time, |window| window.last);
            let result = combined.map(|window| &*window.result);
            made.extend(self.add(store, of, (Timestamp(0), highest), result)?);
        } else if !has_left {
            let is_near = previous.is_some_and(|previous| left <= previous);
            let result = before.filter(|_| is_near).map(|window| &*window.result);
            made.extend(self.add(store, of, (left, time), result)?);
        }
        made.extend(last);
        Ok(made)
    }
}

impl<K, V, A, F> Node for SlidingAggregate<K, V, A, F>
where
    K: 'static,
    V: 'static,
    A: 'static,
    F: Fn(&K, &V, Option<A>) -> A + Send + Sync,
{
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Some(record) = take::<K, V>(record) else {
            return Ok(());
        };
        let Some(time) = record.timestamp.filter(|time| time.0 >= 0) else {
            return Err(Fault::NoTime(record.timestamp));
        };
        ctx.check_ahead(self.store, time)?;
        let stream_time = ctx.stream_time().map_or(time, |seen| seen.max(time));
        let store = RowStore::<K, A>::new(ctx, self.store)?;
        if self.windows.is_late(time, stream_time) || time < store.closed_before {
            ctx.came_late();
            return next.forward_rest(ctx, &mut Some(record));
        }
        let (mut encoded, mut bytes) = (Vec::new(), Vec::new());
        store.encode_key(&record.key, &mut encoded)?;
        let mut row = match store.get(&encoded, &mut bytes)? {
            true => self.row(&store, &bytes)?,
            false => SlidingRow::default(),
        };
        let of = Taken {
            key: &record.key,
            value: &record.value,
            time,
            stream_time,
        };
        let made = self.made(&store, &row, &of)?;
        for window in &made {
            row.put(OpenSession {
                first: window.start,
                last: window.highest,
                result: window.result.clone().into(),
            });
        }
        if !rules::keeps_final_marks() {
            row = row.without_mark();
        }
        // Only up to the handled time, because records at an earlier stream time may still arrive.
        if let Some(handled) = ctx.handled_to() {
            row.forget(&self.windows, handled, store.is_final);
        }
        self.write(&store, &encoded, &row)?;
        if store.is_final {
            store.recycle(record.key);
            return Ok(());
        }
        for window in made {
            self.forward(ctx, &store, &encoded, window, record.headers.clone(), next)?;
        }
        Ok(())
    }

    fn due_stores(&self) -> &[usize] {
        std::slice::from_ref(&self.store)
    }

    /// Forwards the results of the windows that have closed if they are final, and drops those that are not needed.
    fn due(&mut self, ctx: &Ctx<'_>, moment: Moment<'_>, next: &mut Next<'_>) -> Result<(), Fault> {
        let store = RowStore::<K, A>::new(ctx, self.store)?;
        let mut row = self.row(&store, moment.value)?;
        let closed = match store.is_final {
            true => row.take_closed(&self.windows, moment.at),
            false => Vec::new(),
        };
        row.forget(&self.windows, moment.at, store.is_final);
        if !row.is_empty() {
            self.write(&store, moment.key, &row)?;
        }
        for window in closed {
            let made = Made {
                start: window.first,
                highest: window.last,
                result: window.result.into_owned(),
            };
            self.forward(ctx, &store, moment.key, made, Headers::new(), next)?;
        }
        Ok(())
    }
}

impl<K, V, A, F> SlidingAggregate<K, V, A, F>
where
    K: 'static,
    A: 'static,
{
    /// Forwards the result of a window, with its highest time.
    fn forward(
        &self,
        ctx: &Ctx<'_>,
        store: &RowStore<'_, K, A>,
        key: &[u8],
        made: Made,
        headers: Headers,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let end = made.start.0.saturating_add(self.windows.difference_ms());
        let window = Window {
            start: made.start,
            end: Timestamp(end.saturating_add(1)),
        };
        let key = store.decode_key(key)?;
        let time = Some(made.highest);
        next.forward(
            &ctx.at(time),
            &mut Some(Record {
                key: Windowed { key, window },
                value: store.decode_result(&made.result)?,
                timestamp: time,
                headers,
            }),
        )
    }
}

//! Nodes of foreign-key joins at the right table: one stores the subscribers, and one sends them updates.

use std::any::Any;
use std::sync::Arc;

use eos_protocol::foreign::{
    Answer, FanOut, ForeignError, Message, Received, Share, Subscriber, Subscription, needs_kept,
    receive, subscriber_key, subscriber_of_key, subscriber_prefix,
};
use eos_protocol::state::{OwnRows, StoreId};
use eos_protocol::{Partition, Place, Timestamp};
use eos_state::{Direction, KeyRange, StoreError, TaskStore};

use super::fault::Fault;
use super::foreign_left::{LETTER_HEADERS, is_replayed, table_row_fault, unreadable_message};
use super::node::{Moment, Next, Node};
use super::nodes::take;
use super::row_store::codec_fault;
use super::rows_of::RowsOf;
use crate::change::Change;
use crate::client::Headers;
use crate::ctx::Ctx;
use crate::record::Record;
use crate::rules;
use crate::store::StateError;
use crate::tables::ForeignJoin;

/// The moment of background work: the earliest possible moment.
const AT_ONCE: Timestamp = Timestamp(-Place::LAST.0);

/// The stores of the right side of a join.
struct RightRows<'c> {
    task: &'c TaskStore,
    name: &'c Arc<str>,
    subscribers: StoreId,
    fan_out: StoreId,
}

impl<'c> RightRows<'c> {
    fn new(ctx: &'c Ctx<'_>, name: &'c Arc<str>) -> Result<Self, Fault> {
        let task = ctx.state().task;
        let subscribers = StoreId::own(name, OwnRows::ForeignRight);
        let task = task.filter(|task| task.has(subscribers));
        Ok(Self {
            task: task.ok_or(Fault::State(StateError::OtherApp))?,
            name,
            subscribers,
            fan_out: StoreId::own(name, OwnRows::ForeignFanOut),
        })
    }

    fn failed(&self, source: StoreError) -> Fault {
        let store = Arc::clone(self.name);
        Fault::State(StateError::Store { store, source })
    }

    /// Returns the error of a damaged row. It stops the worker under every error policy, because the row belongs to
    /// other records.
    fn damaged(&self, error: ForeignError) -> Fault {
        self.failed(self.task.unreadable(self.name, error.to_string()))
    }

    fn set(&self, key: &[u8], subscriber: Option<Subscriber>) -> Result<(), Fault> {
        let set = match subscriber {
            Some(subscriber) => self.task.put(self.subscribers, key, &subscriber.encode()),
            None => self.task.delete(self.subscribers, key),
        };
        set.map_err(|e| self.failed(e))
    }

    fn get(&self, key: &[u8]) -> Result<Option<Subscriber>, Fault> {
        let mut row = Vec::new();
        let there = self.task.get(self.subscribers, key, &mut row);
        match there.map_err(|e| self.failed(e))? {
            true => Subscriber::decode(&row)
                .map(Some)
                .map_err(|e| self.damaged(e)),
            false => Ok(None),
        }
    }
}

/// Stores the subscriptions, and sends the right row as the answer to each (`SubscriptionReceiveProcessorSupplier`).
pub(crate) struct ForeignAnswer<K, L, W, R> {
    join: ForeignJoin<K, L, W, R>,
    right: RowsOf<L, W>,
    /// The topic of the answers.
    output: usize,
}

impl<K, L, W, R> ForeignAnswer<K, L, W, R> {
    pub(crate) fn new(join: ForeignJoin<K, L, W, R>, right: RowsOf<L, W>, output: usize) -> Self {
        Self {
            join,
            right,
            output,
        }
    }
}

impl<K, L, W, R> Node for ForeignAnswer<K, L, W, R>
where
    K: 'static,
    L: 'static,
    W: 'static,
    R: 'static,
{
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        _: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Some(Record {
            key: foreign,
            value,
            timestamp,
            headers,
        }) = take::<Vec<u8>, Vec<u8>>(record)
        else {
            return Ok(());
        };
        let Subscription {
            message,
            token,
            partition,
            key: left,
        } = Subscription::decode(&value).map_err(|e| unreadable_message(&e))?;
        let rows = RightRows::new(ctx, self.join.shared_name())?;
        let key = subscriber_key(&foreign, &left);
        let kept = match needs_kept(message, is_replayed(&headers)) {
            true => rows.get(&key)?,
            false => None,
        };
        match receive(kept, message, Subscriber { token, partition }) {
            Received::Stale => return Ok(()),
            Received::Unsubscribed if kept.is_none() => return Ok(()),
            Received::Unsubscribed => return rows.set(&key, None),
            Received::Subscribed => {}
        }
        let to_none = message == Message::Subscribe { to_none: true };
        rows.set(&key, Some(Subscriber { token, partition }))?;
        let foreign = self.join.decode_foreign(&foreign).map_err(Fault::Key)?;
        let row = self.right.get(ctx, &foreign);
        let row = row.map_err(|fault| table_row_fault(ctx, fault))?;
        if row.is_none() && !(to_none && rules::answers_missing_rows()) {
            return Ok(());
        }
        // The subscription has the time of a left update, so it can't replace the time of the right row.
        let time = match &row {
            Some(row) => row.timestamp,
            None => timestamp,
        };
        let value = row
            .map(|row| self.join.encode_right(&row.value))
            .transpose();
        let value = value.map_err(Fault::State)?;
        let answer = Answer {
            token,
            value: value.as_deref(),
        };
        let mut bytes = Vec::new();
        answer.encode(&mut bytes);
        let (to, time) = ((self.output, partition), Answer::timestamp(time));
        ctx.write_to(
            to,
            (&left, &bytes),
            Some(time),
            remove_letter_headers(headers),
        );
        Ok(())
    }
}

/// Removes the headers of dead letters and replays. They belong to the record of the table, and an answer is a new record.
fn remove_letter_headers(mut headers: Headers) -> Headers {
    for name in LETTER_HEADERS {
        headers.remove(name);
    }
    headers
}

/// The end of a unit of answers.
struct Last {
    /// The left key of the last answer; `None` if there was none in the stretch.
    key: Option<Vec<u8>>,
}

/// Sends each update of a right row to its subscribers (`ForeignTableJoinProcessorSupplier`). If there are too many
/// subscribers for one transaction, the rest is background work.
pub(crate) struct ForeignUpdate<K, L, W, R> {
    join: ForeignJoin<K, L, W, R>,
    right: RowsOf<L, W>,
    /// The store of the updates that were not sent to all subscribers yet.
    fan_out: [usize; 1],
    /// The topic of the answers.
    output: usize,
}

impl<K, L, W, R> ForeignUpdate<K, L, W, R>
where
    K: 'static,
    L: 'static,
    W: 'static,
    R: 'static,
{
    pub(crate) fn new(
        join: ForeignJoin<K, L, W, R>,
        right: RowsOf<L, W>,
        (fan_out, output): (usize, usize),
    ) -> Self {
        Self {
            join,
            right,
            fan_out: [fan_out],
            output,
        }
    }

    /// Sends answers to the next subscribers. Returns the place of the remaining subscribers.
    fn answer(
        &self,
        ctx: &Ctx<'_>,
        rows: &RightRows<'_>,
        (foreign, mut place): (&[u8], FanOut),
        about: (Option<&W>, Option<Timestamp>, &Headers),
        limit: usize,
    ) -> Result<Option<FanOut>, Fault> {
        let (mut share, mut value) = (Share::of(limit), None);
        loop {
            let to = (foreign, &place);
            if let Some(last) =
                self.answer_stretch(ctx, rows, to, about, (&mut share, &mut value))?
            {
                return Ok(Some(place.reached(last.key)));
            }
            match place.wrapped() {
                Some(first) => place = first,
                None => return Ok(None),
            }
        }
    }

    /// Answers the subscribers up to the end of their order, or to that of a circle. Returns the last one if the share is
    /// used up before. `encoded` is the value of all answers, once there is one.
    fn answer_stretch(
        &self,
        ctx: &Ctx<'_>,
        rows: &RightRows<'_>,
        (foreign, place): (&[u8], &FanOut),
        (value, time, headers): (Option<&W>, Option<Timestamp>, &Headers),
        (share, encoded): (&mut Share, &mut Option<Option<Vec<u8>>>),
    ) -> Result<Option<Last>, Fault> {
        let prefix = subscriber_prefix(foreign);
        let full = |left: &[u8]| [&prefix[..], left].concat();
        let (after, until) = place.next();
        let mut range = KeyRange::prefix(&prefix);
        if let Some(until) = until {
            range = range.before(KeyRange::all().after(&full(until)).from());
        }
        if let Some(after) = after {
            range = range.after(&full(after));
        }
        let scan = rows.task.scan(rows.subscribers, &range, Direction::Forward);
        let mut scan = scan.map_err(|e| rows.failed(e))?;
        let (time, headers) = (
            Answer::timestamp(time),
            remove_letter_headers(headers.clone()),
        );
        let mut bytes = Vec::new();
        let mut last = None;
        while let Some((key, row)) = scan.next().map_err(|e| rows.failed(e))? {
            if share.is_used_up() {
                return Ok(Some(Last { key: last }));
            }
            let value = match encoded {
                Some(encoded) => encoded,
                None => {
                    let value = value.map(|value| self.join.encode_right(value));
                    encoded.insert(value.transpose().map_err(Fault::State)?)
                }
            };
            let (_, left) = subscriber_of_key(key).map_err(|e| rows.damaged(e))?;
            let subscriber = Subscriber::decode(row).map_err(|e| rows.damaged(e))?;
            let answer = Answer {
                token: subscriber.token,
                value: value.as_deref(),
            };
            answer.encode(&mut bytes);
            let to: (usize, Partition) = (self.output, subscriber.partition);
            ctx.write_to(to, (left, &bytes), Some(time), headers.clone());
            if share.take(bytes.len()) {
                last = Some(left.to_vec());
            }
        }
        Ok(None)
    }
}

impl<K, L, W, R> Node for ForeignUpdate<K, L, W, R>
where
    K: 'static,
    L: 'static,
    W: 'static,
    R: 'static,
{
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        _: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Some(Record {
            key,
            value: Change { new, .. },
            timestamp,
            headers,
        }) = take::<L, Change<W>>(record)
        else {
            return Ok(());
        };
        let rows = RightRows::new(ctx, self.join.shared_name())?;
        let foreign = self.join.encode_foreign(&key).map_err(Fault::State)?;
        let mut before = Vec::new();
        let under_way = rows.task.get_due(rows.fan_out, &foreign, &mut before);
        let is_under_way = under_way.map_err(|e| rows.failed(e))?.is_some();
        if is_under_way && !rules::begins_fan_outs_anew() {
            return Ok(());
        }
        let under_way = is_under_way.then(|| FanOut::decode(&before));
        let under_way = under_way.transpose().map_err(|e| rows.damaged(e))?;
        let place = FanOut::begin(timestamp, under_way);
        let about = (new.as_ref(), timestamp, &headers);
        let limit = self.join.first_answers();
        let rest = self.answer(ctx, &rows, (&foreign, place), about, limit)?;
        let set = match rest {
            Some(rest) => rows
                .task
                .put_due(rows.fan_out, &foreign, AT_ONCE, &rest.encode()),
            None if is_under_way => rows.task.delete_due(rows.fan_out, &foreign).map(drop),
            None => Ok(()),
        };
        set.map_err(|e| rows.failed(e))
    }

    fn due_stores(&self) -> &[usize] {
        &self.fan_out
    }

    fn due(&mut self, ctx: &Ctx<'_>, moment: Moment<'_>, _: &mut Next<'_>) -> Result<(), Fault> {
        let rows = RightRows::new(ctx, self.join.shared_name())?;
        let place = FanOut::decode(moment.value).map_err(|e| rows.damaged(e))?;
        // No error policy may drop the cursor: all later rows would miss the update.
        let key = self.join.decode_foreign(moment.key);
        let key = key.map_err(|e| codec_fault(ctx, self.join.shared_name(), e))?;
        let row = self.right.get(ctx, &key);
        let row = row.map_err(|fault| table_row_fault(ctx, fault))?;
        let time = row.as_ref().and_then(|row| row.timestamp);
        let time = time.or(place.time());
        let value = row.as_ref().map(|row| &row.value);
        let about = (value, time, &Headers::new());
        let limit = self.join.later_answers();
        match self.answer(ctx, &rows, (moment.key, place), about, limit)? {
            Some(rest) => {
                let (key, rest) = (moment.key, rest.encode());
                let put = rows.task.put_due_again(rows.fan_out, key, AT_ONCE, &rest);
                put.map_err(|e| rows.failed(e))
            }
            None => Ok(()),
        }
    }
}

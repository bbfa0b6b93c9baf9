//! Nodes of foreign-key joins that emit results: one at the left table, and one at the answers.

use std::any::Any;
use std::sync::Arc;

use eos_protocol::foreign::{
    Answer, COUNTER_KEY, ForeignError, ForeignKind, LeftRow, LeftUpdate, Message, Outcome, Reached,
    Right, Stamp, Subscription, left_key, resolve, token_of_row, token_row, update_left,
};
use eos_protocol::sequence::{REPLAY, REPLAY_FOR};
use eos_protocol::state::{OwnRows, StoreId};
use eos_protocol::{Partition, Timestamp, dead_letter};
use eos_state::{StoreError, TaskStore};

use super::changes::ChangesExit;
use super::fault::Fault;
use super::node::{Next, Node};
use super::nodes::take;
use super::row_store::{codec_fault, row_fault};
use super::rows_of::RowsOf;
use crate::change::Change;
use crate::client::Headers;
use crate::codec::CodecError;
use crate::ctx::Ctx;
use crate::record::Record;
use crate::rules;
use crate::store::{Stamped, StateError, StoreSpec};
use crate::tables::ForeignJoin;
use crate::views::{SourceKeys, partition_of};

/// The parts that both nodes share.
pub(crate) struct ForeignEnds<K, V, L, W, R> {
    pub(crate) kind: ForeignKind,
    pub(crate) join: ForeignJoin<K, L, W, R>,
    pub(crate) f: Arc<JoinFn<V, W, R>>,
}

type JoinFn<V, W, R> = dyn Fn(&V, Option<&W>) -> Option<R> + Send + Sync;

impl<K, V, L, W, R> Clone for ForeignEnds<K, V, L, W, R> {
    fn clone(&self) -> Self {
        Self {
            kind: self.kind,
            join: self.join.clone(),
            f: Arc::clone(&self.f),
        }
    }
}

/// The left rows of a join in the store of a task.
struct LeftRows<'c> {
    task: &'c TaskStore,
    name: &'c Arc<str>,
    id: StoreId,
}

impl<'c> LeftRows<'c> {
    fn new(ctx: &'c Ctx<'_>, name: &'c Arc<str>) -> Result<Self, Fault> {
        let task = ctx.state().task;
        let id = StoreId::own(name, OwnRows::ForeignLeft);
        let task = task.filter(|task| task.has(id));
        Ok(Self {
            task: task.ok_or(Fault::State(StateError::OtherApp))?,
            name,
            id,
        })
    }

    fn failed(&self, source: StoreError) -> Fault {
        let store = Arc::clone(self.name);
        Fault::State(StateError::Store { store, source })
    }

    /// Returns the error of a damaged row. It stops the worker under every error policy, because the row contains
    /// results of other records.
    fn damaged(&self, error: ForeignError) -> Fault {
        self.failed(self.task.unreadable(self.name, error.to_string()))
    }

    fn get(&self, key: &[u8]) -> Result<Option<LeftRow>, Fault> {
        let (mut full, mut row) = (Vec::new(), Vec::new());
        left_key(&mut full, key);
        let there = self.task.get(self.id, &full, &mut row);
        match there.map_err(|e| self.failed(e))? {
            true => LeftRow::decode(&row).map(Some).map_err(|e| self.damaged(e)),
            false => Ok(None),
        }
    }

    fn set(&self, key: &[u8], row: Option<&LeftRow>) -> Result<(), Fault> {
        let mut full = Vec::new();
        left_key(&mut full, key);
        let set = match row {
            Some(row) => self.task.put(self.id, &full, &row.encode()),
            None => self.task.delete(self.id, &full),
        };
        set.map_err(|e| self.failed(e))
    }

    fn set_if(&self, is_changed: bool, key: &[u8], row: &LeftRow) -> Result<(), Fault> {
        match is_changed {
            true => self.set(key, Some(row)),
            false => Ok(()),
        }
    }

    /// Returns a token that no earlier subscription of the task has. The row of the counter is written to the changelog
    /// once per transaction.
    fn next_token(&self) -> Result<u64, Fault> {
        let mut row = Vec::new();
        let there = self.task.get(self.id, COUNTER_KEY, &mut row);
        let last = match there.map_err(|e| self.failed(e))? {
            true => token_of_row(&row).map_err(|e| self.damaged(e))?,
            false => 0,
        };
        let token = last.saturating_add(1);
        let set = self.task.put(self.id, COUNTER_KEY, &token_row(token));
        set.map_err(|e| self.failed(e))?;
        Ok(token)
    }
}

/// Forgets the right row that a left row knows, because an error policy gives up an answer to it. The next update of the left
/// row subscribes again. `key` is the key of the answer.
pub(crate) fn forget_right(
    task: &TaskStore,
    spec: &StoreSpec,
    key: &[u8],
) -> Result<(), StoreError> {
    let (mut full, mut bytes) = (Vec::new(), Vec::new());
    left_key(&mut full, key);
    if !task.get(spec.id, &full, &mut bytes)? {
        return Ok(());
    }
    let row = LeftRow::decode(&bytes);
    let row = row.map_err(|e| task.unreadable(&spec.name, e.to_string()))?;
    let row = LeftRow {
        right: Right::Unknown,
        ..row
    };
    task.put(spec.id, &full, &row.encode())
}

/// Returns the fault of a read of a table's row. If the row can't be read, no error policy may go on: the result would miss
/// its update.
pub(super) fn table_row_fault(ctx: &Ctx<'_>, fault: Fault) -> Fault {
    match fault {
        Fault::State(error) => row_fault(ctx, error),
        other => other,
    }
}

/// Returns the last emitted result of a key.
pub(crate) fn result_of<K, L, W, R>(
    ctx: &Ctx<'_>,
    join: &ForeignJoin<K, L, W, R>,
    key: &K,
) -> Result<Option<Stamped<R>>, Fault>
where
    K: 'static,
    L: 'static,
    W: 'static,
    R: 'static,
{
    let key = join.encode_key(key).map_err(Fault::State)?;
    let row = LeftRows::new(ctx, join.shared_name())?.get(&key)?;
    let Some(Stamp { time, value }) = row.and_then(|row| row.result) else {
        return Ok(None);
    };
    let value = join.decode_result(&value);
    let value = value.map_err(|e| codec_fault(ctx, join.shared_name(), e))?;
    Ok(Some(Stamped {
        value,
        timestamp: time,
    }))
}

/// Returns the foreign key of a row.
pub(crate) type ForeignKeyOf<V, L> = Arc<dyn Fn(&V) -> Option<L> + Send + Sync>;

/// Subscribes each left row to the right row of its foreign key (`SubscriptionSendProcessorSupplier`).
pub(crate) struct ForeignSubscribe<K, V, L, W, R> {
    ends: ForeignEnds<K, V, L, W, R>,
    key: ForeignKeyOf<V, L>,
    /// The topic of the subscriptions, with the keys of the right table's topics.
    output: usize,
    right: Arc<[Arc<dyn SourceKeys>]>,
    changes: ChangesExit<K, R>,
}

impl<K, V, L, W, R> ForeignSubscribe<K, V, L, W, R> {
    pub(crate) fn new(
        ends: ForeignEnds<K, V, L, W, R>,
        key: ForeignKeyOf<V, L>,
        (output, right): (usize, Arc<[Arc<dyn SourceKeys>]>),
        changes: ChangesExit<K, R>,
    ) -> Self {
        Self {
            ends,
            key,
            output,
            right,
            changes,
        }
    }
}

impl<K, V, L, W, R> ForeignSubscribe<K, V, L, W, R>
where
    K: 'static,
    V: 'static,
    L: 'static,
    W: 'static,
    R: 'static,
{
    /// Sends a message to the task of the right row. `foreign` is its key, and the key's bytes.
    fn send(
        &self,
        ctx: &Ctx<'_>,
        (key, foreign): (&L, &[u8]),
        message: &Subscription,
        (timestamp, headers): (Option<Timestamp>, &Headers),
    ) -> Result<(), Fault> {
        let join = &self.ends.join;
        let partitions = ctx.partitions_of(self.output);
        let sources = || self.right.iter().map(|source| &**source);
        let codec = join.foreign_codec();
        let topics = || {
            let topics: Vec<_> = sources().map(|it| it.topic().to_string()).collect();
            topics.join(" or ")
        };
        let Some(chosen) = partition_of(sources(), codec, key, foreign, partitions) else {
            return Err(Fault::ForeignKeyBytes {
                join: Arc::clone(join.shared_name()),
                key: foreign.into(),
                topics: topics(),
            });
        };
        let partition = Some(chosen).filter(|chosen| *chosen < partitions);
        let partition =
            partition.and_then(|chosen| Partition::new(i32::try_from(chosen).ok()?).ok());
        let Some(partition) = partition else {
            return Err(Fault::ForeignKeyPartition {
                join: Arc::clone(join.shared_name()),
                key: foreign.into(),
                topics: topics(),
                chosen,
                partitions,
            });
        };
        let headers = headers.clone();
        let value = message.encode();
        ctx.write_to(
            (self.output, partition),
            (foreign, &value),
            timestamp,
            headers,
        );
        Ok(())
    }
}

impl<K, V, L, W, R> Node for ForeignSubscribe<K, V, L, W, R>
where
    K: 'static,
    V: 'static,
    L: 'static,
    W: 'static,
    R: 'static,
{
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Some(Record {
            key,
            value: Change { new, .. },
            timestamp,
            headers,
        }) = take::<K, Change<V>>(record)
        else {
            return Ok(());
        };
        let (join, kind) = (&self.ends.join, self.ends.kind);
        let rows = LeftRows::new(ctx, join.shared_name())?;
        let bytes = join.encode_key(&key).map_err(Fault::State)?;
        let mut row = rows.get(&bytes)?;
        let is_known = row.is_some();
        if let Some(row) = row.as_mut().filter(|_| join.max_kept_bytes() == 0) {
            row.right = Right::Unknown;
        }
        let named = new.as_ref().and_then(|new| (self.key)(new));
        let foreign = named.as_ref().map(|named| join.encode_foreign(named));
        let foreign = foreign.transpose().map_err(Fault::State)?;
        let update = match (&new, &foreign) {
            (None, _) => LeftUpdate::Deleted,
            (Some(_), None) => LeftUpdate::NoKey,
            (Some(_), Some(foreign)) => LeftUpdate::Key(foreign),
        };
        let mut step = update_left(kind, row.as_ref(), update);
        let mut known = None;
        if step.outcome == Outcome::Joined
            && let Some(row) = &mut row
            && let Right::Known(right) = &row.right
        {
            match join.decode_right(&right.value) {
                Ok(right) => known = Some(right),
                Err(error) if matches!(error, CodecError::Unavailable { .. }) => {
                    return Err(Fault::Value(error));
                }
                // Another codec encoded the value. The answer has the value as encoded by this codec.
                Err(_) => {
                    row.right = Right::Unknown;
                    step = update_left(kind, Some(row), update);
                }
            }
        }
        let LeftRow {
            mut token,
            foreign: before,
            mut right,
            result: mut out,
        } = row.unwrap_or_default();
        let message = |message, token| Subscription {
            message,
            token,
            partition: ctx.task().partition,
            key: bytes.clone(),
        };
        let mut about = (timestamp, &headers);
        if let Some(before) = before.filter(|_| step.unsubscribes)
            && rules::ends_former_subscriptions()
        {
            let end = message(Message::Unsubscribe, token);
            let left = join.decode_foreign(&before);
            let left = left.map_err(|e| codec_fault(ctx, join.shared_name(), e))?;
            self.send(ctx, (&left, &before), &end, about)?;
        }
        if let Some(to_none) = step.subscribes
            && let Some((named, foreign)) = named.as_ref().zip(foreign.as_ref())
        {
            token = rows.next_token()?;
            let begin = message(Message::Subscribe { to_none }, token);
            self.send(ctx, (named, foreign), &begin, about)?;
        }
        if step.unsubscribes || step.subscribes.is_some() {
            right = Right::Unknown;
        }
        let old = match step.outcome {
            Outcome::Unchanged => None,
            Outcome::Deleted | Outcome::Alone | Outcome::Joined => out.take(),
        };
        let result = match (step.outcome, &new, &right) {
            (Outcome::Alone, Some(new), _) => (self.ends.f)(new, None),
            (Outcome::Joined, Some(new), Right::Known(right)) => {
                about.0 = timestamp.max(right.time);
                (self.ends.f)(new, known.as_ref())
            }
            _ => None,
        };
        if let Some(result) = &result {
            let value = join.encode_result(result).map_err(Fault::State)?;
            let time = about.0;
            out = Some(Stamp { time, value });
        }
        let keeps = new.is_some() && (foreign.is_some() || out.is_some());
        let row = keeps.then_some(LeftRow {
            token,
            foreign,
            right,
            result: out,
        });
        if is_known || row.is_some() {
            rows.set(&bytes, row.as_ref())?;
        }
        if step.outcome == Outcome::Unchanged {
            return Ok(());
        }
        self.ends
            .forward(ctx, next, &self.changes, (key, old, result), about)
    }
}

impl<K, V, L, W, R> ForeignEnds<K, V, L, W, R>
where
    K: 'static,
    L: 'static,
    W: 'static,
    R: 'static,
{
    /// Forwards a result, or its deletion.
    fn forward(
        &self,
        ctx: &Ctx<'_>,
        next: &mut Next<'_>,
        changes: &ChangesExit<K, R>,
        (key, old, new): (K, Option<Stamp>, Option<R>),
        (timestamp, headers): (Option<Timestamp>, &Headers),
    ) -> Result<(), Fault> {
        let old = old.filter(|_| changes.reads_old());
        let old = old
            .map(|old| self.join.decode_result(&old.value))
            .transpose();
        let old = old.map_err(|e| codec_fault(ctx, self.join.shared_name(), e))?;
        let record = Record {
            key,
            value: Change { old, new },
            timestamp,
            headers: headers.clone(),
        };
        changes.forward_both(ctx, next, record)
    }
}

/// Joins each answer with the left row (`ResponseJoinProcessorSupplier`).
pub(crate) struct ForeignResult<K, V, L, W, R> {
    ends: ForeignEnds<K, V, L, W, R>,
    left: RowsOf<K, V>,
    /// The index of the store with the left rows of the join.
    rows: usize,
    changes: ChangesExit<K, R>,
}

impl<K, V, L, W, R> ForeignResult<K, V, L, W, R> {
    pub(crate) fn new(
        ends: ForeignEnds<K, V, L, W, R>,
        (left, rows): (RowsOf<K, V>, usize),
        changes: ChangesExit<K, R>,
    ) -> Self {
        Self {
            ends,
            left,
            rows,
            changes,
        }
    }
}

impl<K, V, L, W, R> Node for ForeignResult<K, V, L, W, R>
where
    K: 'static,
    V: 'static,
    L: 'static,
    W: 'static,
    R: 'static,
{
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Some(Record {
            key: bytes,
            value,
            timestamp,
            headers,
        }) = take::<Vec<u8>, Vec<u8>>(record)
        else {
            return Ok(());
        };
        let (join, kind) = (&self.ends.join, self.ends.kind);
        let answer = Answer::decode(&value).map_err(|e| unreadable_message(&e))?;
        let timestamp = Answer::time(timestamp);
        let rows = LeftRows::new(ctx, join.shared_name())?;
        let row = rows.get(&bytes)?;
        let token = match &row {
            Some(row) if !rules::checks_tokens_of_answers() => row.token,
            _ => answer.token,
        };
        let reached = resolve(kind, row.as_ref(), token, answer.value.is_some());
        let Some(mut row) = row.filter(|_| reached != Reached::Stale) else {
            ctx.left_stale_answer_out();
            return Ok(());
        };
        let right = match is_replayed(&headers) {
            // A later answer may have arrived first.
            true => Right::Unknown,
            false => Right::of_answer(timestamp, answer.value, join.max_kept_bytes()),
        };
        let learns =
            row.right != right && (rules::keeps_newest_right_rows() || row.right == Right::Unknown);
        if learns {
            row.right = right;
        }
        if reached == Reached::Nothing {
            return rows.set_if(learns, &bytes, &row);
        }
        let key = join.decode_key(&bytes).map_err(Fault::Key)?;
        let left = self.left.get(ctx, &key);
        let Some(left) = left.map_err(|fault| table_row_fault(ctx, fault))? else {
            ctx.left_stale_answer_out();
            return rows.set_if(learns, &bytes, &row);
        };
        let timestamp = timestamp.max(left.timestamp);
        let right = answer.value.map(|value| join.decode_right(value));
        let right = right.transpose().map_err(Fault::Value)?;
        let result = match reached {
            Reached::Result => (self.ends.f)(&left.value, right.as_ref()),
            _ => None,
        };
        let old = row.result.take();
        if let Some(result) = &result {
            row.result = Some(Stamp {
                time: timestamp,
                value: join.encode_result(result).map_err(Fault::State)?,
            });
        }
        rows.set(&bytes, Some(&row))?;
        let about = (timestamp, &headers);
        self.ends
            .forward(ctx, next, &self.changes, (key, old, result), about)
    }

    fn right_value_store(&self) -> Option<usize> {
        Some(self.rows)
    }
}

/// The headers that mark dead letters and replays. The replay of a letter without a number has no header [`REPLAY`].
pub(super) const LETTER_HEADERS: [&str; 3] = [REPLAY, REPLAY_FOR, dead_letter::EXCEPTION];

/// Whether a record is a replayed dead letter, or was made from one.
pub(super) fn is_replayed(headers: &Headers) -> bool {
    LETTER_HEADERS
        .iter()
        .any(|name| headers.get(name).is_some())
}

/// The fault of a record of an internal topic that can't be read.
pub(super) fn unreadable_message(error: &ForeignError) -> Fault {
    let expected = "a message of a foreign-key join";
    Fault::Value(CodecError::invalid(expected, error.to_string()))
}

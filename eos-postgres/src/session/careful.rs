//! A transaction with a refused row, run again without the refused records.
//!
//! The good path has no savepoints, so a refused row fails the whole transaction. Then its records run again from
//! memory, in order, in batches. Each batch has a savepoint. The statements of a batch are pipelined, and the first
//! failed one identifies the culprit record. The batch then runs again up to the culprit, and all rows of the culprit
//! are left out. Sums of several records are not folded, because a later record could hide a refused earlier one.
//!
//! This path locks shared rows in the order of records, but the good path locks them in the order of keys. To avoid
//! deadlocks, all keys are locked before the first record, in the order of the good path.

use std::collections::BTreeSet;
use std::rc::Rc;

use eos_protocol::{Offset, TopicPartition};

use super::chunk::{Chunk, MAX_ROWS, RowRef};
use super::headers;
use super::letters;
use super::pipeline::Request;
use super::places::{Parts, Prepared};
use super::rows::{claim, unknown_place};
use super::work::Work;
use crate::defence::Defence;
use crate::error::Failed;
use crate::place::{Refused, TableShape};
use crate::sql;
use crate::sqlstate::{Call, Reaction};

const SAVEPOINT: &str = "SAVEPOINT eos_batch";
const KEEP: &str = "RELEASE SAVEPOINT eos_batch";
const UNDO: &str = "ROLLBACK TO SAVEPOINT eos_batch; RELEASE SAVEPOINT eos_batch";

/// The most records behind one savepoint. Up to its culprit, a batch runs twice.
const MAX_BATCH: usize = 128;

/// The time at which deferred constraints are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Constraints {
    /// After all records: a later record may satisfy the constraint of an earlier one.
    AtEnd,
    /// After each record: one of them breaks a constraint.
    PerRecord,
}

/// The rows of a record.
type Record<'a> = Vec<RowRef<'a>>;

impl Work {
    /// Runs the records of this transaction again, without the refused ones.
    pub(super) async fn careful(&mut self) -> Result<(), Failed> {
        match self.pass(Constraints::AtEnd).await {
            Ok(()) => {}
            Err(failed) => return self.keep(failed),
        }
        self.check_columns().await;
        self.check_constraints().await;
        match self.pipeline.drain().await {
            Ok(()) => Ok(()),
            Err(failed) if failed.reaction == Reaction::Refuse => {
                if let Err(failed) = self.pass(Constraints::PerRecord).await {
                    return self.keep(failed);
                }
                self.check_columns().await;
                self.pipeline.drain().await
            }
            Err(failed) => Err(failed),
        }
    }

    /// Fails if a column has changed: its old type may have refused a record. The query runs after the refused statements,
    /// so it sees each change that caused a refusal.
    async fn check_columns(&mut self) {
        let connection = Rc::clone(&self.connection);
        let compared = async move { connection.columns.compare(&connection.client).await };
        self.pipeline.send_future(compared).await;
    }

    /// Keeps the failure, because a failed transaction must not commit.
    fn keep(&mut self, failed: Failed) -> Result<(), Failed> {
        self.pipeline.fail(failed.clone());
        Err(failed)
    }

    async fn pass(&mut self, constraints: Constraints) -> Result<(), Failed> {
        self.pipeline.clear();
        self.rows.clear();
        // The pass before has counted the same records.
        (self.counts.skipped, self.counts.dead_letters) = (0, 0);
        self.text("ROLLBACK").await?;
        // A rollback has dropped the locks of the positions.
        self.send_begin().await;
        let held = self.held.clone();
        self.send_hold(&held).await;
        self.pipeline.drain().await?;
        let memory = self.memory.clone();
        let records = records(&memory);
        self.lock_keys(&records).await?;
        self.write_records(&records, constraints).await
    }

    /// Locks the rows of all keys, by place and then by key.
    async fn lock_keys(&mut self, records: &[Record<'_>]) -> Result<(), Failed> {
        let connection = Rc::clone(&self.connection);
        for place in &connection.places {
            let is_locked = |shape: &TableShape| !shape.columns.is_empty();
            if !place.keyed().is_some_and(is_locked) {
                continue;
            }
            let rows = records.iter().flatten();
            let keys: BTreeSet<&[u8]> = rows
                .filter(|row| row.place == place.index)
                .filter_map(|row| Some(place.parts(row).ok()?.key))
                .collect();
            let keys: Vec<&[u8]> = keys.into_iter().collect();
            let mut left: Vec<&[&[u8]]> = keys.chunks(MAX_ROWS).rev().collect();
            while let Some(keys) = left.pop() {
                let mut arrays = place.key_arrays();
                for key in keys {
                    place.append_key(&mut arrays, key)?;
                }
                let Some(request) = place.lock(arrays) else {
                    break;
                };
                self.send_savepoint().await;
                self.pipeline.send(request).await;
                if self.end_batch().await?.is_some() && keys.len() > 1 {
                    // One of these keys has a value that the database refuses. Its record is found later.
                    let (first, second) = keys.split_at(keys.len() / 2);
                    left.extend([second, first]);
                }
            }
        }
        Ok(())
    }

    /// Writes the rows of records, and applies the policy to refused ones.
    async fn write_records(
        &mut self,
        records: &[Record<'_>],
        constraints: Constraints,
    ) -> Result<(), Failed> {
        let most = match constraints {
            Constraints::AtEnd => MAX_BATCH,
            Constraints::PerRecord => 1,
        };
        let mut done = 0;
        let mut refused = None;
        let mut size = most;
        while done < records.len() {
            let end = match refused {
                // The records before it are good.
                Some(culprit) if culprit > done => culprit,
                Some(culprit) if culprit == done => done + 1,
                _ => records.len().min(done + size),
            };
            let batch = records.get(done..end).unwrap_or_default();
            let Some((index, failed)) = self.write_batch(batch, constraints).await? else {
                done = end;
                size = most.min(size * 2);
                continue;
            };
            refused = Some(done + index);
            if let (0, Some(record)) = (index, batch.first()) {
                self.leave_out(record, &failed).await?;
                done += 1;
                // Many refused records may follow each other. The statements after a failed one are sent in vain.
                size = 1;
            }
        }
        Ok(())
    }

    /// Writes the rows of a batch. If the database refuses one, it undoes the batch, and returns the index of the record.
    async fn write_batch(
        &mut self,
        batch: &[Record<'_>],
        constraints: Constraints,
    ) -> Result<Option<(usize, Failed)>, Failed> {
        self.send_savepoint().await;
        for (index, record) in batch.iter().enumerate() {
            self.pipeline.mark(index);
            if let Err(failed) = self.send_record(record).await {
                self.pipeline.fail_after_sent(failed).await;
            }
            if self.pipeline.failed().is_some() {
                break;
            }
        }
        if constraints == Constraints::PerRecord {
            self.check_constraints().await;
            let defer = "SET CONSTRAINTS ALL DEFERRED".to_owned();
            self.pipeline
                .send_text(Call::Data, "a deferred constraint", defer)
                .await;
        }
        self.end_batch().await
    }

    async fn send_savepoint(&mut self) {
        self.pipeline.mark(0);
        self.pipeline
            .send_text(Call::Position, SAVEPOINT, SAVEPOINT.to_owned())
            .await;
    }

    /// Keeps the statements since the savepoint. If the database refused one, it undoes them, and returns the mark of the
    /// failed one.
    async fn end_batch(&mut self) -> Result<Option<(usize, Failed)>, Failed> {
        match self.pipeline.drain().await {
            Ok(()) => {
                self.pipeline
                    .send_text(Call::Position, KEEP, KEEP.to_owned())
                    .await;
                Ok(None)
            }
            Err(failed) if failed.reaction == Reaction::Refuse => {
                let mark = self.pipeline.failed_mark();
                self.pipeline.clear();
                self.text(UNDO).await?;
                Ok(Some((mark, failed)))
            }
            Err(failed) => Err(failed),
        }
    }

    /// Applies the policy of a refused record.
    async fn leave_out(&mut self, record: &[RowRef<'_>], failed: &Failed) -> Result<(), Failed> {
        let policy = self.policy(record, failed);
        if policy == Refused::Fail {
            return Err(failed.clone());
        }
        if !self.opening.postgres.has(Defence::UnclaimedIds) {
            self.claim_ids(record).await?;
        }
        let (partition, offset) = origin(record)?;
        tracing::warn!(%partition, %offset, ?policy, "a record is refused: {}", failed.text);
        if policy == Refused::DeadLetter {
            self.dead_letter(record, failed).await?;
            self.counts.dead_letters += 1;
        } else {
            self.counts.skipped += 1;
        }
        Ok(())
    }

    /// Returns the policy of the place that refused a row. A deferred constraint names no place: then each of the
    /// record's places must accept the loss.
    fn policy(&self, record: &[RowRef<'_>], failed: &Failed) -> Refused {
        let of = |place: usize| {
            let place = self.connection.places.get(place);
            place.map_or(Refused::Fail, |place| place.definition.refused)
        };
        if let Some(place) = failed.place {
            return of(place);
        }
        let policies: Vec<Refused> = record.iter().map(|row| of(row.place)).collect();
        if policies.contains(&Refused::Fail) {
            Refused::Fail
        } else if policies.contains(&Refused::DeadLetter) {
            Refused::DeadLetter
        } else {
            Refused::Skip
        }
    }

    async fn send_record(&mut self, record: &[RowRef<'_>]) -> Result<(), Failed> {
        let connection = Rc::clone(&self.connection);
        let mut claimed: BTreeSet<(String, Vec<u8>)> = BTreeSet::new();
        for row in record {
            let Some(place) = connection.places.get(row.place) else {
                return Err(unknown_place(row.place));
            };
            if let Some(letter) = place.letter(&self.opening.plan.app, row) {
                self.pipeline.send(letter).await;
                continue;
            }
            let parts = place.parts(row)?;
            if let (Some(subscriber), Some(id)) = (&place.definition.inbox, parts.id) {
                let key = (subscriber.clone(), id.to_vec());
                if !claimed.contains(&key) {
                    self.pipeline.drain().await?;
                    if claim(&connection, subscriber, &[id]).await?.is_empty() {
                        continue;
                    }
                    claimed.insert(key);
                }
            }
            if let Some(closure) = place.closure() {
                self.pipeline.drain().await?;
                let tx = connection.tx(&place.definition.name);
                place.run(closure, row, tx).await?;
                continue;
            }
            if let Some(request) = single(place, &parts)? {
                self.pipeline.send(request).await;
            }
        }
        Ok(())
    }

    /// Claims the ids of a refused record, so that its next copy counts as a duplicate.
    async fn claim_ids(&self, record: &[RowRef<'_>]) -> Result<(), Failed> {
        for row in record {
            let Some(place) = self.connection.places.get(row.place) else {
                return Err(unknown_place(row.place));
            };
            let parts = place.parts(row)?;
            if let (Some(subscriber), Some(id)) = (&place.definition.inbox, parts.id) {
                claim(&self.connection, subscriber, &[id]).await?;
            }
        }
        Ok(())
    }

    async fn dead_letter(&mut self, record: &[RowRef<'_>], failed: &Failed) -> Result<(), Failed> {
        let (partition, offset) = origin(record)?;
        let name = |index: usize| {
            let place = self.connection.places.get(index);
            place.map_or("?", |place| place.definition.name.as_str())
        };
        let place = failed.place.or(record.first().map(|row| row.place));
        let rows = letters::rows(&self.connection.places, record);
        let headers = record.first().map(headers::headers).unwrap_or_default();
        // A text of PostgreSQL cannot contain this character.
        let message = failed.text.replace('\0', "");
        self.connection
            .client
            .execute(
                sql::DEAD_LETTER,
                &[
                    &self.opening.plan.app,
                    &partition.topic.as_str(),
                    &partition.partition.get(),
                    &offset.get(),
                    &place.map_or("?", name),
                    &failed.code,
                    &message,
                    &rows,
                    &headers,
                    &None::<Vec<u8>>,
                    &None::<Vec<u8>>,
                ],
            )
            .await
            .map(drop)
            .map_err(|error| Failed::of(Call::Position, "a write to eos.dead_letters", &error))
    }

    pub(super) async fn text(&mut self, statement: &str) -> Result<(), Failed> {
        let done = self.connection.client.batch_execute(statement).await;
        done.map_err(|error| Failed::of(Call::Position, statement, &error))
    }
}

/// Returns the statement for one row.
fn single(place: &Prepared, parts: &Parts<'_>) -> Result<Option<Request>, Failed> {
    let Some(row) = parts.row else {
        let mut keys = place.key_arrays();
        place.append_key(&mut keys, parts.key)?;
        return Ok(place.delete(keys));
    };
    if let Some(request) = place.execute(row)? {
        return Ok(Some(request));
    }
    let mut arrays = place.arrays();
    place.append(&mut arrays, parts.key, row)?;
    Ok(place.write(arrays))
}

/// Returns the rows of each record, in order.
fn records(memory: &[Rc<Chunk>]) -> Vec<Record<'_>> {
    let mut records: Vec<Record<'_>> = Vec::new();
    for row in memory.iter().flat_map(|chunk| chunk.rows()) {
        let last = records.last_mut();
        match last.filter(|record| {
            record
                .first()
                .is_some_and(|first| is_same_record(first, &row))
        }) {
            Some(record) => record.push(row),
            None => records.push(vec![row]),
        }
    }
    records
}

fn is_same_record(one: &RowRef<'_>, other: &RowRef<'_>) -> bool {
    one.partition == other.partition && one.offset == other.offset
}

fn origin<'a>(record: &[RowRef<'a>]) -> Result<(&'a TopicPartition, Offset), Failed> {
    match record.first() {
        Some(row) => Ok((row.partition, row.offset)),
        None => Err(Failed::new(Reaction::Abort, "a record without rows")),
    }
}

//! A transaction with a refused row, run again one record at a time.
//!
//! The good path has no savepoints, so a refused row fails the whole transaction. Then its records run again from
//! memory, in order, each behind a savepoint. All rows of a record are kept or undone together. The culprit is the
//! record that fails in this order: sums of several records are not folded, since a later one could hide an earlier
//! one.

use std::collections::BTreeSet;
use std::rc::Rc;

use eos_protocol::{Offset, TopicPartition};

use super::chunk::{Chunk, RowRef};
use super::headers;
use super::letters;
use super::pipeline::Request;
use super::places::{Parts, Prepared};
use super::rows::{claim, unknown_place};
use super::work::Work;
use crate::error::Failed;
use crate::place::Refused;
use crate::sql;
use crate::sqlstate::{Call, Reaction};

const SAVEPOINT: &str = "SAVEPOINT eos_record";
const KEEP: &str = "RELEASE SAVEPOINT eos_record";
const UNDO: &str = "ROLLBACK TO SAVEPOINT eos_record; RELEASE SAVEPOINT eos_record";

/// When deferred constraints are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Constraints {
    /// After all records: a later record may satisfy what an earlier one needs.
    AtEnd,
    /// After each record: one of them breaks a constraint.
    PerRecord,
}

impl Work {
    /// Runs the records of this transaction again, without the refused ones.
    pub(super) async fn careful(&mut self) -> Result<(), Failed> {
        match self.pass(Constraints::AtEnd).await {
            Ok(()) => {}
            Err(failed) => return self.keep(failed),
        }
        self.check_constraints().await;
        match self.pipeline.drain().await {
            Ok(()) => Ok(()),
            Err(failed) if failed.reaction == Reaction::Refuse => {
                match self.pass(Constraints::PerRecord).await {
                    Ok(()) => Ok(()),
                    Err(failed) => self.keep(failed),
                }
            }
            Err(failed) => Err(failed),
        }
    }

    /// A transaction that failed must not commit.
    fn keep(&mut self, failed: Failed) -> Result<(), Failed> {
        self.pipeline.fail(failed.clone());
        Err(failed)
    }

    async fn pass(&mut self, constraints: Constraints) -> Result<(), Failed> {
        self.pipeline.clear();
        self.rows.clear();
        self.text("ROLLBACK").await?;
        // A rollback has dropped the locks of the positions.
        self.send_begin().await;
        let held = self.held.clone();
        self.send_hold(&held).await;
        self.pipeline.drain().await?;
        let memory = self.memory.clone();
        let mut record: Vec<RowRef<'_>> = Vec::new();
        for row in memory.iter().flat_map(|chunk: &Rc<Chunk>| chunk.rows()) {
            if record
                .first()
                .is_some_and(|first| !is_same_record(first, &row))
            {
                self.record(&record, constraints).await?;
                record.clear();
            }
            record.push(row);
        }
        if !record.is_empty() {
            self.record(&record, constraints).await?;
        }
        Ok(())
    }

    /// Writes the rows of a record, or what its policy says.
    async fn record(
        &mut self,
        record: &[RowRef<'_>],
        constraints: Constraints,
    ) -> Result<(), Failed> {
        self.text(SAVEPOINT).await?;
        let failed = match self.try_record(record, constraints).await {
            Ok(()) => return self.text(KEEP).await,
            Err(failed) => failed,
        };
        if failed.reaction != Reaction::Refuse {
            return Err(failed);
        }
        self.pipeline.clear();
        let policy = self.policy(record, &failed);
        if policy == Refused::Fail {
            return Err(failed);
        }
        self.text(UNDO).await?;
        let (partition, offset) = origin(record)?;
        tracing::warn!(%partition, %offset, ?policy, "the database refused a record: {}", failed.text);
        if policy == Refused::DeadLetter {
            self.dead_letter(record, &failed).await?;
        }
        Ok(())
    }

    /// The policy of the place that refused a row. A deferred constraint names no place: then each of the record's
    /// places must accept the loss.
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

    async fn try_record(
        &mut self,
        record: &[RowRef<'_>],
        constraints: Constraints,
    ) -> Result<(), Failed> {
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
            if let Some(request) = single(place, &parts)? {
                self.pipeline.send(request).await;
            }
        }
        if constraints == Constraints::PerRecord {
            self.check_constraints().await;
            self.pipeline
                .send_text(
                    Call::Data,
                    "a deferred constraint",
                    "SET CONSTRAINTS ALL DEFERRED".to_owned(),
                )
                .await;
        }
        self.pipeline.drain().await
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
        // A text of the server may contain anything but this.
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

    async fn text(&mut self, statement: &str) -> Result<(), Failed> {
        let done = self.connection.client.batch_execute(statement).await;
        done.map_err(|error| Failed::of(Call::Position, statement, &error))
    }
}

/// A statement for one row.
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

fn is_same_record(one: &RowRef<'_>, other: &RowRef<'_>) -> bool {
    one.partition == other.partition && one.offset == other.offset
}

fn origin<'a>(record: &[RowRef<'a>]) -> Result<(&'a TopicPartition, Offset), Failed> {
    match record.first() {
        Some(row) => Ok((row.partition, row.offset)),
        None => Err(Failed::new(Reaction::Abort, "a record without rows")),
    }
}

//! The rows of an open transaction, on their way into statements.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use eos_protocol::{Offset, TopicPartition};

use super::chunk::{Chunk, RowRef};
use super::fold::Fold;
use super::open::Connection;
use super::pipeline::Pipeline;
use super::places::{Parts, Prepared};
use crate::array::Array;
use crate::error::Failed;
use crate::sql;
use crate::sqlstate::Call;

/// Rows of keys wait for the end of the transaction, up to this many bytes. Beyond it, a deadlock is possible.
pub(super) const MAX_FOLDED: usize = 32 << 20;

/// Rows that were not sent yet.
pub(super) struct Rows {
    connection: Rc<Connection>,
    app: String,
    max_folded: usize,
    /// By place.
    folds: Vec<Fold>,
    /// By place, for the rows of a chunk.
    inserts: Vec<Vec<Array>>,
    /// Rows with the id of a message: the inbox decides about them at the end.
    undecided: Vec<(Rc<Chunk>, usize)>,
}

/// A record.
type Origin = (TopicPartition, Offset);

impl Rows {
    pub(super) fn new(connection: Rc<Connection>, app: &str, max_folded: usize) -> Self {
        Self {
            app: app.to_owned(),
            max_folded,
            folds: connection.places.iter().map(|_| Fold::default()).collect(),
            inserts: connection.places.iter().map(Prepared::arrays).collect(),
            connection,
            undecided: Vec::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new(Rc::clone(&self.connection), &self.app, self.max_folded);
    }

    /// Sends the rows of a chunk that need not wait.
    pub(super) async fn write(&mut self, pipeline: &mut Pipeline, chunk: &Rc<Chunk>) {
        for (index, row) in chunk.rows().enumerate() {
            if pipeline.failed().is_some() {
                return;
            }
            if let Err(failed) = self.add(pipeline, chunk, index, &row).await {
                return pipeline.fail(failed);
            }
        }
        self.send_inserts(pipeline).await;
        if self.folds.iter().map(Fold::weight).sum::<usize>() > self.max_folded {
            self.send_folds(pipeline).await;
        }
    }

    async fn add(
        &mut self,
        pipeline: &mut Pipeline,
        chunk: &Rc<Chunk>,
        index: usize,
        row: &RowRef<'_>,
    ) -> Result<(), Failed> {
        let connection = Rc::clone(&self.connection);
        let Some(place) = connection.places.get(row.place) else {
            return Err(unknown_place(row.place));
        };
        if let Some(letter) = place.letter(&self.app, row) {
            pipeline.send(letter).await;
            return Ok(());
        }
        let parts = place.parts(row)?;
        if parts.id.is_some() {
            self.undecided.push((Rc::clone(chunk), index));
            return Ok(());
        }
        self.place(pipeline, place, row, &parts).await
    }

    async fn place(
        &mut self,
        pipeline: &mut Pipeline,
        place: &Prepared,
        row: &RowRef<'_>,
        parts: &Parts<'_>,
    ) -> Result<(), Failed> {
        if let Some(closure) = place.closure() {
            // The queries of the closure see the rows of the earlier records.
            self.send_inserts(pipeline).await;
            self.send_folds(pipeline).await;
            pipeline.drain().await?;
            let tx = self.connection.tx(&place.definition.name);
            return place.run(closure, row, tx).await;
        }
        if place.keyed().is_some() {
            if let Some(fold) = self.folds.get_mut(place.index) {
                fold.push(place, parts)?;
            }
            return Ok(());
        }
        let Some(bytes) = parts.row else {
            return Ok(());
        };
        if let Some(request) = place.execute(bytes)? {
            pipeline.send(request).await;
        } else if let Some(arrays) = self.inserts.get_mut(place.index) {
            place.append(arrays, parts.key, bytes)?;
        }
        Ok(())
    }

    /// Decides about the rows with the id of a message: they count if the id is new. Then sends all remaining rows: first those
    /// of tables without a key, then the rows of keys.
    pub(super) async fn seal(&mut self, pipeline: &mut Pipeline) {
        if let Err(failed) = self.decide(pipeline).await {
            return pipeline.fail(failed);
        }
        self.send_inserts(pipeline).await;
        self.send_folds(pipeline).await;
    }

    async fn send_inserts(&mut self, pipeline: &mut Pipeline) {
        for (place, arrays) in self.connection.places.iter().zip(&mut self.inserts) {
            if arrays.first().is_some_and(|first| first.len() > 0) {
                let full = std::mem::replace(arrays, place.arrays());
                if let Some(request) = place.write(full) {
                    pipeline.send(request).await;
                }
            }
        }
    }

    /// Sends the rows of keys by place, then by key: all workers lock shared rows in the same order.
    async fn send_folds(&mut self, pipeline: &mut Pipeline) {
        for (place, fold) in self.connection.places.iter().zip(&mut self.folds) {
            match fold.take(place) {
                Ok(requests) => {
                    for request in requests {
                        pipeline.send(request).await;
                    }
                }
                Err(failed) => return pipeline.fail(failed),
            }
        }
    }

    /// Claims the ids of messages, in order, and writes the rows of those that are new. Of two records with one id,
    /// the first one has its effect.
    async fn decide(&mut self, pipeline: &mut Pipeline) -> Result<(), Failed> {
        if self.undecided.is_empty() {
            return Ok(());
        }
        pipeline.drain().await?;
        let undecided = std::mem::take(&mut self.undecided);
        let connection = Rc::clone(&self.connection);
        let mut firsts: BTreeMap<String, BTreeMap<Vec<u8>, Origin>> = BTreeMap::new();
        for (chunk, index) in &undecided {
            let Some((place, row, parts)) = lookup(&connection, chunk, *index)? else {
                continue;
            };
            if let (Some(subscriber), Some(id)) = (&place.definition.inbox, parts.id) {
                let ids = firsts.entry(subscriber.clone()).or_default();
                ids.entry(id.to_vec())
                    .or_insert_with(|| (row.partition.clone(), row.offset));
            }
        }
        let mut new = BTreeMap::new();
        for (subscriber, ids) in &firsts {
            let ids: Vec<&[u8]> = ids.keys().map(Vec::as_slice).collect();
            new.insert(
                subscriber.as_str(),
                claim(&connection, subscriber, &ids).await?,
            );
        }
        for (chunk, index) in &undecided {
            let Some((place, row, parts)) = lookup(&connection, chunk, *index)? else {
                continue;
            };
            let (Some(subscriber), Some(id)) = (place.definition.inbox.as_deref(), parts.id) else {
                continue;
            };
            let is_new = new.get(subscriber).is_some_and(|new| new.contains(id));
            let first = firsts.get(subscriber).and_then(|ids| ids.get(id));
            let is_first = first.is_some_and(|(partition, offset)| {
                partition == row.partition && *offset == row.offset
            });
            if is_new && is_first {
                self.place(pipeline, place, &row, &parts).await?;
            }
        }
        Ok(())
    }
}

fn lookup<'a>(
    connection: &'a Connection,
    chunk: &'a Chunk,
    index: usize,
) -> Result<Option<(&'a Prepared, RowRef<'a>, Parts<'a>)>, Failed> {
    let Some(row) = chunk.row(index) else {
        return Ok(None);
    };
    let Some(place) = connection.places.get(row.place) else {
        return Err(unknown_place(row.place));
    };
    let parts = place.parts(&row)?;
    Ok(Some((place, row, parts)))
}

pub(super) fn unknown_place(place: usize) -> Failed {
    Failed::new(
        crate::sqlstate::Reaction::Stop,
        format!("place {place} is not in the plan of the app"),
    )
}

/// Claims ids, and returns those that are new. The ids are sorted, so that two workers do not deadlock.
pub(super) async fn claim(
    connection: &Connection,
    subscriber: &str,
    ids: &[&[u8]],
) -> Result<BTreeSet<Vec<u8>>, Failed> {
    let failed = |error: tokio_postgres::Error| Failed::of(Call::Data, "the inbox", &error);
    let rows = connection
        .client
        .query(&connection.claim, &[&subscriber, &ids])
        .await
        .map_err(failed)?;
    if connection.claims_alone {
        let alone = format!("COMMIT; {}", sql::BEGIN);
        connection
            .client
            .batch_execute(&alone)
            .await
            .map_err(failed)?;
    }
    rows.iter()
        .map(|row| row.try_get(0).map_err(failed))
        .collect()
}

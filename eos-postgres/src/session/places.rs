//! The prepared statements of places, and the requests that write rows with them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use super::chunk::RowRef;
use super::columns::Columns;
use super::headers;
use super::pipeline::{Expect, Request};
use eos_protocol::dead_letter::MESSAGE;

use crate::array::{Array, Param};
use crate::catalog;
use crate::check;
use crate::defence::Defence;
use crate::error::Failed;
use crate::place::{Definition, Shape, StatementShape, TableShape};
use crate::postgres::Postgres;
use crate::row::{self, Malformed, Values};
use crate::sql::{self, TableSql};
use crate::sqlstate::{Call, Reaction};
use crate::targets::{self, Target};
use crate::tx::{AppliedShape, Encoded, Tx};

/// PostgreSQL takes messages of 1 GiB. A row has to fit with its array.
const MAX_ROW: usize = 512 << 20;
/// The time of a closure. It is below the time of a commit, so that its error is known before the transaction ends.
const CLOSURE_LIMIT: Duration = Duration::from_secs(5);

/// A place with its prepared statements.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) index: usize,
    pub(super) definition: Arc<Definition>,
    statements: Statements,
}

#[derive(Debug)]
enum Statements {
    Table {
        write: Statement,
        counts_missing: bool,
        lock: Option<Statement>,
        delete: Option<Statement>,
    },
    User(Statement),
    Closure(AppliedShape),
    Letters(Statement),
}

/// A row, taken apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts<'a> {
    /// The id of the message, if the place has an inbox.
    pub(super) id: Option<&'a [u8]>,
    /// The values of the key columns, as [`Values::bare`] reads them.
    pub(super) key: &'a [u8],
    /// `None` deletes the key.
    pub(super) row: Option<&'a [u8]>,
}

/// Resolves and prepares all places. Returns the columns of tables as well.
pub(super) async fn prepare(
    client: &Client,
    postgres: &Postgres,
    definitions: &[Arc<Definition>],
) -> Result<(Vec<Prepared>, Columns), Failed> {
    let needs_logged = postgres.has(Defence::LoggedTables);
    let mut mistakes = Vec::new();
    let mut columns = Columns::default();
    let mut prepared = Vec::new();
    for (index, definition) in definitions.iter().enumerate() {
        let failed = |error: tokio_postgres::Error| {
            Failed::of(
                Call::Outside,
                &format!("the preparation of {}", definition.name),
                &error,
            )
        };
        let resolved = catalog::resolve(client, definition, needs_logged);
        let resolved = match resolved.await.map_err(failed)? {
            Ok(resolved) => resolved,
            Err(found) => {
                mistakes.extend(found);
                continue;
            }
        };
        let statements = match (&definition.shape, resolved.names) {
            (Shape::Table(shape), Some(names)) => {
                columns.add(shape, &names);
                table(client, &sql::table_sql(shape, &names)).await
            }
            (Shape::Statement(shape), _) => {
                let user = user(client, shape).await.map_err(failed)?;
                mistakes.extend(targets::unfit(&definition.name, &user.1, needs_logged));
                Ok(Statements::User(user.0))
            }
            (Shape::Apply(closure), _) => Ok(Statements::Closure(closure.clone())),
            (Shape::Letters, _) => client
                .prepare(sql::DEAD_LETTER)
                .await
                .map(Statements::Letters),
            (Shape::Table(_), None) => continue,
        };
        prepared.push(Prepared {
            index,
            definition: Arc::clone(definition),
            statements: statements.map_err(failed)?,
        });
    }
    if mistakes.is_empty() {
        Ok((prepared, columns))
    } else {
        Err(check::not_ready(&mistakes))
    }
}

async fn table(client: &Client, sql: &TableSql) -> Result<Statements, tokio_postgres::Error> {
    let optional = async |text: &Option<String>| match text {
        Some(text) => client.prepare(text).await.map(Some),
        None => Ok(None),
    };
    Ok(Statements::Table {
        write: client.prepare(&sql.write).await?,
        counts_missing: sql.counts_missing,
        lock: optional(&sql.lock).await?,
        delete: optional(&sql.delete).await?,
    })
}

async fn user(
    client: &Client,
    shape: &StatementShape,
) -> Result<(Statement, Vec<Target>), tokio_postgres::Error> {
    let declared: Vec<_> = shape.params.iter().copied().map(Param::declared).collect();
    targets::prepare(client, &shape.sql, &declared).await
}

impl Prepared {
    /// Returns the table with a key, whose rows are folded by key.
    pub(super) fn keyed(&self) -> Option<&TableShape> {
        self.table().filter(|shape| !shape.keys.is_empty())
    }

    pub(super) fn table(&self) -> Option<&TableShape> {
        match &self.definition.shape {
            Shape::Table(shape) => Some(shape),
            Shape::Statement(_) | Shape::Apply(_) | Shape::Letters => None,
        }
    }

    /// Returns the failure of a row that cannot be written.
    pub(super) fn refuse(&self, text: &str) -> Failed {
        let text = format!("{}: {text}", self.definition.name);
        Failed::new(Reaction::Refuse, text).at(self.index)
    }

    fn malformed(&self, error: Malformed) -> Failed {
        let text = format!("{}: {error}", self.definition.name);
        Failed::new(Reaction::Stop, text).at(self.index)
    }

    /// Splits a row into its parts, and checks what the database does not check.
    pub(super) fn parts<'a>(&self, row: &RowRef<'a>) -> Result<Parts<'a>, Failed> {
        let malformed = |error| self.malformed(error);
        let size = row.key.map_or(0, <[u8]>::len) + row.row.map_or(0, <[u8]>::len);
        if size > MAX_ROW {
            return Err(self.refuse(&format!(
                "a row of {size} bytes: at most {MAX_ROW} bytes fit into a message"
            )));
        }
        let mut keys = match row.key {
            Some(key) if !key.is_empty() => row::values(key).map_err(malformed)?,
            _ => Values::bare(&[]),
        };
        let mut id = None;
        if self.definition.inbox.is_some() {
            id = keys.next().transpose().map_err(malformed)?.flatten();
            if id.is_none() {
                return Err(self.refuse(
                    "the record has no id of a message, so that its duplicates cannot be told",
                ));
            }
        }
        let key = keys.rest();
        for value in keys {
            if value.map_err(malformed)?.is_none() {
                return Err(self.refuse(
                    "a deletion, but its key is taken from the value: use `.record_key(..)`",
                ));
            }
        }
        if row.row.is_none() {
            match self.keyed() {
                None => {
                    return Err(
                        self.refuse("a deletion, but the place has no key: add `.record_key(..)`")
                    );
                }
                Some(shape) if shape.newer_by.is_some() => {
                    return Err(self.refuse(
                        "a deletion has no version, so that an older one cannot be told: use a column for deletions",
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(Parts {
            id,
            key,
            row: row.row,
        })
    }

    /// Returns the values of a row's columns other than keys.
    pub(super) fn values<'a>(&self, row: &'a [u8]) -> Result<Vec<Option<&'a [u8]>>, Failed> {
        let malformed = |error| self.malformed(error);
        let values: Result<Vec<_>, _> = row::values(row).map_err(malformed)?.collect();
        let values = values.map_err(malformed)?;
        let expected = match &self.definition.shape {
            Shape::Table(shape) => shape.columns.len(),
            Shape::Statement(shape) => shape.params.len(),
            Shape::Apply(_) => 2,
            Shape::Letters => 0,
        };
        if values.len() == expected {
            Ok(values)
        } else {
            Err(self.malformed(Malformed::Short))
        }
    }

    /// Returns empty arrays for all columns.
    pub(super) fn arrays(&self) -> Vec<Array> {
        let kinds = self.table().into_iter().flat_map(TableShape::all);
        kinds.map(|column| Array::new(column.kind)).collect()
    }

    /// Appends a row to the arrays: keys, then the other columns.
    pub(super) fn append(
        &self,
        arrays: &mut [Array],
        key: &[u8],
        row: &[u8],
    ) -> Result<(), Failed> {
        let values = self.values(row)?;
        let keys: Result<Vec<_>, _> = Values::bare(key).collect();
        let keys = keys.map_err(|error| self.malformed(error))?;
        if keys.len() + values.len() != arrays.len() {
            return Err(self.malformed(Malformed::Short));
        }
        for (array, value) in arrays.iter_mut().zip(keys.into_iter().chain(values)) {
            array.push(value);
        }
        Ok(())
    }

    /// Returns empty arrays for the key columns.
    pub(super) fn key_arrays(&self) -> Vec<Array> {
        let keys = self.table().map_or(&[][..], |shape| &shape.keys);
        keys.iter().map(|key| Array::new(key.kind)).collect()
    }

    pub(super) fn append_key(&self, arrays: &mut [Array], key: &[u8]) -> Result<(), Failed> {
        for (array, value) in arrays.iter_mut().zip(Values::bare(key)) {
            array.push(value.map_err(|error| self.malformed(error))?);
        }
        Ok(())
    }

    fn request(
        &self,
        statement: &Statement,
        arrays: Vec<Array>,
        verb: &str,
        expect: Expect,
    ) -> Request {
        let boxed = |array: Array| -> Box<dyn ToSql + Sync> { Box::new(array) };
        Request {
            statement: statement.clone(),
            params: arrays.into_iter().map(boxed).collect(),
            expect,
            what: format!("{verb} {}", self.definition.name),
            place: self.index,
        }
    }

    pub(super) fn write(&self, arrays: Vec<Array>) -> Option<Request> {
        match &self.statements {
            Statements::Table {
                write,
                counts_missing,
                ..
            } => {
                let expect = if *counts_missing {
                    Expect::NoneMissing
                } else {
                    Expect::Success
                };
                Some(self.request(write, arrays, "a write to", expect))
            }
            Statements::User(_) | Statements::Closure(_) | Statements::Letters(_) => None,
        }
    }

    pub(super) fn lock(&self, keys: Vec<Array>) -> Option<Request> {
        match &self.statements {
            Statements::Table {
                lock: Some(lock), ..
            } => Some(self.request(lock, keys, "a lock in", Expect::Success)),
            _ => None,
        }
    }

    pub(super) fn delete(&self, keys: Vec<Array>) -> Option<Request> {
        match &self.statements {
            Statements::Table {
                delete: Some(delete),
                ..
            } => Some(self.request(delete, keys, "a deletion from", Expect::Success)),
            _ => None,
        }
    }

    /// Returns the row of `eos.dead_letters` for a record that the app gives up. `None` for other places.
    pub(super) fn letter(&self, app: &str, row: &RowRef<'_>) -> Option<Request> {
        let Statements::Letters(statement) = &self.statements else {
            return None;
        };
        let message = row.headers.get(MESSAGE).unwrap_or_default();
        let message = String::from_utf8_lossy(message).replace('\0', "");
        let params: Vec<Box<dyn ToSql + Sync>> = vec![
            Box::new(app.to_owned()),
            Box::new(row.partition.topic.as_str().to_owned()),
            Box::new(row.partition.partition.get()),
            Box::new(row.offset.get()),
            Box::new(self.definition.name.clone()),
            Box::new(String::new()),
            Box::new(message),
            Box::new(None::<Vec<u8>>),
            Box::new(headers::headers(row)),
            Box::new(row.key.map(<[u8]>::to_vec)),
            Box::new(row.row.map(<[u8]>::to_vec)),
        ];
        Some(Request {
            statement: statement.clone(),
            params,
            expect: Expect::Success,
            what: "a write to eos.dead_letters".into(),
            place: self.index,
        })
    }

    /// Returns the closure of the place.
    pub(super) fn closure(&self) -> Option<&AppliedShape> {
        match &self.statements {
            Statements::Closure(closure) => Some(closure),
            _ => None,
        }
    }

    /// Runs a closure. The statements before it must have succeeded.
    pub(super) async fn run(
        &self,
        closure: &AppliedShape,
        row: &RowRef<'_>,
        mut tx: Tx,
    ) -> Result<(), Failed> {
        let values = self.values(row.row.unwrap_or_default())?;
        let [key, value] = values[..] else {
            return Err(self.malformed(Malformed::Short));
        };
        let record = Encoded {
            key: key.unwrap_or_default(),
            value: value.unwrap_or_default(),
            timestamp: row.timestamp,
            headers: row.headers,
        };
        let running = AssertUnwindSafe(closure.0.apply(&mut tx, record)).catch_unwind();
        let done = tokio::time::timeout(CLOSURE_LIMIT, running).await;
        match (tx.into_failed(), done) {
            (Some(failed), _) => Err(failed.at(self.index)),
            (None, Err(_)) => {
                let text = format!(
                    "{} has not ended within {CLOSURE_LIMIT:?}: it must wait only for its statements",
                    self.definition.name
                );
                Err(Failed::new(Reaction::Abort, text).at(self.index))
            }
            (None, Ok(Err(_))) => Err(self.refuse("the closure panicked")),
            (None, Ok(Ok(Err(failure)))) => Err(self.refuse(&failure.to_string())),
            (None, Ok(Ok(Ok(())))) => Ok(()),
        }
    }

    /// Returns the request that executes a user's statement.
    pub(super) fn execute(&self, row: &[u8]) -> Result<Option<Request>, Failed> {
        let (Statements::User(statement), Shape::Statement(shape)) =
            (&self.statements, &self.definition.shape)
        else {
            return Ok(None);
        };
        let values = self.values(row)?;
        let param = |(kind, value): (&crate::Kind, Option<&[u8]>)| -> Box<dyn ToSql + Sync> {
            Box::new(Param {
                kind: *kind,
                value: value.map(<[u8]>::to_vec),
            })
        };
        Ok(Some(Request {
            statement: statement.clone(),
            params: shape.params.iter().zip(values).map(param).collect(),
            expect: shape.affects.map_or(Expect::Success, Expect::Affects),
            what: self.definition.name.clone(),
            place: self.index,
        }))
    }
}

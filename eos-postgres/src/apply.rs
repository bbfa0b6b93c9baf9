//! Closures that run in the transaction of their records.

use std::fmt;
use std::sync::Arc;

use eos_core::boundary::{Place, Row};
use eos_core::{Failure, Record};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::place::{Definition, Refused, Shape};
use crate::postgres::Postgres;
use crate::row;
use crate::table::{Inbox, WriteKey, encode_key, options, subscriber};
use crate::tx::{AppliedShape, Tx};
use crate::value::KeyColumn;

/// A closure with the transaction of its record. [`Postgres::apply`] makes one for
/// [`to_rows`](crate::PostgresStream::to_rows), and [`PostgresStream::apply`](crate::PostgresStream::apply) ends a stream
/// in one.
///
/// The closure runs on the thread of a session, which receives the record as JSON. So key and value need `serde`, and must
/// keep their meaning: JSON has no NaN and no infinity, and reads `Some(())` as `None`.
///
/// A closure must not block its thread. If it has not ended within 5 seconds, the transaction is aborted. An error or a
/// panic refuses the record. The text of the error is logged, so it should not contain secrets.
///
/// # Exactly-once
/// The statements of the closure commit in one transaction with the position of its record. The closure may run again
/// for the same record, after a transaction that did not commit: only its statements have their effect once. A statement
/// that writes an unlogged, foreign or temporary table stops the worker.
///
/// # Examples
/// ```
/// use eos_postgres::{Postgres, Refused};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let shop = Postgres::connect("postgres://shop@localhost/shop")?;
/// let book = shop
///     .apply("book", async |tx, order: eos_core::Record<String, i64>| {
///         let taken = tx
///             .execute(
///                 "UPDATE stock SET units = units - $2 WHERE sku = $1 AND units >= $2",
///                 &[&order.key, &order.value],
///             )
///             .await?;
///         if taken == 0 {
///             tx.execute("INSERT INTO backorders VALUES ($1, $2)", &[&order.key, &order.value])
///                 .await?;
///         }
///         Ok(())
///     })
///     .refused(Refused::DeadLetter);
/// # Ok(())
/// # }
/// ```
pub struct Apply<K, V> {
    shop: Postgres,
    name: String,
    closure: AppliedShape,
    refused: Refused,
    inbox: Option<(Inbox, WriteKey<K, V>)>,
}

impl<K, V> Apply<K, V>
where
    K: Serialize + DeserializeOwned + 'static,
    V: Serialize + DeserializeOwned + 'static,
{
    pub(crate) fn new(
        shop: Postgres,
        name: String,
        closure: impl AsyncFn(&mut Tx, Record<K, V>) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Self {
        Self {
            shop,
            name,
            closure: AppliedShape::new(closure),
            refused: Refused::default(),
            inbox: None,
        }
    }
}

options!(Apply);

impl<K, V> Place<K, V> for Apply<K, V>
where
    K: Serialize + 'static,
    V: Serialize + 'static,
{
    fn name(&self) -> String {
        self.shop.register(Definition {
            name: format!("closure {}", self.name),
            shape: Shape::Apply(self.closure.clone()),
            refused: self.refused,
            inbox: subscriber(self.inbox.as_ref()),
        })
    }

    fn encode(&self, key: &K, value: &V, row: &mut Row) -> Result<(), Failure> {
        encode_key(self.inbox.as_ref(), &[], (key, Some(value)), &mut row.key);
        row::begin(&mut row.row);
        push_json(&mut row.row, key)?;
        push_json(&mut row.row, value)
    }
}

fn push_json(row: &mut Vec<u8>, value: &impl Serialize) -> Result<(), Failure> {
    let mut written = Ok(());
    row::push(row, |to| {
        written = serde_json::to_writer(to, value);
        true
    });
    Ok(written?)
}

impl<K, V> Clone for Apply<K, V> {
    fn clone(&self) -> Self {
        Self {
            shop: self.shop.clone(),
            name: self.name.clone(),
            closure: self.closure.clone(),
            refused: self.refused,
            inbox: self.inbox.clone(),
        }
    }
}

impl<K, V> fmt::Debug for Apply<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Apply");
        text.field("name", &self.name).finish_non_exhaustive()
    }
}

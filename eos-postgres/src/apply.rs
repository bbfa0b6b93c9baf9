//! Closures that run in the transaction of their records.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use eos_core::boundary::{Place, Row};
use eos_core::{Failure, Headers, Record};
use eos_protocol::Timestamp;
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use crate::error::Failed;
use crate::place::{Definition, Refused, Shape, control_word};
use crate::postgres::Postgres;
use crate::row;
use crate::sqlstate::{Call, Reaction};
use crate::table::{Inbox, WriteKey, encode_key, subscriber};
use crate::value::KeyColumn;

/// The most texts whose prepared statements a session keeps.
const MAX_PREPARED: usize = 256;
/// "cached plan must not change result type": `feature_not_supported`.
const STALE_PLAN: &str = "0A000";

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
/// for the same record, after a transaction that did not commit: only its statements have their effect once.
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
    closure: Arc<dyn Applied>,
    refused: Refused,
    inbox: Option<(Inbox, WriteKey<K, V>)>,
}

/// The open transaction, for a closure of [`Apply`].
///
/// After a failed statement, all further calls return its error. The closure then fails, even if it ignores the error
/// and returns `Ok`.
pub struct Tx {
    client: Rc<Client>,
    prepared: Rc<Prepared>,
    /// The purpose of the statements, for messages.
    what: String,
    failed: Option<Failed>,
}

/// The prepared statements of a session, by text.
#[derive(Default)]
pub(crate) struct Prepared(RefCell<HashMap<String, Statement>>);

/// A record for a closure, as JSON.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encoded<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) timestamp: Option<Timestamp>,
    pub(crate) headers: &'a Headers,
}

/// A closure, without the types of its records.
pub(crate) trait Applied: Send + Sync {
    fn apply<'a>(
        &'a self,
        tx: &'a mut Tx,
        record: Encoded<'a>,
    ) -> LocalBoxFuture<'a, Result<(), Failure>>;
}

struct Typed<K, V, F> {
    closure: F,
    types: PhantomData<fn(K, V)>,
}

impl<K, V, F> Applied for Typed<K, V, F>
where
    K: DeserializeOwned,
    V: DeserializeOwned,
    F: AsyncFn(&mut Tx, Record<K, V>) -> Result<(), Failure> + Send + Sync,
{
    fn apply<'a>(
        &'a self,
        tx: &'a mut Tx,
        encoded: Encoded<'a>,
    ) -> LocalBoxFuture<'a, Result<(), Failure>> {
        async move {
            let key = decode("key", encoded.key)?;
            let value = decode("value", encoded.value)?;
            let mut record = Record::new(key, value);
            record.timestamp = encoded.timestamp;
            record.headers = encoded.headers.clone();
            (self.closure)(tx, record).await
        }
        .boxed_local()
    }
}

/// Reads JSON. The error contains no value, unlike that of serde.
fn decode<T: DeserializeOwned>(part: &str, json: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(json).map_err(|error| {
        format!(
            "the {part} cannot be read from the JSON that it was written to (column {}): its type needs `Serialize` and \
             `Deserialize` that match",
            error.column()
        )
        .into()
    })
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
            closure: Arc::new(Typed {
                closure,
                types: PhantomData,
            }),
            refused: Refused::default(),
            inbox: None,
        }
    }
}

impl<K, V> Apply<K, V> {
    /// Sets the policy for a record whose closure returns an error, or whose statement the database refuses. Default:
    /// [`Refused::Fail`].
    #[must_use]
    pub fn refused(mut self, policy: Refused) -> Self {
        self.refused = policy;
        self
    }

    /// Gives each message its effect once, also if its producer sends it again. The id must be unique among all messages
    /// of the inbox. Of two records with an id, the first one has the effect.
    ///
    /// # Exactly-once
    /// The id commits in one transaction with the statements of the closure.
    #[must_use]
    pub fn once_by<C: KeyColumn>(
        mut self,
        inbox: &Inbox,
        id: impl Fn(&K, &V) -> C + Send + Sync + 'static,
    ) -> Self {
        let write =
            move |k: &K, v: Option<&V>, to: &mut Vec<u8>| v.is_some_and(|v| id(k, v).write(to));
        self.inbox = Some((inbox.clone(), Arc::new(write)));
        self
    }
}

impl<K, V> Place<K, V> for Apply<K, V>
where
    K: Serialize + 'static,
    V: Serialize + 'static,
{
    fn name(&self) -> String {
        self.shop.register(Definition {
            name: format!("closure {}", self.name),
            shape: Shape::Apply(AppliedShape(Arc::clone(&self.closure))),
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

/// A closure in the definition of a place.
#[derive(Clone)]
pub(crate) struct AppliedShape(pub(crate) Arc<dyn Applied>);

/// Compares the identity of closures.
impl PartialEq for AppliedShape {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for AppliedShape {}

impl Tx {
    pub(crate) fn new(client: &Rc<Client>, prepared: &Rc<Prepared>, what: &str) -> Self {
        Self {
            client: Rc::clone(client),
            prepared: Rc::clone(prepared),
            what: what.to_owned(),
            failed: None,
        }
    }

    /// The statement that failed first.
    pub(crate) fn into_failed(self) -> Option<Failed> {
        self.failed
    }

    /// Runs a statement, and returns the number of affected rows.
    ///
    /// # Errors
    /// The error of the server, without values of rows. All statements of this record are then rolled back.
    pub async fn execute(
        &mut self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, Failure> {
        let statement = self.statement(sql, params.len()).await?;
        let done = self.client.execute(&statement, params).await;
        done.map_err(|error| self.fail(&error))
    }

    /// Runs a query, and returns its rows.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub async fn query(
        &mut self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<tokio_postgres::Row>, Failure> {
        let statement = self.statement(sql, params.len()).await?;
        let rows = self.client.query(&statement, params).await;
        rows.map_err(|error| self.fail(&error))
    }

    /// Runs a query, and returns its first row.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub async fn query_opt(
        &mut self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<tokio_postgres::Row>, Failure> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }

    /// Returns the prepared statement, which has this number of parameters.
    async fn statement(&mut self, sql: &str, params: usize) -> Result<Statement, Failure> {
        let statement = self.prepare(sql).await?;
        let expected = statement.params().len();
        if expected == params {
            return Ok(statement);
        }
        let text = format!(
            "{}: a statement has {expected} parameters, and the closure passes {params}",
            self.what
        );
        Err(self.note(Failed::new(Reaction::Stop, text)))
    }

    async fn prepare(&mut self, sql: &str) -> Result<Statement, Failure> {
        if let Some(failed) = &self.failed {
            return Err(failed.text.clone().into());
        }
        if let Some(word) = control_word(sql) {
            let text = format!(
                "{} runs {word}: a statement must not end the transaction, or change the session. Remove it",
                self.what
            );
            return Err(self.note(Failed::new(Reaction::Stop, text)));
        }
        let known = self.prepared.0.borrow().get(sql).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.client.prepare(sql).await;
        let statement = statement.map_err(|error| self.fail(&error))?;
        let mut prepared = self.prepared.0.borrow_mut();
        if prepared.len() >= MAX_PREPARED {
            prepared.clear();
        }
        prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    fn fail(&mut self, error: &tokio_postgres::Error) -> Failure {
        let mut failed = Failed::of(Call::Data, &self.what, error);
        if is_wrong_type(error) {
            // The program is wrong, and not the record.
            failed.reaction = Reaction::Stop;
        } else if failed.code == STALE_PLAN {
            // A table has changed since the statement was prepared. The next transaction prepares it again.
            self.prepared.0.borrow_mut().clear();
            failed.reaction = Reaction::Abort;
        }
        self.note(failed)
    }

    fn note(&mut self, failed: Failed) -> Failure {
        let text = failed.text.clone();
        self.failed.get_or_insert(failed);
        text.into()
    }
}

/// Whether a Rust type does not fit the type of its parameter.
fn is_wrong_type(error: &tokio_postgres::Error) -> bool {
    let source = std::error::Error::source(error);
    source.is_some_and(|source| source.is::<tokio_postgres::types::WrongType>())
}

impl<K, V> Clone for Apply<K, V> {
    fn clone(&self) -> Self {
        Self {
            shop: self.shop.clone(),
            name: self.name.clone(),
            closure: Arc::clone(&self.closure),
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

impl fmt::Debug for AppliedShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppliedShape").finish_non_exhaustive()
    }
}

impl fmt::Debug for Tx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx")
            .field("of", &self.what)
            .finish_non_exhaustive()
    }
}

//! The open transaction for closures, and closures without the types of their records.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use eos_core::{Failure, Headers, Record};
use eos_protocol::Timestamp;
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde::de::DeserializeOwned;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use crate::control::control_word;
use crate::error::Failed;
use crate::sqlstate::{Call, Reaction};
use crate::targets;

/// The maximum number of prepared statements that a session keeps, by text.
const MAX_PREPARED: usize = 256;

/// The open transaction, for a closure of [`Apply`](crate::Apply).
///
/// After a failed statement, all further calls return its error. The closure then fails, even if it ignores the error
/// and returns `Ok`.
pub struct Tx {
    client: Rc<Client>,
    prepared: Rc<PreparedStatements>,
    /// The purpose of the statements, for messages.
    what: String,
    failed: Option<Failed>,
}

/// The prepared statements of a session, by text.
pub(crate) struct PreparedStatements {
    by_text: RefCell<HashMap<String, Statement>>,
    /// The texts that were checked alone. They write no unfit table.
    checked: RefCell<HashSet<String>>,
    /// A purpose, and a text to check before the next transaction: this one has written an unfit table, perhaps in a
    /// trigger.
    doubtful: RefCell<Option<(String, String)>>,
    needs_logged: bool,
}

impl PreparedStatements {
    pub(crate) fn new(needs_logged: bool) -> Self {
        Self {
            by_text: RefCell::default(),
            checked: RefCell::default(),
            doubtful: RefCell::default(),
            needs_logged,
        }
    }

    /// Checks the doubtful statement of the transaction before. No transaction must be open.
    pub(crate) async fn check_doubtful(&self, client: &Client) -> Result<(), Failed> {
        let Some((what, sql)) = self.doubtful.take() else {
            return Ok(());
        };
        let prepared = targets::prepare(client, &sql, &[]).await;
        let (_, targets) = prepared.map_err(|error| Failed::of(Call::Position, &what, &error))?;
        let unfit = targets::unfit(&what, &targets, self.needs_logged);
        if let Some(mistake) = unfit.into_iter().next() {
            return Err(Failed::new(Reaction::Stop, mistake));
        }
        let mut checked = self.checked.borrow_mut();
        if checked.len() >= MAX_PREPARED {
            checked.clear();
        }
        checked.insert(sql);
        Ok(())
    }
}

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

/// A closure in the definition of a place.
#[derive(Clone)]
pub(crate) struct AppliedShape(pub(crate) Arc<dyn Applied>);

impl AppliedShape {
    pub(crate) fn new<K, V>(
        closure: impl AsyncFn(&mut Tx, Record<K, V>) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Self
    where
        K: DeserializeOwned + 'static,
        V: DeserializeOwned + 'static,
    {
        Self(Arc::new(Typed {
            closure,
            types: PhantomData,
        }))
    }
}

/// Compares the identity of closures.
impl PartialEq for AppliedShape {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for AppliedShape {}

impl Tx {
    pub(crate) fn new(client: &Rc<Client>, prepared: &Rc<PreparedStatements>, what: &str) -> Self {
        Self {
            client: Rc::clone(client),
            prepared: Rc::clone(prepared),
            what: what.to_owned(),
            failed: None,
        }
    }

    /// Returns the failure of the statement that failed first.
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

    /// Returns the prepared statement. Fails if it has another number of parameters.
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
        let known = self.prepared.by_text.borrow().get(sql).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let prepared = targets::prepare_within(&self.client, sql).await;
        let (statement, targets) = prepared.map_err(|error| self.fail(&error))?;
        let unfit = targets::unfit(&self.what, &targets, self.prepared.needs_logged);
        if let Some(mistake) = unfit.into_iter().next()
            && !self.prepared.checked.borrow().contains(sql)
        {
            *self.prepared.doubtful.borrow_mut() = Some((self.what.clone(), sql.to_owned()));
            let text = format!(
                "{mistake}, or a trigger does: the statement is checked before the next transaction"
            );
            return Err(self.note(Failed::new(Reaction::Abort, text)));
        }
        let mut prepared = self.prepared.by_text.borrow_mut();
        if prepared.len() >= MAX_PREPARED {
            prepared.clear();
        }
        prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    fn fail(&mut self, error: &tokio_postgres::Error) -> Failure {
        let mut failed = Failed::of(Call::Data, &self.what, error);
        if is_wrong_type(error) {
            // The mistake is in the program, and not in the record.
            failed.reaction = Reaction::Stop;
        }
        self.note(failed)
    }

    fn note(&mut self, failed: Failed) -> Failure {
        let text = failed.text.clone();
        self.failed.get_or_insert(failed);
        text.into()
    }
}

/// Returns whether a Rust type does not fit the type of its parameter.
fn is_wrong_type(error: &tokio_postgres::Error) -> bool {
    let source = std::error::Error::source(error);
    source.is_some_and(|source| source.is::<tokio_postgres::types::WrongType>())
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

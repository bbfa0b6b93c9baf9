//! Statements of a test, without an asynchronous runtime.

use tokio_postgres::{Client, SimpleQueryMessage};

use super::ClusterError;
use crate::connect::{self, Target};

/// A row of texts.
type Row = Vec<Option<String>>;

/// Runs statements in a connection of their own, and returns the rows of all of them as text.
///
/// # Errors
/// [`ClusterError::Sql`] with the error of the server.
pub fn run(url: &str, statements: &str) -> Result<Vec<Row>, ClusterError> {
    let statement: String = statements.chars().take(200).collect();
    let refused = |cause: String| ClusterError::Sql {
        statement: statement.clone(),
        cause,
    };
    with_client(url, async |client| {
        let messages = client
            .simple_query(statements)
            .await
            .map_err(|error| refused(crate::error::describe(&error)))?;
        Ok(messages.iter().filter_map(texts).collect())
    })
    .map_err(refused)?
}

/// Runs a query, and returns the first column of its first row as text. A NULL and no row are empty.
///
/// # Errors
/// [`ClusterError::Sql`] with the error of the server.
pub fn value(url: &str, query: &str) -> Result<String, ClusterError> {
    let first = run(url, query)?.into_iter().next();
    let column = first.and_then(|row| row.into_iter().next());
    Ok(column.flatten().unwrap_or_default())
}

/// Installs the tables of eos in a database. Does nothing if they are there.
///
/// # Errors
/// [`ClusterError::Failed`] with the error of the server.
pub fn install(url: &str) -> Result<(), ClusterError> {
    let failed = |cause: String| ClusterError::failed("install the schema", cause);
    with_client(url, async |client| {
        crate::install(client)
            .await
            .map_err(|error| failed(error.to_string()))
    })
    .map_err(failed)?
}

fn texts(message: &SimpleQueryMessage) -> Option<Row> {
    match message {
        SimpleQueryMessage::Row(row) => Some(
            (0..row.len())
                .map(|column| row.get(column).map(Into::into))
                .collect(),
        ),
        _ => None,
    }
}

fn with_client<T>(url: &str, work: impl AsyncFnOnce(&Client) -> T) -> Result<T, String> {
    let target = Target::parse(url).map_err(|error| error.to_string())?;
    let runtime = connect::runtime().map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let client = connect::open(&target, "eos/test")
            .await
            .map_err(|error| error.to_string())?;
        Ok(work(&client).await)
    })
}

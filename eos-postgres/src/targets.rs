//! The tables that a statement writes.
//!
//! The server locks the tables of a statement when it prepares it, and keeps the locks until the transaction ends. The
//! mode of the lock names the tables that the statement writes, also those behind a view or a rule. A table that only a
//! trigger or a function writes is not among them.

use futures::future::join;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Statement};

use crate::catalog;

/// The tables that this transaction has locked for writes, with their partitions and children.
const WRITTEN: &str = "WITH RECURSIVE t(oid) AS ( \
       SELECT l.relation FROM pg_catalog.pg_locks AS l \
       WHERE l.pid = pg_catalog.pg_backend_pid() AND l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' \
     UNION \
       SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i JOIN t ON i.inhparent = t.oid) \
     SELECT c.oid, c.oid::regclass::text, c.relkind::text, c.relpersistence::text \
     FROM t JOIN pg_catalog.pg_class AS c ON c.oid = t.oid WHERE c.relkind IN ('r', 'p', 'f') ORDER BY 2";

/// A table that a statement writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    oid: u32,
    name: String,
    kind: String,
    persistence: String,
}

impl Target {
    /// Why the statements of this place must not write the table.
    pub(crate) fn mistake(&self, place: &str, needs_logged: bool) -> Option<String> {
        let reason = catalog::unfit_storage(&self.kind, &self.persistence, needs_logged)?;
        Some(format!(
            "{place} writes table {}, which {reason}",
            self.name
        ))
    }
}

/// Prepares a statement, and returns the tables that it writes. No transaction must be open.
pub(crate) async fn prepare(
    client: &Client,
    sql: &str,
    types: &[Type],
) -> Result<(Statement, Vec<Target>), Error> {
    client.batch_execute("BEGIN").await?;
    let prepared = async {
        let statement = client.prepare_typed(sql, types).await?;
        Ok::<_, Error>((statement, written(client).await?))
    };
    let prepared = prepared.await;
    let ended = client.batch_execute("ROLLBACK").await;
    let prepared = prepared?;
    ended.map(|()| prepared)
}

/// As [`prepare`], in the open transaction. Tables that the transaction has written before are left out.
pub(crate) async fn prepare_within(
    client: &Client,
    sql: &str,
) -> Result<(Statement, Vec<Target>), Error> {
    // In this order, and both are sent before the first response.
    let (before, statement) = join(written(client), client.prepare(sql)).await;
    let (before, statement) = (before?, statement?);
    let mut targets = written(client).await?;
    targets.retain(|target| !before.contains(target));
    Ok((statement, targets))
}

async fn written(client: &Client) -> Result<Vec<Target>, Error> {
    let rows = client.query_typed(WRITTEN, &[]).await?;
    let target = |row: &tokio_postgres::Row| {
        Ok(Target {
            oid: row.try_get(0)?,
            name: row.try_get(1)?,
            kind: row.try_get(2)?,
            persistence: row.try_get(3)?,
        })
    };
    rows.iter().map(target).collect()
}

/// The tables of the places of an app, to find those that are written in two ways.
#[derive(Debug, Default)]
pub(crate) struct Overlaps {
    /// The place, and the table with its partitions.
    tables: Vec<(String, Vec<u32>)>,
    statements: Vec<(String, Vec<Target>)>,
}

impl Overlaps {
    pub(crate) fn add_table(&mut self, place: &str, oids: Vec<u32>) {
        self.tables.push((place.to_owned(), oids));
    }

    pub(crate) fn add_statement(&mut self, place: &str, targets: Vec<Target>) {
        self.statements.push((place.to_owned(), targets));
    }

    /// The statements that write a table of another place. Its rows are sent in chunks, so that the statement of a record
    /// runs before or after rows of other records.
    pub(crate) fn mistakes(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        for (statement, targets) in &self.statements {
            for (table, oids) in &self.tables {
                if let Some(target) = targets.iter().find(|target| oids.contains(&target.oid)) {
                    mistakes.push(format!(
                        "{statement} and {table} write the same table {}, and not in the order of their records: use \
                         statements for both, or `.apply(..)` instead of {statement}",
                        target.name
                    ));
                }
            }
        }
        mistakes
    }
}

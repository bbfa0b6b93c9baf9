//! The tables that a statement writes.
//!
//! The server locks the tables of a statement when it prepares it, and keeps the locks until the transaction ends. The
//! tables with a lock for writes are those that the statement writes, also through a view or a rule. Locks do not show the
//! tables that only a trigger or a function writes.

use futures::future::join;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Statement};

/// The tables that this transaction has locked for writes, with their partitions. $1: whether the statement also writes the
/// children of its tables. It never writes the temporary tables of other sessions.
const WRITTEN: &str = "WITH RECURSIVE t(oid) AS ( \
       SELECT l.relation FROM pg_catalog.pg_locks AS l \
       WHERE l.pid = pg_catalog.pg_backend_pid() AND l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' \
     UNION \
       SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i JOIN t ON i.inhparent = t.oid \
       JOIN pg_catalog.pg_class AS p ON p.oid = t.oid WHERE p.relkind = 'p' OR $1) \
     SELECT c.oid, c.oid::regclass::text, c.relkind::text, c.relpersistence::text \
     FROM t JOIN pg_catalog.pg_class AS c ON c.oid = t.oid \
     WHERE c.relkind IN ('r', 'p', 'f') AND NOT pg_catalog.pg_is_other_temp_schema(c.relnamespace) ORDER BY 2";

/// A table that a statement writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    oid: u32,
    name: String,
    kind: String,
    persistence: String,
}

impl Target {
    /// Returns the reason why the statements of this place must not write the table.
    pub(crate) fn mistake(&self, place: &str, needs_logged: bool) -> Option<String> {
        let reason = unfit_storage(&self.kind, &self.persistence, needs_logged)?;
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
        Ok::<_, Error>((statement, written(client, sql).await?))
    };
    let prepared = prepared.await;
    let ended = client.batch_execute("ROLLBACK").await;
    let prepared = prepared?;
    ended.map(|()| prepared)
}

/// As [`prepare`], in the open transaction. Also returns the tables that the transaction has written before.
pub(crate) async fn prepare_within(
    client: &Client,
    sql: &str,
) -> Result<(Statement, Vec<Target>), Error> {
    // In this order, and both are sent before the first response.
    let (statement, targets) = join(client.prepare(sql), written(client, sql)).await;
    Ok((statement?, targets?))
}

async fn written(client: &Client, sql: &str) -> Result<Vec<Target>, Error> {
    let upper = sql.to_ascii_uppercase();
    let changes_children = ["UPDATE", "DELETE", "MERGE"]
        .iter()
        .any(|word| upper.contains(word));
    let params: [(&(dyn ToSql + Sync), Type); 1] = [(&changes_children, Type::BOOL)];
    let rows = client.query_typed(WRITTEN, &params).await?;
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

/// Returns one mistake for each table that the statement must not write.
pub(crate) fn unfit(name: &str, targets: &[Target], needs_logged: bool) -> Vec<String> {
    let mistakes = targets
        .iter()
        .map(|target| target.mistake(name, needs_logged));
    mistakes.flatten().collect()
}

/// Returns the reason why a table of this kind must not be written. Its rows must be exactly as durable as their
/// positions.
pub(crate) fn unfit_storage(
    kind: &str,
    persistence: &str,
    needs_logged: bool,
) -> Option<&'static str> {
    match (kind, persistence) {
        (_, "u") if needs_logged => Some(
            "is UNLOGGED: a crash of the server empties it, but keeps the position. ALTER TABLE … SET LOGGED",
        ),
        (_, "t") => Some("is temporary: it ends with the session. Create an ordinary table"),
        ("r" | "p", _) => None,
        ("f", _) => Some(
            "is a foreign table: it commits on another server, before the position. Write to that server",
        ),
        ("v" | "m", _) => Some("is a view: name the table under it"),
        _ => Some("is no table"),
    }
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

    /// Lists the pairs of places that write one table. Rows are sent in chunks, so they would not follow the order of their
    /// records.
    pub(crate) fn mistakes(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        for (nth, (one, oids)) in self.tables.iter().enumerate() {
            let later = self.tables.iter().skip(nth + 1);
            for (other, _) in later.filter(|(_, others)| others.iter().any(|it| oids.contains(it)))
            {
                mistakes.push(format!(
                    "{one} and {other} write to one table, but not in the order of their records: merge the streams and use one \
                     definition"
                ));
            }
        }
        for (statement, targets) in &self.statements {
            for (table, oids) in &self.tables {
                if let Some(target) = targets.iter().find(|target| oids.contains(&target.oid)) {
                    mistakes.push(format!(
                        "{statement} and {table} write the same table {}, but not in the order of their records: use \
                         statements for both, or `.apply(..)` instead of {statement}",
                        target.name
                    ));
                }
            }
        }
        mistakes
    }
}

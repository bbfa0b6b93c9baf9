//! The check of a database before an app starts: all mistakes at once, each with its fix.

use std::sync::Arc;
use std::time::Duration;

use eos_core::boundary::{Answer, LedgerError, LedgerFailure};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::array::Param;
use crate::catalog;
use crate::error::{Failed, describe};
use crate::place::{Definition, Shape, StatementShape};
use crate::schema;
use crate::sql::quote;
use crate::sqlstate::{Call, Reaction};
use crate::targets::{self, Overlaps, Target};

/// The oldest server with everything that eos uses: `client_connection_check_interval`.
const OLDEST_SERVER: i32 = 140_000;

/// The permissions that a worker needs in the schema of eos.
const GRANTS: &[(&str, &[&str])] = &[
    ("meta", &["SELECT"]),
    ("positions", &["SELECT", "INSERT", "UPDATE"]),
    ("sessions", &["SELECT", "INSERT", "UPDATE"]),
];
const INBOX_GRANTS: (&str, &[&str]) = ("inbox", &["SELECT", "INSERT"]);
const LETTER_GRANTS: (&str, &[&str]) = ("dead_letters", &["SELECT", "INSERT", "UPDATE"]);

/// The server, the role, and whether it can write.
const SERVER: &str = "SELECT pg_catalog.current_setting('server_version_num')::int4, current_user::text, \
     pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('default_transaction_read_only')::bool, \
     pg_catalog.pg_backend_pid()";

/// A setting of the session. A pooler with transaction pooling gives it to another client, or loses it.
const MARK: &str =
    "SELECT pg_catalog.set_config('eos.probe', 'mine', false), pg_catalog.pg_backend_pid()";
const READ_MARK: &str =
    "SELECT pg_catalog.current_setting('eos.probe', true), pg_catalog.pg_backend_pid()";

/// The time for another connection while a transaction is open. A pooler with one session makes that connection wait
/// for the end of the transaction.
const OTHER_LIMIT: Duration = Duration::from_secs(2);

/// Checks everything. `other` is a second connection, which makes a pooler switch sessions.
pub(crate) async fn check(
    client: &Client,
    other: &Client,
    ledger: &str,
    definitions: &[Arc<Definition>],
    mut mistakes: Vec<String>,
) -> Answer {
    let failed = |error: tokio_postgres::Error| {
        Failed::of(Call::Outside, "the check of the database", &error).into_error(ledger)
    };
    if pooler(client, other).await.map_err(failed)? {
        // The other checks would fail for the same reason.
        let text = format!(
            "{ledger}: a pooler changes the session between transactions: connect to PostgreSQL directly, or use session \
             pooling"
        );
        return Err(LedgerError::new(LedgerFailure::Fatal, text));
    }
    let role = server(client, &mut mistakes).await.map_err(failed)?;
    let has_schema = eos_schema(client, &role, definitions, &mut mistakes)
        .await
        .map_err(failed)?;
    let mut overlaps = Overlaps::default();
    for definition in definitions {
        let found = catalog::resolve(client, definition, true)
            .await
            .map_err(failed)?;
        match found {
            Ok(resolved) => overlaps.add_table(&definition.name, resolved.tables),
            Err(found) => mistakes.extend(found),
        }
        if has_schema && let Shape::Statement(shape) = &definition.shape {
            match statement(client, &definition.name, shape)
                .await
                .map_err(failed)?
            {
                Ok(targets) => overlaps.add_statement(&definition.name, targets),
                Err(found) => mistakes.extend(found),
            }
        }
    }
    mistakes.extend(overlaps.mistakes());
    if mistakes.is_empty() {
        return Ok(());
    }
    let text = format!("{ledger} is not ready:\n- {}", mistakes.join("\n- "));
    Err(LedgerError::new(LedgerFailure::Fatal, text))
}

async fn server(
    client: &Client,
    mistakes: &mut Vec<String>,
) -> Result<String, tokio_postgres::Error> {
    let row = client.query_one(SERVER, &[]).await?;
    let version: i32 = row.try_get(0)?;
    if version < OLDEST_SERVER {
        mistakes.push(format!(
            "the server is PostgreSQL {}: eos needs 14 or newer",
            version / 10_000
        ));
    }
    if row.try_get(2)? {
        mistakes.push(
            "the server is a standby, which cannot write: connect to the primary, for example with several hosts and \
             target_session_attrs=read-write"
                .into(),
        );
    } else if row.try_get(3)? {
        mistakes.push(
            "the database is read-only (default_transaction_read_only): set it to off for this role"
                .into(),
        );
    }
    row.try_get(1)
}

/// Returns whether a pooler gives the session of a connection to others. Such a session can't be ended on its own.
async fn pooler(client: &Client, other: &Client) -> Result<bool, tokio_postgres::Error> {
    let (_, own) = mark(client, MARK).await?;
    let expected = (Some("mine".to_owned()), own);
    // A pooler may give out the session that was returned first, or the one that was returned last.
    for (first, last) in [(other, client), (client, other)] {
        client.batch_execute("BEGIN").await?;
        let both = tokio::time::timeout(OTHER_LIMIT, other.batch_execute("BEGIN")).await;
        let Ok(both) = both else {
            return Ok(true);
        };
        both?;
        let within = mark(client, READ_MARK).await?;
        first.batch_execute("ROLLBACK").await?;
        last.batch_execute("ROLLBACK").await?;
        let theirs = mark(other, READ_MARK).await?;
        let is_own = theirs.0 == expected.0 || theirs.1 == expected.1;
        if is_own || within != expected || mark(client, READ_MARK).await? != expected {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Sends a statement that returns the mark of the session and its process. It is a simple query, because a pooler with
/// transaction pooling may not support prepared statements.
async fn mark(
    client: &Client,
    statement: &str,
) -> Result<(Option<String>, Option<String>), tokio_postgres::Error> {
    let messages = client.simple_query(statement).await?;
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let column = |at| row.and_then(|row| row.get(at)).map(str::to_owned);
    Ok((column(0), column(1)))
}

/// Returns whether the tables of eos can be used.
async fn eos_schema(
    client: &Client,
    role: &str,
    definitions: &[Arc<Definition>],
    mistakes: &mut Vec<String>,
) -> Result<bool, tokio_postgres::Error> {
    const USAGE: &str = "SELECT pg_catalog.has_schema_privilege(oid, 'USAGE') FROM pg_catalog.pg_namespace WHERE nspname = 'eos'";
    let role = quote(role);
    match client.query_opt(USAGE, &[]).await? {
        None => {
            mistakes.push(NO_SCHEMA.into());
            return Ok(false);
        }
        Some(row) if !row.try_get::<_, bool>(0)? => {
            mistakes.push(format!(
                "permission is missing: GRANT USAGE ON SCHEMA eos TO {role}"
            ));
            return Ok(false);
        }
        Some(_) => {}
    }
    let before = mistakes.len();
    let uses_inbox = definitions.iter().any(|place| place.inbox.is_some());
    let keeps_letters = definitions
        .iter()
        .any(|place| place.refused == crate::Refused::DeadLetter || place.shape == Shape::Letters);
    let tables = GRANTS
        .iter()
        .chain(uses_inbox.then_some(&INBOX_GRANTS))
        .chain(keeps_letters.then_some(&LETTER_GRANTS));
    for (table, grants) in tables {
        eos_table(client, &role, table, grants, mistakes).await?;
    }
    if mistakes.len() > before {
        return Ok(false);
    }
    let version = schema::version(client).await?;
    mistakes.extend(wrong_version(version));
    Ok(mistakes.len() == before)
}

const NO_SCHEMA: &str = "the tables of eos are missing: install them once, with a role that may create tables: \
                         `eos_postgres::install(&client)`";

/// Returns the reason why this release does not work with tables of this version.
pub(crate) fn wrong_version(version: Option<i32>) -> Option<String> {
    match version {
        None => Some(NO_SCHEMA.into()),
        Some(version) if version > schema::VERSION => Some(format!(
            "the tables of eos have version {version}, and this release knows version {}: use a newer eos-postgres",
            schema::VERSION
        )),
        Some(version) if version < schema::VERSION => Some(format!(
            "the tables of eos have version {version}, and this release needs version {}: run `eos_postgres::install`",
            schema::VERSION
        )),
        Some(_) => None,
    }
}

async fn eos_table(
    client: &Client,
    role: &str,
    table: &str,
    grants: &[&str],
    mistakes: &mut Vec<String>,
) -> Result<(), tokio_postgres::Error> {
    const PRIVILEGE: &str = "SELECT pg_catalog.has_table_privilege(c.oid, $2), c.relpersistence::text, c.relkind::text \
         FROM pg_catalog.pg_class AS c WHERE c.oid = pg_catalog.to_regclass('eos.' || $1)";
    let mut missing = Vec::new();
    for grant in grants {
        let Some(row) = client.query_opt(PRIVILEGE, &[&table, grant]).await? else {
            mistakes.push(format!(
                "table eos.{table} is missing: run `eos_postgres::install`"
            ));
            return Ok(());
        };
        if !row.try_get::<_, bool>(0)? {
            missing.push(*grant);
        }
        let (persistence, kind): (String, String) = (row.try_get(1)?, row.try_get(2)?);
        if (persistence.as_str(), kind.as_str()) != ("p", "r") {
            mistakes.push(format!(
                "table eos.{table} is not an ordinary, logged table: a crash would lose positions. \
                 ALTER TABLE eos.{table} SET LOGGED"
            ));
            return Ok(());
        }
    }
    if !missing.is_empty() {
        mistakes.push(format!(
            "permission is missing: GRANT {} ON eos.{table} TO {role}",
            missing.join(", ")
        ));
    }
    Ok(())
}

/// Checks that the server understands a statement. Returns the tables that the statement writes, or the mistakes. Fails if the
/// check may succeed later.
async fn statement(
    client: &Client,
    name: &str,
    shape: &StatementShape,
) -> Result<Result<Vec<Target>, Vec<String>>, tokio_postgres::Error> {
    let declared: Vec<_> = shape.params.iter().copied().map(Param::declared).collect();
    let prepared = targets::prepare(client, &shape.sql, &declared).await;
    let (prepared, targets) = match prepared {
        Ok(prepared) => prepared,
        Err(error) if passes(&error) => return Err(error),
        Err(error) => {
            let answer = describe(&error);
            return Ok(Err(vec![format!(
                "{name} is refused by the server: {answer}"
            )]));
        }
    };
    let mut mistakes = targets::unfit(name, &targets, true);
    if prepared.params().len() != shape.params.len() {
        mistakes.push(format!(
            "{name} has {} parameters in its text, and {} calls of `.param(..)`",
            prepared.params().len(),
            shape.params.len()
        ));
    }
    Ok(match mistakes.is_empty() {
        true => Ok(targets),
        false => Err(mistakes),
    })
}

/// Returns whether the cause of an error is not the statement: the connection, a conflict, a lack of resources, an
/// administrator, or a lock.
fn passes(error: &tokio_postgres::Error) -> bool {
    let code = error.code().map_or("", |code| code.code());
    let class = code.get(..2).unwrap_or("");
    matches!(class, "" | "08" | "40" | "53" | "57") || code == "55P03"
}

/// Returns all mistakes as one failure of a session.
pub(crate) fn not_ready(mistakes: &[String]) -> Failed {
    Failed::new(
        Reaction::Stop,
        format!("not ready:\n- {}", mistakes.join("\n- ")),
    )
}

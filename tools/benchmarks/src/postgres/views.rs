//! The tables, the statement, and the app of eos that writes them.

use anyhow::Result;
use eos_core::{App, Topic};
use eos_postgres::{Postgres, PostgresStream as _};

use crate::records::key_of;
use crate::side::Task;
use crate::work::{View, Work};

/// The statement of [`Work::Statements`].
pub(crate) const ADD: &str =
    "UPDATE totals SET views = views + 1, ms = ms + $2 WHERE username = $1";

/// Returns the SQL that creates the tables of a work. For [`Work::Statements`], it also inserts the rows to update.
pub(crate) fn schema(work: Work, keys: u64) -> String {
    let first = String::from_utf8_lossy(&key_of(0)).into_owned();
    let base = first.trim_start_matches('u').parse().unwrap_or(0_u64);
    match work {
        Work::Statements => format!(
            "CREATE TABLE totals (username text PRIMARY KEY, views bigint NOT NULL, ms bigint NOT NULL) \
             WITH (fillfactor = 50); \
             INSERT INTO totals SELECT 'u' || ({base} + n), 0, 0 FROM generate_series(0, {keys} - 1) n; \
             ANALYZE totals"
        ),
        work => {
            let key = if work == Work::Upsert {
                " PRIMARY KEY"
            } else {
                ""
            };
            format!(
                "CREATE TABLE page_views (username text NOT NULL{key}, page text NOT NULL, ms bigint NOT NULL, \
                 seq bigint NOT NULL, pad text NOT NULL)"
            )
        }
    }
}

/// Adds the topology to the app.
pub(crate) fn declare(app: &mut App, task: &Task) -> Result<()> {
    let shop = Postgres::connect(task.database()?)?;
    app.ledger(&shop);
    let views = app.source(&Topic::<Vec<u8>, View>::json(&task.input));
    if task.work == Work::Statements {
        let add = shop
            .statement::<Vec<u8>, View>("add", ADD)
            .param(|_, view| view.user.clone())
            .param(|_, view| view.ms)
            .affects(1);
        views.to_rows(&add);
        return Ok(());
    }
    let table = shop.table::<Vec<u8>, View>("page_views");
    let table = match task.work {
        Work::Upsert => table.key("username", |_, view| view.user.clone()),
        _ => table.column("username", |_, view| view.user.clone()),
    };
    let table = table
        .column("page", |_, view| view.page.clone())
        .column("ms", |_, view| view.ms)
        .column("seq", |_, view| view.seq.cast_signed())
        .column("pad", |_, view| view.pad.clone());
    views.to_rows(&table);
    Ok(())
}

//! The types of columns when the session prepared its statements.
//!
//! The statements cast values to these types. A wider type is a change that the server accepts while the app runs. The
//! old statements then refuse values that the table would take.

use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use crate::error::Failed;
use crate::place::TableShape;
use crate::sql::{Names, table_name};
use crate::sqlstate::{Call, Reaction};

/// A column with another type than expected. $1 quoted tables, $2 columns, $3 the qualified names of types, $4 their oids. A
/// type may have another name now, and another type may have its name: the statements find types by name.
const CHANGED: &str = "SELECT m.tab || '.' || m.col, m.nth, pg_catalog.format_type(a.atttypid, -1) \
     FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[]), pg_catalog.unnest($3::text[]), \
       pg_catalog.unnest($4::oid[])) WITH ORDINALITY AS m(tab, col, expected, type, nth) \
     LEFT JOIN (pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid \
         JOIN pg_catalog.pg_namespace AS s ON s.oid = t.typnamespace) \
       ON a.attrelid = pg_catalog.to_regclass(m.tab) AND a.attname = m.col AND a.attnum > 0 AND NOT a.attisdropped \
     WHERE a.atttypid IS DISTINCT FROM m.type \
       OR pg_catalog.quote_ident(s.nspname) || '.' || pg_catalog.quote_ident(t.typname) IS DISTINCT FROM m.expected LIMIT 1";

/// The columns of all tables, as arrays of the same length.
#[derive(Debug, Default)]
pub(super) struct Columns {
    tables: Vec<String>,
    names: Vec<String>,
    types: Vec<String>,
    oids: Vec<u32>,
    /// The names of the types for messages.
    shown: Vec<String>,
}

impl Columns {
    pub(super) fn add(&mut self, shape: &TableShape, names: &Names) {
        for (column, kind) in shape.all().zip(&names.types) {
            self.tables.push(table_name(names));
            self.names.push(column.name.clone());
            self.types.push(kind.name.clone());
            self.oids.push(kind.oid);
            self.shown.push(kind.shown.clone());
        }
    }

    /// Fails if a column has another type now.
    pub(super) async fn compare(&self, client: &Client) -> Result<(), Failed> {
        if self.names.is_empty() {
            return Ok(());
        }
        let failed = |error: tokio_postgres::Error| {
            Failed::of(Call::Position, "the types of columns", &error)
        };
        let arrays = [&self.tables, &self.names, &self.types];
        let [tables, names, types] =
            arrays.map(|array| (array as &(dyn ToSql + Sync), Type::TEXT_ARRAY));
        let params = [tables, names, types, (&self.oids, Type::OID_ARRAY)];
        let rows = client.query_typed(CHANGED, &params).await;
        let rows = rows.map_err(failed)?;
        let Some(row) = rows.first() else {
            return Ok(());
        };
        let column: String = row.try_get(0).map_err(failed)?;
        let nth: i64 = row.try_get(1).map_err(failed)?;
        let nth = usize::try_from(nth - 1).unwrap_or_default();
        let before = self.shown.get(nth).map_or("another type", String::as_str);
        let now: Option<String> = row.try_get(2).map_err(failed)?;
        let now = now.map_or_else(|| "is gone".into(), |now| format!("has type {now}"));
        let text = format!(
            "column {column} {now}, and this session writes it as {before}: a new session prepares its statements again"
        );
        Err(Failed::new(Reaction::Lost, text))
    }
}

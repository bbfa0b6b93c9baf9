//! Tables in the catalog of the database, and the mistakes in them.

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

use crate::place::{Definition, Shape, TableShape};
use crate::sql::{ColumnType, Names, quote};
use crate::targets::unfit_storage;

/// The table, with the permissions of this role. $1 the quoted name.
const TABLE: &str = "SELECT c.oid, n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text, \
       pg_catalog.has_schema_privilege(n.oid, 'USAGE'), \
       pg_catalog.has_table_privilege(c.oid, 'DELETE'), current_user::text, c.relrowsecurity \
     FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
     WHERE c.oid = pg_catalog.to_regclass($1)";

/// The columns, with the type under all domains. $1 the table.
const COLUMNS: &str = "SELECT a.attname::text, b.typname::text, b.typcategory::text, \
       pg_catalog.quote_ident(s.nspname) || '.' || pg_catalog.quote_ident(t.typname), a.attgenerated::text || a.attidentity::text, \
       a.attnotnull AND NOT a.atthasdef AND a.attidentity = '', \
       pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'SELECT'), \
       pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'INSERT'), \
       pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'UPDATE'), \
       b.typname::text IN ('citext', 'bpchar', 'float4', 'float8') OR EXISTS (SELECT FROM pg_catalog.pg_collation AS l \
         WHERE l.oid = a.attcollation AND NOT l.collisdeterministic), \
       a.atttypid, pg_catalog.format_type(a.atttypid, -1) \
     FROM pg_catalog.pg_attribute AS a \
     JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid \
     JOIN pg_catalog.pg_namespace AS s ON s.oid = t.typnamespace \
     JOIN LATERAL (WITH RECURSIVE d(oid, base) AS ( \
         SELECT t.oid, t.typbasetype UNION ALL SELECT n.oid, n.typbasetype FROM d JOIN pg_catalog.pg_type AS n ON n.oid = d.base) \
       SELECT d.oid FROM d WHERE d.base = 0) AS root ON true \
     JOIN pg_catalog.pg_type AS b ON b.oid = root.oid \
     WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped";

/// The columns of each usable unique index. $1 the table.
const INDEXES: &str = "SELECT (SELECT pg_catalog.array_agg(a.attname::text) FROM pg_catalog.pg_attribute AS a \
         WHERE a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])) \
     FROM pg_catalog.pg_index AS i \
     WHERE i.indrelid = $1 AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL \
       AND i.indexprs IS NULL";

/// The partitions of all levels. $1 the table, which is not among them. $2: also its children, which only updates and
/// deletions write.
const CHILDREN: &str = "WITH RECURSIVE t(oid) AS ( \
       SELECT $1::oid \
     UNION \
       SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i JOIN t ON i.inhparent = t.oid \
       JOIN pg_catalog.pg_class AS p ON p.oid = t.oid WHERE p.relkind = 'p' OR $2) \
     SELECT c.oid, c.oid::regclass::text, c.relkind::text, c.relpersistence::text \
     FROM t JOIN pg_catalog.pg_class AS c ON c.oid = t.oid \
     WHERE c.oid <> $1 AND NOT pg_catalog.pg_is_other_temp_schema(c.relnamespace)";

/// A place that is fit for use.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// The names of a table. `None` for a statement.
    pub(crate) names: Option<Names>,
    /// The table, its partitions, and the children that the place writes.
    pub(crate) tables: Vec<u32>,
}

struct Found {
    oid: u32,
    schema: String,
    table: String,
    can_delete: bool,
    role: String,
}

struct FoundColumn {
    name: String,
    base: String,
    category: char,
    sql_type: ColumnType,
    is_generated: bool,
    needs_value: bool,
    grants: [bool; 3],
    /// Whether different values of the type may be equal in the database.
    folds_values: bool,
}

/// Looks up a place. Each mistake is a complete sentence with a fix.
pub(crate) async fn resolve(
    client: &Client,
    definition: &Definition,
    needs_logged: bool,
) -> Result<Result<Resolved, Vec<String>>, Error> {
    match &definition.shape {
        Shape::Table(shape) => {
            let lookup = Lookup {
                client,
                shape,
                needs_logged,
            };
            lookup.run().await
        }
        Shape::Statement(_) | Shape::Apply(_) | Shape::Letters => Ok(Ok(Resolved {
            names: None,
            tables: Vec::new(),
        })),
    }
}

/// Returns the quoted form of `stock` or `sales.stock`.
fn quoted(table: &str) -> String {
    let parts: Vec<String> = table.split('.').map(quote).collect();
    parts.join(".")
}

struct Lookup<'a> {
    client: &'a Client,
    shape: &'a TableShape,
    needs_logged: bool,
}

impl Lookup<'_> {
    async fn run(&self) -> Result<Result<Resolved, Vec<String>>, Error> {
        let mut mistakes = Vec::new();
        let name = quoted(&self.shape.table);
        let row = match self.client.query_opt(TABLE, &[&name]).await {
            Ok(row) => row,
            // The name cannot be looked up without USAGE on its schema.
            Err(error) if error.code().is_some_and(|code| code.code() == "42501") => {
                let schema = self
                    .shape
                    .table
                    .split_once('.')
                    .map_or("", |(schema, _)| schema);
                return Ok(Err(vec![format!(
                    "table {} cannot be seen: GRANT USAGE ON SCHEMA {} TO CURRENT_USER, as its owner",
                    self.shape.table,
                    quote(schema)
                )]));
            }
            Err(error) => return Err(error),
        };
        let Some(row) = row else {
            return Ok(Err(vec![format!(
                "table {} does not exist in the search_path of this role: create it, or write schema.table",
                self.shape.table
            )]));
        };
        let found = self.read(&row, &mut mistakes)?;
        let mut tables = vec![found.oid];
        let changes_children = !self.shape.keys.is_empty();
        let params: [&(dyn ToSql + Sync); 2] = [&found.oid, &changes_children];
        for partition in self.client.query(CHILDREN, &params).await? {
            tables.push(partition.try_get(0)?);
            let name: String = partition.try_get(1)?;
            let (kind, persistence) = (partition.try_get(2)?, partition.try_get(3)?);
            self.storage(&name, kind, persistence, &mut mistakes);
        }
        let columns = self.columns(found.oid).await?;
        let types = self.match_columns(&found, &columns, &mut mistakes);
        self.unique_index(&found, &mut mistakes).await?;
        if mistakes.is_empty() {
            let names = Some(Names {
                schema: found.schema,
                table: found.table,
                types,
            });
            Ok(Ok(Resolved { names, tables }))
        } else {
            Ok(Err(mistakes))
        }
    }

    fn read(&self, row: &Row, mistakes: &mut Vec<String>) -> Result<Found, Error> {
        let found = Found {
            oid: row.try_get(0)?,
            schema: row.try_get(1)?,
            table: row.try_get(2)?,
            can_delete: row.try_get(6)?,
            role: row.try_get(7)?,
        };
        self.storage(
            &self.shape.table,
            row.try_get(3)?,
            row.try_get(4)?,
            mistakes,
        );
        if !row.try_get::<_, bool>(5)? {
            mistakes.push(format!(
                "table {}: GRANT USAGE ON SCHEMA {} TO {}",
                self.shape.table,
                quote(&found.schema),
                quote(&found.role)
            ));
        }
        Ok(found)
    }

    fn storage(&self, name: &str, kind: &str, persistence: &str, mistakes: &mut Vec<String>) {
        if let Some(reason) = unfit_storage(kind, persistence, self.needs_logged) {
            mistakes.push(format!("table {name} {reason}"));
        }
    }

    async fn columns(&self, oid: u32) -> Result<Vec<FoundColumn>, Error> {
        let rows = self.client.query(COLUMNS, &[&oid]).await?;
        let column = |row: &Row| -> Result<FoundColumn, Error> {
            let category: String = row.try_get(2)?;
            let generated: String = row.try_get(4)?;
            Ok(FoundColumn {
                name: row.try_get(0)?,
                base: row.try_get(1)?,
                category: category.chars().next().unwrap_or(' '),
                sql_type: ColumnType {
                    name: row.try_get(3)?,
                    oid: row.try_get(10)?,
                    shown: row.try_get(11)?,
                },
                // `s`: generated always as an expression; `a`: identity, always.
                is_generated: generated.contains(['s', 'a']),
                needs_value: row.try_get(5)?,
                grants: [row.try_get(6)?, row.try_get(7)?, row.try_get(8)?],
                folds_values: row.try_get(9)?,
            })
        };
        rows.iter().map(column).collect()
    }

    /// Checks the columns of the definition, and returns their types.
    fn match_columns(
        &self,
        found: &Found,
        columns: &[FoundColumn],
        mistakes: &mut Vec<String>,
    ) -> Vec<ColumnType> {
        let table = &self.shape.table;
        let mut types = Vec::new();
        let mut missing_grants: Vec<&str> = Vec::new();
        for ours in self.shape.all() {
            let Some(column) = columns.iter().find(|column| column.name == ours.name) else {
                let mut names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
                names.sort_unstable();
                mistakes.push(format!(
                    "table {table} has no column {}: it has {}",
                    ours.name,
                    names.join(", ")
                ));
                continue;
            };
            if !ours.kind.fits(&column.base, column.category) {
                mistakes.push(format!(
                    "column {}.{} has type {}, and the value is {}: change one of them",
                    table,
                    ours.name,
                    column.sql_type.shown,
                    ours.kind.expectation()
                ));
            }
            if column.folds_values && self.shape.keys.iter().any(|key| key.name == ours.name) {
                mistakes.push(format!(
                    "key column {table}.{} has type {}, in which different values are equal, such as `a` and `A`: rows of \
                     such keys could be applied in another order than their records. Use another type (text), and give \
                     all keys one form in the closure",
                    ours.name, column.sql_type.shown
                ));
            }
            if column.is_generated {
                mistakes.push(format!(
                    "column {table}.{} is GENERATED ALWAYS: remove it from the definition",
                    ours.name
                ));
            }
            types.push(column.sql_type.clone());
            for (grant, is_granted) in ["SELECT", "INSERT", "UPDATE"]
                .into_iter()
                .zip(column.grants)
            {
                if !is_granted && self.needs(grant) && !missing_grants.contains(&grant) {
                    missing_grants.push(grant);
                }
            }
        }
        if !found.can_delete && self.needs("DELETE") {
            missing_grants.push("DELETE");
        }
        if !missing_grants.is_empty() {
            mistakes.push(format!(
                "permission is missing: GRANT {} ON {}.{} TO {}",
                missing_grants.join(", "),
                quote(&found.schema),
                quote(&found.table),
                quote(&found.role)
            ));
        }
        self.unnamed_columns(columns, mistakes);
        types
    }

    /// Reports the `NOT NULL` columns without a value and without a default. Such a column refuses every row.
    fn unnamed_columns(&self, columns: &[FoundColumn], mistakes: &mut Vec<String>) {
        let inserts = self.needs("INSERT");
        let is_ours = |name: &str| self.shape.all().any(|ours| ours.name == name);
        for column in columns {
            if inserts && column.needs_value && !is_ours(&column.name) {
                mistakes.push(format!(
                    "column {}.{} is NOT NULL without a default: add it to the definition",
                    self.shape.table, column.name
                ));
            }
        }
    }

    fn needs(&self, grant: &str) -> bool {
        let has_key = !self.shape.keys.is_empty();
        match grant {
            "INSERT" => !self.shape.has_sums() || self.shape.or_insert,
            _ => has_key,
        }
    }

    async fn unique_index(&self, found: &Found, mistakes: &mut Vec<String>) -> Result<(), Error> {
        if self.shape.keys.is_empty() {
            return Ok(());
        }
        let mut keys: Vec<String> = self.shape.keys.iter().map(|key| key.name.clone()).collect();
        keys.sort();
        for row in self.client.query(INDEXES, &[&found.oid]).await? {
            let mut columns: Vec<String> = row.try_get::<_, Option<_>>(0)?.unwrap_or_default();
            columns.sort();
            if columns == keys {
                return Ok(());
            }
        }
        let quoted: Vec<String> = keys.iter().map(|key| quote(key)).collect();
        mistakes.push(format!(
            "table {} has no unique index on exactly its key, not deferrable and not partial: \
             CREATE UNIQUE INDEX ON {}.{} ({})",
            self.shape.table,
            quote(&found.schema),
            quote(&found.table),
            quoted.join(", ")
        ));
        Ok(())
    }
}

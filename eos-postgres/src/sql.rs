//! The statements of eos.
//!
//! Every name of a table, column or type is qualified and quoted, so that no `search_path` changes its meaning.

use std::fmt::Write;

use crate::place::{ColumnDef, TableShape};

/// The settings that select the tables and the permissions of a statement.
macro_rules! settings {
    () => {
        "pg_catalog.concat(current_user, ' ', pg_catalog.current_setting('search_path'))"
    };
}

/// Whether the settings are those of [`BEGIN`].
macro_rules! same_settings {
    () => {
        concat!(
            "pg_catalog.current_setting('eos.settings', true) IS NOT DISTINCT FROM ",
            settings!()
        )
    };
}

/// As a condition of [`SET`].
pub(crate) const AND_SAME_SETTINGS: &str = concat!("AND ", same_settings!(), " ");

/// Begins a transaction, and stores its id and its settings in variables that exist until its end. A later statement that
/// commits, a second `BEGIN`, or a change of the settings is then found.
pub(crate) const BEGIN: &str = concat!(
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; \
     SELECT pg_catalog.set_config('eos.transaction', pg_catalog.pg_current_xact_id()::text, true), \
       pg_catalog.set_config('eos.settings', ",
    settings!(),
    ", true)"
);

/// Checks deferred constraints while the records are still known, and not only at the end of the transaction.
pub(crate) const CHECK_CONSTRAINTS: &str = "SET CONSTRAINTS ALL IMMEDIATE";

/// Locks positions that are as expected, and returns them.
///
/// $1 app, $2 owner, $3 identity, $4 session's epoch, $5.. topics, partitions, epochs, offsets.
pub(crate) const HOLD: &str = "SELECT p.topic, p.partition FROM eos.positions AS p \
     JOIN ROWS FROM (pg_catalog.unnest($5::text[]), pg_catalog.unnest($6::int4[]), pg_catalog.unnest($7::int8[]), pg_catalog.unnest($8::int8[])) AS m(topic, partition, epoch, expected) \
       ON p.topic = m.topic AND p.partition = m.partition \
     WHERE p.app = $1 AND p.owner = $2 AND p.epoch = m.epoch AND p.next_offset IS NOT DISTINCT FROM m.expected \
       AND EXISTS (SELECT 1 FROM eos.sessions AS s WHERE s.identity = $3 AND s.epoch = $4) \
     ORDER BY p.topic, p.partition FOR NO KEY UPDATE OF p";

/// Moves positions that are as expected, and returns them. Parameters as for [`HOLD`], then $9 offsets, $10 names.
pub(crate) const SET: &str = concat!(
    "UPDATE eos.positions AS p \
     SET next_offset = m.target, name = m.name, updated_at = pg_catalog.clock_timestamp() \
     FROM ROWS FROM (pg_catalog.unnest($5::text[]), pg_catalog.unnest($6::int4[]), pg_catalog.unnest($7::int8[]), pg_catalog.unnest($8::int8[]), pg_catalog.unnest($9::int8[]), pg_catalog.unnest($10::text[])) \
       AS m(topic, partition, epoch, expected, target, name) \
     WHERE p.app = $1 AND p.topic = m.topic AND p.partition = m.partition \
       AND p.owner = $2 AND p.epoch = m.epoch AND p.next_offset IS NOT DISTINCT FROM m.expected \
       AND pg_catalog.current_setting('eos.transaction', true) = pg_catalog.pg_current_xact_id()::text \
       AND ",
    same_settings!(),
    " \
       AND EXISTS (SELECT 1 FROM eos.sessions AS s WHERE s.identity = $3 AND s.epoch = $4) \
     RETURNING p.topic, p.partition"
);

/// The reason why [`SET`] or [`HOLD`] returned too few positions: whether the transaction is still the one of
/// [`BEGIN`], whether the session is the newest one, and whether its settings are still the same. $1 identity, $2
/// epoch.
pub(crate) const WHY: &str = concat!(
    "SELECT \
     pg_catalog.current_setting('eos.transaction', true) IS NOT DISTINCT FROM pg_catalog.pg_current_xact_id()::text, \
     EXISTS (SELECT 1 FROM eos.sessions AS s WHERE s.identity = $1 AND s.epoch = $2), ",
    same_settings!()
);

/// Raises the epoch of a position, unless it belongs to another cluster or topic. The statement waits for a transaction
/// that moves the position.
///
/// $1 app, $2 topic, $3 partition, $4 owner, $5 cluster id, $6 topic id. An empty id is not known.
pub(crate) const TAKE_OVER: &str = "INSERT INTO eos.positions AS p (app, topic, partition, epoch, owner, cluster_id, topic_id) \
     VALUES ($1, $2, $3, 1, $4, $5, $6) \
     ON CONFLICT (app, topic, partition) DO UPDATE SET epoch = p.epoch + 1, owner = excluded.owner, \
       updated_at = pg_catalog.clock_timestamp(), \
       cluster_id = CASE WHEN p.cluster_id = '' THEN excluded.cluster_id ELSE p.cluster_id END, \
       topic_id = CASE WHEN p.topic_id = '' THEN excluded.topic_id ELSE p.topic_id END \
     WHERE (p.cluster_id = excluded.cluster_id OR p.cluster_id = '' OR excluded.cluster_id = '') \
       AND (p.topic_id = excluded.topic_id OR p.topic_id = '' OR excluded.topic_id = '') \
     RETURNING p.epoch, p.next_offset, p.name";

/// The positions of $1 app, $2 topics, $3 partitions.
pub(crate) const LOOK: &str = "SELECT p.topic, p.partition, p.epoch, p.next_offset, p.name, p.cluster_id, p.topic_id \
     FROM eos.positions AS p \
     JOIN ROWS FROM (pg_catalog.unnest($2::text[]), pg_catalog.unnest($3::int4[])) AS m(topic, partition) \
       ON p.topic = m.topic AND p.partition = m.partition \
     WHERE p.app = $1";

/// Whether this role may end the session `a` of `pg_stat_activity`.
macro_rules! may_end {
    () => {
        "(pg_catalog.pg_has_role(a.usesysid, 'USAGE') AND (SELECT NOT t.rolsuper OR o.rolsuper \
           FROM pg_catalog.pg_roles AS t, pg_catalog.pg_roles AS o \
           WHERE t.oid = a.usesysid AND o.rolname = current_user))"
    };
}

/// The sessions that hold a position. The statement ends those of eos, unless they wait for a standby: a commit would
/// become visible before it is replicated.
///
/// The holder is the transaction in the row, and not one that also waits for the row. `pg_blocking_pids` could name
/// such a second waiter. $1 app, $2 topic, $3 partition.
pub(crate) const END_HOLDER: &str = concat!(
    "SELECT a.pid, a.application_name, h.is_ours, \
       CASE WHEN h.is_ours THEN pg_catalog.pg_terminate_backend(a.pid) ELSE false END \
     FROM eos.positions AS p \
     JOIN pg_catalog.pg_locks AS l \
       ON l.locktype = 'transactionid' AND l.transactionid = p.xmax AND l.granted AND l.mode = 'ExclusiveLock' \
     JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid \
     CROSS JOIN LATERAL (SELECT a.datname = pg_catalog.current_database() AND ",
    may_end!(),
    " \
       AND a.application_name ~ '^eos/[0-9a-f]{16}/[0-9]+/s$' AND a.wait_event IS DISTINCT FROM 'SyncRep' \
       AND a.pid <> pg_catalog.pg_backend_pid() AS is_ours) AS h \
     WHERE p.app = $1 AND p.topic = $2 AND p.partition = $3"
);

/// Raises the epoch of a session. $1 identity, $2 owner.
pub(crate) const RAISE_SESSION: &str = "INSERT INTO eos.sessions AS s (identity, epoch, owner) VALUES ($1, 1, $2) \
     ON CONFLICT (identity) DO UPDATE SET epoch = s.epoch + 1, owner = excluded.owner, \
       updated_at = pg_catalog.clock_timestamp() \
     RETURNING s.epoch";

/// The stored epoch and owner of a session. $1 identity.
pub(crate) const READ_SESSION: &str = "SELECT epoch, owner FROM eos.sessions WHERE identity = $1";

/// Names this connection after its session: `eos/<hash of the identity>/<epoch>/s`. $1 identity, $2 epoch.
pub(crate) const NAME_SESSION: &str = "SELECT pg_catalog.set_config('application_name', 'eos/' \
     || pg_catalog.lpad(pg_catalog.to_hex(pg_catalog.hashtextextended($1, 0)), 16, '0') || '/' || $2::int8::text || '/s', \
     false)";

/// The older sessions of this identity in this database that may still commit. The statement ends those that this role
/// may end. $1 identity, $2 epoch.
///
/// A session of another role counts only during a transaction, which has an id from its start. A later transaction of
/// that session can't commit, because [`HOLD`] and [`SET`] compare the epoch of the session.
pub(crate) const END_OLDER_SESSIONS: &str = concat!(
    "SELECT a.pid, \
       CASE WHEN r.may_end AND a.wait_event IS DISTINCT FROM 'SyncRep' \
         THEN pg_catalog.pg_terminate_backend(a.pid) ELSE false END \
     FROM pg_catalog.pg_stat_activity AS a \
     CROSS JOIN LATERAL pg_catalog.regexp_match(a.application_name, '^eos/([0-9a-f]{16})/([0-9]{1,18})/s$') AS m(parts) \
     CROSS JOIN LATERAL (SELECT ",
    may_end!(),
    " AS may_end) AS r \
     WHERE a.datname = pg_catalog.current_database() AND a.pid <> pg_catalog.pg_backend_pid() \
       AND m.parts[1] = pg_catalog.lpad(pg_catalog.to_hex(pg_catalog.hashtextextended($1, 0)), 16, '0') \
       AND m.parts[2]::int8 < $2 \
       AND (r.may_end OR EXISTS (SELECT 1 FROM pg_catalog.pg_locks AS l \
         WHERE l.pid = a.pid AND l.locktype = 'transactionid' AND l.granted AND l.mode = 'ExclusiveLock'))"
);

/// Claims the ids of messages, and returns those that are new. $1 subscriber, $2 ids in order.
pub(crate) const CLAIM: &str = "INSERT INTO eos.inbox (subscriber, message_id) \
     SELECT $1, x.id FROM pg_catalog.unnest($2::bytea[]) AS x(id) \
     ON CONFLICT DO NOTHING RETURNING message_id";

/// Stores a refused record. A record that is refused again after a reset replaces its row.
pub(crate) const DEAD_LETTER: &str = "INSERT INTO eos.dead_letters \
     (app, topic, partition, \"offset\", place, sqlstate, message, rows, headers, key, value) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
     ON CONFLICT (app, topic, partition, \"offset\", generation) DO UPDATE SET place = excluded.place, \
       sqlstate = excluded.sqlstate, message = excluded.message, rows = excluded.rows, headers = excluded.headers, \
       key = excluded.key, value = excluded.value, \
       at = excluded.at";

/// A table as the database knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) schema: String,
    pub(crate) table: String,
    /// The types of all columns, in the order of [`TableShape::all`].
    pub(crate) types: Vec<ColumnType>,
}

/// The type of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ColumnType {
    /// The SQL name with its schema. It has no length, because a cast would cut values to it.
    pub(crate) name: String,
    /// The name for messages.
    pub(crate) shown: String,
    pub(crate) oid: u32,
}

/// The statements of a table. Their parameters are arrays: keys, then the other columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableSql {
    pub(crate) write: String,
    /// Whether `write` returns the number of keys without a row.
    pub(crate) counts_missing: bool,
    /// Locks the rows of the keys, in their order. Its parameters are the keys.
    pub(crate) lock: Option<String>,
    /// Deletes the keys. Its parameters are the keys.
    pub(crate) delete: Option<String>,
}

/// Quotes an identifier.
pub(crate) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns the name of a table, for a statement.
pub(crate) fn table_name(names: &Names) -> String {
    format!("{}.{}", quote(&names.schema), quote(&names.table))
}

/// Makes the statements of a table.
pub(crate) fn table_sql(shape: &TableShape, names: &Names) -> TableSql {
    let table = Statements { shape, names };
    let has_key = !shape.keys.is_empty();
    TableSql {
        write: if shape.has_sums() {
            table.add()
        } else {
            table.insert()
        },
        counts_missing: shape.has_sums() && !shape.or_insert,
        lock: has_key.then(|| table.lock()),
        delete: has_key.then(|| table.delete()),
    }
}

struct Statements<'a> {
    shape: &'a TableShape,
    names: &'a Names,
}

impl Statements<'_> {
    fn name(&self) -> String {
        table_name(self.names)
    }

    /// Returns `ROWS FROM (unnest($1::text[]), unnest($2::int8[]))`: one row of the table for each element.
    fn unnest(&self, columns: usize) -> String {
        let arrays: Vec<String> = self
            .shape
            .all()
            .take(columns)
            .enumerate()
            .map(|(index, column)| {
                format!(
                    "pg_catalog.unnest(${}::{})",
                    index + 1,
                    column.kind.wire_array()
                )
            })
            .collect();
        format!("ROWS FROM ({})", arrays.join(", "))
    }

    /// Returns `c1, c2`: the names of the arrays' elements.
    fn elements(&self, columns: usize) -> String {
        let names: Vec<String> = (1..=columns).map(|index| format!("c{index}")).collect();
        names.join(", ")
    }

    /// Returns `CAST(x.c1 AS text)`.
    fn cast(&self, index: usize) -> String {
        let kind = self
            .names
            .types
            .get(index)
            .map_or("text", |kind| &kind.name);
        format!("CAST(x.c{} AS {kind})", index + 1)
    }

    fn casts(&self) -> String {
        let casts: Vec<String> = (0..self.count()).map(|index| self.cast(index)).collect();
        casts.join(", ")
    }

    fn count(&self) -> usize {
        self.shape.all().count()
    }

    fn columns<'c>(columns: impl Iterator<Item = &'c ColumnDef>) -> String {
        let names: Vec<String> = columns.map(|column| quote(&column.name)).collect();
        names.join(", ")
    }

    fn insert(&self) -> String {
        let count = self.count();
        let mut sql = format!(
            "INSERT INTO {} AS t ({}) SELECT {} FROM {} AS x({})",
            self.name(),
            Self::columns(self.shape.all()),
            self.casts(),
            self.unnest(count),
            self.elements(count),
        );
        self.push_conflict(&mut sql);
        sql
    }

    /// Appends `ON CONFLICT`, for a table with a key.
    fn push_conflict(&self, sql: &mut String) {
        if self.shape.keys.is_empty() {
            return;
        }
        let keys = Self::columns(self.shape.keys.iter());
        let _ = write!(sql, " ON CONFLICT ({keys})");
        if self.shape.columns.is_empty() {
            sql.push_str(" DO NOTHING");
            return;
        }
        let sets: Vec<String> = self
            .shape
            .columns
            .iter()
            .map(|column| {
                let name = quote(&column.name);
                if column.is_sum {
                    format!("{name} = COALESCE(t.{name}, 0) + excluded.{name}")
                } else {
                    format!("{name} = excluded.{name}")
                }
            })
            .collect();
        let _ = write!(sql, " DO UPDATE SET {}", sets.join(", "));
        let version = self
            .shape
            .newer_by
            .and_then(|index| self.shape.columns.get(index));
        if let Some(version) = version {
            let name = quote(&version.name);
            let _ = write!(sql, " WHERE t.{name} IS NULL OR t.{name} < excluded.{name}");
        }
    }

    /// Returns an update, and an insert of the keys that it did not find. `INSERT … ON CONFLICT` alone checks the
    /// constraints of the proposed row, which has a summand where the table has a sum.
    fn add(&self) -> String {
        let count = self.count();
        let sets: Vec<String> = self
            .shape
            .columns
            .iter()
            .zip(self.shape.keys.len()..)
            .map(|(column, index)| {
                let name = quote(&column.name);
                let value = format!("x.c{}", index + 1);
                if column.is_sum {
                    format!("{name} = COALESCE(t.{name}, 0) + {value}")
                } else {
                    format!("{name} = {value}")
                }
            })
            .collect();
        let casts: Vec<String> = (0..count)
            .map(|index| format!("{} AS c{}", self.cast(index), index + 1))
            .collect();
        let mut sql = format!(
            "WITH x AS MATERIALIZED (SELECT {}, x.o FROM {} WITH ORDINALITY AS x({}, o)), \
             done AS (UPDATE {} AS t SET {} FROM x WHERE {} RETURNING x.o) ",
            casts.join(", "),
            self.unnest(count),
            self.elements(count),
            self.name(),
            sets.join(", "),
            self.same_key(|index| format!("x.c{}", index + 1)),
        );
        let missing = "FROM x WHERE x.o NOT IN (SELECT done.o FROM done)";
        if self.shape.or_insert {
            let _ = write!(
                sql,
                "INSERT INTO {} AS t ({}) SELECT {} {missing} ORDER BY x.o",
                self.name(),
                Self::columns(self.shape.all()),
                self.elements(count),
            );
            self.push_conflict(&mut sql);
        } else {
            let _ = write!(sql, "SELECT pg_catalog.count(*) {missing}");
        }
        sql
    }

    /// Returns `t."sku" = x.c1 AND …`.
    fn same_key(&self, value: impl Fn(usize) -> String) -> String {
        let pairs: Vec<String> = self
            .shape
            .keys
            .iter()
            .enumerate()
            .map(|(index, key)| format!("t.{} = {}", quote(&key.name), value(index)))
            .collect();
        pairs.join(" AND ")
    }

    /// Returns the statement that locks rows. It does not use `FOR UPDATE`: a row of another table that references this
    /// one holds a lock on its key, and two transactions with such rows would wait for each other.
    fn lock(&self) -> String {
        let keys = self.shape.keys.len();
        format!(
            "SELECT 1 FROM {} WITH ORDINALITY AS x({}, o) JOIN {} AS t ON {} ORDER BY x.o FOR NO KEY UPDATE OF t",
            self.unnest(keys),
            self.elements(keys),
            self.name(),
            self.same_key(|index| self.cast(index)),
        )
    }

    fn delete(&self) -> String {
        let keys = self.shape.keys.len();
        format!(
            "DELETE FROM {} AS t USING {} AS x({}) WHERE {}",
            self.name(),
            self.unnest(keys),
            self.elements(keys),
            self.same_key(|index| self.cast(index)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Kind;

    fn shape(sum: bool, newer_by: Option<usize>, or_insert: bool) -> TableShape {
        let column = |name: &str, kind, is_sum| ColumnDef {
            name: name.into(),
            kind,
            is_sum,
        };
        TableShape {
            table: "stock".into(),
            keys: vec![column("sku", Kind::Text, false)],
            columns: vec![column("units", Kind::I64, sum)],
            newer_by,
            or_insert,
        }
    }

    fn write(shape: &TableShape) -> String {
        let names = Names {
            schema: "public".into(),
            table: "stock".into(),
            types: [("pg_catalog.varchar", 1043), ("pg_catalog.int8", 20)]
                .map(|(name, oid)| ColumnType {
                    name: name.into(),
                    shown: name.into(),
                    oid,
                })
                .to_vec(),
        };
        table_sql(shape, &names).write
    }

    #[test]
    fn an_upsert() {
        assert_eq!(
            write(&shape(false, None, false)),
            "INSERT INTO \"public\".\"stock\" AS t (\"sku\", \"units\") \
             SELECT CAST(x.c1 AS pg_catalog.varchar), CAST(x.c2 AS pg_catalog.int8) \
             FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.int8[])) AS x(c1, c2) \
             ON CONFLICT (\"sku\") DO UPDATE SET \"units\" = excluded.\"units\""
        );
    }

    #[test]
    fn a_version_is_compared() {
        let sql = write(&shape(false, Some(0), false));
        assert!(
            sql.ends_with("WHERE t.\"units\" IS NULL OR t.\"units\" < excluded.\"units\""),
            "{sql}"
        );
    }

    #[test]
    fn a_sum_updates_before_it_inserts() {
        let sql = write(&shape(true, None, true));
        let update = sql.find("UPDATE \"public\".\"stock\"").unwrap();
        assert!(update < sql.find("INSERT INTO").unwrap(), "{sql}");
        assert!(!write(&shape(true, None, false)).contains("INSERT"));
    }

    #[test]
    fn a_quote_in_a_name_stays_in_the_name() {
        assert_eq!(quote("a\"b; drop"), "\"a\"\"b; drop\"");
    }
}

//! Tables and statements as users describe them.

use std::fmt;
use std::sync::Arc;

use eos_core::Failure;
use eos_core::boundary::{Place, Row};

use crate::place::{ColumnDef, Definition, Refused, Shape, StatementShape, TableShape};
use crate::postgres::Postgres;
use crate::row;
use crate::value::{Column, KeyColumn, Kind, Summand, Version};

/// Writes a value of a record into a row. Returns `false` for NULL.
type Write<K, V> = Arc<dyn Fn(&K, &V, &mut Vec<u8>) -> bool + Send + Sync>;

/// Writes a value of the record's key, which also deletions have.
pub(crate) type WriteKey<K, V> = Arc<dyn Fn(&K, Option<&V>, &mut Vec<u8>) -> bool + Send + Sync>;

/// The ids of messages that had their effect, for one subscriber: the table `eos.inbox`.
///
/// # Exactly-once
/// It removes the duplicates of producers that send a message twice. eos itself never needs it.
#[derive(Debug, Clone)]
pub struct Inbox {
    subscriber: String,
}

/// A table of a database, and the mapping of records to its rows. [`Postgres::table`] begins one.
///
/// | shape | a record |
/// |---|---|
/// | only [`column`](Self::column) | is inserted |
/// | with [`key`](Self::key) | inserts or replaces the row of its key |
/// | with [`record_key`](Self::record_key) | as above; a deletion deletes the row |
/// | with `key` and [`newer_by`](Self::newer_by) | as above, unless the stored version is equal or newer |
/// | with `key` and [`add`](Self::add) | adds to the row of its key |
///
/// # Exactly-once
/// A row commits in one transaction with the position of its record. So a sum also counts each record once.
///
/// # Examples
/// ```
/// use eos_postgres::Postgres;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// struct Order { sku: String, units: i64 }
///
/// let shop = Postgres::connect("postgres://shop@localhost/shop")?;
/// let stock = shop
///     .table::<String, Order>("stock")
///     .key("sku", |_, order| order.sku.clone())
///     .add("units", |_, order| -order.units);
/// let bookings = shop
///     .table::<String, Order>("bookings")
///     .column("order_id", |id, _| id.clone())
///     .column("sku", |_, order| order.sku.clone())
///     .column("units", |_, order| order.units);
/// # Ok(())
/// # }
/// ```
pub struct SqlTable<K, V> {
    shop: Postgres,
    shape: TableShape,
    keys: Vec<WriteKey<K, V>>,
    columns: Vec<Write<K, V>>,
    refused: Refused,
    inbox: Option<(Inbox, WriteKey<K, V>)>,
}

/// A statement that runs once for each record. [`Postgres::statement`] begins one.
///
/// Statements run in the order of records. The rows of tables with a key follow at the end of the transaction, or
/// before the next closure ([`Apply`](crate::Apply)).
///
/// # Exactly-once
/// The statement commits in one transaction with the position of its record. It must not contain `COMMIT`. The app does not
/// start if the statement writes an unlogged, foreign or temporary table, or the table of another place.
///
/// # Examples
/// ```
/// use eos_postgres::Postgres;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let shop = Postgres::connect("postgres://shop@localhost/shop")?;
/// let book = shop
///     .statement::<String, i64>("book", "UPDATE stock SET units = units - $2 WHERE sku = $1")
///     .param(|sku, _| sku.clone())
///     .param(|_, units| *units)
///     .affects(1);
/// # Ok(())
/// # }
/// ```
pub struct Statement<K, V> {
    shop: Postgres,
    name: String,
    shape: StatementShape,
    params: Vec<Write<K, V>>,
    refused: Refused,
    inbox: Option<(Inbox, WriteKey<K, V>)>,
}

impl Inbox {
    pub(crate) fn new(subscriber: String) -> Self {
        Self { subscriber }
    }
}

impl<K, V> SqlTable<K, V> {
    pub(crate) fn new(shop: Postgres, table: String) -> Self {
        Self {
            shop,
            shape: TableShape {
                table,
                ..TableShape::default()
            },
            keys: Vec::new(),
            columns: Vec::new(),
            refused: Refused::default(),
            inbox: None,
        }
    }

    /// Adds a column of the row's key. The table needs a unique index on exactly the columns of the key.
    ///
    /// A deletion has no value, so it is refused. Use [`record_key`](Self::record_key) for streams with deletions.
    #[must_use]
    pub fn key<C: KeyColumn>(
        self,
        name: &str,
        value: impl Fn(&K, &V) -> C + Send + Sync + 'static,
    ) -> Self {
        let write =
            move |k: &K, v: Option<&V>, to: &mut Vec<u8>| v.is_some_and(|v| value(k, v).write(to));
        self.with_key(name, C::KIND, Arc::new(write))
    }

    /// Adds a column of the row's key, from the key of the record. A deletion deletes the row.
    #[must_use]
    pub fn record_key<C: KeyColumn>(
        self,
        name: &str,
        value: impl Fn(&K) -> C + Send + Sync + 'static,
    ) -> Self {
        let write = move |k: &K, _: Option<&V>, to: &mut Vec<u8>| value(k).write(to);
        self.with_key(name, C::KIND, Arc::new(write))
    }

    fn with_key(mut self, name: &str, kind: Kind, write: WriteKey<K, V>) -> Self {
        self.shape.keys.push(ColumnDef {
            name: name.into(),
            kind,
            is_sum: false,
        });
        self.keys.push(write);
        self
    }

    /// Adds a column.
    #[must_use]
    pub fn column<C: Column>(
        self,
        name: &str,
        value: impl Fn(&K, &V) -> C + Send + Sync + 'static,
    ) -> Self {
        self.with_column(name, false, value)
    }

    /// Adds a column with the version of the row. A record with an equal or older version has no effect.
    #[must_use]
    pub fn newer_by<C: Version>(
        mut self,
        name: &str,
        value: impl Fn(&K, &V) -> C + Send + Sync + 'static,
    ) -> Self {
        self.shape.newer_by = Some(self.columns.len());
        self.with_column(name, false, value)
    }

    /// Adds the value to a column of the row of the key. NULL counts as 0.
    ///
    /// A record whose key has no row is refused, or inserts the row with [`or_insert`](Self::or_insert).
    #[must_use]
    pub fn add<C: Summand>(
        self,
        name: &str,
        value: impl Fn(&K, &V) -> C + Send + Sync + 'static,
    ) -> Self {
        self.with_column(name, true, value)
    }

    /// Inserts a row for a key without one. Its sums begin at 0.
    #[must_use]
    pub fn or_insert(mut self) -> Self {
        self.shape.or_insert = true;
        self
    }

    fn with_column<C: Column>(
        mut self,
        name: &str,
        is_sum: bool,
        value: impl Fn(&K, &V) -> C + Send + Sync + 'static,
    ) -> Self {
        self.shape.columns.push(ColumnDef {
            name: name.into(),
            kind: C::KIND,
            is_sum,
        });
        self.columns
            .push(Arc::new(move |k, v, to| value(k, v).write(to)));
        self
    }
}

impl<K, V> Statement<K, V> {
    pub(crate) fn new(shop: Postgres, name: String, sql: String) -> Self {
        Self {
            shop,
            name,
            shape: StatementShape {
                sql,
                params: Vec::new(),
                affects: None,
                is_checked: true,
            },
            params: Vec::new(),
            refused: Refused::default(),
            inbox: None,
        }
    }

    /// Adds the next parameter: `$1` first.
    #[must_use]
    pub fn param<C: Column>(mut self, value: impl Fn(&K, &V) -> C + Send + Sync + 'static) -> Self {
        self.shape.params.push(C::KIND);
        self.params
            .push(Arc::new(move |k, v, to| value(k, v).write(to)));
        self
    }

    /// Accepts words such as `COMMIT`, to test the checks that find them later.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    #[must_use]
    pub fn unchecked(mut self) -> Self {
        self.shape.is_checked = false;
        self
    }

    /// Refuses a record whose statement affects another number of rows.
    #[must_use]
    pub fn affects(mut self, rows: u64) -> Self {
        self.shape.affects = Some(rows);
        self
    }
}

/// The options of tables, statements and closures.
macro_rules! options {
    ($type:ident) => {
        impl<K, V> $type<K, V> {
            /// Sets the policy for a record that the database or a closure refuses. Default: [`Refused::Fail`].
            #[must_use]
            pub fn refused(mut self, policy: Refused) -> Self {
                self.refused = policy;
                self
            }

            /// Gives each message its effect once, also if its producer sends it again. The id must be unique among
            /// all messages of the inbox. Of two records with an id, the first one has the effect.
            ///
            /// # Exactly-once
            /// The id commits in one transaction with the rows of its message.
            #[must_use]
            pub fn once_by<C: KeyColumn>(
                mut self,
                inbox: &Inbox,
                id: impl Fn(&K, &V) -> C + Send + Sync + 'static,
            ) -> Self {
                let write = move |k: &K, v: Option<&V>, to: &mut Vec<u8>| {
                    v.is_some_and(|v| id(k, v).write(to))
                };
                self.inbox = Some((inbox.clone(), Arc::new(write)));
                self
            }
        }
    };
}

pub(crate) use options;

macro_rules! policies {
    ($type:ident) => {
        options!($type);

        impl<K, V> Clone for $type<K, V> {
            fn clone(&self) -> Self {
                self.copy()
            }
        }

        impl<K: 'static, V: 'static> Place<K, V> for $type<K, V> {
            fn name(&self) -> String {
                self.register()
            }

            fn encode(&self, key: &K, value: &V, row: &mut Row) -> Result<(), Failure> {
                self.encode_row(key, Some(value), row);
                Ok(())
            }
        }

        /// `None` deletes the row of the key.
        impl<K: 'static, V: 'static> Place<K, Option<V>> for $type<K, V> {
            fn name(&self) -> String {
                self.register()
            }

            fn encode(&self, key: &K, value: &Option<V>, row: &mut Row) -> Result<(), Failure> {
                self.encode_row(key, value.as_ref(), row);
                Ok(())
            }
        }
    };
}

policies!(SqlTable);
policies!(Statement);

impl<K, V> SqlTable<K, V> {
    fn copy(&self) -> Self {
        Self {
            shop: self.shop.clone(),
            shape: self.shape.clone(),
            keys: self.keys.clone(),
            columns: self.columns.clone(),
            refused: self.refused,
            inbox: self.inbox.clone(),
        }
    }
}

impl<K, V> Statement<K, V> {
    fn copy(&self) -> Self {
        Self {
            shop: self.shop.clone(),
            name: self.name.clone(),
            shape: self.shape.clone(),
            params: self.params.clone(),
            refused: self.refused,
            inbox: self.inbox.clone(),
        }
    }
}

impl<K, V> SqlTable<K, V> {
    /// Registers the table with its database, and returns the name of the place.
    fn register(&self) -> String {
        self.shop.register(Definition {
            name: format!("table {}", self.shape.table),
            shape: Shape::Table(self.shape.clone()),
            refused: self.refused,
            inbox: subscriber(self.inbox.as_ref()),
        })
    }

    fn encode_row(&self, key: &K, value: Option<&V>, row: &mut Row) {
        encode_key(self.inbox.as_ref(), &self.keys, (key, value), &mut row.key);
        encode_values(&self.columns, (key, value), row);
    }
}

impl<K, V> Statement<K, V> {
    /// Registers the statement with its database, and returns the name of the place.
    fn register(&self) -> String {
        self.shop.register(Definition {
            name: format!("statement {}", self.name),
            shape: Shape::Statement(self.shape.clone()),
            refused: self.refused,
            inbox: subscriber(self.inbox.as_ref()),
        })
    }

    fn encode_row(&self, key: &K, value: Option<&V>, row: &mut Row) {
        encode_key(self.inbox.as_ref(), &[], (key, value), &mut row.key);
        encode_values(&self.params, (key, value), row);
    }
}

pub(crate) fn subscriber<K, V>(inbox: Option<&(Inbox, WriteKey<K, V>)>) -> Option<String> {
    inbox.map(|(inbox, _)| inbox.subscriber.clone())
}

/// Appends the id of the message and the key columns. Appends nothing if the place has neither.
pub(crate) fn encode_key<K, V>(
    inbox: Option<&(Inbox, WriteKey<K, V>)>,
    keys: &[WriteKey<K, V>],
    (key, value): (&K, Option<&V>),
    bytes: &mut Vec<u8>,
) {
    let id = inbox.map(|(_, id)| id);
    let mut writes = id.into_iter().chain(keys).peekable();
    if writes.peek().is_none() {
        return;
    }
    row::begin(bytes);
    for write in writes {
        row::push(bytes, |to| write(key, value, to));
    }
}

fn encode_values<K, V>(writes: &[Write<K, V>], (key, value): (&K, Option<&V>), row: &mut Row) {
    let Some(value) = value else {
        row.is_deleted = true;
        return;
    };
    row::begin(&mut row.row);
    for write in writes {
        row::push(&mut row.row, |to| write(key, value, to));
    }
}

impl<K, V> fmt::Debug for SqlTable<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("SqlTable");
        text.field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl<K, V> fmt::Debug for Statement<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Statement");
        text.field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shop() -> Postgres {
        Postgres::connect("postgres://u@localhost/shop").unwrap()
    }

    fn encode(place: &impl Place<String, Option<i64>>, value: Option<i64>) -> Row {
        let mut row = Row::default();
        place.encode(&"a".to_owned(), &value, &mut row).unwrap();
        row
    }

    #[test]
    fn a_record_becomes_key_and_row() {
        let table = shop()
            .table::<String, i64>("stock")
            .record_key("sku", |sku| sku.clone())
            .column("units", |_, units| *units);
        let encoded = encode(&table, Some(7));
        assert_eq!(encoded.key, [1, 0, 0, 0, 1, b'a']);
        assert_eq!(encoded.row, [1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 7]);
        assert!(!encoded.is_deleted);
        assert!(encode(&table, None).is_deleted);
    }

    #[test]
    fn the_id_of_a_message_comes_first() {
        let shop = shop();
        let table = shop
            .table::<String, i64>("bookings")
            .column("units", |_, units| *units)
            .once_by(&shop.inbox("billing"), |id, _| id.clone());
        assert_eq!(encode(&table, Some(7)).key, [1, 0, 0, 0, 1, b'a']);
    }
}

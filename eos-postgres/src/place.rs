//! The destinations of rows, without the types of the stream.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::control::control_word;
use crate::tx::AppliedShape;
use crate::value::Kind;

/// The policy for a record that the database or a closure refuses.
///
/// The database refuses a row because of a constraint, a value that does not fit, or a trigger. A closure refuses a
/// record by returning an error. The rows of one record are written together or not at all, even in several tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Refused {
    /// The error policy of the source applies. By default, the app stops.
    #[default]
    Fail,
    /// The record has no effect. A warning is logged.
    Skip,
    /// The record becomes a row of `eos.dead_letters`, in the same transaction.
    DeadLetter,
}

/// The definition of a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Definition {
    /// The name in the plan: "table stock".
    pub(crate) name: String,
    pub(crate) shape: Shape,
    pub(crate) refused: Refused,
    /// The subscriber of the inbox.
    pub(crate) inbox: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    Table(TableShape),
    Statement(StatementShape),
    Apply(AppliedShape),
    /// Records that the app gives up, as bytes: a row of `eos.dead_letters`.
    Letters,
}

/// Columns of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct TableShape {
    /// As the user wrote it: `stock` or `sales.stock`.
    pub(crate) table: String,
    pub(crate) keys: Vec<ColumnDef>,
    pub(crate) columns: Vec<ColumnDef>,
    /// The index in `columns` of the version.
    pub(crate) newer_by: Option<usize>,
    pub(crate) or_insert: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ColumnDef {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Whether the value is added to the column.
    pub(crate) is_sum: bool,
}

/// A statement of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatementShape {
    pub(crate) sql: String,
    pub(crate) params: Vec<Kind>,
    /// The number of rows that each execution must affect.
    pub(crate) affects: Option<u64>,
    /// Whether the start refuses control words.
    pub(crate) is_checked: bool,
}

impl TableShape {
    /// Returns the keys, then the other columns: the order of parameters.
    pub(crate) fn all(&self) -> impl Iterator<Item = &ColumnDef> {
        self.keys.iter().chain(&self.columns)
    }

    pub(crate) fn has_sums(&self) -> bool {
        self.columns.iter().any(|column| column.is_sum)
    }

    /// Mistakes that need no database.
    pub(crate) fn mistakes(&self) -> Vec<String> {
        let table = &self.table;
        let mut mistakes = Vec::new();
        if self.all().next().is_none() {
            mistakes.push(format!("table {table} has no columns: add `.column(..)`"));
        }
        if self.keys.is_empty() && (self.has_sums() || self.newer_by.is_some()) {
            mistakes.push(format!(
                "table {table} adds or compares, but names no row: add `.key(..)`"
            ));
        }
        if self.has_sums() && self.newer_by.is_some() {
            mistakes.push(format!(
                "table {table} has `.add(..)` and `.newer_by(..)`: a sum depends on every record, and `newer_by` drops \
                 some. Use one of them"
            ));
        }
        if self.or_insert && !self.has_sums() {
            mistakes.push(format!(
                "table {table} has `.or_insert()` without `.add(..)`: it inserts missing rows in any case. Remove it"
            ));
        }
        let mut names: Vec<&str> = self.all().map(|column| column.name.as_str()).collect();
        names.sort_unstable();
        for pair in names.windows(2) {
            if let [first, second] = pair
                && first == second
            {
                mistakes.push(format!("table {table} names the column {first} twice"));
            }
        }
        mistakes
    }
}

impl StatementShape {
    /// Mistakes that need no database.
    pub(crate) fn mistakes(&self, name: &str) -> Vec<String> {
        match control_word(&self.sql).filter(|_| self.is_checked) {
            Some(word) => vec![format!(
                "{name} begins with {word}: a statement must not end the transaction, or change the session. Remove it"
            )],
            None => Vec::new(),
        }
    }
}

/// The places of a database, by name.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    by_name: BTreeMap<String, Arc<Definition>>,
    /// The names with several definitions, and the mistake of each.
    mistakes: BTreeMap<String, String>,
}

impl Places {
    pub(crate) fn register(&self, definition: Definition) -> String {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = definition.name.clone();
        let known = inner.by_name.get(&name);
        if known.is_some_and(|known| **known != definition) {
            // Two shapes of one table would run in an order that differs from that of the records.
            let mistake = format!(
                "{name} is written in two shapes: merge the streams and use one definition, or give the statements and closures \
                 different names. An app with closures needs a `Postgres` of its own"
            );
            inner.mistakes.insert(name.clone(), mistake);
        } else {
            inner.by_name.insert(name.clone(), Arc::new(definition));
        }
        name
    }

    /// Returns the definitions of these names, and all mistakes that need no database.
    ///
    /// The places with these indices are the app's dead letters.
    pub(crate) fn of(
        &self,
        names: &[String],
        letters: &[usize],
    ) -> (Vec<Arc<Definition>>, Vec<String>) {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let shapes = names.iter().filter_map(|name| inner.mistakes.get(name));
        let mut mistakes: Vec<String> = shapes.cloned().collect();
        let mut found = Vec::new();
        for (index, name) in names.iter().enumerate() {
            if letters.contains(&index) {
                found.push(Arc::new(Definition {
                    name: name.clone(),
                    shape: Shape::Letters,
                    refused: Refused::Fail,
                    inbox: None,
                }));
                continue;
            }
            let Some(definition) = inner.by_name.get(name) else {
                mistakes.push(format!("{name} belongs to no table of this database"));
                continue;
            };
            mistakes.extend(match &definition.shape {
                Shape::Table(table) => table.mistakes(),
                Shape::Statement(statement) => statement.mistakes(name),
                Shape::Apply(_) | Shape::Letters => Vec::new(),
            });
            found.push(Arc::clone(definition));
        }
        (found, mistakes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, is_sum: bool) -> ColumnDef {
        ColumnDef {
            name: name.into(),
            kind: Kind::I64,
            is_sum,
        }
    }

    #[test]
    fn mistakes_of_a_shape_are_listed_together() {
        let shape = TableShape {
            table: "stock".into(),
            columns: vec![column("a", true), column("a", false)],
            newer_by: Some(1),
            ..TableShape::default()
        };
        let mistakes = shape.mistakes().join("\n");
        for part in ["`.key(..)`", "`.newer_by(..)`", "column a twice"] {
            assert!(mistakes.contains(part), "{part} is missing in {mistakes}");
        }
    }

    #[test]
    fn a_table_in_two_shapes_is_a_mistake() {
        let places = Places::default();
        let definition = |columns: Vec<ColumnDef>| Definition {
            name: "table stock".into(),
            shape: Shape::Table(TableShape {
                table: "stock".into(),
                columns,
                ..TableShape::default()
            }),
            refused: Refused::Fail,
            inbox: None,
        };
        places.register(definition(vec![column("a", false)]));
        places.register(definition(vec![column("a", false)]));
        assert_eq!(
            places.of(&["table stock".into()], &[]).1,
            Vec::<String>::new()
        );
        places.register(definition(vec![column("b", false)]));
        assert!(places.of(&["table stock".into()], &[]).1[0].contains("two shapes"));
    }
}

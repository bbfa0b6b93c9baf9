//! The content of the app's stores.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use eos_core::spi::stepped::{StoreRows, TaskHome, live_rows};
use eos_core::{Timer, Timestamp};
use eos_protocol::Seq;
use eos_protocol::state::{Family, Standing, StoreId};
use eos_state::{Direction, KeyRange, MemoryBackend, StoreBackend, StoreError};

use super::TestDriver;
use crate::disk::Copied;

/// The committed rows of a store, of all tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows<K, V>(Vec<(K, V)>);

impl<K, V> Rows<K, V> {
    /// The value of a key, if it has one.
    #[must_use]
    pub fn get<Q: PartialEq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let found = self.0.iter().find(|(it, _)| it.borrow() == key);
        found.map(|(_, value)| value)
    }

    /// All rows: task by task, in the order of the keys' bytes.
    #[must_use]
    pub fn entries(&self) -> &[(K, V)] {
        &self.0
    }

    /// All rows, by key.
    #[must_use]
    pub fn into_map(self) -> BTreeMap<K, V>
    where
        K: Ord,
    {
        self.0.into_iter().collect()
    }

    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl TestDriver {
    /// The committed content of a store: a `KeyValueStore`, an `OrderedStore`, or a `WindowStore`, whose rows are
    /// keyed by the start of the window and the key. The store may belong to closures or to an operator.
    ///
    /// # Panics
    /// If the app has no store of this name, or it has other types, or it has windows where none are expected, or the
    /// reverse.
    #[track_caller]
    #[must_use]
    pub fn store<S: StoreRows>(&self, store: &S) -> Rows<S::Key, S::Value> {
        let (name, all) = (store.store_name(), self.app.stores());
        assert!(
            all.iter().any(|it| it == name),
            "the app has no store {name}. It has {}",
            if all.is_empty() {
                "none".to_owned()
            } else {
                all.join(", ")
            }
        );
        let mut rows = Vec::new();
        let databases = self.databases();
        for database in databases.values() {
            match store.rows(database) {
                Ok(found) => rows.extend(found),
                Err(error) => panic!("{error}"),
            }
        }
        if rows.is_empty() {
            refuse_another_kind(name, databases.values());
        }
        Rows(rows)
    }

    /// The number of rows in the databases of all tasks, including expired rows that the databases have not deleted. For
    /// tests of sizes.
    ///
    /// # Panics
    /// If a database can't be read.
    #[must_use]
    pub fn stored_rows(&self) -> usize {
        let databases = self.databases();
        let rows = databases.values().map(|database| match all_rows(database) {
            Ok(rows) => rows,
            Err(error) => panic!("{error}"),
        });
        rows.sum()
    }

    /// The keys with a moment of a timer, and their moments.
    ///
    /// # Panics
    /// As [`store`](Self::store).
    #[track_caller]
    #[must_use]
    pub fn timers<K: 'static>(&self, timer: &Timer<K>) -> Rows<K, Timestamp> {
        self.store(timer)
    }

    /// The database of each task: the open one, or the most advanced one if none is open.
    pub(super) fn databases(&self) -> BTreeMap<TaskHome, MemoryBackend> {
        let mut found: BTreeMap<TaskHome, Copied> = BTreeMap::new();
        for copy in self.seats.iter().flat_map(|seat| seat.disk.copies()) {
            let known = found.get(&copy.home).map(knows);
            if known.is_none_or(|known| known < knows(&copy)) {
                found.insert(copy.home.clone(), copy);
            }
        }
        let found = found.into_iter();
        found.map(|(home, copy)| (home, copy.database)).collect()
    }
}

/// Panics if the store of this name holds rows of another kind: windowed and plain rows are kept apart, and an
/// empty result would look like a mistake of the app.
#[track_caller]
fn refuse_another_kind<'a>(name: &str, databases: impl Iterator<Item = &'a MemoryBackend>) {
    let kinds = [
        (Family::Plain, StoreId::plain(name)),
        (Family::Windowed, StoreId::windowed(name)),
    ];
    let ids = kinds.map(|(family, id)| (family, [id, StoreId::stamped(family, name)]));
    for database in databases {
        for (family, ids) in ids {
            let holds = |id| live_rows(database, id).is_ok_and(|rows| !rows.is_empty());
            if !ids.into_iter().any(holds) {
                continue;
            }
            let (how, definition) = match family {
                Family::Plain => ("without windows", "`KeyValueStore` or `OrderedStore`"),
                Family::Windowed => ("in windows", "`WindowStore`"),
            };
            panic!(
                "the app keeps {name} {how}, which this definition can't read. Read it with the \
                 {definition} that the app declares"
            );
        }
    }
}

fn all_rows(database: &MemoryBackend) -> Result<usize, StoreError> {
    let mut rows = 0;
    for store in database.stores()? {
        let mut cursor = database.scan(store, &KeyRange::all(), Direction::Forward)?;
        while cursor.entry().is_some() {
            rows += 1;
            cursor.advance()?;
        }
    }
    Ok(rows)
}

/// The age of a copy: an open copy is the newest, then the copy with most transactions.
fn knows(copy: &Copied) -> (bool, Option<Seq>) {
    let standing = copy.database.position().map(|it| &it.standing);
    let seq = match standing {
        Some(Standing::At { seq, .. }) => Some(*seq),
        Some(Standing::Restoring { .. }) | None => None,
    };
    (copy.open, seq)
}

//! The removal of tables of expired rows.

use eos_protocol::state::{Family, StoreId};
use tempfile::tempdir;

use super::*;
use crate::testing::at;
use crate::{ExpiredRows, StateReader};

/// Two stores of windows. The first one's rows are before the second one's.
fn stores() -> [StoreId; 2] {
    let mut stores = ["a", "b"].map(StoreId::windowed);
    stores.sort_by_key(|store| store.to_be_bytes());
    stores
}

/// A database with rows of three buckets of each store, and a table for each bucket.
fn database(path: &Path) -> RocksBackend {
    let memory = StateMemory::new(8 << 20);
    let mut database = RocksBackend::open(path, &Family::ALL, &memory).unwrap();
    for store in stores() {
        for bucket in 1..=3_u8 {
            let rows: Vec<[u8; 2]> = (0..100).map(|row| [bucket, row]).collect();
            let mut batch = Batch::new();
            for row in &rows {
                batch.write(store, row, Some(row));
            }
            database.apply(&batch, &at(1)).unwrap();
            bulk::flush(&database.db).unwrap();
            let (from, to) = bounds(store, &KeyRange::prefix(&[bucket]));
            let family = family(&database.db, store).unwrap();
            database.db.compact_range_cf(family, Some(from), to);
        }
    }
    assert_eq!(tables(&database), 6);
    database
}

/// The number of tables of windowed stores.
fn tables(database: &RocksBackend) -> usize {
    let files = database.db.live_files().unwrap();
    let files = files
        .iter()
        .filter(|file| file.column_family_name == WINDOWED);
    files.filter(|file| file.num_entries > 1).count()
}

/// The rows of a store.
fn rows(database: &RocksBackend, store: StoreId) -> usize {
    let mut rows = database
        .scan(store, &KeyRange::all(), Direction::Forward)
        .unwrap();
    let mut count = 0;
    while rows.entry().is_some() {
        count += 1;
        rows.advance().unwrap();
    }
    count
}

/// The rows before the middle of the second bucket.
fn expired(store: StoreId) -> ExpiredRows {
    ExpiredRows::new(store, KeyRange::between(..&[2, 50][..]))
}

#[test]
fn tables_of_expired_rows_are_removed_at_once() {
    let dir = tempdir().unwrap();
    let mut database = database(dir.path());
    let [first, second] = stores();
    for (store, left) in [(first, 5), (second, 4)] {
        let expired = ExpiredRows {
            in_snapshots: false,
            ..expired(store)
        };
        let mut batch = Batch::new();
        batch.delete(&expired);
        database.apply(&batch, &at(2)).unwrap();
        assert_eq!(
            tables(&database),
            left,
            "the table of the second bucket stays"
        );
        assert_eq!(rows(&database, store), 150);
    }
    assert_eq!(rows(&database, first), 150);
}

#[test]
fn earlier_snapshots_keep_the_rows_that_views_read() {
    let dir = tempdir().unwrap();
    let mut database = database(dir.path());
    let [store, _] = stores();
    let reader: StateReader = database.reader().unwrap();
    let snapshot = reader.snapshot().unwrap();
    let expired = expired(store);
    let mut batch = Batch::new();
    batch.delete(&expired);
    database.apply(&batch, &at(2)).unwrap();
    assert_eq!((tables(&database), rows(&database, store)), (6, 150));
    let mut value = Vec::new();
    assert!(snapshot.get(store, &[1, 0], &mut value).unwrap());
}

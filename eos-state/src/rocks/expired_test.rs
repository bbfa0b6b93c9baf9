//! Tests of the removal of tables with expired rows.

use eos_protocol::Timestamp;
use eos_protocol::state::{Family, StoreId};
use tempfile::tempdir;

use super::seen_ids_test::buckets;
use super::*;
use crate::testing::at;
use crate::{ExpiredRows, StateReader};

/// The rows of a bucket.
const ROWS: usize = 100;

/// Returns two stores of windows. The rows of the first one are before those of the second one.
fn stores() -> [StoreId; 2] {
    let mut stores = ["a", "b"].map(StoreId::windowed);
    stores.sort_by_key(|store| store.to_be_bytes());
    stores
}

/// Returns the first possible key of a bucket.
fn start(bucket: i64) -> Vec<u8> {
    (bucket ^ i64::MIN).to_be_bytes().to_vec()
}

fn open(path: &Path) -> RocksBackend {
    RocksBackend::open(path, &Family::ALL, &StateMemory::new(8 << 20)).unwrap()
}

/// Writes rows into a table of their own.
fn add_table(database: &mut RocksBackend, store: StoreId, rows: &[Vec<u8>]) {
    let mut batch = Batch::new();
    for row in rows {
        batch.write(store, row, Some(row));
    }
    database.apply(&batch, &at(1)).unwrap();
    bulk::flush(&database.db).unwrap();
    let (first, last) = (rows.first().unwrap(), rows.last().unwrap());
    let (from, to) = bounds(store, &KeyRange::between(&first[..]..=last));
    let family = family(&database.db, store).unwrap();
    database.db.compact_range_cf(family, Some(from), to);
}

/// Creates a database with five tables for each store: the empty key, the bare start of bucket 3, and three buckets.
fn database(path: &Path) -> RocksBackend {
    let mut database = open(path);
    for store in stores() {
        add_table(&mut database, store, &[Vec::new()]);
        add_table(&mut database, store, &[start(3)]);
        for bucket in 1..=3 {
            let row = |row| [start(bucket), vec![row]].concat();
            let rows: Vec<_> = (0..ROWS as u8).map(row).collect();
            add_table(&mut database, store, &rows);
        }
    }
    assert_eq!(tables(&database), 10);
    database
}

/// Returns the number of tables with rows of windowed stores. Ignores tables that contain only deletions.
fn tables(database: &RocksBackend) -> usize {
    let files = database.db.live_files().unwrap();
    let files = files.iter();
    let files = files.filter(|it| it.column_family_name == WINDOWED);
    files.filter(|it| it.num_entries > it.num_deletions).count()
}

/// Returns the number of rows of a store.
fn rows(database: &RocksBackend, store: StoreId) -> usize {
    let rows = database.scan(store, &KeyRange::all(), Direction::Forward);
    let (mut rows, mut count) = (rows.unwrap(), 0);
    while rows.entry().is_some() {
        count += 1;
        rows.advance().unwrap();
    }
    count
}

fn delete(database: &mut RocksBackend, expired: &ExpiredRows) {
    let mut batch = Batch::new();
    batch.delete_expired(expired);
    database.apply(&batch, &at(2)).unwrap();
}

/// The range excludes its end, the rows outside of the windows, and the rows of the other store.
#[test]
fn tables_of_expired_rows_are_removed_at_once() {
    let dir = tempdir().unwrap();
    let mut database = database(dir.path());
    let [first, second] = stores();
    for (store, left) in [(first, 8), (second, 6)] {
        delete(&mut database, &buckets(store, None, Timestamp(3)));
        assert_eq!(tables(&database), left);
        assert_eq!(rows(&database, store), 2 + ROWS);
    }
    drop(database);
    let database = open(dir.path());
    for store in [first, second] {
        assert_eq!(rows(&database, store), 2 + ROWS);
        for key in [Vec::new(), start(3), [start(3), vec![0]].concat()] {
            assert!(database.get(store, &key, &mut Vec::new()).unwrap());
        }
    }
}

/// A table with rows of two buckets is in the range of neither bucket.
#[test]
fn a_table_of_several_buckets_is_removed_with_the_last_one() {
    let dir = tempdir().unwrap();
    let mut database = open(dir.path());
    let [store, _] = stores();
    let two: Vec<_> = [1, 2]
        .map(|bucket| [start(bucket), vec![0]].concat())
        .into();
    add_table(&mut database, store, &two);
    delete(&mut database, &buckets(store, None, Timestamp(2)));
    assert_eq!((tables(&database), rows(&database, store)), (1, 1));
    delete(
        &mut database,
        &buckets(store, Some(Timestamp(2)), Timestamp(3)),
    );
    assert_eq!((tables(&database), rows(&database, store)), (0, 0));
}

#[test]
fn earlier_snapshots_show_expired_windows() {
    let dir = tempdir().unwrap();
    let mut database = database(dir.path());
    let [store, _] = stores();
    let reader: StateReader = database.reader().unwrap();
    let snapshot = reader.snapshot().unwrap();
    let expired = ExpiredRows {
        removable: None,
        ..buckets(store, None, Timestamp(3))
    };
    delete(&mut database, &expired);
    assert_eq!((tables(&database), rows(&database, store)), (10, 2 + ROWS));
    let key = [start(1), vec![0]].concat();
    assert!(snapshot.get(store, &key, &mut Vec::new()).unwrap());
}

#[test]
fn the_key_below_is_lower() {
    for key in [&[1][..], &[0], &[1, 0], &[0, 7], &[255, 255], &[3, 1, 0, 0]] {
        let below = just_below(key.to_vec());
        assert!(&below[..] < key, "{key:?} {below:?}");
    }
    assert_eq!(just_below(vec![5, 0]), [5]);
    assert!(just_below(vec![5, 6]) > vec![5, 5, 255, 255]);
}

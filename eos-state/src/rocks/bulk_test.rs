//! Tests of restored records as tables.

use std::fs;
use std::path::Path;

use eos_protocol::state::Family;
use tempfile::tempdir;

use super::bulk::Bulk;
use super::conformance_test::MEMORY;
use super::*;
use crate::conformance::{Engine, Lasts, check, check_due, position};
use crate::{Load, StoreKind, TaskStore};

const STORE: StoreId = StoreId::plain("counts");

/// The engine on disk, which makes a table of each load.
struct Tables;

impl Engine for Tables {
    fn open(&self, dir: &Path) -> Result<Box<dyn StoreBackend>, StoreError> {
        let mut backend = RocksBackend::open(dir, &Family::ALL, &MEMORY)?;
        backend.bulk.least = 0;
        Ok(Box::new(backend))
    }

    fn lasts(&self) -> Lasts {
        Lasts::Disk
    }
}

#[test]
fn tables_conform() {
    check(&Tables, tempdir().unwrap().path(), 40).unwrap();
    check_due(&Tables, tempdir().unwrap().path(), 60).unwrap();
}

fn store(dir: &Path) -> TaskStore {
    TaskStore::new(Tables.open(dir).unwrap(), [(STORE, StoreKind::Point)]).unwrap()
}

fn bulk(dir: &Path) -> Bulk {
    let mut backend = RocksBackend::open(dir, &Family::ALL, &MEMORY).unwrap();
    backend.bulk.least = 0;
    backend.bulk.clone()
}

fn load(store: &mut TaskStore, key: &[u8], value: Option<&[u8]>, seq: u64) {
    let mut load = Load::new();
    load.write(STORE, key, value);
    store.begin_load(load, position(seq)).unwrap();
    assert_eq!(store.end_apply(true), Poll::Ready(Ok(())));
}

fn get(store: &TaskStore, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    store.get(STORE, key, &mut value).unwrap().then_some(value)
}

fn tables(dir: &Path) -> Vec<PathBuf> {
    let files = dir.read_dir().unwrap().map(|file| file.unwrap().path());
    files
        .filter(|file| file.extension().is_some_and(|it| it == "sst"))
        .collect()
}

fn cut_logs(dir: &Path) {
    for file in dir.read_dir().unwrap() {
        let file = file.unwrap().path();
        if file.extension().is_some_and(|it| it == "log") {
            fs::write(file, b"").unwrap();
        }
    }
}

/// A power loss may cut the log, but it keeps tables. The position in a table requires the earlier writes.
#[test]
fn a_power_loss_loses_no_write_before_a_table() {
    let dir = tempdir().unwrap();
    let mut live = store(dir.path());
    live.put(STORE, b"a", b"1").unwrap();
    live.keep_record();
    live.apply(&position(1)).unwrap();
    load(&mut live, b"b", Some(b"2"), 2);
    drop(live);
    cut_logs(dir.path());
    let left = store(dir.path());
    assert_eq!(left.position(), Some(&position(2)));
    assert_eq!(get(&left, b"b").unwrap(), b"2");
    assert_eq!(get(&left, b"a").unwrap(), b"1");
}

#[test]
fn a_power_loss_after_the_first_table_leaves_a_whole_database() {
    let dir = tempdir().unwrap();
    let mut live = store(dir.path());
    load(&mut live, b"a", Some(b"1"), 1);
    drop(live);
    cut_logs(dir.path());
    let left = store(dir.path());
    assert_eq!(left.position(), Some(&position(1)));
    assert_eq!(get(&left, b"a").unwrap(), b"1");
}

#[test]
fn later_tables_and_writes_hide_earlier_ones() {
    let dir = tempdir().unwrap();
    let mut live = store(dir.path());
    load(&mut live, b"a", Some(b"1"), 1);
    assert_eq!(tables(dir.path()).len(), 2, "the format and the load");
    load(&mut live, b"a", Some(b"2"), 2);
    assert_eq!(get(&live, b"a").unwrap(), b"2");
    load(&mut live, b"a", None, 3);
    assert_eq!(get(&live, b"a"), None);
    live.put(STORE, b"a", b"4").unwrap();
    live.keep_record();
    live.apply(&position(4)).unwrap();
    load(&mut live, b"b", Some(b"5"), 5);
    drop(live);
    let left = store(dir.path());
    assert_eq!(left.position(), Some(&position(5)));
    assert_eq!(get(&left, b"a").unwrap(), b"4");
    assert_eq!(get(&left, b"b").unwrap(), b"5");
}

/// The process may die after RocksDB has linked a table and before it has removed the first name. Both names are then
/// the same file.
#[test]
fn an_unfinished_table_is_not_overwritten() {
    let dir = tempdir().unwrap();
    let mut live = store(dir.path());
    load(&mut live, b"a", Some(b"1"), 1);
    drop(live);
    let of_load = tables(dir.path())
        .into_iter()
        .max_by_key(|it| it.metadata().unwrap().modified().unwrap());
    let unfinished = dir.path().join("loading");
    fs::hard_link(of_load.unwrap(), &unfinished).unwrap();
    let mut left = store(dir.path());
    assert!(!unfinished.exists());
    load(&mut left, b"b", Some(b"2"), 2);
    drop(left);
    let left = store(dir.path());
    assert_eq!(get(&left, b"a").unwrap(), b"1");
    assert_eq!(get(&left, b"b").unwrap(), b"2");
}

/// Few records, and records of windowed stores, are written as a batch.
#[test]
fn only_some_loads_are_tables() {
    let dir = tempdir().unwrap();
    let bulk = bulk(dir.path());
    let mut load = Load::new();
    load.write(STORE, b"a", Some(b"1"));
    assert!(bulk.is_worth_a_table(&load));
    let less = Bulk {
        least: load.memory() + 1,
        ..bulk.clone()
    };
    assert!(!less.is_worth_a_table(&load));
    load.write(StoreId::windowed("views"), b"a", Some(b"1"));
    assert!(!bulk.is_worth_a_table(&load));
}

/// A restore of four times the memory uses neither write buffers nor the cache, except for the last table's index and
/// filter.
#[test]
fn loads_stay_within_the_memory() {
    let (dir, memory) = (tempdir().unwrap(), StateMemory::new(8 << 20));
    let backend = RocksBackend::open(dir.path(), &[Family::Plain], &memory).unwrap();
    let mut store = TaskStore::new(Box::new(backend), [(STORE, StoreKind::Point)]).unwrap();
    for seq in 0..16_u64 {
        let mut load = Load::new();
        for key in 0..10_000_u64 {
            let key = key.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seq);
            load.write(STORE, &key.to_be_bytes(), Some(&[7; 200]));
        }
        assert!(load.memory() > Load::LEAST_TABLE);
        store.begin_load(load, position(seq + 1)).unwrap();
        assert_eq!(store.end_apply(true), Poll::Ready(Ok(())));
        let (used, unflushed) = (memory.in_use(), memory.unflushed());
        assert!(
            used <= memory.bytes() && unflushed < 1 << 20,
            "{used}, {unflushed}"
        );
    }
    let seen = 9_999_u64
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(15);
    assert_eq!(get(&store, &seen.to_be_bytes()).unwrap(), [7; 200]);
}

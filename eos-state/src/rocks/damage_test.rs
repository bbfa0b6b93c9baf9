//! Flipped bytes, cut logs, older copies: detected, or healed exactly.

use std::fs;
use std::path::{Path, PathBuf};

use eos_protocol::state::Family;
use tempfile::{TempDir, tempdir};

use super::conformance_test::MEMORY;
use super::*;
use crate::TaskStore;
use crate::conformance::{History, Violation, position};

/// Transactions before the damage: some are flushed, the last ones are only in the log.
const FLUSHED: u64 = 30;
const LAST: u64 = 40;

/// Opens the stores. Each engine has a cache of its own, because copies of one table share a place in a cache. With a
/// shared cache, a reader of the whole table would never see the damage.
fn open(dir: &Path) -> Result<TaskStore, StoreError> {
    let backend = RocksBackend::open(dir, &Family::ALL, &StateMemory::new(1 << 20))?;
    History.stores(Box::new(backend))
}

fn judge(dir: &Path) -> Result<Result<u64, Violation>, StoreError> {
    History.compare(&open(dir)?)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for file in from.read_dir().unwrap() {
        let file = file.unwrap();
        // `LOCK` is empty, and only people read `LOG`.
        if !["LOCK", "LOG"].contains(&file.file_name().to_str().unwrap()) {
            fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

fn files(dir: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let all = dir.read_dir().unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> = all
        .filter(|path| wanted(path.file_name().unwrap().to_str().unwrap()))
        .collect();
    files.sort();
    files
}

fn newest_log(dir: &Path) -> PathBuf {
    files(dir, |name| name.ends_with(".log")).pop().unwrap()
}

/// Returns the files of a killed process: flushed transactions, and some in the log.
fn life() -> TempDir {
    let dir = tempdir().unwrap();
    let live = dir.path().join("live");
    let mut store = open(&live).unwrap();
    for seq in 1..=LAST {
        History.commit(&mut store, seq).unwrap();
        if seq == FLUSHED / 2 || seq == FLUSHED {
            store.flush().unwrap();
        }
    }
    // Copied while the database is open, as after a sudden death.
    copy(&live, &dir.path().join("left"));
    dir
}

#[derive(Debug, Default)]
struct Tally {
    found: u32,
    healed: u32,
    harmless: u32,
}

/// Flips bytes of a file, each in its own copy, about `samples` of them and every one of its last 64.
fn flip(dir: &TempDir, files: Vec<PathBuf>, samples: usize) -> Tally {
    let left = dir.path().join("left");
    let mut tally = Tally::default();
    for file in files {
        let bytes = fs::read(&file).unwrap();
        let step = (bytes.len() / samples).max(1);
        let tail = bytes.len().saturating_sub(64);
        for at in (0..tail).step_by(step).chain(tail..bytes.len()) {
            let dir = dir.path().join("flipped");
            copy(&left, &dir);
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(dir.join(file.file_name().unwrap()), bytes).unwrap();
            match judge(&dir) {
                Err(error) if error.poisons() => tally.found += 1,
                Err(error) => panic!("{file:?} byte {at}: {error:?}"),
                Ok(Err(violation)) => panic!("{file:?} byte {at} made it wrong: {violation}"),
                Ok(Ok(LAST)) => tally.harmless += 1,
                Ok(Ok(_)) => tally.healed += 1,
            }
            fs::remove_dir_all(&dir).unwrap();
        }
    }
    tally
}

fn named(dir: &TempDir, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    files(&dir.path().join("left"), wanted)
}

#[test]
fn flipped_bytes_of_a_table_are_found() {
    let dir = life();
    let tally = flip(&dir, named(&dir, |name| name.ends_with(".sst")), 60);
    assert!(tally.found > 60 && tally.healed == 0, "{tally:?}");
}

#[test]
fn flipped_bytes_of_the_log_are_found_or_healed() {
    let dir = life();
    let tally = flip(&dir, vec![newest_log(&dir.path().join("left"))], 100);
    assert!(tally.found + tally.healed > 100, "{tally:?}");
    assert_eq!(tally.harmless, 0, "{tally:?}");
}

#[test]
fn flipped_bytes_of_the_manifest_are_found() {
    let dir = life();
    let tally = flip(&dir, named(&dir, |name| name.starts_with("MANIFEST")), 150);
    assert!(tally.found > 100, "{tally:?}");
}

#[test]
fn flipped_bytes_of_current_are_found() {
    let dir = life();
    let tally = flip(&dir, named(&dir, |name| name == "CURRENT"), 16);
    assert!(tally.found > 12 && tally.healed == 0, "{tally:?}");
}

#[test]
fn missing_files_are_found() {
    let dir = life();
    let left = dir.path().join("left");
    let needed =
        |name: &str| name == "CURRENT" || name.starts_with("MANIFEST") || name.ends_with(".sst");
    for file in files(&left, needed) {
        let copied = dir.path().join("missing");
        copy(&left, &copied);
        fs::remove_file(copied.join(file.file_name().unwrap())).unwrap();
        let error = judge(&copied).unwrap_err();
        assert!(
            matches!(error, StoreError::Damaged { .. }),
            "{file:?}: {error:?}"
        );
        fs::remove_dir_all(&copied).unwrap();
    }
}

#[test]
fn tables_without_current_are_not_taken_for_nothing() {
    let dir = life();
    let left = dir.path().join("left");
    for file in files(&left, |name| name == "CURRENT" || name.ends_with(".log")) {
        fs::remove_file(file).unwrap();
    }
    for _ in 0..2 {
        let error = judge(&left).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
    }
    assert!(!files(&left, |name| name.ends_with(".sst")).is_empty());
}

#[test]
fn a_log_that_is_gone_is_found() {
    let dir = life();
    let left = dir.path().join("left");
    fs::remove_file(newest_log(&left)).unwrap();
    let error = judge(&left).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
}

#[test]
fn an_interrupted_making_is_begun_again() {
    let dir = tempdir().unwrap();
    let empty = dir.path().join("empty");
    drop(open(&empty).unwrap());
    for data in files(&empty, |name| {
        name.ends_with(".log") || name.ends_with(".sst")
    }) {
        fs::remove_file(data).unwrap();
    }
    assert_eq!(judge(&empty).unwrap(), Ok(0));
    // The database just opened flushed nothing, so all its data is in the log.
    assert_eq!(judge(&empty).unwrap(), Ok(0));
}

#[test]
fn a_log_cut_at_any_byte_heals_to_an_earlier_transaction() {
    let dir = life();
    let left = dir.path().join("left");
    let len = fs::metadata(newest_log(&left)).unwrap().len();
    let every = len.saturating_sub(300);
    let mut ends = Vec::new();
    for keep in (0..every).step_by(149).chain(every..=len) {
        let cut = dir.path().join("cut");
        copy(&left, &cut);
        let log = fs::File::options()
            .write(true)
            .open(newest_log(&cut))
            .unwrap();
        log.set_len(keep).unwrap();
        let seq = judge(&cut).unwrap().unwrap();
        // A healed database must also continue: a commit after the cut, and another start.
        if keep % 20 == 0 {
            let mut store = open(&cut).unwrap();
            History.commit(&mut store, seq + 1).unwrap();
            drop(store);
            assert_eq!(judge(&cut).unwrap(), Ok(seq + 1));
        }
        ends.push(seq);
        fs::remove_dir_all(&cut).unwrap();
    }
    assert!(ends.is_sorted(), "{ends:?}");
    assert!(
        ends.first() == Some(&FLUSHED) && ends.last() == Some(&LAST),
        "{ends:?}"
    );
}

#[test]
fn an_older_copy_is_an_older_position() {
    let dir = tempdir().unwrap();
    let live = dir.path().join("live");
    let mut store = open(&live).unwrap();
    for seq in 1..=20 {
        History.commit(&mut store, seq).unwrap();
        if seq % 7 == 0 {
            store.flush().unwrap();
        }
        copy(&live, &dir.path().join(seq.to_string()));
    }
    for seq in 1..=20 {
        assert_eq!(judge(&dir.path().join(seq.to_string())).unwrap(), Ok(seq));
    }
}

#[test]
fn damage_found_while_running_poisons_the_store() {
    let dir = tempdir().unwrap();
    let mut store = open(dir.path()).unwrap();
    let counts = StoreId::from_be_bytes([0, 0, 0, 1]);
    let keys: Vec<[u8; 2]> = (0..1_000_u16).map(u16::to_be_bytes).collect();
    let values: Vec<[u8; 64]> = (0..1_000_u32).map(|n| [n as u8; 64]).collect();
    for (key, value) in keys.iter().zip(&values) {
        store.put(counts, key, value).unwrap();
    }
    store.keep_record();
    store.apply(&position(1)).unwrap();
    store.flush().unwrap();
    for table in files(dir.path(), |name| name.ends_with(".sst")) {
        let mut bytes = fs::read(&table).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&table, bytes).unwrap();
    }
    let read = |key: &[u8; 2]| store.get(counts, key, &mut Vec::new());
    let error = keys.iter().find_map(|key| read(key).err()).unwrap();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
    assert_eq!(read(&keys[0]).unwrap_err(), error);
    assert_eq!(store.apply(&position(2)).unwrap_err(), error);
    assert_eq!(store.flush().unwrap_err(), error);
    let text = error.to_string();
    let path = dir.path().to_str().unwrap();
    assert!(text.contains(path) && text.contains("rebuilt"), "{text}");
}

#[test]
fn a_newer_layout_is_refused_and_left_alone() {
    let dir = tempdir().unwrap();
    drop(RocksBackend::open(dir.path(), &[Family::Plain], &MEMORY).unwrap());
    let set = |format: u32| {
        let db = DB::open_default(dir.path()).unwrap();
        db.put(FORMAT_KEY, format.to_be_bytes()).unwrap();
    };
    set(FORMAT + 1);
    let error = RocksBackend::open(dir.path(), &[Family::Plain], &MEMORY).unwrap_err();
    let expected = StoreError::Newer {
        path: dir.path().to_owned(),
        found: FORMAT + 1,
        known: FORMAT,
    };
    assert_eq!(error, expected);
    set(FORMAT);
    RocksBackend::open(dir.path(), &[Family::Plain], &MEMORY).unwrap();
}

#[test]
fn a_position_that_cannot_be_read_is_refused() {
    let dir = tempdir().unwrap();
    let backend = RocksBackend::open(dir.path(), &[Family::Plain], &MEMORY).unwrap();
    backend.db.put(POSITION_KEY, b"not a position").unwrap();
    drop(backend);
    let error = RocksBackend::open(dir.path(), &[Family::Plain], &MEMORY).unwrap_err();
    assert!(matches!(error, StoreError::Position { .. }), "{error:?}");
}

#[test]
fn one_database_is_open_once() {
    let dir = tempdir().unwrap();
    let _first = RocksBackend::open(dir.path(), &[Family::Plain], &MEMORY).unwrap();
    let error = RocksBackend::open(dir.path(), &[Family::Plain], &MEMORY).unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error:?}");
}

#[test]
fn windowed_keys_stay_readable_when_no_store_is_declared_any_more() {
    let dir = tempdir().unwrap();
    let views = StoreId::windowed("views");
    let missing = |backend: &RocksBackend| {
        backend.get(views, b"k", &mut Vec::new()) == Err(StoreError::UnknownStore { store: views })
    };
    let plain = RocksBackend::open(dir.path(), &[Family::Plain], &MEMORY).unwrap();
    assert!(missing(&plain));
    drop(plain);
    drop(RocksBackend::open(dir.path(), &Family::ALL, &MEMORY).unwrap());
    let again = RocksBackend::open(dir.path(), &[Family::Plain], &MEMORY).unwrap();
    assert_eq!(again.get(views, b"k", &mut Vec::new()), Ok(false));
}

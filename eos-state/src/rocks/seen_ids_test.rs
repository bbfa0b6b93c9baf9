//! The size of a deduplication store on disk, compared with the estimate.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use eos_protocol::Timestamp;
use eos_protocol::identity::{
    Id, IdAge, IdKey, IdScope, SeenKind, SeenWindow, Sighting, Sizing, TimedId, TimedIds,
};
use eos_protocol::state::{Family, StoreId};
use eos_protocol::windows::Expiry;
use tempfile::tempdir;

use super::*;
use crate::conformance::position;
use crate::{ExpiredRows, StoreKind, TaskStore};

const WINDOW: Duration = Duration::from_secs(300);
/// The rows of a transaction.
const TRANSACTION: u64 = 10_000;
/// The length of a simulated key.
const KEY: usize = 8;

/// Returns the number's place in a pseudo-random permutation. Equal numbers have equal ids.
fn scattered(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Returns the key of a row in its store.
pub(super) fn row(bucket: Timestamp, number: u64, timed: Option<Timestamp>) -> Vec<u8> {
    let (a, b) = (scattered(number), scattered(!number));
    let mut id = [0; 16];
    id[..8].copy_from_slice(&a.to_be_bytes());
    id[8..].copy_from_slice(&b.to_be_bytes());
    if let Some(time) = timed {
        id[..6].copy_from_slice(&time.0.to_be_bytes()[2..]);
    }
    let mut key = (bucket.0 ^ i64::MIN).to_be_bytes().to_vec();
    let id = match timed {
        Some(_) => Id::Timed(TimedId { bytes: id }),
        None => Id::Bytes(&id),
    };
    let scope = &scattered(number / 3).to_be_bytes()[8 - KEY..];
    let generation = 0;
    let row = IdKey {
        generation,
        scope,
        id,
    };
    row.encode(&mut key);
    key
}

/// Returns an empty store of this kind.
pub(super) fn store_of(dir: &Path, kind: SeenKind) -> (TaskStore, StoreId) {
    let memory = StateMemory::new(64 << 20);
    let backend = RocksBackend::open(dir, &Family::ALL, &memory).unwrap();
    let id = StoreId::seen("seen", kind, IdScope::Key);
    let store = TaskStore::new(Box::new(backend), [(id, StoreKind::Point)]);
    (store.unwrap(), id)
}

/// Returns the rows of the buckets that start in a range.
pub(super) fn buckets(store: StoreId, from: Option<Timestamp>, before: Timestamp) -> ExpiredRows {
    let between = |from: Option<Timestamp>| {
        let from = from.unwrap_or(Timestamp(i64::MIN));
        let [from, to] = [from, before].map(|it| (it.0 ^ i64::MIN).to_be_bytes());
        KeyRange::between(&from[..]..&to)
    };
    ExpiredRows {
        removable: Some(between(None)),
        ..ExpiredRows::new(store, between(from))
    }
}

/// The sizes of a store.
struct Measured {
    /// The bytes of the tables once the first ids have expired: the mean over time.
    tables: f64,
    /// The bytes of the filters, per row.
    filter: f64,
}

/// Writes ids at a constant rate, and measures the store.
fn measured(
    per_window: u64,
    expiry: Expiry,
    kind: SeenKind,
    mut key_and_value: impl FnMut(Timestamp, u64) -> (Vec<u8>, Vec<u8>),
) -> Measured {
    let dir = tempdir().unwrap();
    let (mut store, id) = store_of(dir.path(), kind);
    let mut expiry = expiry;
    let window = u64::try_from(WINDOW.as_millis()).unwrap();
    let life = expiry.retention();
    let end = 4 * per_window * u64::try_from(life.as_millis()).unwrap() / window;
    // The sizes of the tables during each of four lifetimes of an id.
    let mut samples: [Vec<u64>; 4] = Default::default();
    for number in 0..end {
        let time = (number * window / per_window).cast_signed();
        let time = Timestamp(1_700_000_000_000 + time);
        let (key, value) = key_and_value(time, number);
        store.put(id, &key, &value).unwrap();
        store.keep_record();
        if (number + 1) % TRANSACTION == 0 {
            let mut over = Vec::new();
            if let Some((from, before)) = expiry.due(Some(time)) {
                over.push(buckets(id, from, before));
                expiry.forgot(before);
            }
            let seq = number / TRANSACTION + 1;
            store.begin_apply(position(seq), over).unwrap();
            assert!(store.end_apply(true).is_ready());
            if seq.is_multiple_of(10) {
                store.flush().unwrap();
                samples[usize::try_from(4 * number / end).unwrap()].push(settled(dir.path()));
            }
        }
    }
    let mean = |samples: &[u64]| samples.iter().sum::<u64>() as f64 / samples.len() as f64;
    let [_, first, third, last] = samples.each_ref().map(|it| mean(it));
    eprintln!("second life {first:.0}, third {third:.0}, fourth {last:.0}");
    assert!(last < 1.3 * first, "it grows from {first:.0} to {last:.0}");
    // A compaction that lags in one of the lives does not count.
    let mut lives = [first, third, last];
    lives.sort_by(f64::total_cmp);
    drop(store);
    Measured {
        tables: lives[1],
        filter: filter_per_row(dir.path(), id),
    }
}

/// Returns the bytes of the filters of all tables, per row.
fn filter_per_row(dir: &Path, store: StoreId) -> f64 {
    let memory = StateMemory::new(64 << 20);
    let backend = RocksBackend::open(dir, &Family::ALL, &memory).unwrap();
    let family = family(&backend.db, store).unwrap();
    let name = "rocksdb.aggregated-table-properties";
    let text = backend.db.property_value_cf(family, name).unwrap().unwrap();
    let number = |name: &str| {
        let found = text.split(';').find_map(|it| it.trim().strip_prefix(name));
        let number = found.unwrap_or_else(|| panic!("no {name} in {text}"));
        number.parse::<f64>().unwrap()
    };
    number("filter block size=") / number("# entries=")
}

/// Returns the bytes of the tables once compactions have stopped. The test writes an hour of ids in a minute, so
/// without a pause compactions would lag behind on a loaded machine, as they do not at the real rate.
pub(super) fn settled(dir: &Path) -> u64 {
    let (mut bytes, mut quiet) = (tables(dir), 0);
    // On a busy machine, a compaction may do nothing for some time.
    while quiet < 10 {
        thread::sleep(Duration::from_millis(100));
        let now = tables(dir);
        quiet = if now == bytes { quiet + 1 } else { 0 };
        bytes = now;
    }
    bytes
}

/// Returns the bytes of the tables in a directory.
fn tables(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).unwrap().filter_map(Result::ok);
    let tables = files.filter(|file| file.path().extension().is_some_and(|it| it == "sst"));
    // A compaction may remove a table meanwhile.
    let sizes = tables.filter_map(|file| Some(file.metadata().ok()?.len()));
    sizes.sum()
}

#[track_caller]
fn check(name: &str, sizing: Sizing, measured: &Measured) {
    let sizing = sizing.key_bytes(KEY as u32);
    let filter = sizing.filter_bytes() / sizing.rows();
    for (what, estimate, measured) in [
        ("tables", sizing.disk_bytes(), measured.tables),
        ("filter of a row", filter, measured.filter),
    ] {
        let part = measured / estimate;
        eprintln!(
            "{name}, {what}: estimated {estimate:.2}, measured {measured:.2}, {part:.3} of the estimate"
        );
        assert!((0.8..1.2).contains(&part), "{name}, {what}: {part}");
    }
}

/// R55. `EOS_FULL=1` measures a million ids per window.
#[test]
fn a_store_has_the_estimated_size() {
    let per_window = match std::env::var_os("EOS_FULL") {
        Some(_) => 1_000_000,
        None => 300_000,
    };
    let per_second = per_window as f64 / WINDOW.as_secs_f64();
    let fixed = SeenWindow::fixed(WINDOW);
    let found = measured(
        per_window,
        fixed.expiry(),
        SeenKind::Fixed,
        |time, number| {
            let bucket = fixed.bucket_of(time);
            let mut value = Vec::new();
            let sighting = Sighting {
                at: time,
                first: time,
            };
            sighting.encode(bucket, &mut value);
            (row(bucket, number, None), value)
        },
    );
    let sizing = Sizing::new(SeenKind::Fixed, Some(fixed.expiry()), per_second);
    check("fixed", sizing, &found);
    let timed = TimedIds::remembered_for(WINDOW);
    let found = measured(
        per_window,
        timed.expiry(),
        SeenKind::TimeEmbedded,
        |time, number| {
            let IdAge::Current(bucket) = timed.age(time, time) else {
                panic!("an id of now");
            };
            let value = time.0.to_be_bytes().to_vec();
            (row(bucket, number, Some(time)), value)
        },
    );
    let sizing = Sizing::new(SeenKind::TimeEmbedded, Some(timed.expiry()), per_second);
    check("time-embedded", sizing, &found);
}

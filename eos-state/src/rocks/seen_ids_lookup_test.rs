//! The cost of a look-up in a deduplication store.

use std::time::{Duration, Instant};

use eos_protocol::Timestamp;
use eos_protocol::identity::{SeenKind, SeenWindow};
use eos_protocol::state::StoreId;
use rocksdb::perf::{PerfContext, PerfMetric, PerfStatsLevel, set_perf_stats};
use tempfile::tempdir;

use super::seen_ids_test::{buckets, row, settled, store_of};
use crate::TaskStore;
use crate::conformance::position;

/// The rows of a transaction.
const TRANSACTION: u64 = 10_000;
const DAY: i64 = 86_400_000;

fn is_full() -> bool {
    std::env::var_os("EOS_FULL").is_some()
}

/// The results of the tables' filters for ids.
#[derive(Debug, Default, Clone, Copy)]
struct Filters {
    /// The id is absent, so no block is read.
    absent: u64,
    /// The id may be present.
    maybe: u64,
}

/// Looks an id up, and returns whether it is present.
fn is_known(store: &TaskStore, id: StoreId, key: &[u8]) -> bool {
    store.get(id, key, &mut Vec::new()).unwrap()
}

/// Counts the results of filters for look-ups of this thread.
fn filters(look_up: impl FnOnce()) -> Filters {
    set_perf_stats(PerfStatsLevel::EnableCount);
    let mut context = PerfContext::default();
    context.reset();
    look_up();
    let counted = Filters {
        absent: context.metric(PerfMetric::BloomSstMissCount),
        maybe: context.metric(PerfMetric::BloomSstHitCount),
    };
    set_perf_stats(PerfStatsLevel::Disable);
    counted
}

/// R61: the filters decide for nearly all new ids, and the rows decide for the others. No unique id counts as a
/// duplicate. `EOS_FULL=1` has ten million ids.
#[test]
fn filters_only_save_reads() {
    let ids = if is_full() { 10_000_000 } else { 1_000_000 };
    let dir = tempdir().unwrap();
    let (mut store, id) = store_of(dir.path(), SeenKind::Ever);
    let mut repeated = 0_u64;
    let counted = filters(|| {
        for number in 0..ids {
            let key = row(Timestamp(0), number, None);
            repeated += u64::from(is_known(&store, id, &key));
            store.put(id, &key, &[0; 8]).unwrap();
            store.keep_record();
            if (number + 1) % TRANSACTION == 0 {
                store
                    .begin_apply(position(number / TRANSACTION + 1), Vec::new())
                    .unwrap();
                assert!(store.end_apply(true).is_ready());
            }
        }
    });
    assert_eq!(repeated, 0, "of {ids} unique ids");
    let asked = counted.absent + counted.maybe;
    let part = counted.absent as f64 / asked as f64;
    eprintln!("{ids} unique ids: {counted:?}, {part:.4} answered by a filter");
    assert!(asked > ids, "{counted:?}");
    assert!(part > 0.95, "{part}");
    let known = (0..ids).step_by(100).filter(|number| {
        let key = row(Timestamp(0), *number, None);
        is_known(&store, id, &key)
    });
    assert_eq!(known.count() as u64, ids / 100, "no known id is new");
}

/// The days whose look-ups are compared with those of the last day.
const EARLY: [i64; 5] = [7, 9, 11, 13, 15];

/// R60: after a year, a look-up costs as much as on the eighth day, for a window of seven days. The cost is the number
/// of queried tables, and with `EOS_FULL=1` (a million ids per day for a year) also the time.
#[test]
fn a_year_of_ids_does_not_slow_look_ups_down() {
    let (days, per_day) = if is_full() {
        (365, 1_000_000)
    } else {
        (40, 20_000)
    };
    let window = SeenWindow::fixed(Duration::from_secs(7 * 86_400));
    let mut expiry = window.expiry();
    let dir = tempdir().unwrap();
    let (mut store, id) = store_of(dir.path(), SeenKind::Fixed);
    let mut number = 0_u64;
    let look_ups = |store: &TaskStore, time: Timestamp, number: u64| {
        let mut times = Vec::new();
        let counted = filters(|| {
            for n in 0..20_000 {
                let begun = Instant::now();
                for bucket in window.buckets(time) {
                    let key = row(bucket, u64::MAX / 2 + number + n, None);
                    assert!(!is_known(store, id, &key));
                }
                times.push(begun.elapsed());
            }
        });
        times.sort();
        let p99 = times[times.len() * 99 / 100];
        ((counted.absent + counted.maybe) as f64 / 20_000.0, p99)
    };
    // A compaction may have just ended on one of the days.
    let mut early = Vec::new();
    for day in 0..days {
        for n in 0..per_day {
            let time = Timestamp(1_700_000_000_000 + day * DAY + n * DAY / per_day);
            let key = row(window.bucket_of(time), number, None);
            store.put(id, &key, &[0; 8]).unwrap();
            store.keep_record();
            number += 1;
            if number.is_multiple_of(TRANSACTION) {
                let mut over = Vec::new();
                if let Some((from, before)) = expiry.due(Some(time)) {
                    over.push(buckets(id, from, before));
                    expiry.forgot(before);
                }
                store
                    .begin_apply(position(number / TRANSACTION), over)
                    .unwrap();
                assert!(store.end_apply(true).is_ready());
            }
        }
        store.flush().unwrap();
        if EARLY.contains(&day) {
            settled(dir.path());
            let time = Timestamp(1_700_000_000_000 + (day + 1) * DAY);
            early.push(look_ups(&store, time, number));
        }
    }
    settled(dir.path());
    let time = Timestamp(1_700_000_000_000 + days * DAY);
    let (tables, p99) = look_ups(&store, time, number);
    let tables_before = early.iter().map(|(tables, _)| *tables).fold(0.0, f64::max);
    let p99_before = early.iter().map(|(_, p99)| *p99).max().unwrap();
    eprintln!(
        "days 8 to 16: up to {tables_before:.2} tables, p99 {p99_before:?}; day {days}: {tables:.2} tables, p99 {p99:?}"
    );
    assert!(tables <= 1.5 * tables_before, "{tables_before} {tables}");
    if is_full() {
        assert!(p99 <= p99_before * 3 / 2, "{p99_before:?} {p99:?}");
    }
}

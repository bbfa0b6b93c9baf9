//! Rows of operators that this version can't read.

use eos_protocol::Partition;
use eos_protocol::joins::key_of_head;
use eos_protocol::state::{OwnRows, StoreId};

use super::*;
use crate::identity::{HighWatermarks, Sequence, Versions};
use crate::reorder::{OnGap, Reorder};
use crate::state::{JoinStore, ReorderStore, SessionStore, SlidingStore};
use crate::timers::Clock;
use crate::windows::{Session, Sliding, Within};
use crate::{ErrorPolicy, Stream};

/// The place of the format's number in a row, behind the two moments.
const FORMAT: usize = 16;

fn changelog() -> TopicPartition {
    TopicPartition::new("app-in-changelog", Partition::ZERO)
}

/// Counts records in sessions or sliding windows of 10 ms. A record that is called `drop` moves stream time only.
fn counting(policy: ErrorPolicy, rows: OwnRows, is_final: bool) -> impl Fn(&mut App) {
    move |app| {
        let ten = Duration::from_millis(10);
        let grouped = app.source(&text("in")).on_error(policy.clone());
        let grouped = grouped
            .filter(|value| !value.starts_with("drop"))
            .group_by_key();
        let out = Topic::<String, u64>::plain("out");
        if rows == OwnRows::Sliding {
            let counts = grouped.windowed_by(Sliding::of(ten));
            let counts = counts.count(&SlidingStore::plain("counts"));
            match is_final {
                true => counts.emit_on_close().without_windows().to(&out),
                false => counts.to_stream().without_windows().to(&out),
            }
        } else {
            let counts = grouped.windowed_by(Session::gap(ten));
            let counts = counts.count(&SessionStore::plain("counts"));
            match is_final {
                true => counts.emit_on_close().without_windows().to(&out),
                false => {
                    let counts = counts.to_stream().filter_map(|count| count);
                    counts.without_windows().to(&out);
                }
            }
        }
    }
}

/// The rows of the changelog, with tombstones.
fn rows(bench: &Bench, rows: OwnRows) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let id = StoreId::own("counts", rows).to_be_bytes();
    let broker = bench.kafka.broker();
    let log = broker.changelogs[&changelog()].iter().flatten();
    let rows = log.filter(|(key, _)| key.starts_with(&[&id[..], &[1]].concat()));
    rows.cloned().collect()
}

/// A newer version wrote the row, and the operator went back to this one. No policy may drop the row: it has the results of
/// other records.
#[test]
fn an_unreadable_row_stops_the_worker_whatever_the_policy() {
    for policy in [ErrorPolicy::skip(), ErrorPolicy::dead_letter("letters")] {
        for of in [OwnRows::Sessions, OwnRows::Sliding] {
            for is_final in [false, true] {
                // Each record reads the row, or makes it due.
                for next in ["b@105", "drop@1000"] {
                    let spec = || {
                        let mut spec = spec(0, Guarantee::ExactlyOnce);
                        spec.output_partitions = vec![1; 3];
                        spec.output_limits = vec![None; 3];
                        spec
                    };
                    let mut bench = Bench::of(spec(), counting(policy.clone(), of, is_final));
                    bench.assign(&[0]);
                    bench.take(&["a@100"]);
                    let id = StoreId::own("counts", of).to_be_bytes();
                    let mut found = 0;
                    let mut broker = bench.kafka.broker();
                    let log = broker.changelogs.get_mut(&changelog()).unwrap();
                    for (key, value) in log.iter_mut().flatten() {
                        if let Some(value) = value
                            && key.starts_with(&id)
                            && key[4] == 1
                        {
                            value[FORMAT] = 9;
                            found += 1;
                        }
                    }
                    drop(broker);
                    assert_eq!(found, 1);
                    bench.replace(spec(), counting(policy.clone(), of, is_final));
                    bench.assign(&[0]);
                    bench.settle();
                    bench.feed(0, &[next]);
                    let error = bench.end_with(|e| matches!(e, WorkerError::Store { .. }));
                    for part in ["a row of the store counts", "format 9", "newest version"] {
                        assert!(error.contains(part), "{error}");
                    }
                    let kept = rows(&bench, of);
                    assert!(matches!(&kept[..], [(_, Some(row))] if row[FORMAT] == 9));
                }
            }
        }
    }
}

/// Joins the records of two topics with an outer join of 10 ms.
fn joining(policy: ErrorPolicy) -> impl Fn(&mut App) {
    move |app| {
        let all = app.source(&text("in")).on_error(policy.clone());
        let kept = all.filter(|value| !value.starts_with("drop"));
        let (left, right) = kept.branch(|value| value.starts_with('l'));
        let store = JoinStore::<String, String, String>::plain("counts");
        let within = Within::of(Duration::from_millis(10));
        let joined = left.outer_join_within(right, within, &store, |sides| format!("{sides:?}"));
        joined.to(&text("out"));
    }
}

/// The same for the rows of a join, spread or not: no policy drops the record that reads them, because they have other
/// records.
#[test]
fn an_unreadable_row_of_a_join_stops_the_worker_whatever_the_policy() {
    let changelog = TopicPartition::new("app-in-windowed-changelog", Partition::ZERO);
    let large = format!("l{}@100", "x".repeat(5_000));
    for policy in [ErrorPolicy::skip(), ErrorPolicy::dead_letter("letters")] {
        // A record of a join reads the row, or stream time visits it.
        for (first, next, place) in [
            ("l@100", "r@105", 0),
            ("l@100", "drop@1000", 0),
            (&*large, "r@105", 17),
            (&*large, "drop@1000", 17),
        ] {
            let spec = || {
                let mut spec = spec(0, Guarantee::ExactlyOnce);
                spec.output_partitions = vec![1; 4];
                spec.output_limits = vec![None; 4];
                spec
            };
            let mut bench = Bench::of(spec(), joining(policy.clone()));
            bench.assign(&[0]);
            bench.take(&[first]);
            let id = StoreId::own("counts", OwnRows::Joined).to_be_bytes();
            let mut broker = bench.kafka.broker();
            let mut found = 0;
            for (key, value) in broker
                .changelogs
                .get_mut(&changelog)
                .unwrap()
                .iter_mut()
                .flatten()
            {
                // Its terms have no key.
                let is_row = key.starts_with(&id) && key.len() > 4;
                let (_, rest) = key_of_head(&key[4..]).unwrap_or_default();
                if let Some(value) = value
                    && is_row
                    && rest.len() == place
                {
                    value[0] = 9;
                    found += 1;
                }
            }
            drop(broker);
            assert_eq!(found, 1);
            bench.replace(spec(), joining(policy.clone()));
            bench.assign(&[0]);
            // The restore reads the moments of rows that are not spread.
            if place != 0 {
                bench.settle();
            }
            bench.feed(0, &[next]);
            let error = bench.end_with(|e| matches!(e, WorkerError::Store { .. }));
            for part in ["counts", "format 9", "newest version"] {
                assert!(error.contains(part), "{error}");
            }
        }
    }
}

/// A kind of store, an operator that has it, and the place of the format in one of its rows.
struct OwnRow {
    rows: OwnRows,
    operator: fn(Stream<String, String>) -> Stream<String, String>,
    /// The first byte of the row's key, if the store has rows of several kinds.
    kind: &'static [u8],
    format: usize,
}

fn waiting() -> ReorderStore<String, String> {
    ReorderStore::plain("counts")
}

fn number(value: &str) -> u64 {
    value.split('@').next().unwrap().parse().unwrap()
}

fn ordered_by_time(it: Stream<String, String>) -> Stream<String, String> {
    let ten = Duration::from_millis(10);
    it.reorder_by_time(ten, &waiting()).pass_late().ordered()
}

fn ordered_by_number(it: Stream<String, String>) -> Stream<String, String> {
    let order = Reorder::max_gap(100)
        .max_wait(Duration::from_millis(10), Clock::Stream)
        .on_gap(OnGap::PassOn);
    it.reorder_by(|value: &String| number(value), order, &waiting())
        .pass_late()
        .ordered()
}

fn newest(it: Stream<String, String>) -> Stream<String, String> {
    it.newest(&Versions::new("counts"), |value: &String| number(value))
        .accepted()
}

fn by_sequence(it: Stream<String, String>) -> Stream<String, String> {
    it.dedup_by_sequence(&HighWatermarks::new("counts"), |value: &String| Sequence {
        producer: Some("p".to_owned()),
        epoch: 0,
        number: number(value).into(),
    })
    .accepted()
}

/// The same for waiting records, the numbers and totals beside them, high watermarks and versions: no policy drops a waiting
/// record, or the record that needs the row.
#[test]
fn an_unreadable_row_of_an_order_stops_the_worker_whatever_the_policy() {
    let row = |rows, operator: fn(_) -> _, kind, format| OwnRow {
        rows,
        operator,
        kind,
        format,
    };
    const DATED: &[u8] = &[1];
    const UNDATED: &[u8] = &[2];
    let all = [
        row(OwnRows::WaitingByTime, ordered_by_time, DATED, FORMAT),
        row(OwnRows::WaitingByTime, ordered_by_time, UNDATED, 0),
        row(OwnRows::WaitingByNumber, ordered_by_number, DATED, FORMAT),
        row(OwnRows::WaitingByNumber, ordered_by_number, UNDATED, 0),
        row(OwnRows::Versions, newest, &[], 0),
        row(OwnRows::Watermarks, by_sequence, &[], 0),
    ];
    for policy in [ErrorPolicy::skip(), ErrorPolicy::dead_letter("letters")] {
        for OwnRow {
            rows,
            operator,
            kind,
            format,
        } in &all
        {
            let app = |app: &mut App| {
                let source = app.source(&text("in")).on_error(policy.clone());
                operator(source).to(&text("out"));
            };
            let spec = || {
                let mut spec = spec(0, Guarantee::ExactlyOnce);
                spec.output_partitions = vec![1; 3];
                spec.output_limits = vec![None; 3];
                spec
            };
            let mut bench = Bench::of(spec(), app);
            bench.assign(&[0]);
            bench.take(&["3@100"]);
            let prefix = [&StoreId::own("counts", *rows).to_be_bytes()[..], kind].concat();
            let mut found = 0;
            let mut broker = bench.kafka.broker();
            let log = broker.changelogs.get_mut(&changelog()).unwrap();
            for (key, value) in log.iter_mut().flatten() {
                if let Some(value) = value
                    && key.starts_with(&prefix)
                {
                    value[*format] = 9;
                    found += 1;
                }
            }
            drop(broker);
            assert!(found > 0, "{rows:?}");
            bench.replace(spec(), app);
            bench.assign(&[0]);
            bench.settle();
            bench.feed(0, &["4@1000"]);
            let error = bench.end_with(|e| matches!(e, WorkerError::Store { .. }));
            for part in ["a row of the store counts", "format", "newest version"] {
                assert!(error.contains(part), "{rows:?}: {error}");
            }
        }
    }
}

//! The reads, writes and visits of rows.

use std::time::Duration;

use super::memory::Memory;
use crate::Timestamp;
use crate::joins::*;

fn of_hot_key(side: Side, time: i64) -> Arrival<'static> {
    Arrival {
        side,
        time: Timestamp(time),
        key: b"hot",
        value: &[7; 10],
    }
}

/// A key with 100,000 records of both sides in one row costs the same for each.
#[test]
fn a_hot_key_costs_the_same_per_record() {
    // A left record meets right ones that are not before it.
    let within = Within::of(Duration::ZERO).after(Duration::from_millis(400_000));
    for kind in [JoinKind::Inner, JoinKind::Left, JoinKind::Outer] {
        let joining = Joining::new(JoinTerms::new(kind, within));
        let store = Memory::default();
        let cost = |side, time| {
            *store.work.borrow_mut() = 0;
            joining
                .arrive(
                    &store,
                    of_hot_key(side, time),
                    Timestamp(time),
                    Some(Timestamp(time - 1)),
                )
                .unwrap();
            *store.work.borrow()
        };
        // The first of each side are not spread yet.
        for (side, from) in [(Side::Right, 0), (Side::Left, 100_000)] {
            let early = (from..from + 1_000).map(|time| cost(side, time));
            let early = early.fold(0, |_, cost| cost);
            assert!(early <= 5, "{kind:?}: {early}");
            for time in from + 1_000..from + 50_000 {
                assert_eq!(cost(side, time), early, "{kind:?} {side:?} {time}");
            }
        }
        let mut alone = 0;
        while let Some((key, moment)) = store.next(Timestamp(i64::MAX)) {
            *store.work.borrow_mut() = 0;
            let taken = joining.take_alone(&store, &key, moment).unwrap().len();
            alone += taken;
            // The row, and the emitted results.
            assert!(*store.work.borrow() <= taken + 6, "{}", store.work.borrow());
        }
        let expected = match kind {
            JoinKind::Inner => 0,
            JoinKind::Left => 50_000,
            JoinKind::Outer => 100_000,
        };
        assert_eq!(alone, expected);
    }
}

/// A record whose partners have closed reads none of their values: here, they are unreadable.
#[test]
fn closed_partners_are_counted_and_not_copied() {
    let within = Within::of(Duration::from_millis(3)).after(Duration::from_millis(10));
    for kind in [JoinKind::Inner, JoinKind::Left, JoinKind::Outer] {
        let joining = Joining::new(JoinTerms::new(kind, within)).spreading_above(100);
        let store = Memory::default();
        let arrive = |side, time: i64, now: i64| {
            joining
                .arrive(&store, of_hot_key(side, time), Timestamp(now), None)
                .unwrap()
        };
        for _ in 0..10_000 {
            arrive(Side::Right, 100, 100);
        }
        for (key, row) in store.rows.borrow_mut().iter_mut() {
            let (_, place) = crate::joins::key_of_head(key).unwrap();
            if !place.is_empty() {
                *row = vec![9];
            }
        }
        // The right ones are open until 103, and the left one until 110.
        let found = arrive(Side::Left, 100, 108);
        let expected = Arrived::Taken {
            partners: Vec::new(),
            missed: 10_000,
        };
        assert_eq!(found, expected, "{kind:?}");
    }
}

/// A left record without a partner, behind many that have met theirs.
#[test]
fn a_visit_skips_the_closed_records_that_have_met_a_partner() {
    let within = Within::of(Duration::from_millis(200_000)).grace(Duration::from_millis(1));
    let joining = Joining::new(JoinTerms::new(JoinKind::Left, within)).spreading_above(100);
    let store = Memory::default();
    let arrive = |side, time: i64, value: &[u8]| {
        let (time, key) = (Timestamp(time), &b"hot"[..]);
        let record = Arrival {
            side,
            time,
            key,
            value,
        };
        joining.arrive(&store, record, time, Some(time)).unwrap();
    };
    arrive(Side::Right, 0, b"partner");
    for time in 1..10_000 {
        arrive(Side::Left, time, &[7; 10]);
    }
    // Too late for the right record, in the same row as the other ones.
    arrive(Side::Left, 350_000, b"alone");
    *store.work.borrow_mut() = 0;
    let (key, moment) = store.next(Timestamp(i64::MAX)).unwrap();
    let alone = joining.take_alone(&store, &key, moment).unwrap();
    assert_eq!(alone.len(), 1);
    assert!(store.index.borrow().is_empty());
    // It reads few of the records that have met their partners.
    assert!(*store.work.borrow() < 100, "{}", store.work.borrow());
}

/// Fills one row with a left record at 0, and with another one at 2 if wanted. Returns the store and the key of the row.
fn one_row(joining: &Joining, has_second: bool) -> (Memory, Vec<u8>) {
    let store = Memory::default();
    for time in [0, 2].into_iter().take(1 + usize::from(has_second)) {
        arrive_left(joining, &store, time);
    }
    let key = store.rows.borrow().keys().next().cloned();
    (store, key.unwrap())
}

fn arrive_left(joining: &Joining, store: &Memory, time: i64) {
    let record = Arrival {
        side: Side::Left,
        time: Timestamp(time),
        key: b"k",
        value: &time.to_be_bytes(),
    };
    let now = Timestamp(time);
    joining.arrive(store, record, now, Some(now)).unwrap();
}

fn left_within(difference: u64) -> Joining {
    let within = Within::of(Duration::from_millis(difference));
    Joining::new(JoinTerms::new(JoinKind::Left, within))
}

/// The last visit of a row writes nothing, unless the row is spread. A later record of the row follows the decisions of
/// the visit.
#[test]
fn a_row_is_written_once_for_each_record_without_a_pair() {
    for (above, writes) in [(usize::MAX, 1), (0, 2)] {
        let joining = left_within(100).spreading_above(above);
        let (store, _) = one_row(&joining, false);
        let (key, moment) = store.next(Timestamp(101)).unwrap();
        let alone = joining.take_alone(&store, &key, moment).unwrap();
        assert_eq!((alone.len(), *store.heads.borrow()), (1, writes));
        // The same row, which is open until 251.
        arrive_left(&joining, &store, 150);
        let (key, moment) = store.next(Timestamp(251)).unwrap();
        let alone = joining.take_alone(&store, &key, moment).unwrap();
        let times: Vec<_> = alone.iter().map(|it| it.time.0).collect();
        assert_eq!((times, *store.heads.borrow()), (vec![150], 2 * writes));
    }
}

/// The error policy leaves out the records of a visit that has failed. Its moment has not been handled.
#[test]
fn a_failed_visit_takes_its_records_out() {
    for has_second in [false, true] {
        let joining = left_within(100);
        let (store, key) = one_row(&joining, has_second);
        let alone = joining.take_alone(&store, &key, Timestamp(101)).unwrap();
        assert_eq!(alone.len(), 1);
        let next = store.next(Timestamp(i64::MAX));
        assert_eq!(next, has_second.then_some((key, Timestamp(103))));
    }
}

/// A row whose moment the last visit has passed has an item, and each record goes out once.
#[test]
fn a_row_behind_the_last_visit_has_an_item() {
    for (second, expected) in [
        (None, vec![101]),
        (Some(2), vec![101, 103]),
        (Some(150), vec![101, 251]),
    ] {
        let joining = left_within(100);
        let store = Memory::default();
        *store.mark.borrow_mut() = (Timestamp(200), Vec::new());
        arrive_left(&joining, &store, 0);
        assert_eq!(store.items.borrow().len(), 1);
        if let Some(second) = second {
            arrive_left(&joining, &store, second);
        }
        let (mut moments, mut times) = (Vec::new(), Vec::new());
        while let Some((key, moment)) = store.next(Timestamp(i64::MAX)) {
            moments.push(moment.0);
            let alone = joining.take_alone(&store, &key, moment).unwrap();
            times.extend(alone.iter().map(|it| it.time.0));
        }
        assert_eq!(moments, expected);
        assert_eq!(times, [0].into_iter().chain(second).collect::<Vec<_>>());
    }
}

/// The last visit of a row writes nothing. A program with another grace treats all its records as decided.
#[test]
fn a_visited_row_is_decided_for_every_grace() {
    let within = |grace| Within::of(Duration::from_millis(100)).grace(Duration::from_millis(grace));
    for (before, after, now) in [
        (0, 1_000, 160),
        (50, 60, 160),
        (60, 50, 200),
        (1_000, 0, 1_200),
    ] {
        let joining = |grace| Joining::new(JoinTerms::new(JoinKind::Left, within(grace)));
        let (store, _) = one_row(&joining(before), true);
        let mut times = Vec::new();
        let mut visit = |joining: Joining, now| {
            while let Some((key, moment)) = store.next(Timestamp(now)) {
                let alone = joining.take_alone(&store, &key, moment).unwrap();
                times.extend(alone.iter().map(|it| it.time.0));
            }
        };
        visit(joining(before), now);
        let now = Timestamp(now);
        let record = Arrival {
            side: Side::Left,
            time: Timestamp(150),
            key: b"k",
            value: b"",
        };
        let arrived = joining(after)
            .arrive(&store, record, now, Some(now))
            .unwrap();
        let is_late = arrived == Arrived::Late;
        visit(joining(after), i64::MAX);
        let last = (!is_late).then_some(150);
        assert_eq!(times, [0, 2].into_iter().chain(last).collect::<Vec<_>>());
    }
}

/// A due item of an earlier stream time sends a record behind one that moved stream time further.
#[test]
fn a_record_that_arrives_at_an_earlier_stream_time_goes_out_alone() {
    let within = Within::of(Duration::ZERO)
        .before(Duration::from_millis(3_600))
        .grace(Duration::from_millis(106));
    for spread_above in [0, usize::MAX] {
        let joining = Joining::new(JoinTerms::new(JoinKind::Left, within));
        let joining = joining.spreading_above(spread_above);
        let store = Memory::default();
        let arrive = |time: i64, now: i64, handled_to: i64| {
            let record = Arrival {
                side: Side::Left,
                time: Timestamp(time),
                key: b"k",
                value: &time.to_be_bytes(),
            };
            let arrived =
                joining.arrive(&store, record, Timestamp(now), Some(Timestamp(handled_to)));
            assert!(matches!(arrived.unwrap(), Arrived::Taken { .. }));
        };
        arrive(1_090, 1_090, 1_000);
        arrive(980, 1_086, 1_086);
        let mut alone = Vec::new();
        while let Some((key, moment)) = store.next(Timestamp(i64::MAX)) {
            let taken = joining.take_alone(&store, &key, moment).unwrap();
            alone.extend(taken.iter().map(|stored| stored.time.0));
        }
        assert_eq!(alone, [980, 1_090]);
    }
}

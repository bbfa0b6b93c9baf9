//! Joins against a nested loop.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::Timestamp;

/// A store in memory.
#[derive(Debug)]
struct Memory {
    rows: RefCell<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// The planned visits: the moments and the keys of rows.
    index: RefCell<BTreeSet<(Timestamp, Vec<u8>)>>,
    /// The moments of items.
    items: RefCell<BTreeMap<Vec<u8>, Timestamp>>,
    /// The last visit: its moment and its row.
    mark: RefCell<(Timestamp, Vec<u8>)>,
    /// The number of writes of rows with more than one record.
    heads: RefCell<usize>,
    /// The number of rows that were read or written.
    work: RefCell<usize>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            rows: RefCell::default(),
            index: RefCell::default(),
            items: RefCell::default(),
            mark: RefCell::new((Timestamp(i64::MIN), Vec::new())),
            heads: RefCell::default(),
            work: RefCell::default(),
        }
    }
}

impl Memory {
    /// Rewrites a row as an earlier version of the library wrote it: the moment is that of an item.
    fn make_older(&self, key: &[u8]) {
        if let Some(row) = self.rows.borrow_mut().get_mut(key)
            && let Ok(Some(moment)) = JoinRow::moment(key, row)
            && self.index.borrow().contains(&(moment, key.to_vec()))
        {
            row[0] = 1;
            self.items.borrow_mut().insert(key.to_vec(), moment);
        }
    }

    /// Takes the first visit.
    fn next(&self, now: Timestamp) -> Option<(Vec<u8>, Timestamp)> {
        let mut index = self.index.borrow_mut();
        let first = index.first().filter(|(moment, _)| *moment <= now)?.clone();
        index.remove(&first);
        let (moment, key) = first.clone();
        let mut items = self.items.borrow_mut();
        if items.get(&key) == Some(&moment) {
            items.remove(&key);
        }
        let mut mark = self.mark.borrow_mut();
        *mark = mark.clone().max(first);
        Some((key, moment))
    }
}

impl JoinStorage for Memory {
    type Error = Infallible;

    fn get(&self, key: &[u8], into: &mut Vec<u8>) -> Result<bool, Infallible> {
        *self.work.borrow_mut() += 1;
        into.clear();
        let rows = self.rows.borrow();
        let row = rows.get(key);
        into.extend_from_slice(row.map_or(&[], |row| row));
        Ok(row.is_some())
    }

    fn put(&self, key: &[u8], row: &[u8]) -> Result<(), Infallible> {
        *self.work.borrow_mut() += 1;
        self.rows.borrow_mut().insert(key.to_vec(), row.to_vec());
        Ok(())
    }

    fn scan(&self, from: &[u8], to: &[u8], each: &mut EachRow<'_>) -> Result<(), Infallible> {
        let _read = (self.rows.borrow().range(from.to_vec()..=to.to_vec()))
            .take_while(|(key, row)| {
                *self.work.borrow_mut() += 1;
                each(key, row).is_continue()
            })
            .count();
        Ok(())
    }

    fn put_dated(
        &self,
        key: &[u8],
        row: &[u8],
        planned: Option<Timestamp>,
    ) -> Result<(), Infallible> {
        let mut index = self.index.borrow_mut();
        if let Some(planned) = planned {
            assert!(index.remove(&(planned, key.to_vec())));
        }
        if let Ok(Some(moment)) = JoinRow::moment(key, row) {
            index.insert((moment, key.to_vec()));
        }
        *self.heads.borrow_mut() += 1;
        self.put(key, row)
    }

    fn has_visited(&self, key: &[u8], moment: Timestamp) -> Result<bool, Infallible> {
        let (last, row) = &*self.mark.borrow();
        Ok((moment, key) <= (*last, row))
    }

    fn put_item(&self, key: &[u8], moment: Timestamp) -> Result<(), Infallible> {
        self.delete_item(key)?;
        self.items.borrow_mut().insert(key.to_vec(), moment);
        self.index.borrow_mut().insert((moment, key.to_vec()));
        Ok(())
    }

    fn delete_item(&self, key: &[u8]) -> Result<(), Infallible> {
        // The item of the visit that runs is gone.
        if let Some(moment) = self.items.borrow_mut().remove(key) {
            self.index.borrow_mut().remove(&(moment, key.to_vec()));
        }
        Ok(())
    }
}

/// A result: the numbers of its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Out {
    Late(u32),
    /// The number of the record, and of its closed partners.
    Missed(u32, u64),
    Pair(u32, u32),
    Alone(u32),
}

/// A record: side, key, time. Its number is its place.
type Input = (Side, u8, i64);

fn number(value: &[u8]) -> u32 {
    u32::from_be_bytes(*value.first_chunk().unwrap())
}

fn pair(side: Side, own: u32, other: u32) -> Out {
    match side {
        Side::Left => Out::Pair(own, other),
        Side::Right => Out::Pair(other, own),
    }
}

/// The results of a join of these records, in this order of arrival.
fn join(joining: &Joining, inputs: &[Input]) -> Vec<Out> {
    join_upgraded(joining, inputs, 0)
}

/// The same, with rows that an earlier version of the library wrote, up to this number of records.
fn join_upgraded(joining: &Joining, inputs: &[Input], older: usize) -> Vec<Out> {
    let (store, mut out) = (Memory::default(), Vec::new());
    let mut now = Timestamp(0);
    for (at, (side, key, time)) in inputs.iter().enumerate() {
        let own = u32::try_from(at).unwrap();
        let handled_to = now;
        now = now.max(Timestamp(*time));
        let record = Arrival {
            side: *side,
            time: Timestamp(*time),
            key: &[*key],
            value: &own.to_be_bytes(),
        };
        match joining
            .arrive(&store, record, now, Some(handled_to))
            .unwrap()
        {
            Arrived::Late => out.push(Out::Late(own)),
            Arrived::Taken { partners, missed } => {
                let others = partners.iter().map(|it| number(&it.value));
                out.extend(others.map(|other| pair(*side, own, other)));
                out.extend((missed > 0).then_some(Out::Missed(own, missed)));
            }
        }
        visit(joining, &store, now, &mut out);
        if at < older {
            let keys: Vec<_> = store.rows.borrow().keys().cloned().collect();
            keys.iter().for_each(|key| store.make_older(key));
        }
    }
    visit(joining, &store, Timestamp(i64::MAX), &mut out);
    assert!(store.items.borrow().is_empty());
    out
}

/// Visits all rows whose moments have come.
fn visit(joining: &Joining, store: &Memory, now: Timestamp, out: &mut Vec<Out>) {
    while let Some((key, moment)) = store.next(now) {
        let alone = joining.take_alone(store, &key, moment).unwrap();
        out.extend(alone.iter().map(|it| Out::Alone(number(&it.value))));
    }
}

/// The same by a loop over all records that came before.
fn nested_loop(terms: &JoinTerms, inputs: &[Input]) -> Vec<Out> {
    let (mut taken, mut out): (Vec<(u32, Input, bool)>, Vec<Out>) = (Vec::new(), Vec::new());
    let mut now = Timestamp(0);
    let alone = |taken: &mut Vec<(u32, Input, bool)>, from: Timestamp, to: Timestamp| {
        let mut alone = Vec::new();
        for (number, (side, key, time), met) in taken {
            let at = terms.within().closes_at(*side, Timestamp(*time));
            if from < at && at <= to && !*met && terms.kind().emits_alone(*side) {
                alone.push((
                    (
                        at,
                        terms.within().row_of(Timestamp(*time)),
                        *key,
                        *time,
                        *side,
                    ),
                    *number,
                ));
            }
        }
        alone.sort();
        alone
            .into_iter()
            .map(|(_, number)| Out::Alone(number))
            .collect::<Vec<_>>()
    };
    for (at, input) in inputs.iter().enumerate() {
        let (own, (side, key, time)) = (u32::try_from(at).unwrap(), *input);
        let before = now;
        now = now.max(Timestamp(time));
        if terms.is_closed(side, Timestamp(time), now) {
            out.push(Out::Late(own));
        } else {
            let (from, to) = terms.within().range(side, Timestamp(time));
            let mut found = Vec::new();
            let mut missed = 0;
            for (number, (its, other, at), met) in &mut taken {
                let at = Timestamp(*at);
                if *its != side && *other == key && from <= at && at <= to {
                    match terms.is_closed(*its, at, now) {
                        true => missed += 1,
                        false => {
                            *met = true;
                            found.push((at, *number));
                        }
                    }
                }
            }
            found.sort();
            out.extend(found.iter().map(|(_, other)| pair(side, own, *other)));
            out.extend((missed > 0).then_some(Out::Missed(own, missed)));
            taken.push((own, *input, !found.is_empty()));
        }
        out.extend(alone(&mut taken, before, now));
    }
    out.extend(alone(&mut taken, now, Timestamp(i64::MAX)));
    out
}

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::Left), Just(Side::Right)]
}

fn terms(grace: std::ops::Range<u64>) -> impl Strategy<Value = JoinTerms> {
    let kind = prop_oneof![
        Just(JoinKind::Inner),
        Just(JoinKind::Left),
        Just(JoinKind::Outer)
    ];
    (kind, 0_u64..8, 0_u64..8, grace).prop_map(|(kind, before, after, grace)| {
        let ms = Duration::from_millis;
        JoinTerms::new(
            kind,
            Within::of(ms(before)).after(ms(after)).grace(ms(grace)),
        )
    })
}

/// Rows that are never spread, soon, and at once.
fn rules(terms: JoinTerms) -> [Joining; 3] {
    [usize::MAX, 80, 0].map(|above| Joining::new(terms).spreading_above(above))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_join_is_a_loop_over_all_earlier_records(
        terms in terms(0..6),
        inputs in proptest::collection::vec((side(), 0_u8..2, 0_i64..60), 0..40),
    ) {
        let expected = nested_loop(&terms, &inputs);
        for joining in rules(terms) {
            prop_assert_eq!(&join(&joining, &inputs), &expected);
        }
    }

    #[test]
    fn rows_of_an_earlier_version_give_the_same_results(
        terms in terms(0..6),
        inputs in proptest::collection::vec((side(), 0_u8..2, 0_i64..60), 0..40),
        older in 0_usize..40,
    ) {
        for joining in rules(terms) {
            prop_assert_eq!(join_upgraded(&joining, &inputs, older), join(&joining, &inputs));
        }
    }

    /// Within grace, the results are those of the records in order, whatever the order of arrival.
    #[test]
    fn the_order_of_arrival_does_not_matter_within_grace(
        terms in terms(0..30),
        inputs in proptest::collection::vec((side(), 0_u8..2, 0_i64..60, 0_i64..30), 0..40),
    ) {
        let grace = i64::try_from(terms.within().grace_time().as_millis()).unwrap();
        let mut arrivals = inputs;
        arrivals.sort_by_key(|(_, _, time, delay)| time + (delay % (grace + 1)));
        let records: Vec<Input> = arrivals.iter().map(|(side, key, time, _)| (*side, *key, *time)).collect();
        let mut expected = Vec::new();
        for (at, (side, key, time)) in records.iter().enumerate() {
            let range = terms.within().range(*side, Timestamp(*time));
            let belongs = |(_, (its, other, at)): &(usize, &Input)| {
                its != side && other == key && range.0.0 <= *at && *at <= range.1.0
            };
            let partners: Vec<_> = records.iter().enumerate().filter(belongs).map(|(other, _)| other).collect();
            let at = u32::try_from(at).unwrap();
            if *side == Side::Left {
                expected.extend(partners.iter().map(|other| Out::Pair(at, u32::try_from(*other).unwrap())));
            }
            if partners.is_empty() && terms.kind().emits_alone(*side) {
                expected.push(Out::Alone(at));
            }
        }
        expected.sort();
        for joining in rules(terms) {
            let mut found = join(&joining, &records);
            found.sort();
            prop_assert_eq!(&found, &expected);
        }
    }

    #[test]
    fn no_record_is_both_alone_and_in_a_pair(
        terms in terms(0..6),
        inputs in proptest::collection::vec((side(), 0_u8..2, 0_i64..60), 0..40),
    ) {
        for joining in rules(terms) {
            let out = join(&joining, &inputs);
            prop_assert_eq!(both(&out), None, "{:?}", out);
        }
    }
}

/// A record that is both alone and in a pair, or alone twice.
fn both(out: &[Out]) -> Option<u32> {
    let alone = |at: &Out| match at {
        Out::Alone(number) => Some(*number),
        _ => None,
    };
    let in_pair = |number: u32| {
        out.iter()
            .any(|it| matches!(it, Out::Pair(a, b) if *a == number || *b == number))
    };
    let count = |number: u32| {
        out.iter()
            .filter_map(alone)
            .filter(|it| *it == number)
            .count()
    };
    out.iter()
        .filter_map(alone)
        .find(|number| in_pair(*number) || count(*number) > 1)
}

/// Without the rule that a closed record has no further pairs, a record is both.
#[test]
fn a_closed_record_would_be_both_alone_and_in_a_pair() {
    let within = Within::of(Duration::ZERO).before(Duration::from_millis(9));
    let terms = JoinTerms::new(JoinKind::Left, within);
    let inputs = [(Side::Left, 0, 5), (Side::Right, 1, 8), (Side::Right, 0, 5)];
    let out = join(&Joining::new(terms), &inputs);
    assert_eq!(out, [Out::Alone(0), Out::Missed(2, 1)]);
    let out = join(&Joining::new(terms).pairing_closed(true), &inputs);
    assert_eq!(both(&out), Some(0));
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
            let record = Arrival {
                side,
                time: Timestamp(time),
                key: b"hot",
                value: &[7; 10],
            };
            joining
                .arrive(&store, record, Timestamp(time), Some(Timestamp(time - 1)))
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
            // The row, and what goes out.
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
            let record = Arrival {
                side,
                time: Timestamp(time),
                key: b"hot",
                value: &[7; 10],
            };
            joining
                .arrive(&store, record, Timestamp(now), None)
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

/// The last visit of a row writes nothing, unless the row is spread. A later record of the row knows what the visit has
/// decided.
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

//! Joins of random records, compared with a loop over all earlier ones.

use std::time::Duration;

use proptest::prelude::*;

use super::memory::Memory;
use crate::Timestamp;
use crate::joins::*;

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

    /// Within grace, the results are those of the records in order, regardless of the order of arrival.
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

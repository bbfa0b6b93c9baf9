//! The verdict on the evidence: a pure function.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The most examples of a finding.
const EXAMPLES: usize = 10;

/// A record of the topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Its id, which is the key of the record.
    pub id: String,
    /// The article.
    pub sku: String,
    /// The units. The database rejects orders with zero or fewer units.
    pub units: i64,
}

/// A row of `bookings`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booking {
    /// The id of the order.
    pub id: String,
    /// The article.
    pub sku: String,
    /// The units.
    pub units: i64,
}

/// A row of `eos.dead_letters`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// The partition of the order.
    pub partition: i32,
    /// The offset of the order.
    pub offset: i64,
    /// The error code of the database for the order.
    pub sqlstate: String,
}

/// The records and rows after a run.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// The records of the topic.
    pub orders: Vec<Order>,
    /// The end of each partition.
    pub ends: Vec<i64>,
    /// The rows of `bookings`.
    pub bookings: Vec<Booking>,
    /// The units of each article.
    pub stock: BTreeMap<String, i64>,
    /// The units of each article before the first order.
    pub opening: i64,
    /// The dead letters.
    pub letters: Vec<Letter>,
    /// The position in each partition.
    pub positions: BTreeMap<i32, i64>,
}

/// The violations of one kind: their number, and examples.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The number of violations.
    pub count: usize,
    /// Descriptions of some of them.
    pub examples: Vec<String>,
}

/// The violations by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The number of orders.
    pub orders: usize,
    /// The number of bookings.
    pub bookings: usize,
    /// The number of dead letters.
    pub letters: usize,
    /// Orders without a booking and without a dead letter.
    pub lost: Finding,
    /// Orders with more than one booking.
    pub doubled: Finding,
    /// Bookings that differ from their order, bookings without an order, and dead letters without an order.
    pub foreign: Finding,
    /// Orders with a booking and a dead letter.
    pub both: Finding,
    /// Good orders with a dead letter, and bad ones with a booking.
    pub misjudged: Finding,
    /// Articles whose stock does not match their bookings.
    pub torn: Finding,
    /// Partitions whose position is not the end.
    pub behind: Finding,
}

impl Finding {
    fn add(&mut self, example: impl FnOnce() -> String) {
        self.count += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(example());
        }
    }
}

impl Verdict {
    /// Returns whether there are no violations.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let Self {
            lost,
            doubled,
            foreign,
            both,
            misjudged,
            torn,
            behind,
            ..
        } = self;
        [lost, doubled, foreign, both, misjudged, torn, behind]
            .iter()
            .all(|finding| finding.count == 0)
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} orders, {} bookings, {} dead letters: lost {}, doubled {}, foreign {}, both {}, misjudged {}, torn {}, \
             behind {}",
            self.orders,
            self.bookings,
            self.letters,
            self.lost.count,
            self.doubled.count,
            self.foreign.count,
            self.both.count,
            self.misjudged.count,
            self.torn.count,
            self.behind.count
        )
    }
}

/// Compares the bookings, the dead letters, the stock and the positions with the orders.
#[must_use]
pub fn judge(evidence: &Evidence) -> Verdict {
    let mut verdict = Verdict {
        orders: evidence.orders.len(),
        bookings: evidence.bookings.len(),
        letters: evidence.letters.len(),
        ..Verdict::default()
    };
    let booked = booked(evidence, &mut verdict);
    let letters = letters(evidence, &mut verdict);
    for order in &evidence.orders {
        let count = booked.get(order.id.as_str()).copied().unwrap_or_default();
        let is_letter = letters.contains(&(order.partition, order.offset));
        let told = || {
            let Order {
                partition,
                offset,
                id,
                sku,
                units,
            } = order;
            format!("{id} ({units} of {sku}, {partition}@{offset}): {count} bookings")
        };
        if count > 1 {
            verdict.doubled.add(told);
        }
        if count == 0 && !is_letter {
            verdict.lost.add(told);
        }
        if count > 0 && is_letter {
            verdict.both.add(told);
        }
        if (is_letter && order.units > 0) || (count > 0 && order.units <= 0) {
            verdict.misjudged.add(told);
        }
    }
    stock(evidence, &mut verdict);
    for (partition, end) in (0..).zip(&evidence.ends) {
        let position = evidence.positions.get(&partition).copied().unwrap_or(0);
        if position != *end {
            (verdict.behind).add(|| format!("partition {partition}: {position} of {end}"));
        }
    }
    verdict
}

/// Returns the number of bookings of each order. Adds bookings without a matching order to the verdict.
fn booked<'a>(evidence: &'a Evidence, verdict: &mut Verdict) -> BTreeMap<&'a str, usize> {
    let orders: BTreeMap<&str, &Order> = evidence
        .orders
        .iter()
        .map(|order| (order.id.as_str(), order))
        .collect();
    let mut booked = BTreeMap::new();
    for booking in &evidence.bookings {
        *booked.entry(booking.id.as_str()).or_default() += 1;
        let order = orders.get(booking.id.as_str());
        if order.is_none_or(|it| it.sku != booking.sku || it.units != booking.units) {
            verdict.foreign.add(|| format!("{booking:?}"));
        }
    }
    booked
}

/// Returns the partitions and offsets of the dead letters. Adds letters without an order to the verdict.
fn letters(evidence: &Evidence, verdict: &mut Verdict) -> BTreeSet<(i32, i64)> {
    let orders: BTreeSet<(i32, i64)> = evidence
        .orders
        .iter()
        .map(|order| (order.partition, order.offset))
        .collect();
    let mut letters = BTreeSet::new();
    for letter in &evidence.letters {
        let place = (letter.partition, letter.offset);
        letters.insert(place);
        if !orders.contains(&place) {
            verdict.foreign.add(|| format!("{letter:?}"));
        }
    }
    letters
}

fn stock(evidence: &Evidence, verdict: &mut Verdict) {
    let mut sums = BTreeMap::<&str, i64>::new();
    for booking in &evidence.bookings {
        *sums.entry(booking.sku.as_str()).or_default() += booking.units;
    }
    let stocked = evidence.stock.keys().map(String::as_str);
    let all: BTreeSet<&str> = stocked.chain(sums.keys().copied()).collect();
    for sku in all {
        let expected = evidence.opening - sums.get(sku).copied().unwrap_or_default();
        let found = evidence.stock.get(sku).copied();
        if found != Some(expected) {
            (verdict.torn).add(|| format!("{sku}: {found:?} left, and not {expected}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns evidence of three orders. The last one is invalid, and has a dead letter.
    fn clean() -> Evidence {
        let order = |offset: i64, units: i64| Order {
            partition: 0,
            offset,
            id: format!("o{offset}"),
            sku: "s".into(),
            units,
        };
        let orders = vec![order(0, 2), order(1, 3), order(2, -7)];
        let booking = |order: &Order| Booking {
            id: order.id.clone(),
            sku: order.sku.clone(),
            units: order.units,
        };
        Evidence {
            bookings: orders.iter().take(2).map(booking).collect(),
            orders,
            ends: vec![3],
            stock: BTreeMap::from([("s".into(), 95), ("t".into(), 100)]),
            opening: 100,
            letters: vec![Letter {
                partition: 0,
                offset: 2,
                sqlstate: "23514".into(),
            }],
            positions: BTreeMap::from([(0, 3)]),
        }
    }

    #[test]
    fn a_clean_run_is_clean() {
        let verdict = judge(&clean());
        assert!(verdict.is_clean(), "{verdict:?}");
        assert_eq!(
            (verdict.orders, verdict.bookings, verdict.letters),
            (3, 2, 1)
        );
    }

    /// A planted violation, and the finding that must contain it.
    type Plant = (fn(&mut Evidence), fn(&Verdict) -> &Finding);

    #[test]
    fn each_planted_violation_is_found() {
        let plants: [Plant; 11] = [
            (|it| drop(it.bookings.remove(0)), |it| &it.lost),
            (|it| it.letters.clear(), |it| &it.lost),
            (
                |it| it.bookings.push(it.bookings[0].clone()),
                |it| &it.doubled,
            ),
            (|it| it.bookings[0].units = 1, |it| &it.foreign),
            (|it| it.bookings[0].id = "x".into(), |it| &it.foreign),
            (|it| it.letters[0].offset = 9, |it| &it.foreign),
            (|it| it.letters[0].offset = 0, |it| &it.both),
            (|it| it.letters[0].offset = 1, |it| &it.misjudged),
            (|it| _ = it.stock.insert("s".into(), 94), |it| &it.torn),
            (|it| _ = it.stock.insert("t".into(), 99), |it| &it.torn),
            (|it| _ = it.positions.insert(0, 2), |it| &it.behind),
        ];
        for (nth, (plant, finding)) in plants.into_iter().enumerate() {
            let mut evidence = clean();
            plant(&mut evidence);
            let verdict = judge(&evidence);
            assert_eq!(finding(&verdict).count, 1, "plant {nth}: {verdict:?}");
            assert!(!verdict.is_clean());
        }
    }

    #[test]
    fn the_examples_are_ids() {
        let mut evidence = clean();
        evidence.bookings.clear();
        let verdict = judge(&evidence);
        assert_eq!(verdict.lost.count, 2);
        assert!(verdict.lost.examples[0].starts_with("o0 "));
    }
}

//! Inner, left and outer joins of two streams, with results alone, late records and spread rows.
//!
//! Both sides come from one topic, so the order of arrival is known. The shape `merged` covers two topics.

use std::collections::BTreeMap;
use std::time::Duration;

use eos_core::state::JoinStore;
use eos_core::windows::{Sides, Within};
use eos_core::{App, Topic};

use super::case::Case;
use super::loops::{self, Emitted};
use super::plain::STATELESS;
use super::record::{Draft, Given};
use super::remains::{Found, Left};
use super::topics::{INPUT, OUTPUTS};
use eos_testkit::rng::Rng;

pub(super) const JOINS: Case = Case {
    outputs: &[OUTPUTS[0], OUTPUTS[1], INNER],
    changelog: Some("sim-in-changelog"),
    draft,
    declare: |app, _| declare(app),
    judge,
    ..STATELESS
};

/// The output of the inner join.
const INNER: &str = "pairs";

/// The longest time by which a right record may be earlier or later, and the grace, in milliseconds.
const BEFORE: i64 = 1_200;
const AFTER: i64 = 300;
const GRACE: i64 = 900;

/// Returns the value with this number. Every third value is so large that three of them spread a row.
fn enlarged(number: u64) -> String {
    let size = if number.is_multiple_of(3) { 1_500 } else { 0 };
    format!("{number} {}", "x".repeat(size))
}

/// Returns the number of a value.
fn number(value: &str) -> &str {
    value.split(' ').next().unwrap_or_default()
}

fn declare(app: &mut App) {
    let [outer, left] = OUTPUTS.map(Topic::<String, String>::plain);
    let ms = |ms: i64| Duration::from_millis(ms.unsigned_abs());
    let within = Within::of(ms(BEFORE)).after(ms(AFTER)).grace(ms(GRACE));
    let all = app
        .source(&Topic::<String, String>::plain(INPUT))
        .map(|value| enlarged(number(&value).parse().unwrap_or_default()));
    let is_left = |value: &String| number(value).ends_with(['0', '2', '4', '6', '8']);
    let (lefts, rights) = all.branch(is_left);
    lefts
        .clone()
        .outer_join_within(
            rights.clone(),
            within,
            &JoinStore::plain("outer"),
            |sides| {
                let of = |value: Option<&String>| value.map_or("-", |it| number(it)).to_owned();
                let (left, right) = match sides {
                    Sides::Both(left, right) => (Some(left), Some(right)),
                    Sides::Left(left) => (Some(left), None),
                    Sides::Right(right) => (None, Some(right)),
                };
                format!("{}+{}", of(left), of(right))
            },
        )
        .to(&outer);
    lefts
        .clone()
        .join_within(
            rights.clone(),
            within,
            &JoinStore::plain("inner"),
            |left, right| format!("{}+{}", number(left), number(right)),
        )
        .to(&Topic::plain(INNER));
    lefts
        .left_join_within(rights, within, &JoinStore::plain("left"), |left, right| {
            format!("{}+{}", number(left), right.map_or("-", |it| number(it)))
        })
        .late_to(&left)
        .late_right_to(&left)
        .to(&left);
}

/// Returns a record. Most have the current time; some are behind it, and some are ahead.
fn draft(rng: &mut Rng, now: i64) -> Draft {
    let back = match rng.below(12) {
        0 => rng.between(0, 4_000),
        1..=3 => rng.between(0, 1_800),
        4 => -rng.between(0, 2_500),
        _ => rng.between(0, 200),
    };
    Draft {
        timestamp: now - back,
        ..Draft::plain(now)
    }
}

fn is_left(it: &Given) -> bool {
    it.seq.is_multiple_of(2)
}

/// Returns the time that a record stays open behind its own time.
fn open_for(it: &Given) -> i64 {
    GRACE + if is_left(it) { AFTER } else { BEFORE }
}

/// Returns whether two records belong together.
fn are_partners(one: &Given, other: &Given) -> bool {
    let (left, right) = if is_left(one) {
        (one, other)
    } else {
        (other, one)
    };
    let range = left.timestamp - BEFORE..=left.timestamp + AFTER;
    is_left(left) != is_left(right) && one.key == other.key && range.contains(&right.timestamp)
}

/// The joins of one partition: one loop over the records, each with all earlier ones.
#[derive(Debug, Default)]
struct Model<'a> {
    stream_time: i64,
    /// The records that were in time, with whether they have a pair.
    taken: Vec<(&'a Given, bool)>,
    outer: Vec<Emitted>,
    left: Vec<Emitted>,
    inner: Vec<Emitted>,
    late: usize,
    pairs: usize,
    alone: usize,
    too_late: usize,
}

impl<'a> Model<'a> {
    fn record(&mut self, it: &'a Given) {
        let before = self.stream_time;
        self.stream_time = before.max(it.timestamp);
        let now = self.stream_time;
        let is_closed = |it: &Given| it.timestamp + open_for(it) < now;
        let whole = || (it.key.clone(), enlarged(it.seq), it.timestamp);
        if is_closed(it) {
            self.late += 1;
            self.left.push(whole());
        } else {
            let (mut partners, mut misses) = (Vec::new(), false);
            for (other, met) in &mut self.taken {
                if !are_partners(it, other) {
                    continue;
                }
                if is_closed(other) {
                    misses = true;
                } else {
                    *met = true;
                    partners.push(*other);
                }
            }
            // Stable: records of one time are in the order of arrival.
            partners.sort_by_key(|it| it.timestamp);
            for other in &partners {
                let (left, right) = if is_left(it) {
                    (it, *other)
                } else {
                    (*other, it)
                };
                let time = it.timestamp.max(other.timestamp);
                let pair = (it.key.clone(), format!("{}+{}", left.seq, right.seq), time);
                self.outer.push(pair.clone());
                self.inner.push(pair.clone());
                self.left.push(pair);
            }
            if partners.is_empty() && misses {
                self.too_late += 1;
                if !is_left(it) {
                    self.left.push(whole());
                }
            }
            self.pairs += partners.len();
            self.taken.push((it, !partners.is_empty()));
        }
        self.close(before);
    }

    /// Sends the records alone that have closed since this stream time: by moment, row and key, then by time.
    fn close(&mut self, before: i64) {
        let mut alone: BTreeMap<_, Vec<&Given>> = BTreeMap::new();
        for (it, _) in self.taken.iter().filter(|(_, met)| !met) {
            let at = it.timestamp + open_for(it);
            if before <= at && at < self.stream_time {
                let row = it.timestamp - it.timestamp.rem_euclid(BEFORE + AFTER);
                let place = (
                    at,
                    row,
                    it.key.len(),
                    it.key.clone(),
                    it.timestamp,
                    !is_left(it),
                );
                alone.entry(place).or_default().push(it);
            }
        }
        for it in alone.into_values().flatten() {
            self.alone += 1;
            let (seq, left) = (it.seq, is_left(it));
            let value = if left {
                format!("{seq}+-")
            } else {
                format!("-+{seq}")
            };
            let result = (it.key.clone(), value, it.timestamp);
            if left {
                self.left.push(result.clone());
            }
            self.outer.push(result);
        }
        // Forgets records that no further record can meet, not even a closed one.
        let (now, most) = (self.stream_time, 2 * (BEFORE + AFTER + GRACE));
        self.taken.retain(|(it, _)| it.timestamp + most >= now);
    }
}

fn judge(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let mut verdicts = Vec::new();
    for partition in 0..left.partitions {
        let mut model = Model::default();
        loops::given(left, INPUT, partition).for_each(|it| model.record(it));
        found.saw("records came too late for their windows", model.late);
        found.saw("records were pairs", model.pairs);
        found.saw("records went out alone", model.alone);
        found.saw("records met only closed partners", model.too_late);
        let [outer, copy] = OUTPUTS;
        let outputs = [
            (outer, &model.outer),
            (copy, &model.left),
            (INNER, &model.inner),
        ];
        for (output, expected) in outputs {
            verdicts.extend(loops::difference(left, output, partition, expected));
        }
    }
    Ok(verdicts)
}

//! Records in order of time and of numbers, with late ones, gaps, and failures of records that waited.

use std::collections::BTreeMap;
use std::time::Duration;

use eos_core::reorder::{OnGap, Reorder};
use eos_core::state::ReorderStore;
use eos_core::timers::Clock;
use eos_core::{App, ErrorPolicy, Failure, Topic};

use super::case::Case;
use super::loops::{self, Emitted};
use super::plain::STATELESS;
use super::record::{Draft, Given, Kind};
use super::remains::{Found, Left};
use super::topics::{INPUT, OUTPUTS};
use eos_testkit::rng::Rng;

pub(super) const REORDER: Case = Case {
    changelog: Some("sim-in-changelog"),
    draft,
    declare: |app, _| declare(app),
    judge,
    ..STATELESS
};

/// The time that records wait for earlier ones, in milliseconds.
const WITHIN: i64 = 400;
/// The largest gap before a waiting record, in numbers, and the longest wait for the numbers before it, in
/// milliseconds.
const GAP: u64 = 4;
const WAIT: i64 = 300;

/// Writes the records by time, and by the number of their key. Bad records fail after both.
fn declare(app: &mut App) {
    let [by_time, by_number] = OUTPUTS.map(Topic::<String, String>::plain);
    let ms = |ms: i64| Duration::from_millis(ms.unsigned_abs());
    let source = app.source(&Topic::<String, String>::plain(INPUT));
    let source = source.on_error(ErrorPolicy::skip());
    let timed = source
        .clone()
        .reorder_by_time(ms(WITHIN), &ReorderStore::plain("by-time"));
    timed
        .drop_late()
        .ordered()
        .try_map(good_by_time)
        .to(&by_time);
    let settings = Reorder::max_gap(GAP).max_wait(ms(WAIT), Clock::Stream);
    let numbered = source.reorder_by(
        |value: &String| number(value),
        settings.on_gap(OnGap::PassOn),
        &ReorderStore::plain("by-number"),
    );
    numbered.drop_late().ordered().try_map(good).to(&by_number);
}

fn good(value: String) -> Result<String, Failure> {
    match value.ends_with("bad") {
        true => Err(Failure::from("bad")),
        false => Ok(value),
    }
}

/// Fails every other bad record. A record that only fails after the order by number must leave no trace here.
fn good_by_time(value: String) -> Result<String, Failure> {
    match is_bad_by_time(&value) {
        true => Err(Failure::from("bad")),
        false => Ok(value),
    }
}

fn is_bad_by_time(value: &str) -> bool {
    let seq = value.split(' ').next().and_then(|it| it.parse().ok());
    let seq: u64 = seq.unwrap_or(0);
    value.ends_with("bad") && seq.is_multiple_of(2)
}

/// Returns the number of a record. The numbers of a key are out of order, and some are missing or repeated.
fn number(value: &str) -> u64 {
    let seq = value.split(' ').next().and_then(|it| it.parse().ok());
    let seq: u64 = seq.unwrap_or(0);
    let noise = seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61;
    (seq / 6).saturating_sub(noise / 3)
}

fn draft(rng: &mut Rng, now: i64) -> Draft {
    let back = match rng.below(12) {
        0 => rng.between(300, 900),
        1 => -rng.between(0, 500),
        _ => rng.between(0, 300),
    };
    let kind = match rng.below(12) {
        0 => Kind::Bad,
        _ => Kind::Good,
    };
    Draft {
        timestamp: now - back,
        kind,
        ..Draft::plain(now)
    }
}

/// A waiting record: whether it fails, and its output.
type Waiting = (bool, Emitted);

/// The order of one key.
#[derive(Debug, Default)]
struct Numbers {
    next: u64,
    /// By number: the end of the wait, and the record.
    waiting: BTreeMap<u64, (i64, Waiting)>,
}

/// One partition: one loop over the records, with lists of those that wait.
#[derive(Debug, Default)]
struct Model {
    stream_time: i64,
    /// By end of the wait and arrival.
    timed: BTreeMap<(i64, usize), Waiting>,
    arrivals: usize,
    numbered: BTreeMap<String, Numbers>,
    by_time: Vec<Emitted>,
    by_number: Vec<Emitted>,
    late: usize,
    given_up: usize,
    waited: usize,
    passed_over: usize,
}

impl Model {
    fn record(&mut self, it: &Given, value: &str) {
        let (time, number, is_bad) = (it.timestamp, number(value), it.kind == Kind::Bad);
        let record: Waiting = (is_bad, (it.key.clone(), value.to_owned(), time));
        let key = self.numbered.entry(it.key.clone()).or_default();
        // A bad record with the next number fails itself. It only consumes its number, and does not move stream time.
        if is_bad && number == key.next {
            self.passed_over += 1;
            key.next += 1;
            if let Some((end, _)) = key.waiting.get_mut(&key.next) {
                *end = self.stream_time;
            }
            self.release();
            return;
        }
        let now = self.stream_time.max(time);
        self.stream_time = now;
        if time + WITHIN < now {
            self.late += 1;
        } else {
            self.arrivals += 1;
            let place = (time + WITHIN, self.arrivals);
            let timed = (is_bad_by_time(value), record.1.clone());
            self.timed.insert(place, timed);
        }
        if number < key.next || key.waiting.contains_key(&number) {
            self.late += 1;
        } else if number == key.next {
            key.next += 1;
            self.by_number.push(record.1);
            if let Some((end, _)) = key.waiting.get_mut(&key.next) {
                *end = now;
            }
        } else {
            let mut end = now + WAIT;
            if number - key.next > GAP {
                key.waiting.values_mut().for_each(|(end, _)| *end = now);
                end = now;
            }
            key.waiting.insert(number, (end, record));
        }
        self.release();
    }

    /// Forwards the records whose wait is over.
    fn release(&mut self) {
        let now = self.stream_time;
        let waits = self.timed.split_off(&(now + 1, 0));
        for (is_bad, record) in std::mem::replace(&mut self.timed, waits).into_values() {
            self.waited += 1;
            if !is_bad {
                self.by_time.push(record);
            }
        }
        for key in self.numbered.values_mut() {
            loop {
                let over = key.waiting.iter().map(|(number, (end, _))| (*end, *number));
                let Some((end, number)) = over.filter(|(end, _)| *end <= now).min() else {
                    break;
                };
                // Records with lower numbers go first, although they arrived later.
                let (lowest, (_, (is_bad, record))) = key.waiting.pop_first().unwrap_or_default();
                self.given_up += usize::from(lowest > key.next);
                key.next = lowest + 1;
                if !is_bad {
                    self.by_number.push(record);
                }
                for (waiting, (its, _)) in &mut key.waiting {
                    if *waiting <= number || *waiting == key.next {
                        *its = end.min(*its);
                    }
                }
            }
        }
    }
}

fn judge(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let mut verdicts = Vec::new();
    for partition in 0..left.partitions {
        let mut model = Model::default();
        for it in loops::given(left, INPUT, partition) {
            let digit = it.key.bytes().last().map_or(0, |digit| digit - b'0');
            let value = it.kind.value(it.seq, digit.into());
            model.record(it, &String::from_utf8_lossy(&value));
        }
        found.saw("gaps were given up", model.given_up);
        found.saw("records were late for their order", model.late);
        found.saw("records waited for their time", model.waited);
        found.saw(
            "numbers of failed records were passed over",
            model.passed_over,
        );
        let [by_time, by_number] = OUTPUTS;
        verdicts.extend(loops::difference(left, by_time, partition, &model.by_time));
        // The order is that of each key.
        let of_keys = loops::difference_by_key(left, by_number, partition, &model.by_number);
        verdicts.extend(of_keys);
    }
    Ok(verdicts)
}

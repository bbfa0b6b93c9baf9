//! Deduplication, with late records, records that are too old, and failures after it.

use std::collections::BTreeMap;
use std::time::Duration;

use eos_core::identity::{Seen, SeenIds};
use eos_core::{App, ErrorPolicy, Failure, Topic};

use super::case::Case;
use super::loops::{self, Emitted};
use super::plain::STATELESS;
use super::record::{Draft, Given, Kind};
use super::remains::{Found, Left};
use super::topics::{INPUT, OUTPUTS};
use eos_testkit::rng::Rng;

pub(super) const DEDUP: Case = Case {
    changelog: Some("sim-in-windowed-changelog"),
    draft,
    declare: |app, _| declare(app),
    judge,
    ..STATELESS
};

const WINDOW: i64 = 600;
const AT_MOST: i64 = 1_500;
const LATENESS: i64 = 800;
/// The length of a bucket, and the time for which it is kept, in milliseconds.
const BUCKET: i64 = WINDOW / 2;
const RETENTION: i64 = BUCKET + WINDOW + LATENESS;
/// The time for which ids with a time are remembered, in milliseconds.
const REMEMBER: i64 = 1_600;
/// Records in an interval of this length, in milliseconds, share the time in their ids.
const SHARED: i64 = 700;
/// The longest time from stream time to an id.
const MOST_SKEW: i64 = 600_000;

/// Writes each record with its verdict by a fixed window, each record that is new by a sliding one, and each record
/// with its verdict by the time in its id. Bad records fail after the deduplication, and ids from the future fail in
/// it.
fn declare(app: &mut App) {
    let [judged, new] = OUTPUTS.map(Topic::<String, String>::plain);
    let ms = |ms: i64| Duration::from_millis(ms.unsigned_abs());
    // The machine's clock jumps by hours, and records may not seem to be from the future.
    let fixed = SeenIds::fixed("fixed", ms(WINDOW)).trust_times();
    let sliding = SeenIds::sliding("sliding", ms(WINDOW)).trust_times();
    let fixed = fixed.lateness(ms(LATENESS));
    let sliding = sliding.lateness(ms(LATENESS)).at_most(ms(AT_MOST));
    let source = app.source(&Topic::<String, String>::plain(INPUT));
    let source = source.on_error(ErrorPolicy::skip());
    let verdicts = source.clone().dedup(&fixed).judge_by(|value| id(value));
    verdicts
        .try_map(|it| match it.value.ends_with("bad") {
            true => Err(Failure::from("bad")),
            false => Ok(shown(&it.value, it.seen)),
        })
        .to(&judged);
    let sliding = source.clone().dedup(&sliding).pass_too_old();
    sliding.by(|value| id(value)).to(&new);
    let timed = SeenIds::time_embedded("timed", ms(REMEMBER)).trust_times();
    source
        .process_values(|ctx, record| {
            let time = ctx.timestamp().map_or(0, |time| time.0);
            let id = ulid(id_time(&record.value, time), id(&record.value));
            ctx.forward(format!("{id} {}", record.value))
        })
        .dedup(&timed)
        .judge_by_ulid(|value| ulid_of(value).to_owned())
        .map(|it| timed_shown(it.value.split_once(' ').map_or("", |it| it.1), it.seen))
        .to(&new);
}

/// Returns the time of the id of a record at this time. Some ids are from the future.
fn id_time(value: &str, time: i64) -> i64 {
    let shared = time.max(0) / SHARED * SHARED;
    match seq(value) % 37 {
        0 => shared + MOST_SKEW + 2 * SHARED,
        _ => shared,
    }
}

fn ulid(time: i64, number: u64) -> String {
    let all = u128::from(time.unsigned_abs()) << 80 | u128::from(number);
    let digit = |place: u32| {
        let digit = (all >> (5 * place)) as usize % 32;
        char::from(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"[digit])
    };
    (0..26).rev().map(digit).collect()
}

fn ulid_of(value: &str) -> &str {
    value.split(' ').next().unwrap_or_default()
}

fn timed_shown(value: &str, seen: Seen) -> String {
    format!("timed {}", shown(value, seen))
}

fn seq(value: &str) -> u64 {
    let seq = value.split(' ').next().and_then(|it| it.parse().ok());
    seq.unwrap_or(0)
}

/// Returns the id of a record: one of five for each key.
fn id(value: &str) -> u64 {
    seq(value) / 3 % 5
}

fn shown(value: &str, seen: Seen) -> String {
    match seen {
        Seen::New => format!("{value} new"),
        Seen::Duplicate { first } => format!("{value} after {}", first.0),
        _ => format!("{value} old"),
    }
}

/// Returns a record. Most have the current time; some are late, and some are ahead by several windows.
fn draft(rng: &mut Rng, now: i64) -> Draft {
    let back = match rng.below(12) {
        0..=3 => rng.between(0, 1_800),
        4 => -rng.between(0, 2_500),
        _ => rng.between(0, 200),
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

/// A record whose id was seen: its time, and that of the first of its chain.
type Sighting = (i64, i64);

/// One partition: one loop over the records, with lists of all sightings.
#[derive(Debug, Default)]
struct Model {
    stream_time: i64,
    fixed: BTreeMap<(String, u64), Vec<Sighting>>,
    sliding: BTreeMap<(String, u64), Vec<Sighting>>,
    /// The time of the first record of each id with a time.
    timed: BTreeMap<(String, u64, i64), i64>,
    judged: Vec<Emitted>,
    new: Vec<Emitted>,
    duplicates: usize,
    too_old: usize,
    failed: usize,
    /// Ids with a time, by verdict.
    repeated: usize,
    expired: usize,
    future: usize,
}

impl Model {
    fn record(&mut self, it: &Given, value: &str) {
        // A failed record leaves nothing, and does not move stream time.
        if it.kind == Kind::Bad {
            self.failed += 1;
            return;
        }
        let (time, key) = (it.timestamp, (it.key.clone(), id(value)));
        let now = self.stream_time.max(time);
        let id_time = id_time(value, time);
        if id_time - now > MOST_SKEW {
            self.future += 1;
            return;
        }
        self.stream_time = now;
        let timed_key = (it.key.clone(), id(value), id_time);
        let sightings = self.fixed.entry(key.clone()).or_default();
        let seen = match first(sightings, time, now, i64::MAX) {
            Some((first, _)) => {
                let first = eos_core::Timestamp(first);
                Seen::Duplicate { first }
            }
            None if time < now - LATENESS => Seen::TooOld,
            None => {
                sightings.push((time, time));
                Seen::New
            }
        };
        self.duplicates += usize::from(matches!(seen, Seen::Duplicate { .. }));
        self.too_old += usize::from(seen == Seen::TooOld);
        self.judged.push((it.key.clone(), shown(value, seen), time));
        let sightings = self.sliding.entry(key).or_default();
        match first(sightings, time, now, AT_MOST) {
            Some((first, latest)) => {
                if time > latest {
                    remember(sightings, (time, first));
                }
            }
            None => {
                if time >= now - LATENESS {
                    remember(sightings, (time, time));
                }
                self.new.push((it.key.clone(), value.to_owned(), time));
            }
        }
        let seen = match self.timed.get(&timed_key) {
            _ if id_time < now - REMEMBER => {
                self.expired += 1;
                Seen::TooOld
            }
            Some(first) => {
                self.repeated += 1;
                let first = eos_core::Timestamp(*first);
                Seen::Duplicate { first }
            }
            None => {
                self.timed.insert(timed_key, time);
                Seen::New
            }
        };
        let timed = timed_shown(value, seen);
        self.new.push((it.key.clone(), timed, time));
    }
}

/// Stores a sighting. A bucket has one, the last.
fn remember(sightings: &mut Vec<Sighting>, sighting: Sighting) {
    sightings.retain(|(at, _)| at / BUCKET != sighting.0 / BUCKET);
    sightings.push(sighting);
}

/// Returns the earliest first record, and the latest one, of the sightings that make a record a duplicate. A record that
/// begins a chain may replace one of the chain before in its bucket, so a late record reads only the buckets around it.
fn first(sightings: &[Sighting], time: i64, now: i64, at_most: i64) -> Option<Sighting> {
    let near = sightings.iter().filter(|(at, first)| {
        let bucket = at - at % BUCKET;
        let read = bucket + RETENTION > now && bucket < time + WINDOW;
        let near = first - time < WINDOW && time - at < WINDOW;
        read && near && time - first < at_most
    });
    let first = near.clone().map(|(_, first)| *first).min()?;
    Some((first, near.map(|(at, _)| *at).max()?))
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
        found.saw("ids were seen before", model.duplicates);
        found.saw("records were too old for their ids", model.too_old);
        found.saw("records failed behind the deduplication", model.failed);
        found.saw("ids with a time were seen before", model.repeated);
        found.saw("ids with a time were too old", model.expired);
        found.saw("ids with a time were from the future", model.future);
        let [judged, new] = OUTPUTS;
        for (output, expected) in [(judged, &model.judged), (new, &model.new)] {
            verdicts.extend(loops::difference(left, output, partition, expected));
        }
    }
    Ok(verdicts)
}

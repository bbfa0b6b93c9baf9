//! Sequenced dead letters after a deduplication, and their replay at any time and in any order. Some records are slow,
//! and counts are emitted once per commit, so records are returned without an abort.

use std::collections::{BTreeMap, BTreeSet};

use eos_core::identity::SeenIds;
use eos_core::spi::replay::replayed;
use eos_core::{App, ErrorPolicy, Failure, Headers, KeyValueStore, Topic};

use super::case::Case;
use super::clocks::Clocks;
use super::loops;
use super::plain::STATELESS;
use super::record::{Draft, Given, Kind};
use super::remains::{Found, Left};
use super::topics::{INPUT, OUTPUTS};
use eos_protocol::sequence::{LetterNumber, SEQUENCE};
use eos_testkit::client::{Cluster, Written};
use eos_testkit::rng::Rng;

pub(super) const PARKED: Case = Case {
    changelog: Some("sim-in-changelog"),
    letters: Some(DEAD),
    outputs: &[OUT, DEAD, COUNTS],
    draft,
    declare,
    judge,
    ..STATELESS
};

const OUT: &str = OUTPUTS[0];
const DEAD: &str = "dead";
const COUNTS: &str = "counts";
/// The header of a replayed record that fails again.
const FAILS: &str = "sim-fails";

/// Writes each record with a new id. A bad record fails until it is replayed.
fn declare(app: &mut App, clocks: &Clocks) {
    let cluster = clocks.cluster().clone();
    let seen = SeenIds::for_ever("seen").trust_times();
    let policy = ErrorPolicy::dead_letter(DEAD).in_sequence("parked");
    let source = app.source(&Topic::<String, String>::plain(INPUT));
    let new = source.on_error(policy).dedup(&seen);
    let written = new
        .by(|value: &String| id(value))
        .process_values(move |ctx, record| {
            let is_replayed = ctx.headers().get("eos-replay").is_some();
            let is_bad = record.value.ends_with("bad") && !is_replayed;
            if is_bad || ctx.headers().get(FAILS).is_some() {
                return Err(Failure::from("bad"));
            }
            if record.value.ends_with("slow") {
                cluster.pass(cluster.now() + 5_000);
            }
            ctx.forward(record.value)
        });
    written.clone().to(&Topic::plain(OUT));
    written
        .group_by_key()
        .aggregate(
            &KeyValueStore::<String, String>::plain("counts"),
            || "0".to_owned(),
            |_, _, count| (count.parse().unwrap_or(0_u64) + 1).to_string(),
        )
        .emit_per_commit()
        .to(&Topic::plain(COUNTS));
}

/// Returns the id of a record. Neighbouring records of a key share an id.
fn id(value: &str) -> u64 {
    let seq = value.split(' ').next().and_then(|it| it.parse().ok());
    seq.unwrap_or(0_u64) / 16
}

fn draft(rng: &mut Rng, now: i64) -> Draft {
    let kind = match rng.below(14) {
        0 => Kind::Bad,
        // Rare, because every task waits this long.
        1 if rng.one_in(32) => Kind::Slow,
        _ => Kind::Good,
    };
    Draft {
        kind,
        ..Draft::plain(now)
    }
}

/// Replays the letters of a topic. Each letter is replayed, and some of them again at any time.
#[derive(Debug, Default)]
pub(super) struct Replayer {
    /// By partition: the letters that were read, and the number of those that were replayed.
    letters: BTreeMap<i32, (Vec<Letter>, usize)>,
}

/// A dead letter.
#[derive(Debug)]
struct Letter {
    offset: i64,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Headers,
}

impl Letter {
    fn number(&self) -> Option<LetterNumber> {
        LetterNumber::of_header(self.headers.get(SEQUENCE)?).ok()
    }
}

impl Replayer {
    /// Replays some letters. `fails`: some of them fail again.
    pub(super) fn act(
        &mut self,
        cluster: &Cluster,
        (letters, partitions): (&str, i32),
        fails: bool,
        rng: &mut Rng,
        found: &mut Found,
    ) {
        for partition in 0..partitions {
            let (all, next) = self.letters.entry(partition).or_default();
            let from = all.last().map_or(0, |last| last.offset + 1);
            let more = cluster.read_from(letters, partition, from).into_iter();
            all.extend(more.map(|it| {
                let mut headers = Headers::new();
                for (name, value) in &it.headers {
                    // The next attempt draws again.
                    if name != FAILS {
                        headers.push(&**name, value.as_deref());
                    }
                }
                Letter {
                    offset: it.offset,
                    timestamp: it.timestamp,
                    key: it.key.map(|key| key.to_vec()),
                    value: it.value.map(|value| value.to_vec()),
                    headers,
                }
            }));
            let mut chosen = Vec::new();
            if fails && !all.is_empty() && rng.one_in(3) {
                chosen.push(rng.below(all.len()));
            }
            let until = match fails {
                true => (*next + 1).min(all.len()),
                // In the end all of them are replayed, in the order of their numbers, as by the replay app.
                false => all.len(),
            };
            let first = chosen.len();
            chosen.extend(*next..until);
            *next = until;
            if let Some(last) = chosen.get_mut(first..) {
                last.sort_by_key(|at| all.get(*at).and_then(Letter::number));
            }
            for at in chosen {
                let Some(letter) = all.get(at) else { continue };
                let headers = letter.headers.clone();
                let (key, value) = (letter.key.as_deref(), letter.value.as_deref());
                let (partition, mut headers) = match replayed(key, value, headers) {
                    Ok(replayed) => replayed,
                    Err(error) => {
                        found
                            .wrong
                            .push(format!("a letter is not replayed: {error}"));
                        continue;
                    }
                };
                if fails && rng.one_in(4) {
                    headers.push(FAILS, Some(b"yes"));
                }
                let headers: Vec<_> = headers
                    .iter()
                    .map(|it| (it.name(), it.value().unwrap_or_default()))
                    .collect();
                let record = Written {
                    timestamp: letter.timestamp,
                    key,
                    value,
                    headers: &headers,
                };
                found.saw("letters were replayed", 1);
                if let Err(code) = cluster.produce(INPUT, partition, &record) {
                    found
                        .wrong
                        .push(format!("a replayed letter is refused: {code}"));
                }
            }
        }
    }

    /// Returns whether each letter was replayed.
    pub(super) fn is_done(&self, cluster: &Cluster, letters: &str, partitions: i32) -> bool {
        (0..partitions).all(|partition| {
            let read = self.letters.get(&partition);
            let is_replayed = read.is_none_or(|(all, next)| *next == all.len());
            let last = read.and_then(|(all, _)| all.last());
            let from = last.map_or(0, |last| last.offset + 1);
            is_replayed && !cluster.has_records_from(letters, partition, from)
        })
    }
}

/// Requires each id of each key once, in the order of the input, despite the failures.
fn judge(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let mut verdicts = Vec::new();
    for partition in 0..left.partitions {
        let mut expected: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for it in loops::given(left, INPUT, partition) {
            let value = value(it);
            match seen.insert((it.key.clone(), id(&value))) {
                true => expected.entry(it.key.clone()).or_default().push(value),
                false => found.saw("ids were seen before", 1),
            }
        }
        let mut written: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for it in left.cluster.read(OUT, partition) {
            let text = |bytes: Option<&[u8]>| {
                String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
            };
            let values = written.entry(text(it.key.as_deref())).or_default();
            values.push(text(it.value.as_deref()));
        }
        let letters = left.cluster.read(DEAD, partition).len();
        found.saw("records became dead letters", letters);
        for (key, expected) in &expected {
            let values = written.remove(key).unwrap_or_default();
            if values == *expected {
                continue;
            }
            let equal = values
                .iter()
                .zip(expected)
                .take_while(|(a, b)| a == b)
                .count();
            let what = match values.get(equal) {
                Some(it) if values[..equal].contains(it) => "doubled",
                Some(it) if !expected.contains(it) => "unexpected",
                _ if expected.iter().any(|it| !values.contains(it)) => "lost",
                _ => "reordered",
            };
            verdicts.push(format!(
                "VIOLATED {what}: key {key} of {OUT}-{partition}, record {equal}: found {:?}, expected {:?}",
                values.get(equal),
                expected.get(equal)
            ));
        }
        if let Some(key) = written.keys().next() {
            verdicts.push(format!(
                "VIOLATED unexpected: {OUT}-{partition} has the key {key}"
            ));
        }
        let counts = loops::emitted(left, COUNTS, partition).into_iter();
        let counts: BTreeMap<_, _> = counts.map(|(key, count, _)| (key, count)).collect();
        for (key, expected) in &expected {
            let count = counts.get(key).map_or("no", String::as_str);
            if count != expected.len().to_string() {
                verdicts.push(format!(
                    "VIOLATED state_count: key {key} of {COUNTS}-{partition} has {count} records, expected {}",
                    expected.len()
                ));
            }
        }
    }
    Ok(verdicts)
}

fn value(it: &Given) -> String {
    let digit = it.key.bytes().last().map_or(0, |digit| digit - b'0');
    String::from_utf8_lossy(&it.kind.value(it.seq, digit.into())).into_owned()
}

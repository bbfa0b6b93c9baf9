//! Two streams in one aggregate, followed by two joins of tables, and a join with a global table.
//!
//! One task reads both streams and both tables. Their records interleave in an unknown order, which the check derives
//! from the outputs. Each update of the aggregate must follow from the previous one by the next record of one stream.
//! Each result must follow from the previous one by the next update of the aggregate or of a table. The rows of the
//! global table are not part of a transaction, so a result may have any row that its process may have read.

use std::collections::{BTreeMap, BTreeSet};

use eos_core::{App, KeyValueStore, Topic};

use super::case::Case;
use super::loops::{self, Emitted};
use super::plain::STATELESS;
use super::record::{Draft, Given};
use super::remains::{Found, Left};
use super::stores::{self, stamped};
use super::topics::INPUT;
use eos_oracle::Contents;
use eos_testkit::rng::Rng;

pub(super) const COGROUP: Case = Case {
    inputs: &INPUTS,
    global: Some(RATES),
    // The stage has the name of the first topic in alphabetical order.
    changelog: Some(CHANGELOG),
    outputs: &[SUMS, RESULTS],
    draft,
    declare: |app, _| declare(app),
    judge,
    ..STATELESS
};

/// The two streams, the table of the inner join, and that of the left join.
const INPUTS: [&str; 4] = [INPUT, BESIDE, NAMES, LIMITS];
const BESIDE: &str = "beside";
const NAMES: &str = "names";
const LIMITS: &str = "limits";
/// The topic of the global table.
const RATES: &str = "rates";
const CHANGELOG: &str = "sim-beside-changelog";
/// The output of the aggregate, and that of the joins.
const SUMS: &str = "sums";
const RESULTS: &str = "results";
/// The aggregate of a key without records.
const NOTHING: &str = "0:- 0:-";

fn declare(app: &mut App) {
    let table = |app: &mut App, topic: &str| {
        let rows = Topic::<String, Option<String>>::plain(topic);
        app.table(&rows, &KeyValueStore::<String, String>::plain(topic))
    };
    let (names, limits) = (table(app, NAMES), table(app, LIMITS));
    let rates = app.global_table(&Topic::<String, Option<String>>::plain(RATES), RATES);
    let beside = app
        .source(&Topic::<String, String>::plain(BESIDE))
        .group_by_key();
    let sums = app
        .source(&Topic::<String, String>::plain(INPUT))
        .group_by_key()
        .cogroup(
            &KeyValueStore::<String, String>::plain(SUMS),
            || NOTHING.to_owned(),
            |_, value, sum| with(&sum, 0, number(&value)),
        )
        .and(beside, |_, value, sum| with(&sum, 1, number(&value)))
        .into_table();
    sums.clone().to(&Topic::plain(SUMS));
    sums.join(&names, |sum, name| format!("{sum} {}", number(name)))
        .left_join(&limits, |row, limit| {
            format!("{row} {}", shown(limit.map(|limit| number(limit))))
        })
        .to_stream()
        .left_join_global(
            &rates,
            |key, _| partner(key),
            |row, rate| {
                let rate = shown(rate.map(|rate| number(&rate)));
                row.map(|row| format!("{row} {rate}"))
            },
        )
        .to(&Topic::plain(RESULTS));
}

/// Returns the aggregate of two streams with one more record of one stream: for each stream the count, and the number of
/// the last record.
fn with(sum: &str, stream: usize, number: u64) -> String {
    let streams = sum.split(' ').enumerate().map(|(at, of_it)| {
        let count = of_it
            .split(':')
            .next()
            .and_then(|it| it.parse::<u64>().ok());
        match at == stream {
            true => format!("{}:{number}", count.unwrap_or_default() + 1),
            false => of_it.to_owned(),
        }
    });
    streams.collect::<Vec<_>>().join(" ")
}

/// Returns the number of a value.
fn number(value: &str) -> u64 {
    let number = value.split(' ').next().and_then(|it| it.parse().ok());
    number.unwrap_or_default()
}

fn shown(number: Option<u64>) -> String {
    number.map_or("-".to_owned(), |it| it.to_string())
}

/// Returns the key of the global row of a key. It is often in another partition.
fn partner(key: &str) -> String {
    let digit = |it: char| it.to_digit(10).map(|digit| 3 - digit);
    let text = |it: char| digit(it).map_or(it.to_string(), |digit| digit.to_string());
    key.chars().map(text).collect()
}

/// Returns a record. Half of the records belong to the streams. Some rows are tombstones.
fn draft(rng: &mut Rng, now: i64) -> Draft {
    let (topic, tombstones) = match rng.below(8) {
        0 | 1 => (INPUT, None),
        2 | 3 => (BESIDE, None),
        4 | 5 => (NAMES, Some(6)),
        6 => (LIMITS, Some(4)),
        _ => (RATES, Some(4)),
    };
    Draft {
        topic,
        timestamp: now - rng.between(0, 40),
        tombstone: tombstones.is_some_and(|one_in| rng.one_in(one_in)),
        ..Draft::plain(now)
    }
}

/// Returns the part of a run in which a record arrived. All records of a part were processed before the next one began.
fn part(left: Left<'_>, seq: u64) -> usize {
    let begins = [left.after_faults, left.before_last];
    begins.iter().filter(|it| **it as u64 <= seq).count()
}

/// The updates of the global table, by key.
#[derive(Debug, Default)]
struct Rates<'a> {
    /// Each update, with the first part of the run in which all results have read it: 0 for the rows from before the
    /// start.
    of: BTreeMap<&'a str, Vec<(usize, &'a Given)>>,
}

impl<'a> Rates<'a> {
    fn read(left: Left<'a>) -> Self {
        let mut all = Self::default();
        for it in left.of(RATES) {
            let is_first = (it.seq as usize) < left.before_start;
            // The records of the last part arrived before the last start.
            let known = match part(left, it.seq) {
                0 if is_first => 0,
                2 => 2,
                part => part + 1,
            };
            all.of.entry(&it.key).or_default().push((known, it));
        }
        all
    }

    /// Returns the possible rows of a result in this part of the run: the last row that all results have read, and the
    /// rows that were written during the part.
    fn may_be(&self, key: &str, part: usize) -> BTreeSet<String> {
        let updates = self.of.get(key).map_or(&[][..], Vec::as_slice);
        let row = |it: &Given| shown(Some(it.seq).filter(|_| !it.tombstone));
        let known = updates.iter().rfind(|(known, _)| *known <= part);
        let known = known.map_or(shown(None), |(_, it)| row(it));
        let meanwhile = updates.iter().filter(|(known, _)| *known == part + 1);
        meanwhile.map(|(_, it)| row(it)).chain([known]).collect()
    }
}

/// An update of a table.
#[derive(Debug, Clone)]
struct Update {
    /// The shown row; `None` for a tombstone.
    row: Option<String>,
    time: i64,
    /// The number of the record that led to the update.
    seq: u64,
}

/// The number of processed updates of each table: of the aggregate, and of the tables of both joins.
type At = [usize; 3];

/// The updates of a key in each table, and the possible numbers of processed updates.
///
/// An update emits nothing while the inner join has no row. So the order of such updates only follows from later
/// results.
#[derive(Debug)]
struct Orders {
    updates: [Vec<Update>; 3],
    at: BTreeSet<At>,
}

impl Orders {
    fn of(updates: [Vec<Update>; 3]) -> Self {
        let mut all = Self {
            updates,
            at: BTreeSet::from([[0; 3]]),
        };
        all.skip_silent();
        all
    }

    /// Returns the place behind the next update of a table, and this update.
    fn next(&self, at: At, table: usize) -> Option<(At, &Update)> {
        let update = self.updates[table].get(at[table])?;
        let mut behind = at;
        behind[table] += 1;
        Some((behind, update))
    }

    /// Returns the last update of each table.
    fn last(&self, at: At) -> [Option<&Update>; 3] {
        let last = |table: usize| self.updates[table].get(at[table].checked_sub(1)?);
        [last(0), last(1), last(2)]
    }

    /// Returns whether the inner join has a row.
    fn has_row(&self, at: At) -> bool {
        let [sum, name, _] = self.last(at).map(|it| it?.row.as_ref());
        sum.is_some() && name.is_some()
    }

    /// Returns the row of both joins, if there is one.
    fn joined(&self, at: At) -> Option<String> {
        let [sum, name, limit] = self.last(at).map(|it| it?.row.as_deref());
        Some(format!("{} {} {}", sum?, name?, limit.unwrap_or("-")))
    }

    /// Returns the time of the row of both joins after this update.
    fn time(&self, at: At, update: &Update) -> i64 {
        let rows = self.last(at).into_iter().flatten();
        let rows = rows.filter(|it| it.row.is_some()).map(|it| it.time);
        rows.fold(update.time, i64::max)
    }

    /// Adds the places behind updates that emit nothing.
    fn skip_silent(&mut self) {
        let mut new: Vec<_> = self.at.iter().copied().collect();
        new.retain(|at| !self.has_row(*at));
        while let Some(at) = new.pop() {
            for table in 0..3 {
                let behind = self.next(at, table).map(|(behind, _)| behind);
                let behind = behind.filter(|behind| !self.has_row(*behind));
                new.extend(behind.filter(|behind| self.at.insert(*behind)));
            }
        }
    }

    /// Follows one result. `rates` returns the global rows that a result by a record may have. Returns false if no update
    /// leads to the result.
    fn follow(
        &mut self,
        (result, time): (&str, i64),
        rates: impl Fn(u64) -> BTreeSet<String>,
    ) -> bool {
        let (row, rate) = match result.rsplit_once(' ') {
            Some((row, rate)) => (Some(row), Some(rate)),
            None => (None, None),
        };
        let mut all = BTreeSet::new();
        for &at in &self.at {
            for (behind, update) in (0..3).filter_map(|table| self.next(at, table)) {
                let emits = self.has_row(at) || self.has_row(behind);
                if !emits
                    || self.time(behind, update) != time
                    || self.joined(behind).as_deref() != row
                {
                    continue;
                }
                let newest = self.last(behind).into_iter().flatten();
                let newest = newest.map(|it| it.seq).max().unwrap_or_default();
                if rate.is_none_or(|rate| rates(newest).contains(rate)) {
                    all.insert(behind);
                }
            }
        }
        let follows = !all.is_empty();
        if follows {
            self.at = all;
            self.skip_silent();
        }
        follows
    }

    /// Returns the number of updates of each table.
    fn all(&self) -> At {
        [0, 1, 2].map(|table| self.updates[table].len())
    }

    /// Returns whether all updates may have been processed.
    fn is_whole(&self) -> bool {
        self.at.contains(&self.all())
    }
}

/// Names the violation by a record that does not follow.
fn violation(found: &[Emitted], at: usize) -> &'static str {
    match found[..at].contains(&found[at]) {
        true => "doubled",
        false => "unexpected",
    }
}

/// The records of one key in a topic, or the updates.
type ByKey<'a, T> = BTreeMap<&'a str, Vec<T>>;

/// Returns the records of a partition of an input, by key.
fn by_key<'a>(left: Left<'a>, input: &str, partition: i32) -> ByKey<'a, &'a Given> {
    let mut records = ByKey::new();
    for it in loops::given(left, input, partition) {
        records.entry(&it.key[..]).or_default().push(it);
    }
    records
}

/// Returns the updates of a table by key, with the rows as the results show them.
fn updates<'a>(left: Left<'a>, input: &str, partition: i32) -> ByKey<'a, Update> {
    let update = |it: &Given| Update {
        row: (!it.tombstone).then(|| it.seq.to_string()),
        time: it.timestamp,
        seq: it.seq,
    };
    let records = by_key(left, input, partition).into_iter();
    let updates = records.map(|(key, it)| (key, it.into_iter().map(update).collect()));
    updates.collect()
}

/// Checks the updates of the aggregate in a partition: each adds the next record of one stream. Returns them.
fn judge_sums<'a>(
    partition: i32,
    found: &'a [Emitted],
    streams: &[ByKey<'a, &Given>; 2],
) -> Result<ByKey<'a, Update>, String> {
    let mut sums: ByKey<'a, Update> = BTreeMap::new();
    let mut counts: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for (nth, (key, sum, time)) in found.iter().enumerate() {
        let (sums, counts) = (sums.entry(key).or_default(), counts.entry(key).or_default());
        let last = sums.last();
        let before = last.and_then(|it| it.row.as_deref()).unwrap_or(NOTHING);
        let earlier = last.map_or(i64::MIN, |it| it.time);
        let next = (0..2).find_map(|stream| {
            let record = streams[stream].get(&key[..])?.get(counts[stream])?;
            let follows = with(before, stream, record.seq) == *sum;
            (follows && record.timestamp.max(earlier) == *time).then_some((stream, record.seq))
        });
        let Some((stream, seq)) = next else {
            let next = [0, 1].map(|at| streams[at].get(&key[..]).and_then(|it| it.get(counts[at])));
            return Err(format!(
                "VIOLATED {}: {SUMS}-{partition}, record {nth}: {key} is {sum:?} at {time} behind {before:?} at \
                 {earlier}, and the next records are {next:?}",
                violation(found, nth)
            ));
        };
        counts[stream] += 1;
        let row = Some(sum.clone());
        sums.push(Update {
            row,
            time: *time,
            seq,
        });
    }
    for (stream, records) in streams.iter().enumerate() {
        for (key, records) in records {
            let count = counts.get(key).map_or(0, |counts| counts[stream]);
            if let Some(missing) = records.get(count) {
                return Err(format!(
                    "VIOLATED lost: {SUMS}-{partition} ends without {missing:?}"
                ));
            }
        }
    }
    Ok(sums)
}

/// Checks the results of the joins in a partition.
fn judge_results(
    left: Left<'_>,
    (partition, found): (i32, &[Emitted]),
    rates: &Rates<'_>,
    mut tables: [ByKey<'_, Update>; 3],
) -> Result<(), String> {
    let keys = tables.iter().flat_map(|table| table.keys().copied());
    let keys: BTreeSet<&str> = keys.collect();
    let of_key = |key| {
        let updates = tables.each_mut();
        (
            key,
            Orders::of(updates.map(|it| it.remove(key).unwrap_or_default())),
        )
    };
    let mut orders: BTreeMap<&str, Orders> = keys.into_iter().map(of_key).collect();
    for (nth, (key, result, time)) in found.iter().enumerate() {
        let may_be = |seq: u64| rates.may_be(&partner(key), part(left, seq));
        let order = orders.get_mut(&key[..]);
        if !order.is_some_and(|order| order.follow((result, *time), may_be)) {
            return Err(format!(
                "VIOLATED {}: {RESULTS}-{partition}, record {nth}: {key} is {result:?} at {time}. Its updates are {:?}, \
                 and those of the global row {:?}",
                violation(found, nth),
                orders.get(&key[..]),
                rates.of.get(&partner(key)[..])
            ));
        }
    }
    match orders.iter().find(|(_, order)| !order.is_whole()) {
        Some((key, order)) => Err(format!(
            "VIOLATED lost: {RESULTS}-{partition} ends without updates of {key}: {order:?}"
        )),
        None => Ok(()),
    }
}

/// Returns the rows of a store after all updates. `value` returns the stored value of a shown row.
fn rows(table: &ByKey<'_, Update>, value: impl Fn(&str, &str) -> String) -> Contents {
    let last = table
        .iter()
        .filter_map(|(key, it)| Some((*key, it.last()?)));
    let rows = last.filter_map(|(key, it)| {
        let row = it.row.as_deref()?;
        Some(stamped(key, &value(key, row), it.time))
    });
    rows.collect()
}

/// Checks a partition. Returns the rows of its stores.
fn judge_partition(
    left: Left<'_>,
    partition: i32,
    rates: &Rates<'_>,
    found: &mut Found,
) -> Result<Vec<Contents>, String> {
    let results = loops::emitted(left, RESULTS, partition);
    let with_rate = results
        .iter()
        .filter(|(_, it, _)| !it.is_empty() && !it.ends_with('-'));
    found.saw("results had a row of a global table", with_rate.count());
    let streams = [INPUT, BESIDE].map(|topic| by_key(left, topic, partition));
    let both = streams[0]
        .keys()
        .filter(|key| streams[1].contains_key(*key));
    found.saw("streams had one aggregate", both.count());
    let sums = loops::emitted(left, SUMS, partition);
    let sums = judge_sums(partition, &sums, &streams)?;
    let [names, limits] = [NAMES, LIMITS].map(|topic| updates(left, topic, partition));
    let given = |key: &str, row: &str| format!("{row} {}", key.split_at(1).1);
    let stores = [
        rows(&sums, |_, row| row.to_owned()),
        rows(&names, given),
        rows(&limits, given),
    ];
    let tables = [sums, names, limits];
    judge_results(left, (partition, &results), rates, tables)?;
    Ok(stores.into())
}

fn judge(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let rates = Rates::read(left);
    let mut state = Vec::new();
    for partition in 0..left.partitions {
        state.push(judge_partition(left, partition, &rates, found)?);
    }
    let mut verdicts = stores::differences(left, (0, CHANGELOG), &state);
    verdicts.extend(judge_copies(left, &rates));
    Ok(verdicts)
}

/// Compares the copies of the global table with its topic. Each process has read the whole topic.
fn judge_copies(left: Left<'_>, rates: &Rates<'_>) -> Vec<String> {
    let due = rates.of.iter().filter_map(|(key, updates)| {
        let (_, last) = updates.last().filter(|(_, it)| !it.tombstone)?;
        Some(((*key).to_owned(), last.seq))
    });
    let due: BTreeMap<String, u64> = due.collect();
    let wrong = left.globals.iter().filter_map(|(process, rows)| {
        let rows = rows.iter().map(|(key, row)| {
            // The value is behind the version and the number of headers.
            let value = String::from_utf8_lossy(row.get(5..).unwrap_or_default());
            (key.clone(), number(&value))
        });
        let rows: BTreeMap<String, u64> = rows.collect();
        (rows != due).then(|| {
            format!(
                "VIOLATED state_global: the copy of process {process} holds {rows:?}, not {due:?}"
            )
        })
    });
    wrong.collect()
}

#[cfg(test)]
mod tests {
    use super::super::record::Kind;
    use super::*;

    fn given(seq: u64, tombstone: bool) -> Given {
        Given {
            seq,
            topic: INPUT,
            key: "a1".into(),
            partition: 0,
            offset: 0,
            timestamp: 7,
            tombstone,
            kind: Kind::Good,
            behind: 0,
            arrived: 0,
        }
    }

    #[test]
    fn a_record_changes_its_own_stream_of_an_aggregate() {
        assert_eq!(with(NOTHING, 1, 7), "0:- 1:7");
        assert_eq!(with("1:4 1:7", 0, 9), "2:9 1:7");
        assert_eq!((partner("a0"), partner("c2")), ("a3".into(), "c1".into()));
    }

    #[test]
    fn each_result_follows_from_the_one_before_by_one_update() {
        let update = |row: Option<&str>, seq| Update {
            row: row.map(str::to_owned),
            time: 7,
            seq,
        };
        let follows = |results: &[&str]| {
            let sums = [update(Some("1:1 0:-"), 1), update(Some("1:1 1:2"), 2)];
            // The second update of the table deletes the row.
            let names = [update(Some("3"), 3), update(None, 4)];
            let limits = [update(Some("5"), 5)];
            let mut orders = Orders::of([sums.into(), names.into(), limits.into()]);
            let rates = |_| BTreeSet::from(["9".to_owned()]);
            let all = results.iter().all(|it| orders.follow((it, 7), rates));
            (all, orders.is_whole())
        };
        let whole = ["1:1 0:- 3 - 9", "1:1 1:2 3 - 9", "1:1 1:2 3 5 9", ""];
        assert_eq!(follows(&whole), (true, true));
        assert_eq!(follows(&["1:1 1:2 3 5 9", ""]), (true, true));
        assert_eq!(follows(&["1:1 1:2 3 5 9"]), (true, false));
        // Nothing is emitted if the row is deleted before the first aggregate.
        assert_eq!(follows(&[]), (true, true));
        for wrong in ["1:1 1:2 3 5 -", "1:1 1:1 3 5 9", "1:1 1:2 - 5 9"] {
            assert!(!follows(&[wrong]).0, "{wrong}");
        }
        // One update can't lead to both.
        assert!(!follows(&["1:1 0:- 3 - 9", "1:1 1:2 3 5 9"]).0);
        assert!(!follows(&["1:1 0:- 3 - 9", "1:1 0:- 3 - 9"]).0);
    }

    #[test]
    fn an_update_of_the_aggregate_adds_one_record() {
        let records = [given(1, false), given(2, false), given(3, false)];
        let [one, two, three] = records.each_ref();
        let streams = [
            ByKey::from([("a1", vec![one, three])]),
            ByKey::from([("a1", vec![two])]),
        ];
        let judged = |sums: &[&str]| {
            let found = sums.iter().map(|it| ("a1".into(), (*it).into(), 7));
            let found: Vec<Emitted> = found.collect();
            judge_sums(0, &found, &streams).map(|sums| sums["a1"].len())
        };
        assert_eq!(judged(&["0:- 1:2", "1:1 1:2", "2:3 1:2"]), Ok(3));
        let wrong: [(&[&str], &str); 3] = [
            (&["1:1 0:-", "1:1 0:-"], "VIOLATED doubled"),
            (&["1:1 0:-", "0:- 1:2"], "VIOLATED unexpected"),
            (&["1:1 0:-", "1:1 1:2"], "VIOLATED lost"),
        ];
        for (sums, says) in wrong {
            let why = judged(sums).unwrap_err();
            assert!(why.starts_with(says), "{why}");
        }
    }
}

//! Tables with updates and tombstones: a filter, an outer join that is stored, and groups of its rows.
//!
//! One task reads both tables. Their updates interleave in an unknown order, which the check derives from the joined
//! rows. Each joined row must follow from the previous one by the next update of one table. The groups must follow from
//! the joined rows in the same way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use eos_core::windows::Sides;
use eos_core::{App, KeyValueStore, Topic};

use super::case::Case;
use super::loops::{self, Emitted};
use super::plain::STATELESS;
use super::record::{Draft, Given};
use super::remains::{Found, Left};
use super::stores::{self, stamped};
use eos_oracle::Contents;
use eos_testkit::rng::Rng;

pub(super) const TABLES: Case = Case {
    inputs: &[LEFT, RIGHT],
    repartitions: &["sim-groups-changes-repartition"],
    // There are two changelogs, of two stages. This shape compares both itself.
    changelog: None,
    outputs: &[PASSED, JOINED, GROUPS],
    draft,
    declare: |app, _| declare(app),
    judge,
    ..STATELESS
};

const LEFT: &str = "left";
const RIGHT: &str = "right";
const PASSED: &str = "passed";
const JOINED: &str = "rows";
const GROUPS: &str = "results";
/// The changelogs of the stages: of the tables, and of the groups.
const CHANGELOGS: [&str; 2] = [
    "sim-left-changelog",
    "sim-groups-changes-repartition-changelog",
];

fn declare(app: &mut App) {
    let rows = |app: &mut App, topic| {
        let store = KeyValueStore::<String, String>::plain(topic);
        app.table(&Topic::<String, Option<String>>::plain(topic), &store)
    };
    let (left, right) = (rows(app, LEFT), rows(app, RIGHT));
    left.clone()
        .filter(|row| passes(number(row)))
        .to(&Topic::plain(PASSED));
    let joined = left
        .outer_join(&right, |sides| match sides {
            Sides::Both(left, right) => format!("{}+{}", number(left), number(right)),
            Sides::Left(left) => format!("{}+-", number(left)),
            Sides::Right(right) => format!("-+{}", number(right)),
        })
        .stored(&KeyValueStore::plain("joined"));
    joined.clone().to(&Topic::plain(JOINED));
    joined
        .group_by(&Topic::<String, String>::plain("groups"), |key, row| {
            (group(row), format!("{key}:{row}"))
        })
        .aggregate(
            &KeyValueStore::<String, String>::plain("groups"),
            String::new,
            |_, row, rows| with(rows, row),
            |_, row, rows| without(rows, &row),
        )
        .to(&Topic::plain(GROUPS));
}

/// Returns the rows of a group with one more, in order.
fn with(rows: String, row: String) -> String {
    let mut all: Vec<&str> = rows.split_whitespace().chain([&row[..]]).collect();
    all.sort_unstable();
    all.join(" ")
}

/// Returns the rows of a group without one. If it is not there, it leaves a mark.
fn without(rows: String, row: &str) -> String {
    let mut all: Vec<&str> = rows.split_whitespace().collect();
    match all.iter().position(|it| *it == row) {
        Some(at) => {
            all.remove(at);
            all.join(" ")
        }
        None => with(rows, format!("!{row}")),
    }
}

/// Returns the number of a row of a table.
fn number(row: &str) -> u64 {
    let number = row.split(' ').next().and_then(|it| it.parse().ok());
    number.unwrap_or_default()
}

/// Returns whether the filter keeps a row of this number.
fn passes(number: u64) -> bool {
    !number.is_multiple_of(3)
}

/// Returns the group of a joined row. An update of the right table keeps it if there is a left row.
fn group(row: &str) -> String {
    let (left, right) = row.split_once('+').unwrap_or_default();
    let number = left.parse::<u64>().or_else(|_| right.parse());
    format!("g{}", number.unwrap_or_default() % 3)
}

/// Returns a record. Half of the records belong to each table. Some are tombstones.
fn draft(rng: &mut Rng, now: i64) -> Draft {
    Draft {
        topic: if rng.one_in(2) { LEFT } else { RIGHT },
        timestamp: now - rng.between(0, 40),
        tombstone: rng.one_in(4),
        ..Draft::plain(now)
    }
}

/// Returns the value of a table's row.
fn value(it: &Given) -> String {
    let digit: String = it.key.chars().skip(1).collect();
    format!("{} {digit}", it.seq)
}

/// The updates of one table by key, and its last rows.
#[derive(Debug, Default)]
struct Updates<'a> {
    of: BTreeMap<&'a str, Vec<&'a Given>>,
    rows: BTreeMap<&'a str, &'a Given>,
}

impl<'a> Updates<'a> {
    /// Reads the updates. `each` receives each one that changes a row, with the row before it.
    fn read(
        left: Left<'a>,
        (topic, partition): (&str, i32),
        mut each: impl FnMut(&'a Given, Option<&'a Given>),
    ) -> Self {
        let mut all = Self::default();
        for it in loops::given(left, topic, partition) {
            let before = match it.tombstone {
                true => all.rows.remove(&it.key[..]),
                false => all.rows.insert(&it.key, it),
            };
            all.of.entry(&it.key).or_default().push(it);
            if before.is_some() || !it.tombstone {
                each(it, before);
            }
        }
        all
    }

    fn contents(&self) -> Contents {
        let rows = self.rows.iter();
        rows.map(|(key, it)| stamped(key, &value(it), it.timestamp))
            .collect()
    }
}

/// The rows of a key in both tables.
#[derive(Debug, Default, Clone, Copy)]
struct Pair<'a>([Option<&'a Given>; 2]);

impl<'a> Pair<'a> {
    /// Returns the pair after an update of one table.
    fn after(mut self, side: usize, update: &'a Given) -> Self {
        self.0[side] = Some(update).filter(|it| !it.tombstone);
        self
    }

    /// Returns the joined row; empty for none.
    fn row(&self) -> String {
        let shown = |it: Option<&Given>| it.map_or("-".to_owned(), |it| it.seq.to_string());
        match self.0 {
            [None, None] => String::new(),
            [left, right] => format!("{}+{}", shown(left), shown(right)),
        }
    }

    /// Returns the time of the joined row after this update.
    fn time(&self, update: &Given) -> i64 {
        let rows = self.0.into_iter().flatten();
        rows.fold(update.timestamp, |time, it| time.max(it.timestamp))
    }
}

/// The updates of a key in both tables, and the possible numbers of processed updates.
///
/// A tombstone of a missing row emits the joined row again, as in Kafka Streams, or nothing if there is no joined row.
/// So the order of the updates only follows from later joined rows.
#[derive(Debug)]
struct Orders<'a> {
    updates: [&'a [&'a Given]; 2],
    at: BTreeSet<[usize; 2]>,
}

impl<'a> Orders<'a> {
    fn of(key: &str, [left, right]: &'a [Updates<'a>; 2]) -> Self {
        let of = |table: &'a Updates<'a>| table.of.get(key).map_or(&[][..], Vec::as_slice);
        let mut all = Self {
            updates: [of(left), of(right)],
            at: BTreeSet::from([[0, 0]]),
        };
        all.skip_silent();
        all
    }

    fn next(&self, at: [usize; 2], side: usize) -> Option<&'a Given> {
        self.updates[side].get(at[side]).copied()
    }

    fn pair(&self, at: [usize; 2]) -> Pair<'a> {
        let row = |side: usize| {
            let last = self.updates[side].get(at[side].checked_sub(1)?)?;
            Some(*last).filter(|it| !it.tombstone)
        };
        Pair([row(0), row(1)])
    }

    /// Adds the places behind tombstones that emit nothing.
    fn skip_silent(&mut self) {
        let mut new: Vec<_> = self.at.iter().copied().collect();
        while let Some(at) = new.pop() {
            let is_empty = self.pair(at).row().is_empty();
            for side in 0..2 {
                let is_silent = self.next(at, side).is_some_and(|it| it.tombstone);
                let mut behind = at;
                behind[side] += 1;
                if is_empty && is_silent && self.at.insert(behind) {
                    new.push(behind);
                }
            }
        }
    }

    /// Follows one joined row. Returns false if no update leads to it.
    fn follow(&mut self, row: &str, time: i64) -> bool {
        let mut all = BTreeSet::new();
        for &at in &self.at {
            let before = self.pair(at);
            for side in 0..2 {
                let Some(update) = self.next(at, side) else {
                    continue;
                };
                let after = before.after(side, update);
                let emits = !(before.row().is_empty() && after.row().is_empty());
                if emits && after.row() == row && after.time(update) == time {
                    let mut behind = at;
                    behind[side] += 1;
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

    /// Returns whether all updates may have been processed.
    fn is_whole(&self) -> bool {
        self.at.contains(&self.updates.map(<[_]>::len))
    }
}

/// A change of a group by a row.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    old: Option<String>,
    new: Option<String>,
    time: i64,
}

impl Change {
    /// Returns whether the row was emitted again.
    fn is_repetition(&self) -> bool {
        self.old == self.new
    }
}

/// The changes of the groups that the app must still emit, in order, by group and the row's key.
#[derive(Debug, Default)]
struct Due {
    changes: BTreeMap<(String, String), VecDeque<Change>>,
    /// The number of results of each group without a change.
    repeated: BTreeMap<String, usize>,
    moved: usize,
    stayed: usize,
}

impl Due {
    /// Takes the next change of a group by the row of a key. The repetitions of the row before it were emitted earlier.
    fn take(&mut self, group: &str, key: &str) -> Option<Change> {
        let changes = (self.changes).get_mut(&(group.to_owned(), key.to_owned()))?;
        while changes.front().is_some_and(Change::is_repetition) {
            let seen = self.repeated.get_mut(group)?;
            *seen = seen.checked_sub(1)?;
            changes.pop_front();
        }
        changes.pop_front()
    }

    /// Notes that a result of a group was emitted again at this time, because one of its rows was. Only later results
    /// show which row. Returns whether there is such a row.
    fn repeat(&mut self, group: &str, last: i64, time: i64) -> bool {
        let mut of_group = self.changes.iter().filter(|((it, _), _)| it == group);
        let may = |it: &Change| it.is_repetition() && it.time.max(last) == time;
        *self.repeated.entry(group.to_owned()).or_default() += 1;
        of_group.any(|(_, changes)| changes.iter().any(may))
    }

    /// Returns a change that was not emitted.
    fn rest(&self) -> Option<String> {
        let mut repeated = self.repeated.clone();
        for ((group, key), changes) in &self.changes {
            for change in changes {
                let seen = repeated.get_mut(group).filter(|_| change.is_repetition());
                match seen.and_then(|seen| Some((seen.checked_sub(1)?, seen))) {
                    Some((left, seen)) => *seen = left,
                    None => return Some(format!("{change:?} of {key} in {group}")),
                }
            }
        }
        None
    }

    /// Adds the changes of groups for a change of a joined row. An empty text is no row.
    fn change(&mut self, key: &str, [old, new]: [&str; 2], time: i64) {
        let of = |row: &str| (!row.is_empty()).then(|| (group(row), format!("{key}:{row}")));
        let mut add = |group: String, old, new| {
            let changes = self.changes.entry((group, key.to_owned())).or_default();
            changes.push_back(Change { old, new, time });
        };
        match (of(old), of(new)) {
            (Some((from, old)), Some((to, new))) if from == to => {
                add(to, Some(old), Some(new));
                self.stayed += 1;
            }
            (old, new) => {
                self.moved += usize::from(old.is_some() && new.is_some());
                if let Some((from, old)) = old {
                    add(from, Some(old), None);
                }
                if let Some((to, new)) = new {
                    add(to, None, Some(new));
                }
            }
        }
    }
}

/// Checks the joined rows of a partition, and returns the last ones.
fn judge_joined(
    partition: i32,
    found: &[Emitted],
    tables: &[Updates<'_>; 2],
    due: &mut Due,
) -> Result<Contents, String> {
    let keys = tables.iter().flat_map(|table| table.of.keys());
    let mut orders: BTreeMap<&str, Orders<'_>> =
        keys.map(|key| (*key, Orders::of(key, tables))).collect();
    let mut last: BTreeMap<&str, &str> = BTreeMap::new();
    let mut rows = Contents::new();
    for (at, (key, row, time)) in found.iter().enumerate() {
        let before = last.insert(key, row).unwrap_or_default();
        let order = orders.get_mut(&key[..]);
        if !order.is_some_and(|order| order.follow(row, *time)) {
            let again = found[..at].contains(&found[at]);
            let what = if again { "doubled" } else { "unexpected" };
            return Err(format!(
                "VIOLATED {what}: {JOINED}-{partition}, record {at}: {key} is {row:?} at {time} behind {before:?}, and \
                 the updates are {:?}",
                orders.get(&key[..])
            ));
        }
        due.change(key, [before, row], *time);
        let (key, stored) = stamped(key, row, *time);
        match row.is_empty() {
            true => rows.remove(&key),
            false => rows.insert(key, stored),
        };
    }
    match orders.iter().find(|(_, order)| !order.is_whole()) {
        Some((key, order)) => Err(format!(
            "VIOLATED lost: {JOINED}-{partition} ends without updates of {key}: {order:?}"
        )),
        None => Ok(rows),
    }
}

/// Checks the results of the groups in a partition, and returns the last ones.
fn judge_groups(partition: i32, found: &[Emitted], due: &mut Due) -> Result<Contents, String> {
    let mut groups: BTreeMap<&str, (BTreeSet<&str>, i64)> = BTreeMap::new();
    let mut results = Contents::new();
    for (at, (group, result, time)) in found.iter().enumerate() {
        let (rows, last) = groups.entry(group).or_insert((BTreeSet::new(), i64::MIN));
        let now: BTreeSet<&str> = result.split_whitespace().collect();
        let old = rows.difference(&now).next().copied();
        let new = now.difference(rows).next().copied();
        let key = old.or(new).and_then(|it| it.split(':').next());
        let Some(key) = key else {
            if !due.repeat(group, *last, *time) {
                return Err(format!(
                    "VIOLATED doubled: {GROUPS}-{partition}, record {at}: {group} is {result:?} again at {time} behind \
                     {last}"
                ));
            }
            results.extend([stamped(group, result, *time)]);
            *last = *time;
            continue;
        };
        let change = due.take(group, key);
        // The expected group: its previous rows with the change of this row, and no other change.
        let expected = change.as_ref().map(|it| {
            let mut rows: BTreeSet<&str> = rows.clone();
            let was_there = it.old.as_deref().is_none_or(|old| rows.remove(old));
            rows.extend(it.new.as_deref());
            let text = rows.into_iter().collect::<Vec<_>>().join(" ");
            (was_there, text, it.time.max(*last))
        });
        if expected != Some((true, result.clone(), *time)) {
            let again = found[..at].contains(&found[at]);
            let what = if again { "doubled" } else { "unexpected" };
            return Err(format!(
                "VIOLATED {what}: {GROUPS}-{partition}, record {at}: {group} is {result:?} at {time} behind {rows:?} at \
                 {last}, and the next change of {key:?} is {change:?}"
            ));
        }
        (*rows, *last) = (now, *time);
        results.extend([stamped(group, result, *time)]);
    }
    Ok(results)
}

fn judge(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let (mut verdicts, mut due) = (Vec::new(), Due::default());
    // The rows of each store, by stage and partition.
    let mut state: [Vec<Vec<Contents>>; 2] = Default::default();
    for partition in 0..left.partitions {
        let (mut passed, mut deleted) = (Vec::new(), 0);
        let lefts = Updates::read(left, (LEFT, partition), |it, before| {
            deleted += usize::from(it.tombstone);
            let row = Some(it).filter(|it| !it.tombstone && passes(it.seq));
            if row.is_some() || before.is_some_and(|it| passes(it.seq)) {
                let row = row.map(value).unwrap_or_default();
                passed.push((it.key.clone(), row, it.timestamp));
            }
        });
        let rights = Updates::read(left, (RIGHT, partition), |it, _| {
            deleted += usize::from(it.tombstone);
        });
        found.saw("rows were deleted", deleted);
        verdicts.extend(loops::difference(left, PASSED, partition, &passed));
        let mut stores = vec![lefts.contents(), rights.contents()];
        let joined = loops::emitted(left, JOINED, partition);
        match judge_joined(partition, &joined, &[lefts, rights], &mut due) {
            Ok(rows) => stores.push(rows),
            Err(why) => verdicts.push(why),
        }
        state[0].push(stores);
    }
    found.saw("rows moved to another group", due.moved);
    found.saw("rows stayed in their group", due.stayed);
    // Without correct joined rows, the expected groups are unknown.
    if !verdicts.is_empty() {
        return Ok(verdicts);
    }
    for partition in 0..left.partitions {
        let results = loops::emitted(left, GROUPS, partition);
        match judge_groups(partition, &results, &mut due) {
            Ok(results) => state[1].push(vec![results]),
            Err(why) => return Ok(vec![why]),
        }
    }
    let rest = due.rest();
    verdicts.extend(rest.map(|rest| format!("VIOLATED lost: {GROUPS} ends without {rest}")));
    for ((stage, changelog), due) in (0..).zip(CHANGELOGS).zip(&state) {
        verdicts.extend(stores::differences(left, (stage, changelog), due));
    }
    Ok(verdicts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emitted(results: &[&str]) -> Vec<Emitted> {
        let results = results.iter();
        results.map(|it| ("g1".into(), (*it).into(), 7)).collect()
    }

    #[test]
    fn the_result_of_a_group_is_that_of_its_changes_in_order() {
        let judged = |results: &[&str]| {
            let mut due = Due::default();
            due.change("a", ["", "1+-"], 7);
            due.change("b", ["", "4+-"], 7);
            due.change("a", ["1+-", "1+2"], 7);
            due.change("a", ["1+2", "3+2"], 7);
            judge_groups(0, &emitted(results), &mut due).map(|_| due)
        };
        let due = judged(&["a:1+-", "a:1+2", "a:1+2 b:4+-", "b:4+-"]).unwrap();
        // It moved to another group.
        let rest = due.changes.into_iter().filter(|(_, it)| !it.is_empty());
        let rest: Vec<_> = rest.map(|((group, _), rest)| (group, rest.len())).collect();
        assert_eq!(rest, [("g0".to_owned(), 1)]);
        let wrong: [(&[&str], &str); 4] = [
            (&["a:1+-", "a:1+-"], "VIOLATED doubled"),
            (&["a:1+-", ""], "VIOLATED unexpected"),
            (&["a:1+2"], "VIOLATED unexpected"),
            (&["a:1+- a:1+-"], "VIOLATED unexpected"),
        ];
        for (results, says) in wrong {
            let why = judged(results).unwrap_err();
            assert!(why.starts_with(says), "{why}");
        }
    }

    #[test]
    fn a_row_that_is_not_in_the_group_leaves_a_mark() {
        assert_eq!(without("a:1+- b:4+-".into(), "a:1+-"), "b:4+-");
        assert_eq!(without("b:4+-".into(), "a:1+-"), "!a:1+- b:4+-");
        assert_eq!(with("b:4+-".into(), "a:1+-".into()), "a:1+- b:4+-");
    }
}

//! A left join of two tables by a foreign key, with few right rows, so that an update reaches more rows than at once.
//!
//! The tasks of both tables run side by side, so the results in between depend on their pace. The last results are the join of
//! the last rows. Each result has existing rows and the later of their times, and is not older than the previous result. The
//! subscribers are the last left rows with a foreign key. An inner join of the same tables runs beside it.

use std::collections::{BTreeMap, BTreeSet};

use eos_core::state::ForeignJoin;
use eos_core::{App, KeyValueStore, Topic};

use super::case::Case;
use super::loops;
use super::plain::STATELESS;
use super::record::{Draft, Given, Kind};
use super::remains::{Found, Left};
use eos_oracle::Contents;
use eos_testkit::rng::Rng;

pub(super) const FOREIGN: Case = Case {
    inputs: &[LEFT, RIGHT],
    repartitions: &["sim-fk-answers", "sim-inner-answers"],
    changelog: None,
    outputs: &[
        LEFT_JOIN,
        "sim-fk-subscriptions",
        INNER_JOIN,
        "sim-inner-subscriptions",
    ],
    draft,
    declare: |app, _| declare(app),
    judge,
    ..STATELESS
};

const LEFT: &str = "left";
const RIGHT: &str = "right";
const LEFT_JOIN: &str = "left-join";
const INNER_JOIN: &str = "inner-join";
/// Left rows keep right values up to this length, in bytes. Values with the word of a kind are longer.
const KEPT: usize = 8;
/// The changelog of the right table's stage.
const RIGHT_CHANGELOG: &str = "sim-named-changelog";

fn declare(app: &mut App) {
    let rows = |app: &mut App, topic: &str, stage: &str| {
        let rows = Topic::<String, Option<String>>::plain(topic);
        let stream = app.source(&rows).stage(stage);
        stream.to_table(&KeyValueStore::<String, String>::plain(topic))
    };
    let left = rows(app, LEFT, "naming");
    let right = rows(app, RIGHT, "named");
    let join = |name: &str| ForeignJoin::plain(name).at_once(1).keep_right(KEPT);
    left.clone()
        .left_join_by(
            &right,
            &join("fk"),
            |row| foreign(number(row)),
            |left, right| {
                let right = right.map_or("-".to_owned(), |right| number(right).to_string());
                format!("{}+{right}", number(left))
            },
        )
        .to(&Topic::plain(LEFT_JOIN));
    left.join_by(
        &right,
        &join("inner"),
        |row| foreign(number(row)),
        |left, right| format!("{}+{}", number(left), number(right)),
    )
    .to(&Topic::plain(INNER_JOIN));
}

/// Returns the number of a row.
fn number(row: &str) -> u64 {
    let number = row.split(' ').next().and_then(|it| it.parse().ok());
    number.unwrap_or_default()
}

/// Returns the foreign key of a left row, if it has one: the key of a right row that many left rows name.
fn foreign(number: u64) -> Option<String> {
    match number % 3 {
        0 => Some("a0".to_owned()),
        1 => Some("b1".to_owned()),
        _ => None,
    }
}

/// Returns a record. Half of the records belong to each table. Some are tombstones.
fn draft(rng: &mut Rng, now: i64) -> Draft {
    Draft {
        topic: if rng.one_in(2) { LEFT } else { RIGHT },
        timestamp: now - rng.between(0, 40),
        tombstone: rng.one_in(4),
        // The kind makes the value longer, and has no other effect.
        kind: match rng.one_in(3) {
            true => Kind::Flaky,
            false => Kind::Good,
        },
    }
}

/// The updates of a table by key, in order.
type Updates<'a> = BTreeMap<&'a str, Vec<&'a Given>>;

fn updates<'a>(left: Left<'a>, topic: &str) -> Updates<'a> {
    let mut updates = Updates::new();
    for partition in 0..left.partitions {
        for it in loops::given(left, topic, partition) {
            updates.entry(&it.key[..]).or_default().push(it);
        }
    }
    updates
}

/// Returns the last row of a key.
fn last<'a>(updates: &Updates<'a>, key: &str) -> Option<&'a Given> {
    let last = updates.get(key)?.last().copied();
    last.filter(|it| !it.tombstone)
}

/// Returns the place of a row among the updates of its key.
fn place(updates: &Updates<'_>, key: &str, seq: u64) -> Option<usize> {
    let updates = updates.get(key)?;
    updates.iter().position(|it| it.seq == seq && !it.tombstone)
}

/// The results of a key: their text and their time.
type Results = Vec<(String, i64)>;

/// Checks the order of the results of one key: both rows existed, and no result is older than the previous one. The state of a
/// right row is a number:
/// 0 before its first update, and one more with each update.
fn judge_order(
    (output, key): (&str, &str),
    results: &Results,
    (lefts, rights): (&Updates<'_>, &Updates<'_>),
) -> Result<(), String> {
    let (mut newest_left, mut newest_right) = (0, BTreeMap::new());
    let mut is_deleted = false;
    for (at, (result, time)) in results.iter().enumerate() {
        if result.is_empty() {
            is_deleted = true;
            continue;
        }
        // A result behind a deletion has a newer row.
        let was_deleted = std::mem::take(&mut is_deleted);
        let (left, right) = result.split_once('+').unwrap_or_default();
        let wrong = |what: &str| {
            let before = results.get(..at).unwrap_or_default();
            Err(format!(
                "VIOLATED {what}: {output} of {key}, record {at} is {result:?} at {time} behind {before:?}"
            ))
        };
        let left: u64 = left.parse().unwrap_or(u64::MAX);
        let (row, is_newer) = match place(lefts, key, left) {
            None => return wrong("unexpected"),
            Some(place) if place < newest_left => return wrong("older"),
            Some(place) => {
                let is_newer = place > newest_left;
                newest_left = place;
                (lefts.get(key).and_then(|rows| rows.get(place)), is_newer)
            }
        };
        let of_left = row.map_or(0, |row| row.timestamp);
        let Some(named) = foreign(left) else {
            // The row has no partner.
            match right {
                "-" if *time == of_left && (is_newer || !was_deleted) => continue,
                _ => return wrong("unexpected"),
            }
        };
        let updates = rights.get(&named[..]).map_or(&[][..], |all| all);
        let newest = newest_right.entry(named.clone()).or_insert(0);
        if right == "-" {
            // The first state without a row that is not older than that of an earlier result. The result has the time
            // of its left row, or a later one of a deletion.
            let is_gone = |state: &usize| match state.checked_sub(1) {
                None => true,
                Some(at) => updates.get(at).is_some_and(|it| it.tombstone),
            };
            let Some(state) = (*newest..=updates.len()).find(is_gone) else {
                return wrong("older");
            };
            if was_deleted && !is_newer && state == *newest {
                return wrong("doubled");
            }
            *newest = state;
            let deletions = updates.iter().filter(|it| it.tombstone);
            let mut times = deletions.map(|it| it.timestamp.max(of_left));
            if *time != of_left && !times.any(|it| it == *time) {
                return wrong("unexpected");
            }
            continue;
        }
        let right = right.parse().unwrap_or(u64::MAX);
        match place(rights, &named, right) {
            None => return wrong("unexpected"),
            Some(place) if place + 1 < *newest => return wrong("older"),
            Some(place) if was_deleted && !is_newer && place + 1 == *newest => {
                return wrong("doubled");
            }
            Some(place) => {
                *newest = place + 1;
                let of_right = updates.get(place).map_or(0, |it| it.timestamp);
                if *time != of_left.max(of_right) {
                    return wrong("unexpected");
                }
            }
        }
    }
    Ok(())
}

/// Checks the results of a join, and returns the number of those with a partner.
fn judge_join(
    left: Left<'_>,
    output: &str,
    (lefts, rights): (&Updates<'_>, &Updates<'_>),
    verdicts: &mut Vec<String>,
) -> usize {
    let is_inner = output == INNER_JOIN;
    let mut results: BTreeMap<String, Results> = BTreeMap::new();
    for partition in 0..left.partitions {
        for (key, result, time) in loops::emitted(left, output, partition) {
            results.entry(key).or_default().push((result, time));
        }
    }
    let strange = results.keys().find(|key| !lefts.contains_key(&key[..]));
    verdicts.extend(strange.map(|key| format!("VIOLATED unexpected: {output} of {key}")));
    let none = Results::new();
    for key in lefts.keys().copied() {
        let of_key = results.get(key).unwrap_or(&none);
        verdicts.extend(judge_order((output, key), of_key, (lefts, rights)).err());
        let row = last(lefts, key);
        let named = row.and_then(|row| foreign(row.seq));
        let right = named.as_ref().and_then(|named| last(rights, named));
        let expected = match (row, right) {
            (Some(row), Some(right)) => format!("{}+{}", row.seq, right.seq),
            (Some(row), None) if !is_inner => format!("{}+-", row.seq),
            _ => String::new(),
        };
        let is = of_key.last().map_or("", |(result, _)| result);
        if is != expected {
            verdicts.push(format!(
                "VIOLATED lost: {output} of {key} ends with {is:?}, and its rows make {expected:?}"
            ));
        }
    }
    let partners = results.values().flatten();
    let partners = partners.filter(|(it, _)| !it.is_empty() && !it.ends_with('-'));
    partners.count()
}

fn judge(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let (lefts, rights) = (updates(left, LEFT), updates(left, RIGHT));
    let mut verdicts = Vec::new();
    let mut partners = 0;
    for output in [LEFT_JOIN, INNER_JOIN] {
        partners += judge_join(left, output, (&lefts, &rights), &mut verdicts);
    }
    found.saw("rows had partners", partners);
    let rows = lefts
        .keys()
        .filter_map(|key| Some((*key, last(&lefts, key)?)));
    let subscribers = rows.filter_map(|(key, row)| Some((foreign(row.seq)?, key.to_owned())));
    let subscribers: Subscribers = subscribers.collect();
    let kept = kept(left);
    let is_of_both = |joins: &Vec<Subscribers>| match &joins[..] {
        [] => true,
        [one, other] => one == other,
        _ => false,
    };
    let of_one = kept.iter().filter_map(|joins| joins.first()).flatten();
    if !kept.iter().all(is_of_both) || of_one.cloned().collect::<Subscribers>() != subscribers {
        verdicts.push(format!(
            "VIOLATED state_changelog: {RIGHT_CHANGELOG} holds the subscribers {kept:?}, not {subscribers:?} for each join"
        ));
    }
    Ok(verdicts)
}

/// Foreign keys, and the keys of the left rows that have them.
type Subscribers = BTreeSet<(String, String)>;

/// Returns the subscribers in the changelog, by partition and join. Only keys of subscribers begin with such a length.
fn kept(left: Left<'_>) -> Vec<Vec<Subscribers>> {
    let of_store = |store: &Contents| {
        let mut kept = Subscribers::new();
        for key in store.keys() {
            let Ok((foreign, left)) = eos_protocol::foreign::subscriber_of_key(key) else {
                continue;
            };
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            if key.starts_with(&[0, 0, 0]) && !foreign.is_empty() {
                kept.insert((text(foreign), text(left)));
            }
        }
        kept
    };
    let partitions = 0..left.partitions;
    let kept = partitions.map(|partition| {
        let stores = left.logged_by_store(RIGHT_CHANGELOG, partition);
        let kept = stores.iter().map(of_store);
        kept.filter(|subscribers| !subscribers.is_empty()).collect()
    });
    kept.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_row_in_three_has_no_foreign_key() {
        assert_eq!(foreign(3).as_deref(), Some("a0"));
        assert_eq!(foreign(4).as_deref(), Some("b1"));
        assert_eq!(foreign(5), None);
    }
}

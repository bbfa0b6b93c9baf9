//! A left join of two tables by a foreign key, with few right rows, so that an update reaches more rows than at once.
//!
//! The tasks of both tables run side by side, so the results in between depend on their pace. What is known: the last results are
//! the join of the last rows, a result has rows that were there, and none is older than the one before it. The subscribers are
//! the last left rows with a foreign key.

use std::collections::{BTreeMap, BTreeSet};

use eos_core::state::ForeignJoin;
use eos_core::{App, KeyValueStore, Topic};

use super::case::Case;
use super::loops;
use super::plain::STATELESS;
use super::record::{Draft, Given};
use super::remains::{Found, Left};
use eos_testkit::rng::Rng;

pub(super) const FOREIGN: Case = Case {
    inputs: &[LEFT, RIGHT],
    repartition: Some("sim-fk-answers"),
    changelog: None,
    outputs: &[RESULTS, "sim-fk-subscriptions"],
    draft,
    declare: |app, _| declare(app),
    judge,
    ..STATELESS
};

const LEFT: &str = "left";
const RIGHT: &str = "right";
const RESULTS: &str = "results";
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
    left.left_join_by(
        &right,
        &ForeignJoin::plain("fk").at_once(1),
        |row| foreign(number(row)),
        |left, right| {
            let right = right.map_or("-".to_owned(), |right| number(right).to_string());
            format!("{}+{right}", number(left))
        },
    )
    .to(&Topic::plain(RESULTS));
}

/// The number of a row.
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

/// Half of the records are of each table. Some are tombstones.
fn draft(rng: &mut Rng, now: i64) -> Draft {
    Draft {
        topic: if rng.one_in(2) { LEFT } else { RIGHT },
        timestamp: now - rng.between(0, 40),
        tombstone: rng.one_in(4),
        ..Draft::plain(now)
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

/// Checks the order of the results of one key: both rows were there, and none goes back.
fn judge_order(
    key: &str,
    results: &[String],
    (lefts, rights): (&Updates<'_>, &Updates<'_>),
) -> Result<(), String> {
    let (mut newest_left, mut newest_right) = (0, BTreeMap::new());
    for (at, result) in results.iter().enumerate() {
        if result.is_empty() {
            continue;
        }
        let (left, right) = result.split_once('+').unwrap_or_default();
        let wrong = |what: &str| {
            Err(format!(
                "VIOLATED {what}: {RESULTS} of {key}, record {at} is {result:?} behind {:?}",
                results.get(..at).unwrap_or_default()
            ))
        };
        let left: u64 = left.parse().unwrap_or(u64::MAX);
        match place(lefts, key, left) {
            None => return wrong("unexpected"),
            Some(place) if place < newest_left => return wrong("older"),
            Some(place) => newest_left = place,
        }
        let Ok(right) = right.parse::<u64>() else {
            continue;
        };
        let named = foreign(left).unwrap_or_default();
        let newest = newest_right.entry(named.clone()).or_insert(0);
        match place(rights, &named, right) {
            None => return wrong("unexpected"),
            Some(place) if place < *newest => return wrong("older"),
            Some(place) => *newest = place,
        }
    }
    Ok(())
}

fn judge(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let (lefts, rights) = (updates(left, LEFT), updates(left, RIGHT));
    let mut results: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for partition in 0..left.partitions {
        for (key, result, _) in loops::emitted(left, RESULTS, partition) {
            results.entry(key).or_default().push(result);
        }
    }
    let mut verdicts = Vec::new();
    let keys: BTreeSet<&str> = lefts.keys().copied().collect();
    let strange = results.keys().find(|key| !keys.contains(&key[..]));
    verdicts.extend(strange.map(|key| format!("VIOLATED unexpected: {RESULTS} of {key}")));
    let mut subscribers = BTreeSet::new();
    for key in keys {
        let of_key = results.get(key).map_or(&[][..], |results| results);
        verdicts.extend(judge_order(key, of_key, (&lefts, &rights)).err());
        let row = last(&lefts, key);
        let named = row.and_then(|row| foreign(row.seq));
        let right = named.as_ref().and_then(|named| last(&rights, named));
        let expected = row.map_or(String::new(), |row| {
            let right = right.map_or("-".to_owned(), |right| right.seq.to_string());
            format!("{}+{right}", row.seq)
        });
        let is = of_key.last().cloned().unwrap_or_default();
        if is != expected {
            verdicts.push(format!(
                "VIOLATED lost: {RESULTS} of {key} ends with {is:?}, and its rows make {expected:?}"
            ));
        }
        subscribers.extend(named.map(|named| (named, key.to_owned())));
    }
    let partners = results.values().flatten();
    let partners = partners.filter(|it| !it.is_empty() && !it.ends_with('-'));
    found.saw("rows had partners", partners.count());
    let kept = kept(left);
    if kept != subscribers {
        verdicts.push(format!(
            "VIOLATED state_changelog: {RIGHT_CHANGELOG} holds the subscribers {kept:?}, not {subscribers:?}"
        ));
    }
    Ok(verdicts)
}

/// Returns the subscribers in the changelog: foreign key and left key. No other row begins with such a length.
fn kept(left: Left<'_>) -> BTreeSet<(String, String)> {
    let mut kept = BTreeSet::new();
    for partition in 0..left.partitions {
        for store in left.logged_by_store(RIGHT_CHANGELOG, partition) {
            for key in store.keys() {
                let Ok((foreign, left)) = eos_protocol::foreign::subscriber_of_key(key) else {
                    continue;
                };
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                if key.starts_with(&[0, 0, 0]) && !foreign.is_empty() {
                    kept.insert((text(foreign), text(left)));
                }
            }
        }
    }
    kept
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

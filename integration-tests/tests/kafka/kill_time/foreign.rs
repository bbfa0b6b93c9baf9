//! Joins of two tables by a foreign key. The last results are the join of the last rows, and no result is older than
//! the previous one.
//!
//! Left rows name another partner from time to time, one that does not exist, or none. The judge reads both inputs.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use integration_tests::faults::is_full;
use integration_tests::kill::Random;
use integration_tests::partitioner::partition;
use integration_tests::wait::wait_until;
use kafka_launcher::for_tests;

use super::scene::{PROCESSES, Scene, fate, now, seed};
use super::sent::{INPUTS, Line, Sent};
use super::tables::{Values, by_key};
use crate::common::PATIENCE;

const PARTITIONS: i32 = 6;
/// The number of partners that exist for some of the time.
const PARTNERS: usize = 12;
/// The number of rows that an update of a partner reaches at once. Most partners have more rows.
const AT_ONCE: usize = 4;
/// The output of each join, and whether rows without a partner have results.
const JOINS: [(&str, bool); 2] = [("inner", false), ("left", true)];

struct Size {
    records: usize,
    keys: usize,
    rate: u64,
    kills: u32,
}

fn size() -> Size {
    match is_full() {
        true => Size {
            records: 60_000,
            keys: 600,
            rate: 1_500,
            kills: 26,
        },
        false => Size {
            records: 4_000,
            keys: 150,
            rate: 500,
            kills: 6,
        },
    }
}

#[test]
fn foreign_keys_join_the_last_rows_despite_kills() -> Result<()> {
    let _alone = super::alone();
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let (size, since) = (size(), Instant::now());
    let settings = [("AT_ONCE", AT_ONCE.to_string())];
    let outputs = JOINS.map(|(end, _)| end);
    let more = [&["right"][..], &outputs].concat();
    let bootstrap = kafka.bootstrap();
    let mut scene = Scene::with_topics(bootstrap, "foreign", PARTITIONS, &settings, &more)?;
    let updates = updates(&size, now()?);
    let mut fate = fate(size.kills)?;
    let deliver = |scene: &mut Scene, sent: &Sent| scene.deliver(sent);
    let fed = scene.feed_by(&updates, size.rate, &mut fate, deliver, |_| Ok(()));
    scene.told(fed)?;
    let taken = scene.await_taken();
    scene.told(taken)?;
    let (left, right) = (last_of(scene.lines("in")?), last_of(scene.lines("right")?));
    let mut judged = Ok(());
    for (end, has_alone) in JOINS {
        let expected = expected(&left, &right, has_alone);
        // The last responses may still be in the internal topics.
        let waited = wait_until(PATIENCE, &format!("{end} has the last rows"), || {
            scene.fleet.check()?;
            Ok(last_of(scene.lines(end)?) == expected)
        });
        judged = judged.and(waited.with_context(|| {
            let found = scene.lines(end).map(last_of);
            found.map_or_else(|e| format!("{e:#}"), |found| difference(&found, &expected))
        }));
    }
    scene.told(judged.and(Ok(())))?;
    scene.stop()?;
    let mut results = Vec::new();
    for (end, has_alone) in JOINS {
        let found = scene.lines(end)?;
        results.push(found.len());
        let last = last_of(found.clone());
        let expected = expected(&left, &right, has_alone);
        ensure!(last == expected, "{end}: {}", difference(&last, &expected));
        never_older(&by_key(found)).with_context(|| end)?;
    }
    let aborted = scene.must_have_aborted(&outputs)?;
    fate.check(&scene.fleet, PROCESSES)?;
    eprintln!(
        "{} updates, {} faults, {results:?} results, {aborted} records in aborted transactions, {:.1?}",
        updates.len(),
        fate.count(),
        since.elapsed()
    );
    Ok(())
}

/// Returns updates of random rows. A left row is the key of its partner and a number. A right row is a number.
fn updates(size: &Size, begins: i64) -> Vec<Sent> {
    let mut random = Random::new(seed());
    let updates = (0..size.records).map(|n| {
        let side = usize::from(random.index(8) == 0);
        let (key, value) = match side {
            0 => {
                let key = random.index(size.keys);
                let partner = match random.index(8) {
                    0 => "-".to_owned(),
                    1 => "absent".to_owned(),
                    2 | 3 => format!("p{}", random.index(PARTNERS)),
                    _ => format!("p{}", key % PARTNERS),
                };
                (format!("k{key}"), format!("{partner} {n}"))
            }
            _ => (format!("p{}", random.index(PARTNERS)), n.to_string()),
        };
        let line = Line {
            partition: partition(key.as_bytes(), PARTITIONS),
            key,
            value: (random.index(8) != 0).then_some(value),
            time: begins + n as i64,
        };
        Sent {
            end: INPUTS[side],
            line,
        }
    });
    updates.collect()
}

/// The last rows by key.
type Rows = BTreeMap<String, String>;

fn last_of(lines: Vec<Line>) -> Rows {
    let mut rows = Rows::new();
    for Line { key, value, .. } in lines {
        match value {
            Some(value) => drop(rows.insert(key, value)),
            None => drop(rows.remove(&key)),
        }
    }
    rows
}

/// Returns the join of the last rows.
fn expected(left: &Rows, right: &Rows, has_alone: bool) -> Rows {
    let joined = left.iter().filter_map(|(key, row)| {
        let partner = row.split(' ').next().and_then(|key| right.get(key));
        let result = match partner {
            Some(partner) => format!("{row}+{partner}"),
            None if has_alone => row.clone(),
            None => return None,
        };
        Some((key.clone(), result))
    });
    joined.collect()
}

fn difference(found: &Rows, expected: &Rows) -> String {
    let keys = found.keys().chain(expected.keys());
    let mut wrong: Vec<_> = keys
        .filter(|key| found.get(*key) != expected.get(*key))
        .collect();
    wrong.sort();
    wrong.dedup();
    let examples = wrong.iter().take(5).map(|key| {
        let (found, expected) = (found.get(*key), expected.get(*key));
        format!("{key} is {found:?}, not {expected:?}")
    });
    let examples: Vec<_> = examples.collect();
    format!(
        "{} last rows are wrong: {}",
        wrong.len(),
        examples.join("; ")
    )
}

/// Fails if a result has an older left row than the previous result, or an older row of the same partner.
fn never_older(found: &Values) -> Result<()> {
    for (key, results) in found {
        let mut newest = 0;
        let mut partners = BTreeMap::<String, u64>::new();
        for result in results.iter().flatten() {
            let (left, right) = match result.split_once('+') {
                Some((left, right)) => (left, Some(right)),
                None => (&**result, None),
            };
            let (partner, number) = left.split_once(' ').context("no left row")?;
            let number: u64 = number.parse()?;
            ensure!(
                number >= newest,
                "{key:?}: {result} after the left row {newest}"
            );
            newest = number;
            let Some(right) = right else { continue };
            let right: u64 = right.parse()?;
            let before = partners.entry(partner.to_owned()).or_default();
            ensure!(
                right >= *before,
                "{key:?}: {result} after the partner {before}"
            );
            *before = right;
        }
        // The response to a row may overtake the update of its partner, which then sends another response.
        let mut counts = BTreeMap::<&str, usize>::new();
        let pairs = results
            .iter()
            .flatten()
            .filter(|result| result.contains('+'));
        pairs.for_each(|pair| *counts.entry(pair).or_default() += 1);
        let repeated = counts.iter().find(|(_, count)| **count > 2);
        ensure!(repeated.is_none(), "{key:?} has {repeated:?} times");
    }
    Ok(())
}

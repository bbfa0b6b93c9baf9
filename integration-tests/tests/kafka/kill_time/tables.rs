//! A join of two tables, and a table grouped by another key. Each update of a row updates the results once.
//!
//! The judge reads both inputs. It finds an order of the updates of each key in which the join has exactly the results
//! of the output. For the groups, the steps from one sum to the next must be the steps of the rows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use integration_tests::faults::is_full;
use integration_tests::kill::Random;
use integration_tests::partitioner::partition;
use kafka_launcher::for_tests;
use kafka_wire::{Client, Isolation};

use super::scene::{PROCESSES, Scene, fate, now, seed};
use super::sent::{INPUTS, Line, Sent};

const PARTITIONS: i32 = 6;
const GROUPS: usize = 12;

struct Size {
    records: usize,
    keys: usize,
    rate: u64,
    kills: u32,
}

fn size() -> Size {
    match is_full() {
        true => Size {
            records: 80_000,
            keys: 2_000,
            rate: 2_000,
            kills: 26,
        },
        false => Size {
            records: 4_000,
            keys: 200,
            rate: 500,
            kills: 6,
        },
    }
}

#[test]
fn each_update_of_a_table_counts_once_despite_kills() -> Result<()> {
    let _alone = super::alone();
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let (size, since) = (size(), Instant::now());
    let bootstrap = kafka.bootstrap();
    let mut scene = Scene::with_topics(bootstrap, "tables", PARTITIONS, &[], &["right", "sums"])?;
    let updates = updates(&size, now()?);
    let mut fate = fate(size.kills)?;
    let deliver = |scene: &mut Scene, sent: &Sent| scene.deliver(sent);
    let fed = scene.feed_by(&updates, size.rate, &mut fate, deliver, |_| Ok(()));
    scene.told(fed)?;
    let taken = scene.await_taken();
    scene.told(taken)?;
    let [left, right] = [by_key(scene.lines("in")?), by_key(scene.lines("right")?)];
    let steps = steps_of(&left);
    let count: usize = steps.values().map(Vec::len).sum();
    ensure!(count > size.records / 3, "too few updates of groups");
    let waited = scene.await_visible("sums", count as u64);
    let stopped = scene.stop();
    let joined = by_key(scene.lines("out")?);
    let judged = judge_join([&left, &right], &joined);
    let topic = scene.topic("sums");
    let sums = sums(&mut scene.client, &topic)?;
    let judged = judged.and(judge_sums(&left, &steps, &sums));
    scene.told(judged.and(waited).and(stopped))?;
    let aborted = scene.must_have_aborted(&["out", "sums"])?;
    fate.check(&scene.fleet, PROCESSES)?;
    eprintln!(
        "{} updates, {} faults, {} results of {} keys, {count} of {} groups, {aborted} records in aborted \
         transactions, {:.1?}",
        updates.len(),
        fate.count(),
        joined.values().map(Vec::len).sum::<usize>(),
        joined.len(),
        sums.len(),
        since.elapsed()
    );
    Ok(())
}

/// Returns updates of random rows of both tables. All values differ. Some updates are deletions, also of missing rows.
fn updates(size: &Size, begins: i64) -> Vec<Sent> {
    let mut random = Random::new(seed());
    let updates = (0..size.records).map(|n| {
        let key = format!("k{}", random.index(size.keys));
        let side = random.index(2);
        let value = match (random.index(6), side) {
            (0, _) => None,
            (_, 0) => {
                // Half of the updates of a row stay in its group.
                let group = match random.index(2) {
                    0 => partition(key.as_bytes(), GROUPS as i32) as usize,
                    _ => random.index(GROUPS),
                };
                Some(format!("g{group} {} {n}", random.index(1_000)))
            }
            _ => Some(format!("r{n}")),
        };
        let line = Line {
            partition: partition(key.as_bytes(), PARTITIONS),
            key,
            value,
            time: begins + n as i64,
        };
        Sent {
            end: INPUTS[side],
            line,
        }
    });
    updates.collect()
}

/// The values of each key, in order.
pub(super) type Values = BTreeMap<(i32, String), Vec<Option<String>>>;

pub(super) fn by_key(lines: Vec<Line>) -> Values {
    let mut values = Values::new();
    for line in lines {
        let key = (line.partition, line.key);
        values.entry(key).or_default().push(line.value);
    }
    values
}

/// Returns a row of the outer join.
fn joined(left: Option<&str>, right: Option<&str>) -> Option<String> {
    match (left, right) {
        (Some(left), Some(right)) => Some(format!("{left}+{right}")),
        (alone, None) | (None, alone) => alone.map(str::to_owned),
    }
}

/// Fails unless there is an order of the updates of each key that gives exactly its results, with each update once.
fn judge_join(inputs: [&Values; 2], found: &Values) -> Result<()> {
    let keys: BTreeSet<_> = inputs.iter().flat_map(|side| side.keys()).collect();
    let strange: Vec<_> = found.keys().filter(|key| !keys.contains(key)).collect();
    ensure!(
        strange.is_empty(),
        "results of keys without records: {strange:?}"
    );
    let mut wrong = Vec::new();
    for key in &keys {
        let [left, right] = inputs.map(|side| side.get(*key).map_or(&[][..], Vec::as_slice));
        let found = found.get(*key).map_or(&[][..], Vec::as_slice);
        let last = |side: &[Option<String>]| side.last().cloned().flatten();
        let row = joined(last(left).as_deref(), last(right).as_deref());
        if last(found) != row {
            wrong.push(format!(
                "the row of {key:?} is {:?}, not {row:?}",
                last(found)
            ));
        } else if let Err(error) = follow([left, right], found) {
            wrong.push(format!("{key:?}: {error:#}"));
        }
    }
    let examples = &wrong[..wrong.len().min(5)];
    ensure!(
        wrong.is_empty(),
        "{} of {} keys are wrong: {}",
        wrong.len(),
        keys.len(),
        examples.join("; ")
    );
    Ok(())
}

/// The number of processed updates of each side.
type Place = [usize; 2];

/// Follows the results of a key through the possible orders of its updates.
fn follow(sides: [&[Option<String>]; 2], found: &[Option<String>]) -> Result<()> {
    let row = |place: Place| {
        let at = |side: usize| {
            let last = place[side].checked_sub(1)?;
            sides[side][last].as_deref()
        };
        joined(at(0), at(1))
    };
    let next = |place: Place| {
        let ways = (0..2).filter(move |side| place[*side] < sides[*side].len());
        ways.map(move |side| {
            let mut next = place;
            next[side] += 1;
            next
        })
    };
    // An update gives no result if the join has no row before and after it.
    let silent = |places: BTreeSet<Place>| {
        let (mut all, mut new) = (places.clone(), places);
        while let Some(place) = new.pop_first() {
            let quiet = next(place).filter(|next| row(place).is_none() && row(*next).is_none());
            let quiet: Vec<_> = quiet.collect();
            new.extend(quiet.iter().filter(|next| all.insert(**next)));
        }
        all
    };
    let mut places = silent(BTreeSet::from([[0, 0]]));
    for (n, result) in found.iter().enumerate() {
        let mut reached = BTreeSet::new();
        for place in &places {
            let has_row = row(*place).is_some();
            let fits = |next: &Place| {
                let row = row(*next);
                (has_row || row.is_some()) && row == *result
            };
            reached.extend(next(*place).filter(fits));
        }
        ensure!(
            !reached.is_empty(),
            "result {n} is {result:?}, after {:?}",
            n.checked_sub(1).map(|before| &found[before])
        );
        places = silent(reached);
    }
    ensure!(
        places.contains(&sides.map(<[_]>::len)),
        "{} results, but some of {:?} updates did not count: {places:?}",
        found.len(),
        sides.map(<[_]>::len)
    );
    Ok(())
}

/// Returns the group and the amount of a left row.
fn read(row: &str) -> Option<(&str, i64)> {
    let mut words = row.split(' ');
    Some((words.next()?, words.next()?.parse().ok()?))
}

/// Returns the amounts that the updates of the left rows add to each group, in any order.
fn steps_of(left: &Values) -> BTreeMap<String, Vec<i64>> {
    let mut steps = BTreeMap::<String, Vec<i64>>::new();
    let mut step = |group: &str, by: i64| steps.entry(group.to_owned()).or_default().push(by);
    for values in left.values() {
        let mut before: Option<(&str, i64)> = None;
        for now in values.iter().map(|value| value.as_deref().and_then(read)) {
            match (before, now) {
                (Some((old, minus)), Some((new, plus))) if old == new => step(new, plus - minus),
                (old, new) => {
                    old.into_iter().for_each(|(group, by)| step(group, -by));
                    new.into_iter().for_each(|(group, by)| step(group, by));
                }
            }
            before = now;
        }
    }
    steps.values_mut().for_each(|steps| steps.sort_unstable());
    steps
}

/// Returns the committed sums of each group, in order.
fn sums(client: &mut Client, topic: &str) -> Result<BTreeMap<String, Vec<i64>>> {
    let mut sums = BTreeMap::<String, Vec<i64>>::new();
    let mut wrong = 0;
    client.read_all(topic, Isolation::ReadCommitted, |at, record| {
        let group = String::from_utf8_lossy(record.key.as_deref().unwrap_or_default());
        let sum = record.value.as_deref().and_then(|sum| sum.try_into().ok());
        match sum.map(i64::from_be_bytes) {
            Some(sum) if partition(group.as_bytes(), PARTITIONS) == at => {
                sums.entry(group.into_owned()).or_default().push(sum);
            }
            _ => wrong += 1,
        }
    })?;
    ensure!(wrong == 0, "{wrong} records of {topic} are no sums");
    Ok(sums)
}

/// Fails unless each sum follows from the previous sum by one step of a row, with each step once, and the last sums are
/// those of the last rows.
fn judge_sums(
    left: &Values,
    steps: &BTreeMap<String, Vec<i64>>,
    found: &BTreeMap<String, Vec<i64>>,
) -> Result<()> {
    let mut last = BTreeMap::<&str, i64>::new();
    let rows = left
        .values()
        .filter_map(|values| read(values.last()?.as_deref()?));
    rows.for_each(|(group, amount)| *last.entry(group).or_default() += amount);
    for (group, expected) in steps {
        let sums = found
            .get(group)
            .with_context(|| format!("{group} has no sum"))?;
        let sum = last.get(&**group).copied().unwrap_or(0);
        ensure!(
            sums.last() == Some(&sum),
            "the sum of {group} is {:?}, not {sum}",
            sums.last()
        );
        let before = std::iter::once(&0).chain(sums);
        let mut taken: Vec<i64> = sums
            .iter()
            .zip(before)
            .map(|(sum, old)| sum - old)
            .collect();
        taken.sort_unstable();
        ensure!(
            taken == *expected,
            "{group} has {} updates instead of {}, or others",
            taken.len(),
            expected.len()
        );
    }
    ensure!(found.len() == steps.len(), "more groups than expected");
    Ok(())
}

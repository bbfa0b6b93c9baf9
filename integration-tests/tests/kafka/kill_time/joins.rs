//! Joins of two streams. Each pair gives one result, and each record without a pair gives one result.
//!
//! The judge reads both inputs and compares each left record with each right record of its key.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use integration_tests::faults::is_full;
use integration_tests::kill::Random;
use integration_tests::partitioner::partition;
use kafka_launcher::for_tests;

use super::scene::{Input, Load, PROCESSES, Scene, ends, fate, now, seed};
use super::sent::{INPUTS, Line, Sent};

const PARTITIONS: i32 = 6;
/// The time by which a right record of a pair may be earlier, in milliseconds.
const BEFORE: i64 = 300;
/// The time by which a right record of a pair may be later, in milliseconds.
const AFTER: i64 = 700;
/// The grace in milliseconds. It is larger than the disorder of one input, because the inputs may also drift apart.
const GRACE: i64 = 2_000;
/// One of this number of records has the hot key. The rows of that key are spread.
const HOT: usize = 40;
/// The output topic of each join, and for each side whether records without a pair are emitted.
const JOINS: [(&str, [bool; 2]); 3] = [
    ("inner", [false, false]),
    ("left", [true, false]),
    ("outer", [true, true]),
];

fn load() -> Load {
    let small = Load {
        records: 4_000,
        keys: 200,
        step: 10,
        disorder: 400,
        after: 60_000,
        rate: 500,
        kills: 6,
    };
    match is_full() {
        true => Load {
            records: 80_000,
            keys: 1_000,
            step: 1,
            rate: 2_000,
            kills: 26,
            ..small
        },
        false => small,
    }
}

#[test]
fn each_pair_and_each_record_without_a_pair_is_a_result_once_despite_kills() -> Result<()> {
    let _alone = super::alone();
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let (load, since) = (load(), Instant::now());
    let ms = |name, ms: i64| (name, ms.to_string());
    let settings = [
        ms("BEFORE_MS", BEFORE),
        ms("AFTER_MS", AFTER),
        ms("GRACE_MS", GRACE),
    ];
    let outputs = JOINS.map(|(end, _)| end);
    let more = [&["right"][..], &outputs].concat();
    let bootstrap = kafka.bootstrap();
    let mut scene = Scene::with_topics(bootstrap, "joins", PARTITIONS, &settings, &more)?;
    let (records, last) = records(load, now()?);
    let mut fate = fate(load.kills)?;
    let deliver = |scene: &mut Scene, sent: &Sent| scene.deliver(sent);
    let fed = scene.feed_by(&records, load.rate, &mut fate, deliver, |_| Ok(()));
    scene.told(fed)?;
    let taken = close(&mut scene, last + load.after);
    scene.told(taken)?;
    let inputs = [scene.lines(INPUTS[0])?, scene.lines(INPUTS[1])?];
    let mut results = Vec::new();
    let mut judged: Result<()> = Ok(());
    for (end, alone) in JOINS {
        let expected = expected(&inputs, alone);
        ensure!(expected.len() > records.len() / 10, "too few results");
        // If the results of one join were wrong, there is no wait for the others.
        let waited = match judged.is_ok() {
            true => scene.await_visible(end, expected.len() as u64),
            false => Ok(()),
        };
        let found = scene.lines(end)?;
        results.push(found.len());
        let compared = compare(&found, &expected).context(end);
        judged = judged.and(compared).and(waited);
    }
    scene.told(judged)?;
    let late = scene.lines("late")?.len();
    ensure!(late == 0, "{late} records are late");
    scene.stop()?;
    let aborted = scene.must_have_aborted(&outputs)?;
    fate.check(&scene.fleet, PROCESSES)?;
    eprintln!(
        "{} records, {} faults, {results:?} results, {aborted} records in aborted transactions, {:.1?}",
        inputs[0].len() + inputs[1].len(),
        fate.count(),
        since.elapsed()
    );
    Ok(())
}

/// Returns records of random sides, each with its own value, and their last time.
fn records(load: Load, begins: i64) -> (Vec<Sent>, i64) {
    let mut random = Random::new(seed().wrapping_add(1));
    let mut all = load.records(seed(), PARTITIONS, begins);
    all.truncate(load.records as usize);
    let last = all.iter().map(|input| input.time).max();
    let sent = all.into_iter().enumerate().map(|(n, input)| {
        let side = random.index(2);
        let id = format!("{}{n}", ["l", "r"][side]);
        let (key, value) = match n % HOT {
            0 => ("hot".to_owned(), format!("{id:-<250}")),
            _ => (input.key, id),
        };
        sent(INPUTS[side], &key, value, input.time)
    });
    (sent.collect(), last.unwrap_or(begins))
}

fn sent(end: &'static str, key: &str, value: String, time: i64) -> Sent {
    let line = Line {
        partition: partition(key.as_bytes(), PARTITIONS),
        key: key.to_owned(),
        value: Some(value),
        time,
    };
    Sent { end, line }
}

/// Sends a last record to each partition of one side, which closes all records before it. It comes after all records of
/// the other side are taken.
fn close(scene: &mut Scene, time: i64) -> Result<()> {
    scene.await_taken()?;
    for Input { key, value, .. } in ends(PARTITIONS, time) {
        scene.deliver(&sent(INPUTS[0], &key, value, time))?;
    }
    scene.producer.flush()?;
    scene.await_taken()
}

/// Returns the expected results, by a nested loop over the records of each key.
fn expected([left, right]: &[Vec<Line>; 2], alone: [bool; 2]) -> Vec<Line> {
    let mut keys = BTreeMap::<(i32, &str), [Vec<&Line>; 2]>::new();
    let mut stream_times = BTreeMap::<i32, i64>::new();
    for (side, line) in left
        .iter()
        .map(|l| (0, l))
        .chain(right.iter().map(|r| (1, r)))
    {
        keys.entry((line.partition, &line.key)).or_default()[side].push(line);
        let stream_time = stream_times.entry(line.partition).or_insert(line.time);
        *stream_time = line.time.max(*stream_time);
    }
    let mut expected = Vec::new();
    let value = |line: &Line| line.value.clone().unwrap_or_default();
    for [lefts, rights] in keys.values() {
        let mut paired = BTreeSet::new();
        for left in lefts {
            for right in rights {
                if left.time - BEFORE <= right.time && right.time <= left.time + AFTER {
                    paired.extend([left.value.as_ref(), right.value.as_ref()]);
                    expected.push(Line {
                        value: Some(format!("{}+{}", value(left), value(right))),
                        time: left.time.max(right.time),
                        ..(*left).clone()
                    });
                }
            }
        }
        for (side, lines, wait) in [(0, lefts, AFTER), (1, rights, BEFORE)] {
            let lonely = lines.iter().filter(|line| {
                let closed = line.time + wait + GRACE < stream_times[&line.partition];
                alone[side] && closed && !paired.contains(&line.value.as_ref())
            });
            expected.extend(lonely.map(|line| (*line).clone()));
        }
    }
    expected
}

/// Fails unless each result was found exactly as often as expected.
fn compare(found: &[Line], expected: &[Line]) -> Result<()> {
    let mut counts = BTreeMap::<&Line, i64>::new();
    let (mut pairs, mut alone) = (BTreeSet::new(), BTreeSet::new());
    for line in found {
        *counts.entry(line).or_default() += 1;
        let value = line.value.as_deref().unwrap_or_default();
        match value.split_once('+') {
            Some((left, right)) => pairs.extend([left, right]),
            None => alone.extend([value]),
        }
    }
    let both: Vec<_> = alone.intersection(&pairs).take(5).collect();
    for line in expected {
        *counts.entry(line).or_default() -= 1;
    }
    counts.retain(|_, count| *count != 0);
    let missing: i64 = counts.values().filter(|count| **count < 0).sum();
    let extra: i64 = counts.values().filter(|count| **count > 0).sum();
    let examples: Vec<_> = counts.iter().take(10).collect();
    ensure!(
        counts.is_empty() && both.is_empty(),
        "{} results are missing, {extra} are too many or wrong; records alone and in a pair: {both:?}; (result, \
         surplus): {examples:?}",
        -missing
    );
    Ok(())
}

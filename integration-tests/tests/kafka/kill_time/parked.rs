//! Sequenced dead letters and their replay: each record once, and the records of a key in order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::{Result, ensure};
use integration_tests::counted::visible;
use integration_tests::faults::is_full;
use integration_tests::kill::Random;
use integration_tests::partitioner::partition;
use kafka_launcher::for_tests;
use kafka_launcher::os::Signal;
use kafka_wire::{Isolation, Producer};

use super::scene::{Input, PROCESSES, Scene, fate, now, seed};

const PARTITIONS: i32 = 6;
/// The number of times that the replay is killed.
const REPLAY_KILLS: usize = 10;

struct Size {
    records: u64,
    keys: u64,
    /// One key of so many has records that fail.
    poison: u64,
    /// The records that are sent in a second.
    rate: u64,
    kills: u32,
}

fn size() -> Size {
    match is_full() {
        true => Size {
            records: 50_000,
            keys: 2_000,
            poison: 100,
            rate: 50_000 / 60,
            kills: 25,
        },
        false => Size {
            records: 4_000,
            keys: 200,
            poison: 20,
            rate: 400,
            kills: 6,
        },
    }
}

/// Records with numbers. In poisoned keys one of three fails until its replay, and one of six fails also then, at about
/// every second offset.
fn inputs(size: &Size, time: i64) -> Vec<Input> {
    let mut random = Random::new(seed());
    let records = (0..size.records).map(|n| {
        let number = random.roll() % size.keys;
        let key = format!("k{number}");
        let kind = match (number % size.poison, random.roll() % 6) {
            (0, 0 | 1) => "bad",
            (0, 2) => "worse",
            _ => "good",
        };
        Input {
            partition: partition(key.as_bytes(), PARTITIONS),
            key,
            value: format!("{n} {kind}"),
            time,
        }
    });
    records.collect()
}

#[test]
fn parked_records_come_back_once_and_in_order_despite_kills() -> Result<()> {
    let _alone = super::alone();
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let (size, since) = (size(), Instant::now());
    let mut scene = Scene::new(kafka.bootstrap(), "parked", PARTITIONS, &[])?;
    let mut replay = scene.beside("replay")?;
    let inputs = inputs(&size, now()?);
    let mut fate = fate(size.kills)?;
    let fed = scene.feed_with(&inputs, size.rate, &mut fate, |done| {
        let killed = replay.started() - 1;
        match done * (REPLAY_KILLS + 1) / 1_000 > killed && killed < REPLAY_KILLS {
            true => replay.kill_and_restart(0),
            false => Ok(()),
        }
    });
    scene.told(fed)?;
    let waited = scene.await_visible("out", inputs.len() as u64);
    let late = scene.topic("late");
    let letters = visible(&mut scene.client, &late)?;
    let stopped = scene.fleet.stop_all(Signal::Term);
    let replayed = replay.stop_all(Signal::Term);
    let judged = judge(&mut scene, &inputs);
    scene.told(judged)?;
    waited?;
    stopped?;
    replayed?;
    fate.check(&scene.fleet, PROCESSES)?;
    let killed = replay.started() - 1;
    ensure!(
        killed == REPLAY_KILLS,
        "the replay was killed {killed} times instead of {REPLAY_KILLS}"
    );
    let again = failed_again(&mut scene)?;
    ensure!(!again.is_empty(), "no letter failed after its replay");
    let poisoned = inputs.iter().filter(|it| !it.value.ends_with("good"));
    let poisoned = poisoned.count() as u64;
    ensure!(
        letters > poisoned,
        "{letters} letters of {poisoned} records that fail"
    );
    eprintln!(
        "{} records, {poisoned} fail, {letters} letters, {} failed again, {} faults, the replay was killed {killed} times, {:.1?}",
        inputs.len(),
        again.len(),
        fate.count(),
        since.elapsed()
    );
    Ok(())
}

/// A letter that just fits into a topic with the default limits. The changelog and the producer of the replay take it as well.
#[test]
fn the_largest_letter_comes_back() -> Result<()> {
    let _alone = super::alone();
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let mut scene = Scene::new(kafka.bootstrap(), "replay", 1, &[])?;
    let (late, origin) = (scene.topic("late"), scene.topic("in"));
    let value = vec![b'v'; 1_048_200];
    let headers = [
        ("eos-sequence", &b"1 0 1"[..]),
        ("__streams.errors.topic", origin.as_bytes()),
        ("__streams.errors.partition", b"0"),
        ("__streams.errors.offset", b"0"),
        ("__eos.errors.app", b"a"),
        ("__eos.errors.time", b"1"),
    ];
    let mut producer = Producer::new(kafka.bootstrap())?;
    producer.send(&late, 0, Some(b"k"), Some(&value), &headers, 1)?;
    producer.flush()?;
    let waited = scene.await_visible("in", 1);
    scene.told(waited)?;
    scene.fleet.stop_all(Signal::Term)?;
    let mut found = Vec::new();
    let client = &mut scene.client;
    client.read_all(&origin, Isolation::ReadCommitted, |_, record| {
        found.push(record.value.as_deref() == Some(&value[..]));
    })?;
    ensure!(found == [true], "{} records, or another value", found.len());
    Ok(())
}

/// Returns the records that failed after they had been replayed: parked, replayed and parked again. A letter that only comes
/// behind another one of its key has another error.
fn failed_again(scene: &mut Scene) -> Result<BTreeSet<String>> {
    let (mut again, late) = (BTreeSet::new(), scene.topic("late"));
    let client = &mut scene.client;
    client.read_all(&late, Isolation::ReadCommitted, |_, record| {
        let of = |name: &str| {
            let mut headers = record.headers.iter().rev();
            headers.find(|(header, _)| header == name)?.1.as_deref()
        };
        let failed = of("__streams.errors.message") == Some(&b"it fails"[..]);
        if failed && of("eos-origin").is_some() {
            let value = record.value.as_deref().unwrap_or_default();
            again.insert(String::from_utf8_lossy(value).into_owned());
        }
    })?;
    Ok(again)
}

/// Compares the records of each key with one loop over the input.
fn judge(scene: &mut Scene, inputs: &[Input]) -> Result<()> {
    let mut expected = BTreeMap::<&str, Vec<&str>>::new();
    for it in inputs {
        expected.entry(&it.key).or_default().push(&it.value);
    }
    let (mut found, output) = (BTreeMap::<String, Vec<String>>::new(), scene.topic("out"));
    let client = &mut scene.client;
    client.read_all(&output, Isolation::ReadCommitted, |_, record| {
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into();
        let values = found.entry(text(record.key.as_deref())).or_default();
        values.push(text(record.value.as_deref()));
    })?;
    for (key, expected) in &expected {
        let found = found.remove(*key).unwrap_or_default();
        let differs = found
            .iter()
            .zip(expected)
            .position(|(one, other)| one != other);
        let differs = differs.unwrap_or(found.len().min(expected.len()));
        ensure!(
            found == *expected,
            "key {key} has {} records instead of {}; record {differs} is {:?} instead of {:?}",
            found.len(),
            expected.len(),
            found.get(differs),
            expected.get(differs)
        );
    }
    ensure!(found.is_empty(), "other keys: {:?}", found.keys());
    Ok(())
}

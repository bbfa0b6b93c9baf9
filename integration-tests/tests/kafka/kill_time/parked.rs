//! Sequenced dead letters and their replay. Each record is in the output once, and the records of a key are in order.
//!
//! One key has a record that always fails. While it fails, each record is either in the output or parked. After a
//! change of the app, the parked records are replayed to the output, too.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use integration_tests::counted::visible;
use integration_tests::faults::is_full;
use integration_tests::fleet::Fleet;
use integration_tests::kill::Random;
use integration_tests::partitioner::partition;
use integration_tests::wait::wait_until;
use kafka_launcher::for_tests;
use kafka_launcher::os::Signal;
use kafka_wire::{Client, Isolation, Producer, Record};

use super::scene::{Input, PROCESSES, Scene, fate, now, seed};
use crate::common::PATIENCE;

const PARTITIONS: i32 = 6;
/// The number of times that the replay is killed.
const REPLAY_KILLS: usize = 10;
/// The key with a record that always fails. The records of other poisoned keys succeed in a replay.
const STUCK: &str = "k0";

struct Size {
    records: u64,
    keys: u64,
    /// One of this number of keys has records that fail.
    poison: u64,
    /// Records per second.
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

/// Returns records with numbers. In poisoned keys, one of three records fails until its replay. One of six also fails
/// then, at about every third offset. The first record of [`STUCK`] after a quarter of the input always fails.
fn inputs(size: &Size, time: i64) -> Vec<Input> {
    let mut random = Random::new(seed());
    let mut sticks = false;
    let records = (0..size.records).map(|n| {
        let number = random.roll() % size.keys;
        let key = format!("k{number}");
        let mut kind = match (number % size.poison, random.roll() % 6) {
            (0, 0 | 1) => "bad",
            (0, 2) => "worse",
            _ => "good",
        };
        if key == STUCK && !sticks && n * 4 >= size.records {
            (sticks, kind) = (true, "never");
        }
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
    let never = inputs.iter().position(|it| it.value.ends_with("never"));
    let never = never.context("no record always fails")?;
    let is_passing = |(n, it): &(usize, &Input)| it.key != STUCK || *n < never;
    let passing = inputs.iter().enumerate().filter(is_passing);
    let passing: Vec<&Input> = passing.map(|(_, it)| it).collect();
    let mut fate = fate(size.kills)?;
    let (mut client, input) = (
        Client::connect(kafka.bootstrap(), PATIENCE)?,
        scene.topic("in"),
    );
    let fed = scene.feed_with(&inputs, size.rate, &mut fate, |done| {
        let killed = replay.started() - 1;
        // Both numbers count halves of the time between two kills.
        let (half, due) = (done * (REPLAY_KILLS + 1) * 2 / 1_000, 2 * (killed + 1));
        if killed == REPLAY_KILLS || half < due {
            return Ok(());
        }
        // A round writes its letters within some milliseconds, which a kill rarely hits by chance. So every second kill
        // waits until a transaction with letters is open, for half of the time between two kills at most.
        let is_any = killed % 2 == 0 || half > due;
        match is_any || !client.open_producers(&input)?.is_empty() {
            true => replay.kill_and_restart(0),
            false => Ok(()),
        }
    });
    scene.told(fed)?;
    let waited = await_replayed(&mut scene, passing.len() as u64);
    let replayed = replay.stop_all(Signal::Term);
    let killed = replay.started() - 1;
    let processed = await_processed(&mut scene);
    let stopped = scene.fleet.stop_all(Signal::Term);
    let judged = judge(&mut scene, &passing);
    scene.told(judged)?;
    waited?;
    replayed?;
    scene.told(processed)?;
    stopped?;
    fate.check(&scene.fleet, PROCESSES)?;
    ensure!(
        killed == REPLAY_KILLS,
        "the replay was killed {killed} times instead of {REPLAY_KILLS}"
    );
    let letters = read_letters(&mut scene)?;
    let parked = judge_parked(&mut scene, &inputs, &letters)?;
    // The letters of the stuck key are replayed repeatedly, so these numbers leave them out.
    let others = letters.iter().filter(|it| it.key != STUCK);
    let again = others.clone().filter(|it| it.failed && it.is_replayed);
    let again: BTreeSet<_> = again.map(|it| &it.value).collect();
    ensure!(!again.is_empty(), "no letter failed after its replay");
    let poisoned = inputs
        .iter()
        .filter(|it| it.key != STUCK && !it.value.ends_with("good"));
    let (poisoned, count) = (poisoned.count(), others.count());
    ensure!(
        count > poisoned,
        "{count} letters of {poisoned} records that fail"
    );
    let aborted = aborted(&mut scene)?;
    eprintln!(
        "{} records, {poisoned} fail, {count} letters, {} failed again, {parked} stay parked, {} faults, the replay was \
         killed {killed} times, {aborted} replayed records in aborted transactions, {:.1?}",
        inputs.len(),
        again.len(),
        fate.count(),
        since.elapsed()
    );
    // In a small run, the replay is often killed before its first round.
    ensure!(
        aborted > 0 || !is_full(),
        "no kill of the replay interrupted a transaction with letters"
    );
    let inputs: Vec<&Input> = inputs.iter().collect();
    all_come_back(&mut scene, &mut replay, &inputs)
}

/// Waits until the output has this many records. Each failure of a replayed record delays its key by five seconds, so
/// the total wait has no bound. Fails if no new record arrives within [`PATIENCE`].
fn await_replayed(scene: &mut Scene, count: u64) -> Result<()> {
    let output = scene.topic("out");
    let (mut found, mut since) = (0, Instant::now());
    while found < count {
        scene.fleet.check()?;
        let now = visible(&mut scene.client, &output)?;
        if now > found {
            (found, since) = (now, Instant::now());
        }
        ensure!(
            since.elapsed() < PATIENCE,
            "{output} has {found} of {count} records, and no new one for {PATIENCE:?}"
        );
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Checks that all records reach the output after a change of the app, with which no record fails forever. A letter
/// that the replay had lost would be missing.
fn all_come_back(scene: &mut Scene, replay: &mut Fleet, inputs: &[&Input]) -> Result<()> {
    let mut cured = scene.beside("cured")?;
    replay.start()?;
    let waited = scene.await_visible("out", inputs.len() as u64);
    let replayed = replay.stop_all(Signal::Term);
    let stopped = cured.stop_all(Signal::Term);
    let judged = judge(scene, inputs).and(waited);
    judged.with_context(|| format!("after the change of the app:\n{}", cured.tails(12)))?;
    replayed?;
    stopped
}

/// A letter that just fits into a topic with the default limits. The changelog and the producer of the replay must
/// accept it, too.
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

fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}

/// A dead letter.
struct Letter {
    key: String,
    value: String,
    /// The partition and the offset of the record in the topic `in`. A replayed record has another offset.
    origin: (i64, i64),
    /// Whether the record failed. Otherwise it was parked after another record of its key.
    failed: bool,
    /// Whether the record was the replay of an earlier letter.
    is_replayed: bool,
}

impl Letter {
    fn of(record: &Record) -> Result<Letter> {
        let header = |name: &str| {
            let mut headers = record.headers.iter().rev();
            headers.find(|(header, _)| header == name)?.1.as_deref()
        };
        let number = |name: &str| -> Result<i64> {
            let number = text(header(name)).parse::<i64>();
            number.with_context(|| format!("{name} is no number"))
        };
        Ok(Letter {
            key: text(record.key.as_deref()),
            value: text(record.value.as_deref()),
            origin: (
                number("__streams.errors.partition")?,
                number("__streams.errors.offset")?,
            ),
            failed: header("__streams.errors.message") == Some(&b"it fails"[..]),
            is_replayed: header("eos-origin").is_some(),
        })
    }
}

/// Returns all letters.
fn read_letters(scene: &mut Scene) -> Result<Vec<Letter>> {
    let (mut letters, late) = (Vec::new(), scene.topic("late"));
    let client = &mut scene.client;
    client.read_all(&late, Isolation::ReadCommitted, |_, record| {
        letters.push(Letter::of(record));
    })?;
    letters.into_iter().collect()
}

/// Returns the keys and the values of the output.
fn read_output(scene: &mut Scene) -> Result<Vec<(String, String)>> {
    let (mut found, output) = (Vec::new(), scene.topic("out"));
    let client = &mut scene.client;
    client.read_all(&output, Isolation::ReadCommitted, |_, record| {
        found.push((text(record.key.as_deref()), text(record.value.as_deref())));
    })?;
    Ok(found)
}

/// Waits until the app has processed all records of the topic `in`. The replay must have ended.
fn await_processed(scene: &mut Scene) -> Result<()> {
    let (app, input) = (scene.app.clone(), scene.topic("in"));
    // Markers follow the replayed records, and the committed offsets may be before these markers.
    let mut ends = [0; PARTITIONS as usize];
    let client = &mut scene.client;
    client.read_all(&input, Isolation::ReadCommitted, |at, record| {
        ends[at as usize] = record.offset + 1;
    })?;
    wait_until(PATIENCE, "the replayed records are processed", || {
        scene.fleet.check()?;
        let committed = scene.client.committed(&app, &input)?;
        let offsets = committed.into_iter();
        let mut offsets = offsets.map(|known| known.map_or(0, |(at, _)| at)).zip(ends);
        Ok(offsets.all(|(at, end)| at >= end))
    })
}

/// Returns the number of replayed records in aborted transactions. Only the replay writes to the topic `in` with
/// transactions.
fn aborted(scene: &mut Scene) -> Result<u64> {
    let (mut all, input) = (0_u64, scene.topic("in"));
    let client = &mut scene.client;
    client.read_all(&input, Isolation::ReadUncommitted, |_, _| all += 1)?;
    Ok(all - visible(client, &input)?)
}

/// Checks that each record of the input is either in the output or parked, and that only records of [`STUCK`] are
/// parked. Returns the number of parked records.
///
/// A record is parked if its last copy in the topic `in` became a letter, which is still to be replayed.
fn judge_parked(scene: &mut Scene, inputs: &[Input], letters: &[Letter]) -> Result<usize> {
    let output: BTreeSet<String> = read_output(scene)?.into_iter().map(|it| it.1).collect();
    // The copies of a record are in one partition, in the order of their offsets.
    let (mut last, input) = (BTreeMap::<String, (i64, i64)>::new(), scene.topic("in"));
    let client = &mut scene.client;
    client.read_all(&input, Isolation::ReadCommitted, |at, record| {
        last.insert(text(record.value.as_deref()), (at.into(), record.offset));
    })?;
    let letters: BTreeSet<_> = letters.iter().map(|it| it.origin).collect();
    let parked = last.into_iter().filter(|(_, at)| letters.contains(at));
    let parked: BTreeSet<String> = parked.map(|(value, _)| value).collect();
    let both: Vec<_> = output.intersection(&parked).take(5).collect();
    ensure!(both.is_empty(), "in the output and parked: {both:?}");
    let found: BTreeSet<&str> = output.union(&parked).map(String::as_str).collect();
    let all: BTreeSet<&str> = inputs.iter().map(|it| &*it.value).collect();
    let differ: Vec<_> = found.symmetric_difference(&all).take(5).collect();
    ensure!(
        differ.is_empty(),
        "neither in the output nor parked, or not in the input: {differ:?}"
    );
    let stuck = inputs.iter().filter(|it| it.key == STUCK);
    let stuck: BTreeSet<&str> = stuck.map(|it| &*it.value).collect();
    let others = parked.iter().filter(|it| !stuck.contains(it.as_str()));
    let others: Vec<_> = others.take(5).collect();
    ensure!(others.is_empty(), "parked, of other keys: {others:?}");
    ensure!(!parked.is_empty(), "no record is parked at the end");
    Ok(parked.len())
}

/// Compares the output of each key with the expected records.
fn judge(scene: &mut Scene, records: &[&Input]) -> Result<()> {
    let mut expected = BTreeMap::<&str, Vec<&str>>::new();
    for it in records {
        expected.entry(&it.key).or_default().push(&it.value);
    }
    let mut found = BTreeMap::<String, Vec<String>>::new();
    for (key, value) in read_output(scene)? {
        found.entry(key).or_default().push(value);
    }
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

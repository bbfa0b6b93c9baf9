//! Timers of both clocks. Each moment fires once, and never early.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use integration_tests::faults::is_full;
use integration_tests::kill::Random;
use integration_tests::partitioner::partition;
use kafka_launcher::for_tests;
use kafka_launcher::os::Signal;
use kafka_wire::{Isolation, Record};

use super::scene::{Input, PROCESSES, Scene, ends, fate, now, seed};

const PARTITIONS: i32 = 6;
/// The disorder of the records: they are out of order by less than this, in milliseconds.
const DISORDER: u64 = 400;
/// The shortest time to a moment of event time that is not set into the past, in milliseconds. It is longer than the
/// disorder and the time to the next record. So a moment that the next record moves or cancels is not due yet.
const SOONEST: i64 = 1_000;
/// The time between a record and the moment that it sets into the past, in milliseconds.
const PAST: i64 = 5_000;

struct Size {
    records: u64,
    /// Records per second.
    rate: u64,
    kills: u32,
}

fn size() -> Size {
    match is_full() {
        true => Size {
            records: 50_000,
            rate: 50_000 / 60,
            kills: 40,
        },
        false => Size {
            records: 3_500,
            rate: 500,
            kills: 6,
        },
    }
}

/// A record that sets a moment of each clock.
struct Set {
    input: Input,
    /// `None` cancels the moment of the key.
    event: Option<i64>,
    /// `None` leaves the moment of the key unchanged.
    wall: Option<i64>,
}

impl Set {
    fn new(mut input: Input, event: Option<i64>, wall: Option<i64>) -> Set {
        let text = |moment: Option<i64>| moment.map_or("-".to_owned(), |at| at.to_string());
        input.value = format!("{} {}", text(event), text(wall));
        Set { input, event, wall }
    }
}

/// Returns the records, with times at the pace at which they are sent. Of ten records, one sets its moment of event
/// time into the past. One moves the moment of the previous key, and one cancels it. The others have their own keys.
fn sets(size: &Size, begins: i64) -> Vec<Set> {
    let mut random = Random::new(seed());
    let mut below = |most: u64| (random.roll() % most) as i64;
    let mut sets = Vec::new();
    for n in 0..size.records {
        let (moves, cancels) = (n % 10 == 5, n % 10 == 7);
        let key = format!("t{}", if moves || cancels { n - 1 } else { n });
        let sent = begins + (n * 1_000 / size.rate) as i64;
        let time = sent + below(DISORDER);
        let input = Input {
            partition: partition(key.as_bytes(), PARTITIONS),
            key,
            value: String::new(),
            time,
        };
        let event = match n % 10 {
            3 => time - PAST,
            _ => time + SOONEST + below(3_000),
        };
        let wall = sent + 500 + below(5_000);
        // The first moment of the machine's clock may fire before the app reads the second record of its key.
        let wall = (!moves && !cancels).then_some(wall);
        sets.push(Set::new(input, (!cancels).then_some(event), wall));
    }
    let last = begins + (size.records * 1_000 / size.rate) as i64 + 60_000;
    // The last records set moments that never fire.
    let ends = ends(PARTITIONS, last).into_iter();
    sets.extend(ends.map(|end| Set::new(end, Some(last + 1), Some(last + 3_600_000))));
    sets
}

#[test]
fn each_moment_fires_once_and_not_early_despite_kills() -> Result<()> {
    let _alone = super::alone();
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let (size, since) = (size(), Instant::now());
    let mut scene = Scene::new(kafka.bootstrap(), "timers", PARTITIONS, &[])?;
    let sets = sets(&size, now()?);
    let inputs: Vec<Input> = sets.iter().map(|set| set.input.clone()).collect();
    let mut fate = fate(size.kills)?;
    let fed = scene.feed(&inputs, size.rate, &mut fate);
    scene.told(fed)?;
    let (expected, firing) = expected(&sets);
    let by_clock = by_clock(&sets).count() as u64;
    let waited = scene
        .await_visible("out", inputs.len() as u64 + firing)
        .and_then(|()| scene.await_visible("wall", by_clock));
    let stopped = scene.fleet.stop_all(Signal::Term);
    let judged = event_time(&mut scene, &expected).and_then(|()| wall_clock(&mut scene, &sets));
    let slowest = scene.told(judged)?;
    waited?;
    stopped?;
    fate.check(&scene.fleet, PROCESSES)?;
    eprintln!(
        "{} records, {} faults, {firing} moments of event time, {} of the machine's clock, {slowest} ms late at \
         most, {:.1?}",
        inputs.len(),
        fate.count(),
        by_clock,
        since.elapsed()
    );
    Ok(())
}

/// The lines of each output partition, from the records and from the moments of event time.
type Lines = BTreeMap<i32, Vec<(String, String)>>;

/// Returns the records with a moment of the machine's clock that fires in this test, and this moment.
fn by_clock(sets: &[Set]) -> impl Iterator<Item = (&Set, i64)> {
    let sets = sets.iter().filter(|set| !set.input.key.starts_with("end"));
    sets.filter_map(|set| Some((set, set.wall?)))
}

/// Computes the output by one loop over the input. The moments that a record reaches fire before the next record, in
/// the order of time and key. A moment in the past counts as due at the stream time at which it is set. Also returns the
/// number of moments.
fn expected(sets: &[Set]) -> (Lines, u64) {
    let (mut lines, mut firing) = (Lines::new(), 0);
    let mut pending = BTreeMap::<i32, BTreeSet<(i64, &str)>>::new();
    let mut moments = BTreeMap::<&str, (i64, i64)>::new();
    let mut stream_times = BTreeMap::<i32, i64>::new();
    for Set { input, event, .. } in sets {
        let Input {
            partition,
            key,
            time,
            ..
        } = input;
        let lines = lines.entry(*partition).or_default();
        let pending = pending.entry(*partition).or_default();
        let stream_time = stream_times.entry(*partition).or_insert(*time);
        *stream_time = *time.max(stream_time);
        lines.push((key.clone(), format!("record {time}")));
        if let Some((place, _)) = moments.remove(&**key) {
            pending.remove(&(place, key));
        }
        if let Some(event) = *event {
            let place = event.max(*stream_time);
            pending.insert((place, key));
            moments.insert(key, (place, event));
        }
        while let Some((place, key)) = pending.pop_first() {
            if place > *stream_time {
                pending.insert((place, key));
                break;
            }
            let (_, at) = moments.remove(key).unwrap_or_default();
            lines.push((key.to_owned(), format!("due {at} {stream_time}")));
            firing += 1;
        }
    }
    (lines, firing)
}

fn event_time(scene: &mut Scene, expected: &Lines) -> Result<()> {
    let (mut found, output) = (Lines::new(), scene.topic("out"));
    let client = &mut scene.client;
    client.read_all(&output, Isolation::ReadCommitted, |at, record| {
        found.entry(at).or_default().push(line(record));
    })?;
    for (at, lines) in expected {
        let found = found.remove(at).unwrap_or_default();
        let differs = found
            .iter()
            .zip(lines)
            .position(|(one, other)| one != other);
        let differs = differs.unwrap_or(found.len().min(lines.len()));
        ensure!(
            found == *lines,
            "partition {at} has {} lines instead of {}; line {differs} is {:?} instead of {:?}",
            found.len(),
            lines.len(),
            found.get(differs),
            lines.get(differs)
        );
    }
    ensure!(found.is_empty(), "other partitions: {:?}", found.keys());
    Ok(())
}

/// Returns the longest time from a moment until the broker appended its record.
fn wall_clock(scene: &mut Scene, sets: &[Set]) -> Result<i64> {
    let mut fired = BTreeMap::<String, Vec<(String, i64)>>::new();
    let topic = scene.topic("wall");
    let client = &mut scene.client;
    client.read_all(&topic, Isolation::ReadCommitted, |_, record| {
        let (key, text) = line(record);
        fired.entry(key).or_default().push((text, record.timestamp));
    })?;
    let mut slowest = 0;
    for (set, wall) in by_clock(sets) {
        let key = &set.input.key;
        let found = fired.remove(key).unwrap_or_default();
        let [(text, appended)] = &found[..] else {
            anyhow::bail!(
                "the moment {wall} of {key} fired {} times: {found:?}",
                found.len()
            );
        };
        let mut words = text.split(' ').skip(1).map(str::parse::<i64>);
        let (at, clock) = (words.next(), words.next());
        let (at, clock) = at.zip(clock).context("two times")?;
        ensure!(at? == wall, "{key} fired for {text} instead of {wall}");
        ensure!(clock? >= wall, "{key} fired early: {text}");
        // The broker has the same clock.
        ensure!(
            *appended >= wall,
            "{key}: appended at {appended}, before {wall}"
        );
        slowest = slowest.max(appended - wall);
    }
    ensure!(fired.is_empty(), "moments that are not due: {fired:?}");
    Ok(slowest)
}

fn line(record: &Record) -> (String, String) {
    let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into();
    (text(record.key.as_deref()), text(record.value.as_deref()))
}

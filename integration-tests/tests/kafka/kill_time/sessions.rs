//! Final sessions. Each is emitted once, with the right count, in the order of end and key.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Result, ensure};
use integration_tests::faults::is_full;
use kafka_launcher::for_tests;

use super::results::{Results, Row, session};
use super::scene::{Input, Load, PROCESSES, Scene, fate, now, seed};

const PARTITIONS: i32 = 6;
const GAP: i64 = 2_000;
const GRACE: i64 = 500;

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
            keys: 2_000,
            step: 1,
            rate: 2_000,
            kills: 26,
            ..small
        },
        false => small,
    }
}

#[test]
fn each_session_is_emitted_once_despite_kills() -> Result<()> {
    let _alone = super::alone();
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let (load, since) = (load(), Instant::now());
    let settings = [("GAP_MS", GAP.to_string()), ("GRACE_MS", GRACE.to_string())];
    let mut scene = Scene::new(kafka.bootstrap(), "sessions", PARTITIONS, &settings)?;
    let records = load.records(seed(), PARTITIONS, now()?);
    let mut fate = fate(load.kills)?;
    let fed = scene.feed(&records, load.rate, &mut fate);
    scene.told(fed)?;
    let expected = expected(&records);
    ensure!(expected.len() > load.records / 10, "too few sessions");
    let judged = scene.judge(&expected, session);
    scene.told(judged)?;
    fate.check(&scene.fleet, PROCESSES)?;
    eprintln!(
        "{} records, {} faults, {} sessions, {:.1?}",
        records.len(),
        fate.count(),
        expected.len(),
        since.elapsed()
    );
    Ok(())
}

/// Returns the closed sessions, computed by one loop over the records of each key in the order of their times.
fn expected(records: &[Input]) -> Results {
    let mut keys = BTreeMap::<(i32, &str), Vec<i64>>::new();
    let mut stream_times = BTreeMap::<i32, i64>::new();
    for input in records {
        let times = keys.entry((input.partition, &input.key)).or_default();
        times.push(input.time);
        let stream_time = stream_times.entry(input.partition).or_insert(input.time);
        *stream_time = input.time.max(*stream_time);
    }
    let mut expected = Results::default();
    for ((partition, key), mut times) in keys {
        times.sort_unstable();
        let mut sessions: Vec<(i64, i64, u64)> = Vec::new();
        for time in times {
            match sessions.last_mut() {
                Some((_, last, count)) if time - *last <= GAP => {
                    (*last, *count) = (time, *count + 1);
                }
                _ => sessions.push((time, time, 1)),
            }
        }
        for (start, last, count) in sessions {
            // The end of a session is a millisecond after the time at which a record would still join it.
            if last + GAP + GRACE < stream_times[&partition] {
                expected.0.entry(partition).or_default().push(Row {
                    end: last,
                    key: key.to_owned(),
                    start,
                    count,
                    time: last,
                });
            }
        }
    }
    expected.0.values_mut().for_each(|rows| rows.sort());
    expected
}

//! Many windows that close at one record. Their results are spread over many transactions, and processes are killed
//! between them. Each result is emitted once, in the order of keys.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use integration_tests::faults::is_full;
use integration_tests::partitioner::partition;
use integration_tests::wait::{is_through, wait_until};
use kafka_launcher::for_tests;
use kafka_wire::Client;

use super::results::window;
use super::scene::{Input, PROCESSES, Scene, ends, fate, now};
use super::windows::Windows;
use crate::common::PATIENCE;

const PARTITIONS: i32 = 4;
const WINDOWS: Windows = Windows {
    size: 10_000,
    advance: 10_000,
    grace: 1_000,
};
/// The largest number of results in a transaction. It is not a setting. It follows from the commit every 50
/// milliseconds, and from the pause of the step after the results.
const MOST: u64 = 1_000;

/// The longest time without new results. After it, the test judges the existing results.
const STUCK: Duration = Duration::from_secs(30);

struct Size {
    /// The keys of all partitions. The windows of a partition close at one record.
    keys: u64,
    kills: u32,
    /// The pause of the step after the results, in microseconds.
    pause: u64,
}

fn size() -> Size {
    match is_full() {
        true => Size {
            keys: 400_000,
            kills: 26,
            pause: 100,
        },
        false => Size {
            keys: 20_000,
            kills: 6,
            pause: 200,
        },
    }
}

#[test]
fn windows_that_close_at_one_record_are_emitted_once_despite_kills() -> Result<()> {
    let _alone = super::alone();
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let (size, since) = (size(), Instant::now());
    let settings = [
        ("SIZE_MS", WINDOWS.size.to_string()),
        ("GRACE_MS", WINDOWS.grace.to_string()),
        ("PAUSE_US", size.pause.to_string()),
        ("EOS_COMMIT_PACE", String::from("fixed")),
        ("EOS_COMMIT_INTERVAL_MS", String::from("50")),
    ];
    let mut scene = Scene::new(kafka.bootstrap(), "at_once", PARTITIONS, &settings)?;
    let begins = now()?.div_euclid(WINDOWS.size) * WINDOWS.size;
    let mut records = records(size.keys, begins);
    for input in &records {
        scene.send(input)?;
    }
    scene.producer.flush()?;
    let (app, input) = (scene.app.clone(), scene.topic("in"));
    let taken = wait_until(PATIENCE, "all records are taken", || {
        scene.fleet.check()?;
        is_through(&mut scene.client, &app, &input)
    });
    scene.told(taken)?;
    for input in ends(PARTITIONS, begins + 100_000) {
        scene.send(&input)?;
        records.push(input);
    }
    scene.producer.flush()?;

    let expected = WINDOWS.closed(&records);
    ensure!(expected.len() == size.keys, "{} windows", expected.len());
    let mut fate = fate(size.kills)?;
    let (mut progress, output) = (Progress::default(), scene.topic("out"));
    let mut moved = Instant::now();
    while progress.count < expected.len() {
        let before = progress.count;
        progress.look(&mut scene.client, &output)?;
        if progress.count > before {
            moved = Instant::now();
        } else if moved.elapsed() > STUCK {
            break;
        }
        // A kill after the last result would prove nothing.
        if progress.count < expected.len() {
            let struck = fate.strike(&mut scene.fleet, progress.count * 1_000 / expected.len());
            scene.told(struck)?;
        }
        thread::sleep(Duration::from_millis(5));
    }
    fate.thaw(&mut scene.fleet)?;
    let judged = scene.judge(&expected, window);
    scene.told(judged)?;
    fate.check(&scene.fleet, PROCESSES)?;
    let transactions = transactions(&mut scene.client, &output)?;
    let largest = transactions.iter().max().copied().unwrap_or_default();
    eprintln!(
        "{} windows, {} faults while they closed, {} transactions of {largest} results at most, {:.1?}",
        expected.len(),
        fate.count(),
        transactions.len(),
        since.elapsed()
    );
    ensure!(largest <= MOST, "{largest} results in a transaction");
    Ok(())
}

/// Returns a record of each key, all in one window.
fn records(keys: u64, begins: i64) -> Vec<Input> {
    let record = |n: u64| {
        // Not in the order of keys.
        let key = format!("k{:07}", n.wrapping_mul(7_919) % 1_000_003);
        Input {
            partition: partition(key.as_bytes(), PARTITIONS),
            key,
            value: String::from("x"),
            time: begins + (n * 9_000 / keys) as i64,
        }
    };
    (0..keys).map(record).collect()
}

/// The count of committed results.
#[derive(Debug, Default)]
struct Progress {
    /// The next offset of each partition.
    next: BTreeMap<i32, i64>,
    count: u64,
}

impl Progress {
    fn look(&mut self, client: &mut Client, topic: &str) -> Result<()> {
        for partition in 0..PARTITIONS {
            let next = self.next.entry(partition).or_default();
            let tally = client.tally(topic, partition, *next)?;
            self.count += tally.visible;
            *next = tally.next_offset.max(*next);
        }
        Ok(())
    }
}

/// Returns the number of results of each committed transaction.
fn transactions(client: &mut Client, topic: &str) -> Result<Vec<u64>> {
    let mut transactions = Vec::new();
    for spans in client.spans(topic)? {
        let mut counts = BTreeMap::<i64, u64>::new();
        for span in spans {
            let end = span.end.context("a transaction is open")?;
            if end.commits {
                *counts.entry(end.offset).or_default() += u64::from(span.records);
            }
        }
        transactions.extend(counts.into_values());
    }
    Ok(transactions)
}

//! At least once and at most once under SIGKILL. The tests check which records a crash may repeat or lose.
//!
//! `EOS_FULL=1 cargo test -p integration-tests --test kafka guarantees::` kills 30 times instead of 6, as
//! `cargo xtask soak guarantees` does.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use integration_tests::counted::{Counts, stored_in};
use integration_tests::faults::is_full;
use integration_tests::fleet::Fleet;
use integration_tests::process::{Program, build};
use integration_tests::wait::{is_through, wait_until};
use kafka_launcher::os::Signal;
use kafka_launcher::{ClusterOptions, own_for_tests};
use kafka_wire::{Client, Isolation, Producer};

const PARTITIONS: i32 = 4;
const PATIENCE: Duration = Duration::from_secs(120);
/// The number of records between two kills. At a kill, the app has some of them in flight.
const BURST: u64 = 400;

fn kills() -> usize {
    if is_full() { 30 } else { 6 }
}

/// The records that are sent between kills. They have 31 keys, and are numbered over all partitions.
struct Load {
    topic: String,
    producer: Producer,
    sent: u64,
}

impl Load {
    fn send(&mut self, records: u64, value: impl Fn(u64) -> String) -> Result<()> {
        let now = i64::try_from(UNIX_EPOCH.elapsed()?.as_millis())?;
        for _ in 0..records {
            let n = self.sent;
            let to = i32::try_from(n % PARTITIONS.unsigned_abs() as u64)?;
            let (key, value) = (format!("k{}", n % 31), value(n));
            let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
            self.producer.send(&self.topic, to, key, value, &[], now)?;
            self.sent += 1;
        }
        self.producer.flush()
    }
}

/// Sends a burst before each kill, and a last one after the last kill. Returns the number of records before that one.
fn hurt(
    fleet: &mut Fleet,
    load: &mut Load,
    value: impl Fn(u64) -> String + Copy,
    between: impl Fn(usize) -> Result<()>,
) -> Result<u64> {
    for kill in 0..kills() {
        load.send(BURST, value)?;
        // The pause varies, so that the kills hit different steps.
        thread::sleep(Duration::from_millis(5 * (kill as u64 % 7)));
        let index = kill % fleet.len();
        fleet.kill(index)?;
        between(kill)?;
        fleet.start()?;
        thread::sleep(Duration::from_millis(500));
    }
    Ok(load.sent)
}

fn finish(fleet: &mut Fleet, client: &mut Client, group: &str, topics: &[&str]) -> Result<()> {
    let done = wait_until(PATIENCE, "every record is processed", || {
        fleet.check()?;
        for topic in topics {
            if !is_through(client, group, topic)? {
                return Ok(false);
            }
        }
        Ok(true)
    });
    done.with_context(|| fleet.tails(25))
}

#[test]
fn at_most_once_no_kill_repeats_a_record() -> Result<()> {
    let Some(cluster) = own_for_tests(&ClusterOptions::default())? else {
        return Ok(());
    };
    let bootstrap = cluster.bootstrap();
    let mut client = Client::connect(bootstrap, PATIENCE)?;
    for topic in ["cities", "cities-enriched", "cities-audit"] {
        client.create_topic(topic, PARTITIONS, 1, &[])?;
    }
    let dir = tempfile::tempdir()?;
    let environment = [
        ("EOS_BOOTSTRAP_SERVERS", bootstrap.to_owned()),
        ("EOS_STATE_DIR", dir.path().display().to_string()),
        ("EOS_SESSION_TIMEOUT_MS", "6000".to_owned()),
        ("GUARANTEE", "at-most-once".to_owned()),
    ];
    let program = build("eos-examples", Program::Bin("02-enrich"), &[])?;
    let mut fleet = Fleet::new(&program, environment, &dir.path().join("logs"))?;
    fleet.start()?;
    fleet.start()?;
    let mut load = Load {
        topic: "cities".to_owned(),
        producer: Producer::new(bootstrap)?,
        sent: 0,
    };
    let city =
        |n| format!(r#"{{"seq":{n},"name":"city {n}","country":"IS","lat":64.1,"lon":-21.9}}"#);
    let before_last = hurt(&mut fleet, &mut load, city, |_| Ok(()))?;
    finish(&mut fleet, &mut client, "enrich-v1", &["cities"])?;
    load.send(BURST, city)?;
    // At most once, an offset is committed before its record is processed. So claimed records may be unprocessed here.
    finish(&mut fleet, &mut client, "enrich-v1", &["cities"])?;
    // A clean stop gives back the claimed records that it does not process, and waits for the outputs of the others.
    fleet.stop_all(Signal::Term)?;
    let at_stop = count_outputs(&mut client)?;
    fleet.start()?;
    let after_last = before_last..load.sent;
    let done = wait_until(
        PATIENCE,
        "each record after the last kill has an output",
        || {
            fleet.check()?;
            let times = count_outputs(&mut client)?;
            Ok(after_last.clone().all(|seq| times.contains_key(&seq)))
        },
    );
    done.with_context(|| fleet.tails(25))?;
    fleet.stop_all(Signal::Term)?;

    let times = count_outputs(&mut client)?;
    eprintln!(
        "{} of {BURST} records were processed before the clean stop",
        at_stop.range(after_last).count()
    );
    let doubled: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
    ensure!(doubled.is_empty(), "processed twice: {doubled:?}");
    let lost = (0..load.sent).filter(|seq| !times.contains_key(seq));
    let lost: Vec<u64> = lost.collect();
    eprintln!(
        "{} of {} records were lost in {} kills",
        lost.len(),
        load.sent,
        kills()
    );
    // A process usually has half of the partitions, so it claims at most half of the burst before its kill. A burst
    // comes after the last kill, too. Most kills lose less, because they come up to 30 ms after the burst, and half of
    // them hit a process that has no partition yet.
    ensure!(
        lost.len() as u64 * 2 < load.sent,
        "{} of {} records were lost",
        lost.len(),
        load.sent
    );
    // A kill that loses nothing hit no claimed record. In a small run, that may be true of each kill.
    ensure!(
        !lost.is_empty() || !is_full(),
        "no kill hit a claimed record"
    );
    Ok(())
}

/// Returns the number of outputs of `02-enrich` for each input record.
fn count_outputs(client: &mut Client) -> Result<BTreeMap<u64, u32>> {
    let mut times = BTreeMap::new();
    client.read_all("cities-audit", Isolation::ReadUncommitted, |_, record| {
        let value: serde_json::Value =
            serde_json::from_slice(record.value.as_deref().unwrap_or_default()).unwrap_or_default();
        *times
            .entry(value["seq"].as_u64().unwrap_or(u64::MAX))
            .or_default() += 1;
    })?;
    Ok(times)
}

#[test]
fn at_least_once_no_kill_loses_a_count() -> Result<()> {
    let Some(cluster) = own_for_tests(&ClusterOptions::default())? else {
        return Ok(());
    };
    let bootstrap = cluster.bootstrap();
    let mut client = Client::connect(bootstrap, PATIENCE)?;
    for topic in ["words-in", "words-out"] {
        client.create_topic(topic, PARTITIONS, 1, &[])?;
    }
    let dir = tempfile::tempdir()?;
    let state = dir.path().join("state");
    let environment = [
        ("EOS_BOOTSTRAP_SERVERS", bootstrap.to_owned()),
        ("EOS_STATE_DIR", state.display().to_string()),
        ("EOS_SESSION_TIMEOUT_MS", "6000".to_owned()),
        ("EOS_PROCESSING_GUARANTEE", "at_least_once".to_owned()),
        // The fleet waits for a log line before it stops a process.
        ("RUST_LOG", "info".to_owned()),
        ("APP", "words".to_owned()),
    ];
    let program = Program::Example("word_count");
    let program = build("integration-tests", program, &["--features", "failpoints"])?;
    let mut fleet = Fleet::new(&program, environment, &dir.path().join("logs"))?;
    fleet.start()?;
    let mut load = Load {
        topic: "words-in".to_owned(),
        producer: Producer::new(bootstrap)?,
        sent: 0,
    };
    let word = |n: u64| format!("w{}", n * 7 % 31);
    let tasks = state.join("words").join("0").join("tasks");
    let before_last = hurt(&mut fleet, &mut load, word, |kill| {
        // After every other kill, the successor must rebuild its state from the changelog.
        if kill % 2 == 1 && tasks.exists() {
            fs::remove_dir_all(&tasks)?;
        }
        Ok(())
    })?;
    let topics = ["words-in", "words-words-repartition"];
    finish(&mut fleet, &mut client, "words", &topics)?;
    let counts_before = counts(&mut client)?;
    load.send(BURST, word)?;
    finish(&mut fleet, &mut client, "words", &topics)?;
    fleet.stop_all(Signal::Term)?;

    let mut sent = Counts::new();
    for n in 0..load.sent {
        *sent.entry(word(n)).or_default() += 1;
    }
    let counted = counts(&mut client)?;
    let mut stored = Counts::new();
    for (key, value) in stored_in(&state)? {
        let count = value.get(8..).and_then(|it| it.try_into().ok());
        let count = count.map_or(0, u64::from_be_bytes);
        let word = String::from_utf8_lossy(&key).into_owned();
        let before = stored.entry(word).or_default();
        *before = count.max(*before);
    }
    for (word, sent) in &sent {
        for (what, counts) in [("output", &counted), ("databases", &stored)] {
            let found = counts.get(word).copied().unwrap_or(0);
            ensure!(
                found >= *sent,
                "{word} is {found} in the {what}, but {sent} were sent"
            );
        }
    }
    let sum = |counts: &Counts| counts.values().sum::<u64>();
    eprintln!(
        "{} of {} words counted twice",
        sum(&counted) - sum(&sent),
        load.sent
    );
    ensure!(
        sum(&counted) - sum(&counts_before) == load.sent - before_last,
        "words after the last kill did not count once"
    );
    Ok(())
}

/// Returns the last count of each word in the output.
fn counts(client: &mut Client) -> Result<Counts> {
    let mut counts = Counts::new();
    client.read_all("words-out", Isolation::ReadUncommitted, |_, record| {
        let word = String::from_utf8_lossy(record.key.as_deref().unwrap_or_default()).into_owned();
        let count = record.value.as_deref().and_then(|it| it.try_into().ok());
        counts.insert(word, count.map_or(0, u64::from_be_bytes));
    })?;
    Ok(counts)
}

//! Windows under SIGKILL.
//!
//! `07-page-views` counts each view exactly once, in its minute or as late. Its output, changelog and databases agree
//! with one loop over the input.
//!
//! All views of a page are in the input partition with the number of its repartition partition. Each counting task
//! therefore reads one fixed sequence, regardless of kills. Stream time commits with the counts and advances the same
//! way in every run, so the test knows in advance which views are late.
//!
//! `cargo test -p integration-tests --test exclusive windowed_counts::` takes half a minute. `EOS_FULL=1` runs the full
//! size: a million views, 25 kills, a process that freezes past every timeout, and one that joins and leaves.
//! `EOS_SEED=n` repeats a run.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use integration_tests::counted::{stored_in, visible};
use integration_tests::fate::{Fate, Faults, TIME_OUT};
use integration_tests::faults::is_full;
use integration_tests::fleet::Fleet;
use integration_tests::partitioner::partition;
use integration_tests::process::{Program, build};
use integration_tests::wait::wait_until;
use kafka_launcher::os::Signal;
use kafka_launcher::{ClusterOptions, own_for_tests};
use kafka_wire::{Client, Isolation, Producer, Record};

const INPUT: &str = "page-views";
const OUTPUT: &str = "page-views-per-minute";
const LATE: &str = "late-page-views";
const CHANGELOG: &str = "page-views-v1-pages-repartition-windowed-changelog";
const PARTITIONS: i32 = 6;
const PROCESSES: usize = 2;
const PATIENCE: Duration = Duration::from_secs(60);
const MINUTE: i64 = 60_000;
const GRACE: i64 = 10_000;
/// One of this number of views is ten days old.
const OLD: u64 = 500;
const TEN_DAYS: i64 = 10 * 24 * 3_600_000;

struct Size {
    views: u64,
    pages: u64,
    kills: u32,
    faults: Faults,
    /// Views per second.
    rate: u64,
    /// The event time between two views, in milliseconds.
    step: i64,
}

fn size() -> Size {
    if is_full() {
        Size {
            views: 1_000_000,
            pages: 100_000,
            kills: 25,
            faults: Faults::KillsAndMoves,
            rate: 14_000,
            step: 1,
        }
    } else {
        Size {
            views: 60_000,
            pages: 500,
            kills: 6,
            faults: Faults::Kills,
            rate: 3_000,
            step: 10,
        }
    }
}

/// A page and the beginning of a minute.
type Window = (String, i64);

impl Size {
    /// Returns the page of view number `n`, and its time after the first view, in milliseconds.
    fn view(&self, n: u64) -> (String, i64) {
        let page = format!("/{}", n.wrapping_mul(7919) % self.pages);
        let jitter = (n.wrapping_mul(104_729) % 4_000) as i64;
        let old = if n % OLD == OLD - 1 { TEN_DAYS } else { 0 };
        (page, n as i64 * self.step + jitter - old)
    }
}

fn window(page: String, time: i64) -> Window {
    (page, time.div_euclid(MINUTE) * MINUTE)
}

#[test]
fn each_view_counts_in_its_minute_or_is_late_despite_kills() -> Result<()> {
    let _alone = crate::alone();
    let Some(cluster) = own_for_tests(&ClusterOptions::default())? else {
        return Ok(());
    };
    let (size, dir) = (size(), tempfile::tempdir()?);
    let state = dir.path().join("state");
    let bootstrap = cluster.bootstrap();
    let mut client = Client::connect(bootstrap, PATIENCE)?;
    for topic in [INPUT, OUTPUT, LATE] {
        // With the default retention, brokers would delete the views that are ten days old.
        client.create_topic(topic, PARTITIONS, 1, &[("retention.ms", "-1")])?;
    }
    let time_out = TIME_OUT.as_millis().to_string();
    let environment = [
        ("EOS_BOOTSTRAP_SERVERS", bootstrap.to_owned()),
        ("EOS_STATE_DIR", state.display().to_string()),
        ("EOS_NUM_STREAM_THREADS", "2".to_owned()),
        ("EOS_REPARTITION_PURGE_INTERVAL_MS", "200".to_owned()),
        ("EOS_SESSION_TIMEOUT_MS", time_out.clone()),
        ("EOS_TRANSACTION_TIMEOUT_MS", time_out),
        (
            "RUST_LOG",
            "info,eos_core::worker::restore=debug".to_owned(),
        ),
        ("RUST_BACKTRACE", "0".to_owned()),
    ];
    let app = build(
        "eos-examples",
        Program::Bin("07-page-views"),
        &["--features=rocksdb"],
    )?;
    let mut fleet = Fleet::new(&app, environment, &dir.path().join("logs"))?;
    for _ in 0..PROCESSES {
        fleet.start()?;
    }
    // The views begin at the current time, because brokers keep a record only for a week after its time.
    let begins = i64::try_from(UNIX_EPOCH.elapsed()?.as_millis())?;
    let mut fate = Fate::new(size.faults, size.kills, 7)?;
    let ran = feed(&mut fleet, &mut fate, bootstrap, &size, begins);
    ran.with_context(|| format!("logs:\n{}", fleet.tails(20)))?;
    let all = wait_until(PATIENCE, "every view is counted or late", || {
        fleet.check()?;
        let out = visible(&mut client, OUTPUT)? + visible(&mut client, LATE)?;
        Ok(out >= size.views)
    });
    all.with_context(|| format!("logs:\n{}", fleet.tails(20)))?;
    fleet.stop_all(Signal::Term)?;
    fate.check(&fleet, PROCESSES)?;
    // The views span 10 minutes or more. So some windows are closed, and the app has deleted their part of the
    // changelog.
    let begin = client.start_offsets(CHANGELOG)?;
    ensure!(
        begin.iter().all(|begins| *begins > 0),
        "nothing was trimmed of {CHANGELOG}: {begin:?}"
    );
    let judged = judge(&mut client, &state, &size, begins, fate.count());
    judged.with_context(|| format!("logs:\n{}", fleet.tails(20)))?;
    let wiped = fleet.count_lines(|line| line.contains("discarding local state"))?;
    ensure!(wiped == 0, "{wiped} databases were deleted");
    Ok(())
}

/// Sends the views at a steady pace, while faults hit the processes.
fn feed(
    fleet: &mut Fleet,
    fate: &mut Fate,
    bootstrap: &str,
    size: &Size,
    begins: i64,
) -> Result<()> {
    let (mut producer, began) = (Producer::new(bootstrap)?, Instant::now());
    for n in 0..size.views {
        let (page, time) = size.view(n);
        let text = format!("u{n} {page}");
        let to = partition(page.as_bytes(), PARTITIONS);
        let time = begins + time;
        producer.send(INPUT, to, None, Some(text.as_bytes()), &[], time)?;
        if n % 100 == 0 {
            producer.flush()?;
            let due = Duration::from_secs_f64(n as f64 / size.rate as f64);
            thread::sleep(due.saturating_sub(began.elapsed()));
            fate.strike(fleet, n * 1_000 / size.views)?;
        }
    }
    producer.flush()?;
    fate.thaw(fleet)
}

fn judge(
    client: &mut Client,
    state: &std::path::Path,
    size: &Size,
    begins: i64,
    faults: u32,
) -> Result<()> {
    let expected = Expected::of(size, begins);
    ensure!(
        expected.late.values().sum::<u64>() > size.views / OLD / 2,
        "too few views are late: {:?}",
        expected.late.len()
    );

    let (mut counted, mut wrong) = (BTreeMap::<Window, u64>::new(), Vec::new());
    client.read_all(OUTPUT, Isolation::ReadCommitted, |at, record| {
        let Some((window, said)) = update(record) else {
            return wrong.push(format!("{at}@{}: no window or no count", record.offset));
        };
        let before = counted.insert(window.clone(), said).unwrap_or(0);
        if said != before + 1 {
            wrong.push(format!(
                "{window:?} at {at}@{}: {said} after {before}",
                record.offset
            ));
        }
    })?;
    ensure!(wrong.is_empty(), "{}: {:?}", wrong.len(), first(&wrong));

    let (mut late, mut lates) = (BTreeMap::<Window, u64>::new(), 0);
    client.read_all(LATE, Isolation::ReadCommitted, |_, record| {
        let page = text(record.key.as_deref());
        *late.entry(window(page, record.timestamp)).or_default() += 1;
        lates += 1;
    })?;
    same("counted", &counted, &expected.counted)?;
    same("late", &late, &expected.late)?;

    // The last count of each window that was open at the end must be kept.
    let open: Vec<_> = open(&counted);
    let logged = logged(client)?;
    let stored = stored(state)?;
    for (what, kept) in [("the changelog", &logged), ("the databases", &stored)] {
        for window in &open {
            ensure!(
                kept.get(*window) == counted.get(*window),
                "{window:?} is {:?} in {what}, and was counted {:?} times",
                kept.get(*window),
                counted.get(*window)
            );
        }
    }
    for (window, said) in &logged {
        ensure!(
            counted.get(window) == Some(said),
            "{window:?} is {said} in the changelog, and was counted {:?} times",
            counted.get(window)
        );
    }
    eprintln!(
        "{} views, {faults} faults: {} windows, {lates} views late, {} windows open at the end, {} in the \
         databases",
        size.views,
        counted.len(),
        open.len(),
        stored.len()
    );
    ensure!(stored.len() < counted.len(), "no window was ever forgotten");
    Ok(())
}

/// The counts of one loop over the input.
#[derive(Default)]
struct Expected {
    counted: BTreeMap<Window, u64>,
    late: BTreeMap<Window, u64>,
}

impl Expected {
    fn of(size: &Size, begins: i64) -> Expected {
        let mut expected = Expected::default();
        let mut stream_times = BTreeMap::<i32, i64>::new();
        for n in 0..size.views {
            let (page, time) = size.view(n);
            let time = begins + time;
            let task = partition(page.as_bytes(), PARTITIONS);
            let stream_time = stream_times.entry(task).or_insert(time);
            *stream_time = time.max(*stream_time);
            let window = window(page, time);
            let is_late = window.1 + MINUTE + GRACE <= *stream_time;
            let counts = match is_late {
                true => &mut expected.late,
                false => &mut expected.counted,
            };
            *counts.entry(window).or_default() += 1;
        }
        expected
    }
}

fn same(what: &str, found: &BTreeMap<Window, u64>, expected: &BTreeMap<Window, u64>) -> Result<()> {
    let windows = expected.keys().chain(found.keys());
    let differ: Vec<_> = windows
        .filter(|window| found.get(*window) != expected.get(*window))
        .map(|window| (window, found.get(window), expected.get(window)))
        .collect();
    ensure!(
        differ.is_empty(),
        "{} windows have other {what} views than expected (window, found, expected): {:?}",
        differ.len(),
        first(&differ)
    );
    Ok(())
}

/// Returns the windows of the last minute. No record of any partition has closed them.
fn open(counted: &BTreeMap<Window, u64>) -> Vec<&Window> {
    let last = counted.keys().map(|(_, start)| *start).max();
    let open = counted.keys().filter(|(_, start)| Some(*start) == last);
    open.collect()
}

/// Parses an update. Its key is the page and eight bytes of time, as in Kafka Streams.
fn update(record: &Record) -> Option<(Window, u64)> {
    let (page, start) = record.key.as_deref()?.split_last_chunk::<8>()?;
    let count = record.value.as_deref()?.try_into().ok()?;
    let window = (text(Some(page)), i64::from_be_bytes(*start));
    Some((window, u64::from_be_bytes(count)))
}

/// Returns the last count of each window in the changelog. Four bytes of the store come before the key.
fn logged(client: &mut Client) -> Result<BTreeMap<Window, u64>> {
    let mut logged = BTreeMap::new();
    client.read_all(CHANGELOG, Isolation::ReadCommitted, |_, record| {
        let key = record.key.as_deref().unwrap_or_default();
        let entry = key.get(4..).zip(record.value.as_deref());
        logged.extend(entry.and_then(|(key, value)| kept(key, value)));
    })?;
    Ok(logged)
}

/// Returns the counts in the databases. If a task left older copies behind, the largest count is the latest.
fn stored(state: &std::path::Path) -> Result<BTreeMap<Window, u64>> {
    let mut stored = BTreeMap::<Window, u64>::new();
    for (key, value) in stored_in(state)? {
        if let Some((window, count)) = kept(&key, &value) {
            let known = stored.entry(window).or_default();
            *known = count.max(*known);
        }
    }
    Ok(stored)
}

/// Parses a row. The key is the window's start, with its sign bit flipped so that it sorts, and the page. The value is
/// eight bytes of time, and the count.
fn kept(key: &[u8], value: &[u8]) -> Option<(Window, u64)> {
    let (start, page) = key.split_first_chunk::<8>()?;
    let start = i64::from_be_bytes(*start) ^ i64::MIN;
    let count = value.get(8..)?.try_into().ok()?;
    Some(((text(Some(page)), start), u64::from_be_bytes(count)))
}

fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}

fn first<T>(all: &[T]) -> &[T] {
    &all[..all.len().min(5)]
}

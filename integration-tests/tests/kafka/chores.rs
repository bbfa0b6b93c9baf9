//! Background jobs on a real Kafka. Repartition topics are purged up to the committed offsets, and the state of tasks
//! that moved to another process is deleted. The metrics count the restores of tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use kafka_wire::Isolation;

use crate::common::{Case, PATIENCE, With, ended, on_kafka};
use anyhow::{Context, Result, ensure};
use eos_core::metrics::RestoreKind;
use eos_core::run::{Running, StopMode};
use eos_core::{App, KeyValueStore, Topic};
use integration_tests::wait::wait_until;

const PARTITIONS: i32 = 2;

#[test]
fn unneeded_records_are_deleted_and_no_others() -> Result<()> {
    on_kafka(&[
        ("a repartition topic is emptied", emptied),
        ("state of tasks that are elsewhere goes", left_over),
    ])
}

/// Counts words across a repartition topic.
fn counting(case: &Case) -> App {
    let mut app = case.app().with("repartition.purge.interval.ms", 100);
    app.source(&Topic::<Option<String>, String>::plain(&case.input))
        .key_by(|word| word.clone())
        .repartition(&Topic::<String, String>::plain("words"))
        .group_by_key()
        .count(&KeyValueStore::<String, u64>::plain("counts"))
        .to(&Topic::plain(&case.output));
    app
}

fn repartition(case: &Case) -> String {
    format!("{}-words-repartition", case.app)
}

/// Sends each of 20 words `times` times.
fn send(case: &Case, times: usize) -> Result<()> {
    let words: Vec<String> = (0..20).map(|n| format!("word-{n}")).collect();
    let all = (0..times).flat_map(|_| words.iter().map(String::as_str));
    case.send(&all.collect::<Vec<_>>())
}

/// Returns whether each word was counted `times` times. Fails if a count does not rise by one.
fn counted(case: &mut Case, times: u64) -> Result<bool> {
    let (mut counts, mut wrong) = (BTreeMap::<Vec<u8>, u64>::new(), Vec::new());
    case.client
        .read_all(&case.output, Isolation::ReadCommitted, |_, record| {
            let count = counts
                .entry(record.key.as_deref().unwrap_or_default().to_vec())
                .or_default();
            *count += 1;
            if record.value.as_deref() != Some(&count.to_be_bytes()[..]) {
                wrong.push((record.offset, *count));
            }
        })?;
    ensure!(wrong.is_empty(), "counts that are not one more: {wrong:?}");
    ensure!(counts.values().all(|count| *count <= times), "{counts:?}");
    Ok(counts.len() == 20 && counts.values().all(|count| *count == times))
}

/// Returns the start offset and the committed offset of each partition of the repartition topic.
fn fronts(case: &mut Case) -> Result<Vec<(i64, i64)>> {
    let topic = repartition(case);
    // The starts are read first, because committed offsets only grow.
    let starts = case.client.start_offsets(&topic)?;
    let committed = case.client.committed(&case.app, &topic)?;
    let committed = committed
        .into_iter()
        .map(|offset| offset.map_or(0, |(offset, _)| offset));
    let fronts: Vec<_> = starts.into_iter().zip(committed).collect();
    for (start, committed) in &fronts {
        ensure!(start <= committed, "deleted before it was read: {fronts:?}");
    }
    Ok(fronts)
}

/// Returns the numbers of restores so far by kind (exact, replayed, rebuilt, first), and the number of restored
/// records.
fn restores(running: &Running) -> ([u64; 4], u64) {
    let totals = running.handle().metrics().totals;
    (
        RestoreKind::ALL.map(|kind| totals.restores.by(kind)),
        totals.restored_records,
    )
}

fn emptied(bootstrap: &str) -> Result<()> {
    let mut case = Case::with_partitions(bootstrap, "emptied", PARTITIONS)?;
    let mut sent = 0;
    for (turn, expected) in [[0, 0, 0, 2], [2, 0, 0, 0], [0, 0, 2, 0]]
        .into_iter()
        .enumerate()
    {
        if turn == 2 {
            fs::remove_dir_all(case.state.path().join(&case.app))?;
        }
        let mut running = counting(&case).start_blocking(bootstrap)?;
        for _ in 0..5 {
            send(&case, 10)?;
            sent += 10;
            std::thread::sleep(Duration::from_millis(150));
            fronts(&mut case)?;
        }
        wait_until(PATIENCE, "all is counted", || counted(&mut case, sent))?;
        wait_until(PATIENCE, "all is deleted that is committed", || {
            let fronts = fronts(&mut case)?;
            Ok(fronts.iter().all(|(start, end)| start == end && *start > 0))
        })?;
        let (kinds, records) = restores(&running);
        ensure!(kinds == expected, "{turn}: {kinds:?}, not {expected:?}");
        ensure!(
            (records > 0) == (turn == 2),
            "{turn}: {records} records were read"
        );
        running.handle().stop(StopMode::Restart);
        ended(&mut running)??;
    }
    Ok(())
}

/// Returns the tasks with state in a slot.
fn tasks(app: &Path, slot: u32) -> Result<BTreeSet<String>> {
    let path = app.join(slot.to_string()).join("tasks");
    if !path.exists() {
        return Ok(BTreeSet::new());
    }
    let entries = fs::read_dir(&path).context("the tasks of a slot")?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

/// Counts records by their key, in one stage. Each process gets one of the two tasks.
fn by_key(case: &Case) -> App {
    let mut app = case.app().with("state.cleanup.delay.ms", 1000);
    app.source(&Topic::<String, String>::plain(&case.input))
        .group_by_key()
        .count(&KeyValueStore::<String, u64>::plain("counts"))
        .to(&Topic::plain(&case.output));
    app
}

/// Sends 100 records, and waits until all records are counted, one by one.
fn feed(case: &mut Case, sent: &mut u64) -> Result<()> {
    case.send(&["x"; 100])?;
    *sent += 100;
    wait_until(PATIENCE, "all is counted", || {
        let mut counts = Vec::new();
        case.client
            .read_all(&case.output, Isolation::ReadCommitted, |_, record| {
                let value = record.value.as_deref().and_then(|v| v.try_into().ok());
                counts.push(value.map_or(0, u64::from_be_bytes));
            })?;
        ensure!(
            counts.iter().copied().eq(1..=counts.len() as u64),
            "{counts:?}"
        );
        Ok(counts.len() as u64 == *sent)
    })
}

fn left_over(bootstrap: &str) -> Result<()> {
    let mut case = Case::with_partitions(bootstrap, "left-over", PARTITIONS)?;
    let (root, mut sent) = (case.state.path().join(&case.app), 0);
    let mut first = by_key(&case).with("slot", 0).start_blocking(bootstrap)?;
    feed(&mut case, &mut sent)?;
    let all = tasks(&root, 0)?;
    ensure!(all.len() == 2, "{all:?}");

    let mut second = by_key(&case).with("slot", 1).start_blocking(bootstrap)?;
    wait_until(
        PATIENCE,
        "one state moved, and is gone where it was",
        || Ok(tasks(&root, 0)?.len() == 1 && tasks(&root, 1)?.len() == 1),
    )?;
    feed(&mut case, &mut sent)?;
    // Waits for longer than the delay. The state of running tasks stays.
    std::thread::sleep(Duration::from_millis(2500));
    let (one, other) = (tasks(&root, 0)?, tasks(&root, 1)?);
    let both: BTreeSet<_> = one.union(&other).cloned().collect();
    ensure!(
        both == all && one.len() == 1 && other.len() == 1,
        "{one:?} and {other:?}, not {all:?}"
    );

    second.handle().stop(StopMode::Leave);
    ended(&mut second)??;
    wait_until(PATIENCE, "it came back", || Ok(tasks(&root, 0)? == all))?;
    feed(&mut case, &mut sent)?;
    first.handle().stop(StopMode::Leave);
    ended(&mut first)??;
    Ok(())
}

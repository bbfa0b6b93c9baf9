//! State under SIGKILL: `06-word-count` counts each word exactly once, and what its output, its changelog
//! and its databases say at the end is the same as what one loop over the input says.
//!
//! `cargo test -p integration-tests --test counts` takes half a minute. The full size (a million words,
//! 100,000 different ones, 30 kills): `EOS_FULL=1 cargo test -p integration-tests --test counts --
//! --nocapture`. `EOS_SEED=n` repeats a run.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use integration_tests::counted::{Counted, Counts, visible};
use integration_tests::faults::is_full;
use integration_tests::fleet::Fleet;
use integration_tests::kill::Random;
use integration_tests::process::{Program, build};
use integration_tests::wait::wait_until;
use xtask::kafka::{ClusterOptions, own_for_tests};
use xtask::os::Signal;
use xtask::wire::{Client, Producer};

const INPUT: &str = "lines";
const CHANGELOG: &str = "word-count-v1-words-repartition-changelog";
const OUTPUT: &str = "word-counts";
const PARTITIONS: i32 = 6;
const PROCESSES: usize = 2;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

struct Size {
    lines: u64,
    keys: u64,
    kills: u32,
    /// Lines a second.
    rate: u64,
}

fn size() -> Size {
    if is_full() {
        Size {
            lines: 500_000,
            keys: 100_000,
            kills: 30,
            rate: 8_000,
        }
    } else {
        Size {
            lines: 40_000,
            keys: 2_000,
            kills: 6,
            rate: 2_500,
        }
    }
}

/// What line number `n` says: one word of many, and one of few.
fn line(n: u64, keys: u64) -> [String; 2] {
    [
        format!("w{}", n.wrapping_mul(7919) % keys),
        format!("v{}", n % 13),
    ]
}

#[test]
fn each_word_counts_once_whoever_is_killed() -> Result<()> {
    let Some(cluster) = own_for_tests(&ClusterOptions::default())? else {
        return Ok(());
    };
    let (size, dir) = (size(), tempfile::tempdir()?);
    let state = dir.path().join("state");
    let bootstrap = cluster.bootstrap();
    let mut client = Client::connect(bootstrap, PATIENCE)?;
    for topic in [INPUT, OUTPUT] {
        client.create_topic(topic, PARTITIONS, 1, &[])?;
    }
    let environment = [
        ("KAFKA_BOOTSTRAP_SERVERS", bootstrap.to_owned()),
        ("EOS_STATE_DIR", state.display().to_string()),
        ("WORKERS", "2".to_owned()),
        ("RUST_BACKTRACE", "0".to_owned()),
    ];
    let environment = environment.map(|(key, value)| (key.to_owned(), value));
    let app = build("eos-examples", Program::Bin("06-word-count"), &[])?;
    let mut fleet = Fleet::new(&app, environment.into(), &dir.path().join("logs"))?;
    for _ in 0..PROCESSES {
        fleet.start()?;
    }
    let ran = run(&mut client, &mut fleet, bootstrap, &size);
    ran.with_context(|| format!("logs:\n{}", fleet.tails(20)))?;
    fleet.stop_all(Signal::Term)?;
    let counted = Counted {
        output: OUTPUT,
        changelog: CHANGELOG,
        partitions: PARTITIONS,
        state: &state,
        stored: Path::new(env!("CARGO_BIN_EXE_stored")),
    };
    let findings = counted.check(&mut client, &expected(&size))?;
    let clean = findings.ensure_clean();
    clean.with_context(|| format!("logs:\n{}", fleet.tails(20)))?;

    let whole = |line: &str| line.contains("state is whole");
    let exact = |line: &str| whole(line) && line.contains("exact=true");
    let (all, exact) = (fleet.count_lines(whole)?, fleet.count_lines(exact)?);
    eprintln!(
        "{} lines, {} kills, {all} times a task took over its state, {exact} times without reading",
        size.lines, size.kills
    );
    ensure!(
        fleet.started() == PROCESSES + size.kills as usize,
        "not every kill happened"
    );
    // A kill between a commit and its write to the databases leaves those one behind, as it should; on
    // a machine that is busy with something else commits take long, and few kills say little.
    let least = if is_full() { 9 } else { 3 };
    ensure!(
        exact * 10 >= all * least,
        "only {exact} of {all} databases were exact"
    );
    let wiped = fleet.count_lines(|line| line.contains("thrown away"))?;
    ensure!(wiped == 0, "{wiped} databases were thrown away");
    Ok(())
}

/// Feeds the lines at a steady pace, kills somebody again and again meanwhile, and waits until all is
/// committed.
fn run(client: &mut Client, fleet: &mut Fleet, bootstrap: &str, size: &Size) -> Result<()> {
    // Older records would be gone before they are read: the brokers keep a week.
    let now = i64::try_from(UNIX_EPOCH.elapsed()?.as_millis())?;
    let (mut producer, began) = (Producer::new(bootstrap)?, Instant::now());
    let seed = std::env::var("EOS_SEED").map_or(Ok(6), |seed| seed.parse())?;
    let (mut plan, mut killed) = (Random::new(seed), 0);
    for n in 0..size.lines {
        let text = line(n, size.keys).join(" ");
        let to = i32::try_from(n % PARTITIONS.unsigned_abs() as u64)?;
        producer.send(INPUT, to, None, Some(text.as_bytes()), &[], now)?;
        if n % 100 == 0 {
            producer.flush()?;
            let due = Duration::from_secs_f64(n as f64 / size.rate as f64);
            thread::sleep(due.saturating_sub(began.elapsed()));
        }
        // The kills are spread over the run; none before the first commits, none after the last lines.
        let due = size.lines * u64::from(killed + 1) / u64::from(size.kills + 1);
        if n > due && killed < size.kills {
            fleet.kill_and_restart(plan.index(PROCESSES))?;
            killed += 1;
        }
    }
    producer.flush()?;
    wait_until(PATIENCE, "every word is in the output", || {
        fleet.check()?;
        Ok(visible(client, OUTPUT)? >= 2 * size.lines)
    })
}

/// What one loop over the input says.
fn expected(size: &Size) -> Counts {
    let mut expected = Counts::new();
    for n in 0..size.lines {
        for word in line(n, size.keys) {
            *expected.entry(word).or_default() += 1;
        }
    }
    expected
}

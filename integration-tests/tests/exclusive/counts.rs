//! State under SIGKILL. `06-word-count` counts each word exactly once while its processes are killed, one of them
//! freezes past every timeout, and another one joins and leaves. At the end, the counts in its output, its changelog
//! and its databases equal those of one loop over the input.
//!
//! `cargo test -p integration-tests --test exclusive counts::` takes a minute. The full size (a million words,
//! 100,000 different ones, 30 kills): `EOS_FULL=1 cargo test -p integration-tests --test exclusive counts:: --
//! --nocapture`. `EOS_SEED=n` repeats a run.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use eos_broker::EmbeddedKafka;
use integration_tests::counted::{Counted, Counts, Findings, visible};
use integration_tests::fate::{Fate, Faults, TIME_OUT};
use integration_tests::faults::{Row, is_full, record};
use integration_tests::files::copy_dir;
use integration_tests::fleet::Fleet;
use integration_tests::process::{Program, build};
use integration_tests::wait::wait_until;
use kafka_launcher::os::Signal;
use kafka_launcher::{ClusterOptions, own_for_tests};
use kafka_wire::{Client, Producer};

const PARTITIONS: i32 = 6;
const PROCESSES: usize = 2;
/// The time limit of each wait.
const PATIENCE: Duration = Duration::from_secs(60);

struct Size {
    lines: u64,
    keys: u64,
    kills: u32,
    /// Lines per second.
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
            lines: 60_000,
            keys: 2_000,
            kills: 8,
            rate: 2_500,
        }
    }
}

/// An app, its environment and its topics.
struct App {
    program: PathBuf,
    environment: Vec<(&'static str, &'static str)>,
    input: &'static str,
    output: &'static str,
    changelog: &'static str,
}

impl App {
    fn environment(&self) -> impl Iterator<Item = (&'static str, String)> {
        let own = self.environment.iter();
        own.map(|(key, value)| (*key, (*value).to_owned()))
    }

    fn shipped() -> Result<App> {
        Ok(App {
            program: build(
                "eos-examples",
                Program::Bin("06-word-count"),
                &["--features=rocksdb"],
            )?,
            environment: Vec::new(),
            input: "lines",
            output: "word-counts",
            changelog: "word-count-v1-words-repartition-changelog",
        })
    }

    fn without(defence: &'static str) -> Result<App> {
        let program = Program::Example("word_count");
        let environment = [("APP", "control"), ("EOS_UNDEFENDED", defence)];
        Ok(App {
            program: build("integration-tests", program, &["--features", "failpoints"])?,
            environment: environment.into(),
            input: "control-in",
            output: "control-out",
            changelog: "control-words-repartition-changelog",
        })
    }
}

/// Returns the words of line number `n`: one of many words, and one of few.
fn line(n: u64, keys: u64) -> [String; 2] {
    [
        format!("w{}", n.wrapping_mul(7919) % keys),
        format!("v{}", n % 13),
    ]
}

/// Returns the counts of one loop over the input.
fn expected(size: &Size) -> Counts {
    let mut expected = Counts::new();
    for n in 0..size.lines {
        for word in line(n, size.keys) {
            *expected.entry(word).or_default() += 1;
        }
    }
    expected
}

#[test]
fn each_word_counts_once_despite_kills() -> Result<()> {
    let _alone = crate::alone();
    let Some(cluster) = own_for_tests(&ClusterOptions::default())? else {
        return Ok(());
    };
    let (size, since) = (size(), Instant::now());
    let done = killed(cluster.bootstrap())?;
    let Done {
        findings,
        calm,
        wiped,
        ..
    } = &done;
    record(&Row {
        point: "8 state".into(),
        case: format!(
            "{} words, {} keys: kills, a zombie, one joins and leaves",
            2 * size.lines,
            size.keys
        ),
        cases: 1,
        fired: u64::from(size.kills) + 3,
        verdict: format!(
            "{findings}; after a kill alone {} of {} databases were exact, {} records read for \
             them; {wiped} deleted",
            calm.exact, calm.all, calm.records
        ),
        seconds: since.elapsed().as_secs_f64(),
        command: "EOS_FULL=1 cargo test -p integration-tests --test exclusive counts::".into(),
    })?;
    check(&done)
}

#[test]
fn on_the_embedded_broker_too() -> Result<()> {
    let _alone = crate::alone();
    let kafka = EmbeddedKafka::start()?;
    check(&killed(&kafka.bootstrap())?)
}

fn killed(bootstrap: &str) -> Result<Done> {
    run(&App::shipped()?, bootstrap, &size())
}

/// Checks that each word is counted once, and that restarts found usable databases.
fn check(done: &Done) -> Result<()> {
    let Done {
        findings,
        told,
        calm,
        wiped,
        ..
    } = done;
    findings.ensure_clean().with_context(|| told.clone())?;
    ensure!(*wiped == 0, "{wiped} databases were deleted:\n{told}");
    // A kill between a commit and its write to the databases leaves these one transaction behind, as intended. On a
    // busy machine commits take long, and a few kills prove little.
    let least = if is_full() { 9 } else { 3 };
    ensure!(
        calm.exact * 10 >= calm.all * least && calm.all > 0,
        "only {} of {} databases were exact",
        calm.exact,
        calm.all
    );
    ensure!(
        calm.records == 0,
        "exact, and yet {} were read",
        calm.records
    );
    Ok(())
}

/// The control of the tests above, whose faults might be harmless. It does not depend on chance: the databases are
/// replaced by older copies, which a restart must detect.
#[test]
fn without_the_restart_table_words_count_wrong() -> Result<()> {
    let _alone = crate::alone();
    let Some(cluster) = own_for_tests(&ClusterOptions::default())? else {
        return Ok(());
    };
    let (since, dir) = (Instant::now(), tempfile::tempdir()?);
    let (state, older) = (dir.path().join("state"), dir.path().join("older"));
    let app = App::without("restart_table")?;
    let mut client = Client::connect(cluster.bootstrap(), PATIENCE)?;
    for topic in [app.input, app.output] {
        client.create_topic(topic, PARTITIONS, 1, &[])?;
    }
    let environment = [
        ("EOS_BOOTSTRAP_SERVERS", cluster.bootstrap().to_owned()),
        ("EOS_STATE_DIR", state.display().to_string()),
        (
            "RUST_LOG",
            "info,eos_core::worker::restore=debug".to_owned(),
        ),
        ("RUST_BACKTRACE", "0".to_owned()),
    ];
    let environment = environment.into_iter().chain(app.environment());
    let logs = dir.path().join("logs");
    let mut fleet = Fleet::new(&app.program, environment, &logs)?;
    fleet.start()?;
    const PART: u64 = 1_000;
    let mut producer = Producer::new(cluster.bootstrap())?;
    let mut part = |fleet: &mut Fleet, nth: u64| {
        let now = i64::try_from(UNIX_EPOCH.elapsed()?.as_millis())?;
        for n in nth * PART..(nth + 1) * PART {
            let text = line(n, 50).join(" ");
            let to = i32::try_from(n % PARTITIONS.unsigned_abs() as u64)?;
            producer.send(app.input, to, None, Some(text.as_bytes()), &[], now)?;
        }
        producer.flush()?;
        wait_until(PATIENCE, "every word of a part is in the output", || {
            fleet.check()?;
            Ok(visible(&mut client, app.output)? >= 2 * (nth + 1) * PART)
        })
    };
    part(&mut fleet, 0)?;
    fleet.kill(0)?;
    copy_dir(&state, &older)?;
    fleet.start()?;
    part(&mut fleet, 1)?;
    fleet.kill(0)?;
    std::fs::remove_dir_all(&state)?;
    copy_dir(&older, &state)?;
    fleet.start()?;
    part(&mut fleet, 2)?;
    fleet.stop_all(Signal::Term)?;
    let size = Size {
        lines: 3 * PART,
        keys: 50,
        kills: 2,
        rate: 0,
    };
    let counted = Counted {
        output: app.output,
        changelog: app.changelog,
        partitions: PARTITIONS,
        state: &state,
    };
    let findings = counted.check(&mut client, &expected(&size))?;
    record(&Row {
        point: "8 state".into(),
        case: "control: databases of an earlier moment, believed whatever the offsets say".into(),
        cases: 1,
        fired: 1,
        verdict: format!("{findings}: violated, as expected"),
        seconds: since.elapsed().as_secs_f64(),
        command: "cargo test -p integration-tests --test exclusive counts::".into(),
    })?;
    let told = fleet.tails(20);
    ensure!(findings.jumps > 0, "{findings}, logs:\n{told}");
    Ok(())
}

struct Done {
    findings: Findings,
    /// Databases of processes that replaced a killed one while no member joined or left.
    calm: Calm,
    /// Databases that were deleted.
    wiped: usize,
    told: String,
}

#[derive(Debug, Default)]
struct Calm {
    all: usize,
    exact: usize,
    /// The number of records that were restored for exact databases.
    records: u64,
}

fn run(app: &App, bootstrap: &str, size: &Size) -> Result<Done> {
    let dir = tempfile::tempdir()?;
    let state = dir.path().join("state");
    let mut client = Client::connect(bootstrap, PATIENCE)?;
    for topic in [app.input, app.output] {
        client.create_topic(topic, PARTITIONS, 1, &[])?;
    }
    let time_out = TIME_OUT.as_millis().to_string();
    let environment = [
        ("EOS_BOOTSTRAP_SERVERS", bootstrap.to_owned()),
        ("EOS_STATE_DIR", state.display().to_string()),
        ("EOS_SESSION_TIMEOUT_MS", time_out.clone()),
        ("EOS_TRANSACTION_TIMEOUT_MS", time_out),
        // A short interval, so that kills hit a purge.
        ("EOS_REPARTITION_PURGE_INTERVAL_MS", "200".to_owned()),
        (
            "RUST_LOG",
            "info,eos_core::worker::restore=debug".to_owned(),
        ),
        ("WORKERS", "2".to_owned()),
        ("RUST_BACKTRACE", "0".to_owned()),
    ];
    let environment = environment.into_iter().chain(app.environment());
    let mut fleet = Fleet::new(&app.program, environment, &dir.path().join("logs"))?;
    for _ in 0..PROCESSES {
        fleet.start()?;
    }
    let mut fate = Fate::new(Faults::KillsAndMoves, size.kills, 6)?;
    let fed = feed(app, &mut fleet, &mut fate, bootstrap, size);
    fed.with_context(|| format!("logs:\n{}", fleet.tails(20)))?;
    let counted = wait_until(PATIENCE, "every word is in the output", || {
        fleet.check()?;
        Ok(visible(&mut client, app.output)? >= 2 * size.lines)
    });
    counted.with_context(|| format!("logs:\n{}", fleet.tails(20)))?;
    fleet.stop_all(Signal::Term)?;
    fate.check(&fleet, PROCESSES)?;
    let purged = app.changelog.trim_end_matches("-changelog");
    let begins = client.start_offsets(purged)?;
    ensure!(
        begins.iter().all(|begins| *begins > 0),
        "nothing was deleted of {purged}: {begins:?}"
    );

    let counted = Counted {
        output: app.output,
        changelog: app.changelog,
        partitions: PARTITIONS,
        state: &state,
    };
    let mut calm = Calm::default();
    for nth in fate.calm() {
        calm.add(&fleet.text(*nth));
    }
    Ok(Done {
        findings: counted.check(&mut client, &expected(size))?,
        calm,
        wiped: fleet.count_lines(|line| line.contains("discarding local state"))?,
        told: format!("logs:\n{}", fleet.tails(20)),
    })
}

/// Sends the lines at a steady pace, while faults hit the processes.
fn feed(app: &App, fleet: &mut Fleet, fate: &mut Fate, bootstrap: &str, size: &Size) -> Result<()> {
    // Brokers keep records for a week, so records with an older time could be deleted before they are read.
    let now = i64::try_from(UNIX_EPOCH.elapsed()?.as_millis())?;
    let (mut producer, began) = (Producer::new(bootstrap)?, Instant::now());
    for n in 0..size.lines {
        let text = line(n, size.keys).join(" ");
        let to = i32::try_from(n % PARTITIONS.unsigned_abs() as u64)?;
        producer.send(app.input, to, None, Some(text.as_bytes()), &[], now)?;
        if n % 100 == 0 {
            producer.flush()?;
            let due = Duration::from_secs_f64(n as f64 / size.rate as f64);
            thread::sleep(due.saturating_sub(began.elapsed()));
            fate.strike(fleet, n * 1_000 / size.lines)?;
        }
    }
    producer.flush()?;
    // A frozen process holds its partitions until its session ends.
    fate.thaw(fleet)
}

impl Calm {
    /// Adds the databases that the successor of a killed process found at its start, before its first revocation.
    fn add(&mut self, log: &str) {
        let first = log.split("partitions revoked").next().unwrap_or_default();
        for line in first.lines() {
            let Some((_, rest)) = line.split_once(" restart=\"") else {
                continue;
            };
            self.all += 1;
            self.exact += usize::from(rest.starts_with("exact\""));
        }
        let read = |line: &&str| line.contains("changelog read");
        let tasks = |line: &str| Some(line.split_once(" task=")?.1.split(' ').next()?.to_owned());
        let exact: Vec<String> = first
            .lines()
            .filter(|line| line.contains(" restart=\"exact\""))
            .filter_map(tasks)
            .collect();
        for line in first.lines().filter(read) {
            let records = line.split_once(" records=").and_then(|(_, rest)| {
                let number = rest.split(' ').next()?;
                number.parse::<u64>().ok()
            });
            if tasks(line).is_some_and(|task| exact.contains(&task)) {
                self.records += records.unwrap_or(0);
            }
        }
    }
}

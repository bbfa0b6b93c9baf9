//! An hour of kills beside a surviving process.
//!
//! `cargo xtask soak hour` runs it. Three processes count records by key with RocksDB on a real Kafka. Two of them are
//! killed in turn. A successor starts at once, or, for every third kill, after the session has ended. Then the tasks of
//! the killed process move to the others and back. The third process is never killed. Its memory, file descriptors and
//! threads must stay flat, and every record must count once.
//!
//! Without `EOS_FULL=1`, the test takes two minutes and does not judge memory, because caches still fill.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use integration_tests::counted::{self, Counted, Counts, Findings};
use integration_tests::faults::is_full;
use integration_tests::fleet::Fleet;
use integration_tests::kill::Random;
use integration_tests::partitioner::partition;
use integration_tests::process::{Program, build};
use integration_tests::soak::{Mark, Sample, Sampler, Series, ensure_flat, grown, plot, table};
use integration_tests::wait::{is_through, wait_until};
use kafka_launcher::os::Signal;
use kafka_launcher::{ClusterOptions, own_for_tests};
use kafka_wire::{Client, Isolation, Producer};

/// Two partitions for each worker.
const PARTITIONS: i32 = 12;
const PROCESSES: usize = 3;
/// The index of the process that is never killed: a fleet appends the successors of killed processes.
const LIVES: usize = 0;
const PATIENCE: Duration = Duration::from_secs(300);
/// `session.timeout.ms` and `transaction.timeout.ms`.
const TIMEOUT: Duration = Duration::from_secs(6);
/// The pause before a successor that starts after the session of the killed process.
const AWAY: Duration = Duration::from_secs(9);
/// The directory for the plot and the table.
const REPORT_VAR: &str = "EOS_SOAK_REPORT";

/// The size of a run.
struct Course {
    span: Duration,
    /// Records per second.
    rate: u64,
    keys: u64,
    /// The time between two kills.
    every: Duration,
    /// The time between two samples.
    period: Duration,
}

impl Course {
    fn full() -> Self {
        Course {
            span: Duration::from_secs(3_600),
            rate: 4_000,
            keys: 100_000,
            every: Duration::from_secs(60),
            period: Duration::from_secs(5),
        }
    }

    fn short() -> Self {
        Course {
            span: Duration::from_secs(120),
            rate: 2_000,
            keys: 2_000,
            every: Duration::from_secs(15),
            period: Duration::from_millis(500),
        }
    }

    fn records(&self) -> u64 {
        self.span.as_secs() * self.rate
    }

    /// Returns the planned kills. There is none in the last interval.
    fn kills(&self) -> Vec<Mark> {
        let kills = self.span.as_secs() / self.every.as_secs() - 1;
        let nth = |n: u32| Mark {
            at: self.every * n,
            moves: n % 3 == 0,
        };
        (1..).map(nth).take(kills as usize).collect()
    }
}

/// The app, which is also its consumer group and the prefix of its topics.
#[derive(Clone, Copy)]
struct App {
    name: &'static str,
    leaks: bool,
}

impl App {
    fn input(self) -> String {
        format!("{}-in", self.name)
    }

    fn output(self) -> String {
        format!("{}-out", self.name)
    }

    fn changelog(self) -> String {
        format!("{}-changelog", self.input())
    }
}

const HEALTHY: App = App {
    name: "soak",
    leaks: false,
};
const LEAKING: App = App {
    name: "leaking",
    leaks: true,
};

/// The results of a run.
struct Outcome {
    samples: Vec<Sample>,
    /// The kills that happened.
    kills: Vec<Mark>,
    /// The number of times that the process that is never killed received partitions.
    assigned: usize,
    findings: Findings,
    logs: String,
}

#[test]
fn an_hour_of_kills_leaves_memory_files_and_threads_flat() -> Result<()> {
    let course = if is_full() {
        Course::full()
    } else {
        Course::short()
    };
    let Some(outcome) = run(HEALTHY, &course)? else {
        return Ok(());
    };
    let text = report(&outcome, &course)?;
    eprintln!("{text}");
    outcome.check(&course)?;
    if is_full() {
        return ensure_flat(&outcome.samples);
    }
    let mut grown = grown(&outcome.samples)?;
    grown.retain(|series| !matches!(series, Series::Resident | Series::Heap));
    ensure!(grown.is_empty(), "{grown:?} grew:\n{text}");
    Ok(())
}

/// The control of the test above: its rule finds a planted leak.
#[test]
fn a_process_that_leaks_is_found() -> Result<()> {
    let Some(outcome) = run(LEAKING, &Course::short())? else {
        return Ok(());
    };
    eprintln!("{}", table(&outcome.samples)?);
    outcome.check(&Course::short())?;
    let grown = grown(&outcome.samples)?;
    ensure!(grown == Series::ALL, "only {grown:?} grew");
    Ok(())
}

impl Outcome {
    /// Checks that each record counted once, and that every kill happened.
    fn check(&self, course: &Course) -> Result<()> {
        let Self {
            kills,
            assigned,
            findings,
            logs,
            ..
        } = self;
        findings.ensure_clean().with_context(|| logs.clone())?;
        let planned = course.kills().len();
        ensure!(kills.len() == planned, "{} of {planned} kills", kills.len());
        let moves = kills.iter().filter(|kill| kill.moves).count();
        ensure!(
            moves > 0 && *assigned > moves,
            "the process received partitions {assigned} times, {moves} of the kills move tasks:\n{logs}"
        );
        Ok(())
    }
}

fn run(app: App, course: &Course) -> Result<Option<Outcome>> {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(cluster) = own_for_tests(&ClusterOptions::default())? else {
        return Ok(None);
    };
    let program = Program::Example("counting");
    let program = build("integration-tests", program, &["--features", "failpoints"])?;
    // Compiles the program before the run, because a failure after an hour would be late.
    counted::program()?;
    let bootstrap = cluster.bootstrap();
    let dir = tempfile::tempdir()?;
    let state = dir.path().join("state");
    let mut client = Client::connect(bootstrap, PATIENCE)?;
    let (input, output) = (app.input(), app.output());
    for topic in [&input, &output] {
        client.create_topic(topic, PARTITIONS, 1, &[])?;
    }
    let timeout = TIMEOUT.as_millis().to_string();
    let mut environment = vec![
        ("EOS_BOOTSTRAP_SERVERS", bootstrap.to_owned()),
        ("EOS_STATE_DIR", state.display().to_string()),
        // The cache keeps blocks of deleted files until it is full. At 32 MiB, that took half an hour of the hour.
        ("EOS_STATE_MEMORY_BYTES", (8 << 20).to_string()),
        ("EOS_COMMIT_PACE", "fixed".to_owned()),
        ("EOS_SESSION_TIMEOUT_MS", timeout.clone()),
        ("EOS_TRANSACTION_TIMEOUT_MS", timeout),
        ("RUST_LOG", "info".to_owned()),
        ("RUST_BACKTRACE", "0".to_owned()),
        ("APP", app.name.to_owned()),
        ("WORKERS", "2".to_owned()),
    ];
    environment.extend(app.leaks.then(|| ("LEAK", "1".to_owned())));
    let mut fleet = Fleet::new(&program, environment, &dir.path().join("logs"))?;
    for _ in 0..PROCESSES {
        fleet.start()?;
    }
    let lives = fleet.nth(LIVES).context("the first process")?;
    let sampler = Sampler::start(fleet.id(LIVES).context("its id")?, course.period);
    let mut nemesis = Nemesis::new(course);
    let counts = feed(app, course, bootstrap, &mut fleet, &mut nemesis);
    let counts = counts.with_context(|| format!("logs:\n{}", fleet.tails(20)))?;
    let samples = sampler.finish()?;
    let counted = wait_until(PATIENCE, "every record is committed", || {
        fleet.check()?;
        is_through(&mut client, app.name, &input)
    });
    counted.with_context(|| format!("logs:\n{}", fleet.tails(20)))?;
    ensure!(
        fleet.nth(LIVES) == Some(lives),
        "the process that is never killed was replaced"
    );
    fleet.stop_all(Signal::Term)?;
    let counted = Counted {
        output: &output,
        changelog: &app.changelog(),
        partitions: PARTITIONS,
        state: &state,
    };
    let assigned = fleet.text(lives);
    let assigned = assigned
        .lines()
        .filter(|line| line.contains("partitions assigned") && !line.contains("partitions=[]"));
    Ok(Some(Outcome {
        samples,
        kills: nemesis.kills,
        assigned: assigned.count(),
        findings: counted.check(&mut client, &counts)?,
        logs: format!("logs:\n{}", fleet.tails(20)),
    }))
}

/// Sends the records at a steady pace while processes are killed. Returns the number of records of each key.
fn feed(
    app: App,
    course: &Course,
    bootstrap: &str,
    fleet: &mut Fleet,
    nemesis: &mut Nemesis,
) -> Result<Counts> {
    let mut client = Client::connect(bootstrap, PATIENCE)?;
    let (mut producer, begun) = (Producer::new(bootstrap)?, Instant::now());
    let (input, output) = (app.input(), app.output());
    let mut counts = Counts::new();
    for n in 0..course.records() {
        let key = format!("k{}", n.wrapping_mul(7919) % course.keys);
        let to = partition(key.as_bytes(), PARTITIONS);
        let now = i64::try_from(UNIX_EPOCH.elapsed()?.as_millis())?;
        producer.send(&input, to, Some(key.as_bytes()), Some(b"1"), &[], now)?;
        *counts.entry(key).or_default() += 1;
        if n % 100 == 99 {
            producer.flush()?;
            let due = Duration::from_secs_f64(n as f64 / course.rate as f64);
            thread::sleep(due.saturating_sub(begun.elapsed()));
            fleet.check()?;
            nemesis.strike(fleet, begun.elapsed(), || {
                let ends = client.end_offsets(&output, Isolation::ReadCommitted)?;
                Ok(ends.iter().sum())
            })?;
        }
    }
    producer.flush()?;
    nemesis.restart(fleet, Duration::MAX)?;
    Ok(counts)
}

/// The planned kills and their progress.
struct Nemesis {
    planned: Vec<Mark>,
    kills: Vec<Mark>,
    random: Random,
    /// The time at which the successor of the last killed process starts.
    restart: Option<Duration>,
    /// The committed output at the last kill.
    committed: i64,
}

impl Nemesis {
    fn new(course: &Course) -> Self {
        Nemesis {
            planned: course.kills(),
            kills: Vec::new(),
            random: Random::new(22),
            restart: None,
            committed: 0,
        }
    }

    /// Performs the actions that are due. Fails if the app committed nothing between two kills.
    fn strike(
        &mut self,
        fleet: &mut Fleet,
        now: Duration,
        committed: impl FnOnce() -> Result<i64>,
    ) -> Result<()> {
        self.restart(fleet, now)?;
        let Some(planned) = self.planned.get(self.kills.len()) else {
            return Ok(());
        };
        if now < planned.at || self.restart.is_some() {
            return Ok(());
        }
        let committed = committed()?;
        ensure!(
            committed > self.committed,
            "no commit since the last kill: {committed}"
        );
        self.committed = committed;
        fleet.kill(1 + self.random.index(fleet.len() - 1))?;
        self.kills.push(Mark {
            at: now,
            ..*planned
        });
        let away = if planned.moves { AWAY } else { Duration::ZERO };
        self.restart = Some(now + away);
        self.restart(fleet, now)
    }

    fn restart(&mut self, fleet: &mut Fleet, now: Duration) -> Result<()> {
        if self.restart.is_some_and(|due| now >= due) {
            self.restart = None;
            fleet.start()?;
        }
        Ok(())
    }
}

/// Writes the plot and the table into the directory that `EOS_SOAK_REPORT` names, and returns the table.
fn report(outcome: &Outcome, course: &Course) -> Result<String> {
    let moves = outcome.kills.iter().filter(|kill| kill.moves).count();
    let text = format!(
        "{:.0} min · {} records, {} records/s, {} keys · {PROCESSES} processes of 2 workers · {} kills, {moves} \
         of them with a successor after the session · {}.\n\n{}",
        course.span.as_secs_f64() / 60.0,
        course.records(),
        course.rate,
        course.keys,
        outcome.kills.len(),
        outcome.findings,
        table(&outcome.samples)?
    );
    let svg = plot(
        "The process that is never killed. Vertical lines: kills of others, red if tasks move",
        &outcome.samples,
        &outcome.kills,
    );
    let dir = std::env::var_os(REPORT_VAR);
    let dir = dir.map_or_else(
        || Path::new(env!("CARGO_TARGET_TMPDIR")).into(),
        PathBuf::from,
    );
    fs::create_dir_all(&dir)?;
    fs::write(dir.join("soak.svg"), svg)?;
    fs::write(dir.join("soak.md"), &text)?;
    eprintln!("{}", dir.join("soak.svg").display());
    Ok(text)
}

//! An hour of kills beside one process that lives: `cargo xtask soak hour`.
//!
//! Three processes of `06-word-count` count words with RocksDB on a real Kafka. Two of them are killed in turn, and a
//! successor starts at once, or for each third kill after the session. The tasks of the killed process then move to
//! the others and back. The third process is never killed. Its memory, file descriptors and threads have to stay flat,
//! and every word has to count once.
//!
//! Without `EOS_FULL=1` the test takes two minutes and its memory is not judged, because caches still fill.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use integration_tests::counted::{self, Counted, Counts, Findings, visible};
use integration_tests::faults::is_full;
use integration_tests::fleet::Fleet;
use integration_tests::kill::Random;
use integration_tests::process::{Program, build};
use integration_tests::soak::{Mark, Sample, Sampler, Series, ensure_flat, grown, plot, table};
use integration_tests::wait::{is_through, wait_until};
use kafka_launcher::os::Signal;
use kafka_launcher::{ClusterOptions, own_for_tests};
use kafka_wire::{Client, Isolation, Producer};

const PARTITIONS: i32 = 6;
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
    /// Lines per second, of two words each.
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
            rate: 2_000,
            keys: 100_000,
            every: Duration::from_secs(60),
            period: Duration::from_secs(5),
        }
    }

    fn short() -> Self {
        Course {
            span: Duration::from_secs(120),
            rate: 1_000,
            keys: 2_000,
            every: Duration::from_secs(15),
            period: Duration::from_millis(500),
        }
    }

    fn lines(&self) -> u64 {
        self.span.as_secs() * self.rate
    }

    /// The kills, none of them in the last period.
    fn kills(&self) -> Vec<Mark> {
        let kills = self.span.as_secs() / self.every.as_secs() - 1;
        let nth = |n: u32| Mark {
            at: self.every * n,
            moves: n % 3 == 0,
        };
        (1..).map(nth).take(kills as usize).collect()
    }
}

/// The program, its topics and its environment.
struct App {
    program: PathBuf,
    environment: Vec<(&'static str, &'static str)>,
    input: &'static str,
    output: &'static str,
    changelog: &'static str,
}

impl App {
    fn shipped() -> Result<App> {
        let program = Program::Bin("06-word-count");
        Ok(App {
            program: build("eos-examples", program, &["--features=rocksdb"])?,
            environment: Vec::new(),
            input: "lines",
            output: "word-counts",
            changelog: "word-count-v1-words-repartition-changelog",
        })
    }

    fn leaking() -> Result<App> {
        let program = Program::Example("word_count");
        Ok(App {
            program: build("integration-tests", program, &["--features", "failpoints"])?,
            environment: [("APP", "leaking"), ("LEAK", "1")].into(),
            input: "leaking-in",
            output: "leaking-out",
            changelog: "leaking-words-repartition-changelog",
        })
    }
}

/// The results of a run.
struct Outcome {
    samples: Vec<Sample>,
    /// The kills that happened.
    kills: Vec<Mark>,
    /// How often the process that lives received partitions.
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
    let Some(outcome) = run(&App::shipped()?, &course)? else {
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

/// Otherwise the test above proves nothing: its rule might find no leak.
#[test]
fn a_process_that_leaks_is_found() -> Result<()> {
    let Some(outcome) = run(&App::leaking()?, &Course::short())? else {
        return Ok(());
    };
    eprintln!("{}", table(&outcome.samples)?);
    outcome.check(&Course::short())?;
    let grown = grown(&outcome.samples)?;
    ensure!(grown == Series::ALL, "only {grown:?} grew");
    Ok(())
}

impl Outcome {
    /// Each word counted once, and every kill happened.
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

fn run(app: &App, course: &Course) -> Result<Option<Outcome>> {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(cluster) = own_for_tests(&ClusterOptions::default())? else {
        return Ok(None);
    };
    // A later build would wait for a program that another build has replaced.
    counted::program()?;
    let bootstrap = cluster.bootstrap();
    let dir = tempfile::tempdir()?;
    let state = dir.path().join("state");
    let mut client = Client::connect(bootstrap, PATIENCE)?;
    for topic in [app.input, app.output] {
        client.create_topic(topic, PARTITIONS, 1, &[])?;
    }
    let timeout = TIMEOUT.as_millis().to_string();
    let mut environment = vec![
        ("EOS_BOOTSTRAP_SERVERS", bootstrap.to_owned()),
        ("EOS_STATE_DIR", state.display().to_string()),
        // The cache keeps blocks of deleted files until it is full. At the default size that takes longer than an hour.
        ("EOS_STATE_MEMORY_BYTES", (32 << 20).to_string()),
        ("EOS_COMMIT_PACE", "fixed".to_owned()),
        ("EOS_SESSION_TIMEOUT_MS", timeout.clone()),
        ("EOS_TRANSACTION_TIMEOUT_MS", timeout),
        ("RUST_LOG", "info".to_owned()),
        ("RUST_BACKTRACE", "0".to_owned()),
        ("WORKERS", "2".to_owned()),
    ];
    let own = app.environment.iter();
    environment.extend(own.map(|(key, value)| (*key, (*value).to_owned())));
    let mut fleet = Fleet::new(&app.program, environment, &dir.path().join("logs"))?;
    for _ in 0..PROCESSES {
        fleet.start()?;
    }
    let lives = fleet.nth(LIVES).context("the first process")?;
    let sampler = Sampler::start(fleet.id(LIVES).context("its id")?, course.period);
    let mut nemesis = Nemesis::new(course);
    let counts = feed(app, course, bootstrap, &mut fleet, &mut nemesis);
    let counts = counts.with_context(|| format!("logs:\n{}", fleet.tails(20)))?;
    let samples = sampler.finish()?;
    let counted = wait_until(PATIENCE, "every line is committed", || {
        fleet.check()?;
        is_through(&mut client, app_name(app), app.input)
    })
    .and_then(|()| {
        wait_until(PATIENCE, "every word is in the output", || {
            fleet.check()?;
            // Each look reads the whole topic.
            thread::sleep(Duration::from_secs(1));
            Ok(visible(&mut client, app.output)? >= 2 * course.lines())
        })
    });
    counted.with_context(|| format!("logs:\n{}", fleet.tails(20)))?;
    ensure!(
        fleet.nth(LIVES) == Some(lives),
        "the process that lives was replaced"
    );
    fleet.stop_all(Signal::Term)?;
    let counted = Counted {
        output: app.output,
        changelog: app.changelog,
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

/// The consumer group.
fn app_name<'a>(app: &App) -> &'a str {
    match app.input {
        "lines" => "word-count-v1",
        _ => "leaking",
    }
}

/// Sends the lines at a steady pace while processes are killed. Returns the number of each word.
fn feed(
    app: &App,
    course: &Course,
    bootstrap: &str,
    fleet: &mut Fleet,
    nemesis: &mut Nemesis,
) -> Result<Counts> {
    let mut client = Client::connect(bootstrap, PATIENCE)?;
    let (mut producer, begun) = (Producer::new(bootstrap)?, Instant::now());
    let mut counts = Counts::new();
    for n in 0..course.lines() {
        let words = [
            format!("w{}", n.wrapping_mul(7919) % course.keys),
            format!("v{}", n % 13),
        ];
        let (text, to) = (words.join(" "), n % PARTITIONS.unsigned_abs() as u64);
        let now = i64::try_from(UNIX_EPOCH.elapsed()?.as_millis())?;
        let text = Some(text.as_bytes());
        producer.send(app.input, i32::try_from(to)?, None, text, &[], now)?;
        for word in words {
            *counts.entry(word).or_default() += 1;
        }
        if n % 100 == 99 {
            producer.flush()?;
            let due = Duration::from_secs_f64(n as f64 / course.rate as f64);
            thread::sleep(due.saturating_sub(begun.elapsed()));
            fleet.check()?;
            nemesis.strike(fleet, begun.elapsed(), || {
                let ends = client.end_offsets(app.output, Isolation::ReadCommitted)?;
                Ok(ends.iter().sum())
            })?;
        }
    }
    producer.flush()?;
    nemesis.restart(fleet, Duration::MAX)?;
    Ok(counts)
}

/// Kills processes as planned.
struct Nemesis {
    planned: Vec<Mark>,
    kills: Vec<Mark>,
    random: Random,
    /// When the successor of the last killed process starts.
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
        "{:.0} min · {} words, {} words/s, {} different ones · {PROCESSES} processes of 2 workers · {} kills, {moves} \
         of them with a successor after the session · {}.\n\n{}",
        course.span.as_secs_f64() / 60.0,
        2 * course.lines(),
        2 * course.rate,
        course.keys + 13,
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

//! The crash sweep with state. A program that counts words is killed at every step of a transaction and of a rebalance,
//! between a commit and the write to the databases, after this write, and in the middle of a restore. Its successor in
//! the same directory continues. The counts in the output, in the changelog and in the databases must be exact.
//!
//! `EOS_FULL=1 cargo test -p integration-tests --test kafka state_sweep::` runs every step at three times. Without it,
//! each step runs once. `EOS_CASE=apply_done` runs the cases whose name contains `apply_done`.

use std::env;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use integration_tests::counted::{Counted, Counts, Findings, visible};
use integration_tests::faults::{Row, is_full, record};
use integration_tests::files::restart_rows;
use integration_tests::process::{ChildGuard, Program, build};
use integration_tests::sweep::{POINTS, each};
use integration_tests::wait::{nothing_is_open, wait_until};
use kafka_launcher::for_tests;
use kafka_launcher::os::Signal;
use kafka_wire::{Client, Producer};
use tempfile::TempDir;

const COMMAND: &str = "EOS_FULL=1 cargo test -p integration-tests --test kafka state_sweep::";
/// The points that only an app with state reaches.
const OF_STATE: [&str; 4] = [
    "post_commit_pre_state",
    "apply_begun",
    "apply_done",
    "restore_k",
];
const PARTITIONS: i32 = 2;
const PATIENCE: Duration = Duration::from_secs(60);
/// The deadline of a fault, while records are sent.
const FIRE_LIMIT: Duration = Duration::from_secs(30);
/// The number of tries of a case. On a machine that stalls for longer than a session, a process may lose its partitions
/// before the fault is due.
const TRIES: u32 = 3;
/// The number of cases that run at the same time.
const AT_ONCE: usize = 4;

#[derive(Clone, Copy)]
struct Case {
    point: &'static str,
    /// The number of records that were taken before the fault. Each word is taken twice.
    after: u64,
    /// The disabled defences of its process.
    undefended: &'static str,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} crash, record {}", self.point, self.after)?;
        match self.undefended {
            "" => Ok(()),
            lacking => write!(f, ", without {lacking}"),
        }
    }
}

impl Case {
    fn failpoints(&self) -> (String, usize) {
        let n = self.after;
        match self.point {
            "pre_abort" => (
                format!("post_offsets=error@record:{n};pre_abort=crash@record:{n}"),
                2,
            ),
            "restore_k" => ("restore_k=crash".to_owned(), 1),
            point => (format!("{point}=crash@record:{n}"), 1),
        }
    }
}

/// The topics, the directory and the processes of one case.
struct Scene {
    app: String,
    bootstrap: String,
    program: PathBuf,
    client: Client,
    producer: Producer,
    dir: TempDir,
    sent: Counts,
    total: u64,
    started: usize,
}

impl Scene {
    fn new(program: &Path, bootstrap: &str, case: &Case) -> Result<Scene> {
        let mark = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
        let app = format!("{}-{}-{mark:x}", case.point, case.after).replace('_', "-");
        let mut client = Client::connect(bootstrap, PATIENCE)?;
        for end in ["in", "out"] {
            client.create_topic(&format!("{app}-{end}"), PARTITIONS, 1, &[])?;
        }
        Ok(Scene {
            app,
            bootstrap: bootstrap.to_owned(),
            program: program.to_owned(),
            client,
            producer: Producer::new(bootstrap)?,
            dir: TempDir::new()?,
            sent: Counts::new(),
            total: 0,
            started: 0,
        })
    }

    fn start(&mut self, failpoints: &str, undefended: &str) -> Result<ChildGuard> {
        let mut command = Command::new(&self.program);
        command
            .env("NO_COLOR", "1")
            .env("EOS_BOOTSTRAP_SERVERS", &self.bootstrap)
            .env("APP", &self.app)
            .env("RUST_LOG", "info,eos_core=debug")
            .env("EOS_STATE_DIR", self.state())
            .env("EOS_SESSION_TIMEOUT_MS", "6000")
            .env("EOS_HEARTBEAT_INTERVAL_MS", "600")
            .env("EOS_TRANSACTION_TIMEOUT_MS", "6000")
            .env("EOS_COMMIT_PACE", "fixed")
            // A revocation must find an open transaction.
            .env(
                "EOS_COMMIT_INTERVAL_MS",
                if failpoints.contains("in_revoke") {
                    "1000"
                } else {
                    "50"
                },
            )
            .env("EOS_FAILPOINTS", failpoints)
            .env("EOS_FAILPOINTS_LOG", self.dir.path().join("fired"))
            .env("EOS_UNDEFENDED", undefended);
        let log = File::create(self.log_of(self.started))?;
        command.stdout(log.try_clone()?).stderr(log);
        self.started += 1;
        ChildGuard::spawn(command)
    }

    fn send(&mut self, words: u64) -> Result<()> {
        let now = i64::try_from(UNIX_EPOCH.elapsed()?.as_millis())?;
        for _ in 0..words {
            let (n, word) = (self.total, format!("w{}", self.total * 7 % 31));
            let to = i32::try_from(n % PARTITIONS.unsigned_abs() as u64)?;
            let topic = format!("{}-in", self.app);
            let value = Some(word.as_bytes());
            self.producer.send(&topic, to, None, value, &[], now)?;
            *self.sent.entry(word).or_default() += 1;
            self.total += 1;
        }
        self.producer.flush()
    }

    fn await_counted(&mut self, child: &mut ChildGuard) -> Result<()> {
        let (output, total) = (format!("{}-out", self.app), self.total);
        wait_until(PATIENCE, "every word is counted", || {
            ensure!(child.is_running()?, "the process ended");
            Ok(visible(&mut self.client, &output)? >= total)
        })
    }

    fn fired(&self) -> Vec<String> {
        let log = fs::read_to_string(self.dir.path().join("fired")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    fn stop(&self, mut child: ChildGuard) -> Result<()> {
        child.signal(Signal::Term)?;
        let status = child.wait(PATIENCE).context("it does not stop")?;
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    }

    /// Returns the rows of the restart table that the `nth` process logged.
    fn rows(&self, nth: usize) -> Vec<String> {
        let log = fs::read_to_string(self.log_of(nth)).unwrap_or_default();
        restart_rows(log.lines())
    }

    fn judge(&mut self) -> Result<Findings> {
        let counted = Counted {
            output: &format!("{}-out", self.app),
            changelog: &format!("{}-words-repartition-changelog", self.app),
            partitions: PARTITIONS,
            state: &self.state(),
        };
        let findings = counted.check(&mut self.client, &self.sent)?;
        nothing_is_open(&mut self.client, &self.app, PATIENCE)?;
        Ok(findings)
    }

    fn tails(&self) -> String {
        let logs = (0..self.started).map(|nth| {
            let log = fs::read_to_string(self.log_of(nth)).unwrap_or_default();
            let all: Vec<&str> = log.lines().collect();
            format!(
                "--- process {nth}\n{}\n",
                all[all.len().saturating_sub(30)..].join("\n")
            )
        });
        logs.collect::<String>() + &format!("--- fired\n{}", self.fired().join("\n"))
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn log_of(&self, nth: usize) -> PathBuf {
        self.dir.path().join(format!("process-{nth}.log"))
    }
}

struct Report {
    fired: usize,
    findings: Findings,
    told: String,
}

fn sweep(case: &Case, program: &Path, bootstrap: &str) -> Result<Report> {
    for _ in 0..TRIES {
        let mut scene = Scene::new(program, bootstrap, case)?;
        let report = run(case, &mut scene);
        match report.with_context(|| format!("{case}:\n{}", scene.tails()))? {
            Some(report) => return Ok(report),
            None => eprintln!("{case}: the fault did not fire:\n{}", scene.tails()),
        }
    }
    bail!("{case}: the fault did not fire {TRIES} times")
}

/// Runs a case. Returns `None` if the fault did not fire.
fn run(case: &Case, scene: &mut Scene) -> Result<Option<Report>> {
    let (failpoints, times) = case.failpoints();
    let restores = case.point == "restore_k";
    if restores {
        let mut child = scene.start("", "")?;
        scene.send(case.after / 2)?;
        scene.await_counted(&mut child)?;
        scene.stop(child)?;
        // Deletes the state in the slot's directory, but keeps its identity.
        fs::remove_dir_all(scene.state().join(&scene.app).join("0").join("tasks"))?;
    }
    let mut child = scene.start(&failpoints, case.undefended)?;
    let mut second = None;
    if case.after > 1 && !restores {
        // The databases must have content before the fault.
        scene.send(case.after / 2 - 10)?;
        scene.await_counted(&mut child)?;
    }
    if case.point == "in_revoke" {
        if case.after == 1 {
            // A second member that joins the first generation takes no task away.
            scene.send(1)?;
            scene.await_counted(&mut child)?;
        }
        // A second member joins while the first one works.
        second = Some(scene.start("", "")?);
    }
    let since = Instant::now();
    while scene.fired().len() < times {
        if since.elapsed() > FIRE_LIMIT {
            return Ok(None);
        }
        scene.send(5)?;
        thread::sleep(Duration::from_millis(20));
    }
    let status = child.wait(PATIENCE)?;
    ensure!(status.code().is_none(), "it ended with {status}");
    let fired = scene.fired();
    let about = format!(" {} crash ", case.point);
    ensure!(
        fired.len() == times && fired.iter().any(|line| line.contains(&about)),
        "{fired:?}"
    );

    scene.send(20)?;
    let successor = scene.started;
    let mut child = scene.start("", case.undefended)?;
    scene.await_counted(&mut child).context("going on")?;
    scene.send(40)?;
    scene.await_counted(&mut child).context("after the fault")?;
    for child in second.into_iter().chain([child]) {
        scene.stop(child)?;
    }
    let rows = scene.rows(successor);
    if case.undefended.is_empty() {
        check(case, &rows)?;
    }
    let findings = scene.judge()?;
    let told = match findings.ensure_clean() {
        Ok(()) => format!("{rows:?}\n{}", scene.tails()),
        Err(error) => format!("{error}\n{rows:?}\n{}", scene.tails()),
    };
    Ok(Some(Report {
        fired: 1,
        findings,
        told,
    }))
}

/// Checks the rows of the restart table that the successor of a crashed process logged, one for each task.
fn check(case: &Case, rows: &[String]) -> Result<()> {
    let is_first = case.after <= 1;
    // Before the first transaction, a task has no database.
    let (all, behind): (&[&str], &[&str]) = match is_first {
        true => (&["exact", "replay", "no_state"], &["replay", "no_state"]),
        false => (&["exact", "replay"], &["replay"]),
    };
    // The rows that a task may have, and those of which at least one must occur.
    let (allowed, needed) = match case.point {
        // A database exists once it has applied the commit of its task's start offsets.
        "post_commit_pre_state" => (all, behind),
        // The database may have applied the transaction or not.
        "apply_begun" => (all, all),
        "apply_done" => (&["exact"][..], &["exact"][..]),
        // The restore of the other task may already be complete.
        "restore_k" => (
            &["exact", "replay", "no_state"][..],
            &["replay", "no_state"][..],
        ),
        // The transaction may have aborted.
        _ => {
            let is_wrong = |row: &String| ["ahead", "other_attempt"].contains(&&**row);
            let is_right = !rows.is_empty() && !rows.iter().any(is_wrong);
            ensure!(is_right, "{case}: its successor found {rows:?}");
            return Ok(());
        }
    };
    // Tasks start one by one. So the first transaction may be of one task, while the other one has no
    // offsets yet.
    let is_untouched = |row: &&String| is_first && *row == "first";
    let touched = || rows.iter().filter(|row| !is_untouched(row));
    let is_right = touched().all(|row| allowed.contains(&&**row))
        && touched().any(|row| needed.contains(&&**row));
    ensure!(is_right, "{case}: its successor found {rows:?}");
    Ok(())
}

#[test]
fn a_successor_finds_the_rows_that_its_crash_can_leave() {
    let is_right = |point, after, rows: &[&str]| {
        let case = Case {
            point,
            after,
            undefended: "",
        };
        let rows: Vec<String> = rows.iter().map(|row| (*row).to_owned()).collect();
        check(&case, &rows).is_ok()
    };
    for (point, after, rows) in [
        ("post_commit_pre_state", 1, &["no_state", "first"][..]),
        ("post_commit_pre_state", 1, &["replay", "replay"]),
        ("post_commit_pre_state", 100, &["exact", "replay"]),
        ("apply_begun", 1, &["exact", "first"]),
        ("apply_begun", 1, &["first", "no_state"]),
        ("apply_begun", 100, &["replay", "exact"]),
        ("apply_done", 1, &["exact", "first"]),
        ("apply_done", 100, &["exact", "exact"]),
        ("restore_k", 101, &["no_state", "exact"]),
        ("pre_commit", 1, &["first", "first"]),
    ] {
        assert!(is_right(point, after, rows), "{point} {after} {rows:?}");
    }
    for (point, after, rows) in [
        ("post_commit_pre_state", 1, &["first"][..]),
        ("post_commit_pre_state", 1, &["replay", "ahead"]),
        ("post_commit_pre_state", 100, &["replay", "no_state"]),
        ("post_commit_pre_state", 100, &["exact", "exact"]),
        ("apply_begun", 1, &["first", "first"]),
        ("apply_begun", 100, &["exact", "first"]),
        ("apply_begun", 100, &["replay", "no_state"]),
        ("apply_done", 1, &["no_state", "first"]),
        ("apply_done", 1, &["first", "first"]),
        ("apply_done", 100, &["exact", "first"]),
        ("restore_k", 101, &["exact", "exact"]),
        ("restore_k", 101, &["no_state", "ahead"]),
        ("pre_commit", 100, &["exact", "ahead"]),
        ("pre_commit", 1, &[]),
    ] {
        assert!(!is_right(point, after, rows), "{point} {after} {rows:?}");
    }
}

fn build_app() -> Result<PathBuf> {
    let app = Program::Example("word_count");
    build("integration-tests", app, &["--features", "failpoints"])
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (n, point) in (0..).zip(POINTS.into_iter().chain(OF_STATE)) {
        for (k, after) in (0..).zip([1, 100, 300]) {
            // Before the first record there is nothing to restore.
            let after = if point == "restore_k" {
                100 + after
            } else {
                after
            };
            if is_full() || n % 3 == k {
                cases.push(Case {
                    point,
                    after,
                    undefended: "",
                });
            }
        }
    }
    let wanted = |case: &Case| env::var("EOS_CASE").map_or(true, |p| case.to_string().contains(&p));
    cases.retain(wanted);
    cases
}

#[test]
fn killed_at_every_step_all_counts_are_exact() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let (program, cases, since) = (build_app()?, cases(), Instant::now());
    let done = each(&cases, AT_ONCE, |case| {
        sweep(case, &program, kafka.bootstrap())
    });
    let (mut fired, mut failed) = (0, Vec::new());
    let mut sum = Findings::default();
    for (case, one) in cases.iter().zip(done) {
        let word = match &one.answer {
            Ok(report) => {
                fired += report.fired;
                sum.add(&report.findings);
                if report.findings.is_clean() {
                    "exact"
                } else {
                    failed.push(format!("{case}: {}", report.told));
                    "VIOLATED"
                }
            }
            Err(error) => {
                failed.push(format!("{error:?}"));
                "FAILED"
            }
        };
        eprintln!("{case} ... {word} ({:.1?})", one.took);
    }
    let points = POINTS.len() + OF_STATE.len();
    record(&Row {
        point: "8 state".into(),
        case: format!("Crash at {points} steps of a word count"),
        cases: cases.len() as u64,
        fired: fired as u64,
        verdict: match failed.len() {
            0 => sum.to_string(),
            n => format!("{sum}; {n} cases failed"),
        },
        seconds: since.elapsed().as_secs_f64(),
        command: COMMAND.into(),
    })?;
    ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
    Ok(())
}

/// The control of the sweep, whose crashes might be harmless.
#[test]
fn without_the_restart_table_they_are_not_harmless() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let (program, since) = (build_app()?, Instant::now());
    let cases = [
        // The database is one transaction behind, and the restart trusts it.
        ("post_commit_pre_state", "restart_table"),
        // The database is ahead by a transaction that did not commit, and the restart trusts it.
        ("pre_commit", "apply_after_commit,restart_table"),
    ];
    for (point, undefended) in cases {
        let case = Case {
            point,
            after: 100,
            undefended,
        };
        let report = sweep(&case, &program, kafka.bootstrap())?;
        let findings = &report.findings;
        record(&Row {
            point: "8 state".into(),
            case: format!("control: {case}"),
            cases: 1,
            fired: report.fired as u64,
            verdict: format!("{findings}: violated, as expected"),
            seconds: since.elapsed().as_secs_f64(),
            command: COMMAND.into(),
        })?;
        ensure!(findings.jumps > 0, "{case}: {findings}\n{}", report.told);
    }
    Ok(())
}

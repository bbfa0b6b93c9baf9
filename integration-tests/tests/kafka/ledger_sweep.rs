//! The crash sweep, with a ledger: a process that writes to PostgreSQL is killed, freezes past every time-out, or meets an
//! error, at every step of a transaction: after the take-over, after the hold, after rows, before COMMIT, in COMMIT, after
//! it. A successor books all orders while a frozen process still has its transaction. Each order is booked once.
//!
//! `EOS_FULL=1 cargo test -p integration-tests --test kafka ledger_sweep::` does every step with every fault. Otherwise
//! each step is done with a kill, and with one other fault. `EOS_CASE=pre_commit` does those whose name holds this.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use eos_postgres::testing::{Cluster, run, value};
use integration_tests::faults::is_full;
use integration_tests::process::{Program, build};
use integration_tests::shop::{ARTICLES, Question, Verdict, judge, read, tables};
use integration_tests::sweep::{Act, Done, Member, at_once, each};
use kafka_launcher::for_tests;
use kafka_wire::{Client, Producer};
use tempfile::TempDir;

use crate::common::PATIENCE;

/// Every step of an app with a ledger.
const POINTS: [&str; 13] = [
    "taken_over",
    "poll",
    "begin",
    "first_send",
    "held",
    "kth_send",
    "pre_offsets",
    "post_offsets",
    "pre_commit",
    "in_commit",
    "post_commit",
    "pre_abort",
    "in_revoke",
];
/// The steps at which a transaction certainly has locked its positions.
const HOLDING: [&str; 5] = [
    "held",
    "kth_send",
    "post_offsets",
    "pre_commit",
    "pre_abort",
];
const PARTITIONS: i32 = 2;
/// The orders before the fault may fire, up to it and behind it, and once it is over.
const BEFORE: u64 = 60;
const AROUND: u64 = 80;
const AFTER: u64 = 40;
/// Orders that are sent together.
const SLICE: u64 = 10;
/// By when a fault fires.
const FIRE_LIMIT: Duration = Duration::from_secs(20);
/// How often a case is begun: on a busy machine, a process may lose its partitions before the fault is due.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy)]
struct Case {
    point: &'static str,
    act: Act,
}

struct Report {
    verdict: Verdict,
    /// The sessions that a successor ended, because they held a position.
    ended: usize,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.point, self.act_name())
    }
}

impl Case {
    fn act_name(&self) -> &'static str {
        match self.act {
            Act::Crash => "crash",
            Act::Freeze => "freeze",
            Act::Error => "error",
        }
    }

    fn failpoints(&self) -> String {
        let (point, act) = (self.point, self.act_name());
        match point {
            // Of a process that finds positions of another one.
            "taken_over" => format!("taken_over={act}@hit:1"),
            // An abort needs a reason.
            "pre_abort" => {
                format!("post_offsets=error@record:{BEFORE};pre_abort={act}@record:{BEFORE}")
            }
            // The session has a thread of its own. It sends what it has meanwhile.
            "held" | "kth_send" => {
                format!("{point}=stall@record:{BEFORE};{point}={act}@record:{BEFORE}")
            }
            point => format!("{point}={act}@record:{BEFORE}"),
        }
    }

    fn is_revocation(&self) -> bool {
        self.point == "in_revoke"
    }

    /// A frozen process must be missed soon, and any other one must not be.
    fn time_out(&self) -> Duration {
        match self.act {
            Act::Freeze => Duration::from_secs(4),
            Act::Crash | Act::Error => Duration::from_secs(6),
        }
    }
}

/// The topic, the database and the processes of a case.
struct Scene<'a> {
    case: Case,
    app: String,
    bootstrap: &'a str,
    program: &'a Path,
    url: String,
    client: Client,
    producer: Producer,
    dir: TempDir,
    sent: u64,
    members: Vec<Member>,
}

impl<'a> Scene<'a> {
    fn new(case: Case, program: &'a Path, bootstrap: &'a str, server: &Cluster) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let mark = UNIX_EPOCH.elapsed()?.as_millis();
        let app = format!("ledger-{case}-{mark:x}-{nth}").replace([' ', '_'], "-");
        let mut client = Client::connect(bootstrap, PATIENCE)?;
        client.create_topic(&format!("{app}-in"), PARTITIONS, 1, &[])?;
        let url = server.database("sweep")?;
        run(&url, &tables())?;
        Ok(Scene {
            case,
            app,
            bootstrap,
            program,
            url,
            client,
            producer: Producer::new(bootstrap)?,
            dir: TempDir::new()?,
            sent: 0,
            members: Vec::new(),
        })
    }

    /// Starts a process, and returns its index.
    fn start(&mut self, failpoints: &str) -> Result<usize> {
        let time_out = self.case.time_out().as_millis();
        // A revocation must find something open.
        let interval = if self.case.is_revocation() { 1_000 } else { 50 };
        let mut command = Command::new(self.program);
        command
            .env("EOS_BOOTSTRAP_SERVERS", self.bootstrap)
            .env("APP", &self.app)
            .env("DATABASE", &self.url)
            .env("RUST_LOG", "info,eos_core=debug,eos_postgres=debug")
            .env("EOS_STATE_DIR", self.dir.path().join("state"))
            .env("EOS_SESSION_TIMEOUT_MS", time_out.to_string())
            .env("EOS_HEARTBEAT_INTERVAL_MS", (time_out / 10).to_string())
            .env("EOS_TRANSACTION_TIMEOUT_MS", time_out.to_string())
            .env("EOS_COMMIT_PACE", "fixed")
            .env("EOS_COMMIT_INTERVAL_MS", interval.to_string())
            .env("EOS_FAILPOINTS", failpoints)
            .env("EOS_FAILPOINTS_LOG", self.fired_log());
        let nth = self.members.len();
        let log = self.dir.path().join(format!("process-{nth}.log"));
        self.members.push(Member::spawn(command, log)?);
        Ok(nth)
    }

    fn topic(&self) -> String {
        format!("{}-in", self.app)
    }

    fn fired_log(&self) -> PathBuf {
        self.dir.path().join("fired")
    }

    /// How often the fault of the case fired.
    fn fired(&self) -> usize {
        let about = format!(" {} {} ", self.case.point, self.case.act_name());
        let log = fs::read_to_string(self.fired_log()).unwrap_or_default();
        log.lines().filter(|line| line.contains(&about)).count()
    }

    /// Sends orders to all partitions in turn.
    fn send(&mut self, orders: u64) -> Result<()> {
        let now = i64::try_from(UNIX_EPOCH.elapsed()?.as_millis())?;
        for n in self.sent..self.sent + orders {
            let partition = i32::try_from(n % u64::from(PARTITIONS.unsigned_abs()))?;
            let key = format!("o{n}");
            let value = format!("{{\"sku\":\"s{}\",\"units\":1}}", n * 7 % ARTICLES as u64);
            let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
            let topic = self.topic();
            self.producer
                .send(&topic, partition, key, value, &[], now)?;
        }
        self.sent += orders;
        self.producer.flush()
    }

    fn wait(
        &self,
        what: &str,
        limit: Duration,
        mut is: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let since = Instant::now();
        while !is()? {
            ensure!(
                since.elapsed() < limit,
                "waited {limit:?} in vain until {what}"
            );
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Waits until the positions are behind all orders that were sent.
    fn await_taken(&self) -> Result<()> {
        let query = format!(
            "SELECT coalesce(sum(next_offset), 0) FROM eos.positions WHERE app = '{}'",
            self.app
        );
        let sent = self.sent.to_string();
        self.wait("all orders are taken", PATIENCE, || {
            Ok(value(&self.url, &query)? == sent)
        })
    }

    /// Waits until a process has taken over all partitions.
    fn await_owner(&self) -> Result<()> {
        let query = format!(
            "SELECT count(*) FROM eos.positions WHERE app = '{}'",
            self.app
        );
        self.wait("all positions are taken over", PATIENCE, || {
            Ok(value(&self.url, &query)? == PARTITIONS.to_string())
        })
    }

    /// The tails of all logs.
    fn tails(&self) -> String {
        self.members.iter().map(|member| member.tail(60)).collect()
    }
}

/// Brings a process to its fault. Returns its index, or nothing if the fault did not fire.
fn strike(scene: &mut Scene<'_>) -> Result<Option<usize>> {
    let case = scene.case;
    if case.point == "taken_over" {
        scene.start("")?;
        scene.send(BEFORE)?;
        scene.await_taken().context("before the fault")?;
        scene.members[0].ask_to_stop()?;
        scene.members[0].await_end(PATIENCE)?;
    }
    let victim = scene.start(&case.failpoints())?;
    if case.point != "taken_over" {
        scene.await_owner()?;
        scene.send(BEFORE - 1)?;
        scene.await_taken().context("before the fault")?;
    }
    if case.is_revocation() {
        scene.start("")?;
    }
    let around = scene.sent + AROUND;
    let since = Instant::now();
    while scene.sent < around || (case.is_revocation() && scene.fired() == 0) {
        scene.send(SLICE)?;
        thread::sleep(PAUSE / if case.is_revocation() { 1 } else { 5 });
        if since.elapsed() > FIRE_LIMIT {
            return Ok(None);
        }
    }
    let fired = scene.wait("the fault fires", FIRE_LIMIT, || Ok(scene.fired() > 0));
    Ok(fired.is_ok().then_some(victim))
}

fn play(scene: &mut Scene<'_>) -> Result<Option<Report>> {
    let Some(victim) = strike(scene)? else {
        return Ok(None);
    };
    let case = scene.case;
    let mut living: Vec<usize> = (victim..scene.members.len()).collect();
    match case.act {
        Act::Crash => {
            scene.members[victim].await_killed(PATIENCE)?;
            living.retain(|nth| *nth != victim);
            living.push(scene.start("")?);
        }
        Act::Freeze => {
            scene.members[victim].await_frozen(PATIENCE)?;
            if !case.is_revocation() {
                living.push(scene.start("")?);
            }
            scene.await_taken().context("beside the frozen process")?;
            scene.members[victim].thaw()?;
        }
        Act::Error => {}
    }
    scene.await_taken().context("after the fault")?;
    scene.send(AFTER)?;
    scene.await_taken().context("going on")?;
    for nth in &living {
        scene.members[*nth].check()?;
        scene.members[*nth].ask_to_stop()?;
    }
    for nth in &living {
        scene.members[*nth].await_end(PATIENCE)?;
    }
    ensure!(scene.fired() == 1, "it fired {} times", scene.fired());
    let topic = scene.topic();
    let logs = scene.members.iter().map(Member::log);
    let ended: usize = logs
        .map(|log| log.matches(": ended the session eos/").count())
        .sum();
    let verdict = judge(&read(&Question {
        bootstrap: scene.bootstrap,
        topic: &topic,
        database: &scene.url,
        app: &scene.app,
        patience: PATIENCE,
    })?);
    ensure!(verdict.orders as u64 == scene.sent, "{verdict}");
    ensure!(verdict.is_clean(), "{verdict}\n{verdict:#?}");
    // The transaction of the frozen process had locked its positions.
    let held = case.act == Act::Freeze && HOLDING.contains(&case.point);
    ensure!(ended > 0 || !held, "no successor ended the frozen session");
    scene.client.delete_topic(&topic)?;
    Ok(Some(Report { verdict, ended }))
}

fn sweep(case: &Case, program: &Path, bootstrap: &str, server: &Cluster) -> Result<Report> {
    for _ in 0..TRIES {
        let mut scene = Scene::new(*case, program, bootstrap, server)?;
        let report = play(&mut scene);
        match report.with_context(|| format!("{case}:\n{}", scene.tails()))? {
            Some(report) => return Ok(report),
            None => eprintln!("{case}: the fault did not fire:\n{}", scene.tails()),
        }
    }
    bail!("{case}: the fault did not fire {TRIES} times")
}

/// A kill at each step, and a freeze or an error. A full run does all.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (nth, point) in POINTS.into_iter().enumerate() {
        let other = if nth % 2 == 0 {
            Act::Freeze
        } else {
            Act::Error
        };
        let acts = match is_full() {
            true => vec![Act::Crash, Act::Freeze, Act::Error],
            false => vec![Act::Crash, other],
        };
        cases.extend(acts.into_iter().map(|act| Case { point, act }));
    }
    if let Ok(part) = std::env::var("EOS_CASE") {
        cases.retain(|case| case.to_string().contains(&part));
    }
    cases
}

#[test]
fn at_every_step_each_order_is_booked_once() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let program = build(
        "integration-tests",
        Program::Example("orders"),
        &["--features", "failpoints"],
    )?;
    let server = Cluster::temporary(&[("max_connections", "200")])?;
    let (cases, since) = (cases(), Instant::now());
    let done = each(&cases, at_once(), |case| {
        sweep(case, &program, kafka.bootstrap(), &server)
    });
    let failed = told(&cases, &done);
    eprintln!(
        "{} cases at {} steps, {} failed, {:.1?}",
        cases.len(),
        POINTS.len(),
        failed.len(),
        since.elapsed()
    );
    ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
    Ok(())
}

/// Prints a line for each case. Returns the failures.
fn told(cases: &[Case], done: &[Done<Report>]) -> Vec<String> {
    let mut failed = Vec::new();
    for (case, one) in cases.iter().zip(done) {
        let word = match &one.answer {
            Ok(Report { verdict, ended }) => format!("{verdict}; {ended} sessions ended"),
            Err(error) => {
                failed.push(format!("{error:?}"));
                "FAILED".to_owned()
            }
        };
        eprintln!("{case} ... {word} ({:.1?})", one.took);
    }
    failed
}

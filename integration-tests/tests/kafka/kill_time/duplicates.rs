//! Deduplication of a stream with repeated records. Each event passes once, and each repetition is written once to
//! another topic.
//!
//! The generator repeats a tenth of the records, some at once and some after minutes. The judge reads the topics. It
//! uses no code of the framework.
//!
//! Processes are killed, join and leave, and one freezes for longer than its session. One more process kills itself at
//! the steps of a commit, in turn.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use integration_tests::fate::{Fate, Faults};
use integration_tests::faults::is_full;
use integration_tests::kill::Watch;
use integration_tests::process::ChildGuard;
use integration_tests::sweep::Member;
use integration_tests::wait::{is_through, wait_until};
use kafka_launcher::os::Signal;
use kafka_launcher::{ClusterOptions, for_tests, own_for_tests};
use serde_json::{Deserializer, Value};

use super::scene::{PROCESSES, Scene, seed};
use crate::common::PATIENCE;

const PARTITIONS: i32 = 12;
/// The share of records that repeat an earlier one, in hundredths.
const REPEATS: u64 = 10;
/// The largest distance of a repetition to the first record of its event. In a full run, this is a third of the window.
/// A bound of the time would need the clock of the generator. So a delay of the generator has 40 seconds.
const WITHIN: u64 = 120_000;

/// The steps of a commit at which processes kill themselves.
const STEPS: [&str; 8] = [
    "first_send",
    "pre_offsets",
    "post_offsets",
    "pre_commit",
    "in_commit",
    "post_commit_pre_state",
    "apply_begun",
    "apply_done",
];
/// The number of commits before a process kills itself.
const COMMITS: u32 = 30;

struct Size {
    records: u64,
    /// The records that are sent in a second.
    rate: u64,
    kills: u32,
    /// The fewest processes that kill themselves.
    crashes: usize,
    /// The number of processes that join and leave.
    visits: u64,
    /// The window of the deduplication. It is longer than the distance of a repetition, so every repetition is a
    /// duplicate. In a full run, ids expire.
    window: Duration,
}

fn size() -> Size {
    match is_full() {
        true => Size {
            records: 1_200_000,
            rate: 6_000,
            kills: 30,
            crashes: 25,
            visits: 3,
            window: Duration::from_secs(60),
        },
        false => Size {
            records: 40_000,
            rate: 2_000,
            kills: 6,
            crashes: 3,
            visits: 1,
            window: Duration::from_secs(600),
        },
    }
}

#[test]
fn each_event_passes_once_despite_kills() -> Result<()> {
    let _alone = super::alone();
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    passes_once(kafka.bootstrap())
}

/// The topics have three replicas, and the brokers wait for two of them.
#[test]
fn each_event_passes_once_on_three_brokers() -> Result<()> {
    let _alone = super::alone();
    let Some(cluster) = own_for_tests(&ClusterOptions::default().nodes(3))? else {
        return Ok(());
    };
    passes_once(cluster.bootstrap())
}

fn passes_once(bootstrap: &str) -> Result<()> {
    let (size, since) = (size(), Instant::now());
    let window = [("WINDOW_MS", size.window.as_millis().to_string())];
    let mut scene = Scene::new(bootstrap, "duplicates", PARTITIONS, &window)?;
    let mut fate = Fate::new(Faults::KillsAndMoves, size.kills, seed())?.visits(size.visits);
    let mut crashing = Crashing::start(&scene)?;
    let fed = feed(&mut scene, &size, &mut fate, &mut crashing);
    let working = scene.told(fed)?;
    let (app, input) = (scene.app.clone(), scene.topic("in"));
    let taken = wait_until(PATIENCE, "all records are committed", || {
        scene.fleet.check()?;
        crashing.step(&scene)?;
        is_through(&mut scene.client, &app, &input)
    });
    crashing.member.kill()?;
    let stopped = scene.fleet.stop_all(Signal::Term);
    let judged = judge(&scene);
    let Judged {
        events,
        repetitions,
        aborted,
    } = scene.told(judged)?;
    scene.told(taken)?;
    stopped?;
    fate.check(&scene.fleet, PROCESSES)?;
    let crashed = crashing.crashed;
    let commits = scene
        .client
        .transaction_log(&format!("{app}-"))?
        .into_iter();
    let commits = commits.filter(|it| it.state == "PrepareCommit").count();
    eprintln!(
        "{} records, {repetitions} of them repeat one of {events} events; {} faults, {working} of {} kills after a \
         commit since the kill before; {crashed} processes killed themselves; {commits} transactions, {aborted} \
         records in aborted ones; {:.1?}",
        size.records,
        fate.count(),
        size.kills,
        since.elapsed()
    );
    ensure!(
        // In a full run, the bound of the distance cuts a sixth of the repetitions.
        events + repetitions == size.records && repetitions * 100 > size.records * (REPEATS - 2),
        "{events} events and {repetitions} repetitions of {} records",
        size.records
    );
    ensure!(
        crashed >= size.crashes,
        "{crashed} processes killed themselves:\n{}",
        crashing.member.tail(12)
    );
    ensure!(aborted > 0, "no kill interrupted a transaction");
    // While a process is frozen and the other one starts, nothing is committed.
    ensure!(
        working * 3 >= size.kills * 2,
        "{working} of {} kills after a commit since the kill before",
        size.kills
    );
    Ok(())
}

/// Runs the generator, while faults hit the processes. Returns the number of kills that came after new committed
/// records.
fn feed(scene: &mut Scene, size: &Size, fate: &mut Fate, crashing: &mut Crashing) -> Result<u32> {
    let [input, output] = ["in", "out"].map(|end| scene.topic(end));
    let mut command = Command::new(env!("CARGO_BIN_EXE_generator"));
    command.args(["--bootstrap", scene.bootstrap(), "--topic", &input]);
    command.args(["--records", &size.records.to_string()]);
    command.args(["--rate", &size.rate.to_string()]);
    command.args(["--repeats", &REPEATS.to_string()]);
    command.args(["--repeats-within", &WITHIN.to_string()]);
    command.stdout(Stdio::null());
    let mut generator = ChildGuard::spawn(command)?;
    let watch = Watch::start(scene.bootstrap(), &input, &output)?;
    let (mut working, mut committed) = (0, 0);
    while generator.is_running()? {
        thread::sleep(Duration::from_millis(20));
        scene.fleet.check()?;
        crashing.step(scene)?;
        let Some(now) = watch.latest()? else {
            continue;
        };
        let killed = fate.killed();
        fate.strike(&mut scene.fleet, now.input as u64 * 1_000 / size.records)?;
        if fate.killed() > killed {
            working += u32::from(now.committed() > committed);
            committed = now.committed();
        }
    }
    let status = generator.wait(Duration::ZERO)?;
    ensure!(status.success(), "the generator ended with {status}");
    fate.thaw(&mut scene.fleet)?;
    Ok(working)
}

/// One more process, which kills itself at a step of a commit. Then a successor with the next step takes its place.
struct Crashing {
    member: Member,
    crashed: usize,
}

impl Crashing {
    fn start(scene: &Scene) -> Result<Crashing> {
        Ok(Crashing {
            member: Crashing::member(scene, 0)?,
            crashed: 0,
        })
    }

    fn member(scene: &Scene, nth: usize) -> Result<Member> {
        let step = STEPS[nth % STEPS.len()];
        scene.faulty(nth, &format!("{step}=crash@hit:{COMMITS}"))
    }

    fn step(&mut self, scene: &Scene) -> Result<()> {
        if self.member.check().is_err() {
            let killed = self.member.await_killed(Duration::ZERO);
            killed.with_context(|| self.member.tail(30))?;
            self.crashed += 1;
            self.member = Crashing::member(scene, self.crashed)?;
        }
        Ok(())
    }
}

/// The judge's numbers of a clean run.
struct Judged {
    events: u64,
    repetitions: u64,
    /// The records of aborted transactions.
    aborted: u64,
}

fn judge(scene: &Scene) -> Result<Judged> {
    let [input, output, repeats] = ["in", "out", "late"].map(|end| scene.topic(end));
    let mut command = Command::new(env!("CARGO_BIN_EXE_judge"));
    command.args(["--json", "--bootstrap", scene.bootstrap()]);
    command.args(["--input", &input, "--output", &output]);
    command.args(["--repeats", &repeats, "--group", &scene.app]);
    command.args(["--transactional-prefix", &format!("{}-", scene.app)]);
    command.args(["--wait", "10"]);
    let judged = command.output()?;
    let parts = Deserializer::from_slice(&judged.stdout).into_iter::<Value>();
    let parts: Vec<Value> = parts.collect::<Result<_, _>>()?;
    let [first, repeated] = &parts[..] else {
        anyhow::bail!("the judge printed {judged:?}");
    };
    ensure!(
        judged.status.code() == Some(0),
        "first records: {first:#}\nrepetitions: {repeated:#}"
    );
    let number = |part: &Value, at: &str| {
        let number = part.pointer(at).and_then(Value::as_u64);
        number.with_context(|| format!("no number at {at} in {part}"))
    };
    let aborted = |part: &Value| {
        let committed = number(part, "/outputs/0/committed")?;
        let all = number(part, "/outputs/0/uncommitted")?;
        anyhow::Ok(all - committed)
    };
    Ok(Judged {
        events: number(first, "/input/records")?,
        repetitions: number(repeated, "/input/records")?,
        aborted: aborted(first)? + aborted(repeated)?,
    })
}

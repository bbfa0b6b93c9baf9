//! Removes the defences of state one by one. The same schedule is exact with the defence. Without it, records are lost
//! or doubled in the output, the changelog or the databases.
//!
//! `cargo test -p integration-tests --test kafka state_controls:: -- --nocapture` runs the controls.
//! `EOS_CASE=restoring` runs the cases whose name contains `restoring`.

mod scene;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use integration_tests::counted::{self, Findings};
use integration_tests::faults::{Row, record};
use integration_tests::sweep::{Member, each};
use integration_tests::wait::wait_until;
use kafka_launcher::for_tests;
use scene::{Counter, PATIENCE, Scene, Start, rows, stop};

const COMMAND: &str = "cargo test -p integration-tests --test kafka state_controls::";
/// Part of the log line of a commit.
const COMMITTED: &str = ": committed app=";
/// Part of the log line of a process that knows the start offsets of its tasks.
const TASKS_START: &str = ": tasks start ";
const AT_ONCE: usize = 2;

const COUNTING: Counter = Counter {
    program: "counting",
    stage: "in",
    partitions: 1,
};
const WORD_COUNT: Counter = Counter {
    program: "word_count",
    stage: "words-repartition",
    partitions: 1,
};

#[derive(Clone, Copy)]
struct Control {
    /// The removed defence.
    defence: &'static str,
    /// A description of the schedule.
    case: &'static str,
    counter: Counter,
    /// The number of faults that fire.
    faults: usize,
    run: fn(&mut Scene, undefended: &str) -> Result<Findings>,
    /// Whether findings are those that are expected without the defence.
    is_red: fn(&Findings) -> bool,
}

const CONTROLS: [Control; 4] = [
    Control {
        defence: "every_touched_task",
        case: "take-over of a counting task beside a frozen owner of it",
        counter: Counter {
            partitions: 2,
            ..COUNTING
        },
        faults: 1,
        run: beside_a_zombie,
        is_red: |found| found.doubled > 0 && found.jumps > 0,
    },
    Control {
        defence: "restoring",
        case: "killed in the middle of a restore",
        counter: COUNTING,
        faults: 1,
        run: killed_in_a_restore,
        is_red: |found| found.jumps > 0 && found.logged > 0 && found.stored > 0,
    },
    Control {
        defence: "lso_after_apply",
        case: "applied late, after a successor wrote to the changelog",
        counter: COUNTING,
        faults: 2,
        run: applied_late,
        is_red: |found| found.jumps > 0 && found.logged > 0,
    },
    Control {
        defence: "purge_after_commit",
        case: "killed before the commit, after the purge of a repartition topic",
        counter: WORD_COUNT,
        faults: 1,
        run: killed_before_the_commit,
        is_red: |found| found.lost > 0 && found.stored > 0,
    },
];

#[test]
fn without_any_one_of_them_counts_are_wrong() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    // Compiles the programs before the controls start, because that takes long.
    counted::program()?;
    for counter in [COUNTING, WORD_COUNT] {
        scene::program(&counter)?;
    }
    let wanted = |name: &str| std::env::var("EOS_CASE").map_or(true, |part| name.contains(&part));
    let controls = CONTROLS.into_iter().filter(|c| wanted(c.defence));
    let cases: Vec<_> = controls.flat_map(|c| [(c, ""), (c, c.defence)]).collect();
    let done = each(&cases, AT_ONCE, |(control, undefended)| {
        one(control, undefended, kafka.bootstrap())
    });
    let failed = done.into_iter().filter_map(|one| one.answer.err());
    let failed: Vec<String> = failed.map(|error| format!("{error:?}")).collect();
    ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
    Ok(())
}

fn one(control: &Control, undefended: &str, bootstrap: &str) -> Result<()> {
    let since = Instant::now();
    let name = format!("{}{}", control.defence, undefended.len().min(1));
    let mut scene = Scene::new(bootstrap, &name, control.counter)?;
    let found = (control.run)(&mut scene, undefended);
    let told = || {
        format!(
            "{}, without {undefended:?}:\n{}",
            control.case,
            scene.tails()
        )
    };
    let found = found.with_context(told)?;
    let fired = scene.fired();
    ensure!(fired.len() == control.faults, "{fired:?}\n{}", told());
    let (case, word) = match undefended {
        "" => (control.case.to_owned(), ""),
        lacking => (
            format!("control: the same without {lacking}"),
            ": violated, as expected",
        ),
    };
    record(&Row {
        point: "8 state".into(),
        case,
        cases: 1,
        fired: fired.len() as u64,
        verdict: format!("{found}{word}"),
        seconds: since.elapsed().as_secs_f64(),
        command: COMMAND.into(),
    })?;
    if undefended.is_empty() {
        found.ensure_clean().with_context(told)
    } else {
        ensure!((control.is_red)(&found), "not red: {found}\n{}", told());
        Ok(())
    }
}

/// Rule 2. An owner of two tasks took a record of one of them and freezes before EndTxn. Its session ends, but its
/// transaction does not. If the transaction contains the offset of this task, the successor waits for its end. If it
/// contains the other task's offset instead, the successor does not wait. It also counts the record, and both commit.
fn beside_a_zombie(scene: &mut Scene, undefended: &str) -> Result<Findings> {
    let (touched, other) = (scene.key_of(0, 0), scene.key_of(1, 0));
    scene.run(Start::on("one"), [&*touched, &*other])?;
    let mut zombie = scene.start(Start {
        failpoints: "pre_commit=freeze@record:1",
        undefended,
        ..Start::on("one")
    })?;
    scene.send([&*touched])?;
    scene.await_fired(1)?;
    zombie.await_frozen(PATIENCE)?;

    // Reads the log, because the zombie's open transaction hides offsets and outputs from all readers.
    let successor = scene.start(Start::on("other"))?;
    let commits = |member: &Member| member.log().matches(COMMITTED).count();
    if undefended.is_empty() {
        // The successor works only on the task that the zombie did not touch.
        scene.send([&*other])?;
    }
    wait_until(PATIENCE, "the successor works beside the zombie", || {
        Ok(commits(&successor) > 0)
    })?;
    if undefended.is_empty() {
        std::thread::sleep(Duration::from_secs(4));
        let log = successor.log();
        let mut starts = log.lines().filter(|line| line.contains(TASKS_START));
        ensure!(
            !starts.any(|line| line.contains("0_0")) && commits(&successor) == 1,
            "it did not wait"
        );
    }
    let before = commits(&zombie);
    zombie.thaw()?;
    wait_until(PATIENCE, "the zombie's transaction is committed", || {
        Ok(commits(&zombie) > before)
    })?;
    zombie.kill()?;
    let input = format!("{}-in", scene.app);
    go_on(scene, successor, &touched, &input)
}

/// Sends one more record of a key, waits until it is committed, and judges.
fn go_on(scene: &mut Scene, mut member: Member, key: &str, input: &str) -> Result<Findings> {
    let partition = usize::try_from(kafka_wire::partitioner::partition(key.as_bytes(), 2))?;
    let ends = kafka_wire::Isolation::ReadUncommitted;
    scene.send([key])?;
    let end = scene.client.end_offsets(input, ends)?[partition];
    wait_until(PATIENCE, "the successor has counted all", || {
        member.check()?;
        Ok(scene.committed(input)?[partition] == end)
    })?;
    stop(&mut member)?;
    scene.judge()
}

/// The position `Restoring`. A restore is killed after its first batch. The position in this batch marks the database
/// as incomplete. If it marked the database as complete, the next start would trust it, and the counts of later keys
/// would begin again.
fn killed_in_a_restore(scene: &mut Scene, undefended: &str) -> Result<Findings> {
    // A load of a restore has at least a mebibyte, and at most 4096 records more. These keys make more than two loads.
    let keys: Vec<String> = (0..10_000)
        .map(|n| format!("{n:05}{}", "k".repeat(300)))
        .collect();
    let keys = || keys.iter().map(String::as_str);
    scene.run(Start::on("one"), keys())?;
    scene.delete_databases("one")?;
    let mut killed = scene.start(Start {
        failpoints: "restore_k=crash@hit:2",
        undefended,
        ..Start::on("one")
    })?;
    killed.await_killed(PATIENCE)?;
    let rows = scene.run(Start::on("one"), keys())?;
    let expected = if undefended.is_empty() {
        "replay"
    } else {
        "exact"
    };
    ensure!(rows == [expected], "it took {rows:?}, not {expected}");
    scene.judge()
}

/// LSO after apply. A process freezes when its transaction is committed but not yet applied to its database. A
/// successor counts a key. Then the process continues, applies its own transaction, and crashes. Its database may store
/// the end of the changelog from before the successor's record. It must not store the current end, because a replay
/// from there would miss the successor's record. (The successor commits once more, because a copy without the last
/// commit record would be detected.)
fn applied_late(scene: &mut Scene, undefended: &str) -> Result<Findings> {
    scene.run(Start::on("one"), ["seed"])?;
    let mut late = scene.start(Start {
        failpoints: "post_commit_pre_state=freeze;apply_done=crash",
        undefended,
        ..Start::on("one")
    })?;
    scene.send(["last"])?;
    scene.await_fired(1)?;
    late.await_frozen(PATIENCE)?;

    let mut successor = scene.start(Start::on("other"))?;
    scene.send(["a"])?;
    scene.await_counted(&mut successor)?;
    late.thaw()?;
    late.await_killed(PATIENCE)?;
    scene.await_fired(2)?;
    scene.send(["b"])?;
    scene.await_counted(&mut successor)?;
    stop(&mut successor)?;

    let rows = scene.run(Start::on("one"), ["a", "b", "last", "seed"])?;
    ensure!(rows == ["replay"], "it took {rows:?}");
    scene.judge()
}

/// Purge after commit. Words are in a repartition topic, and are counted in a transaction that never commits, because
/// its process is killed. The words must still be in the topic.
fn killed_before_the_commit(scene: &mut Scene, undefended: &str) -> Result<Findings> {
    scene.run(Start::on("one"), ["a", "b", "a"])?;
    let words = format!("{}-words-repartition", scene.app);
    let committed = scene.committed(&words)?[0];
    // The first transaction writes the words to the repartition topic, and the second one counts them. The second one
    // stays open for long enough for a purge of all processed records.
    let mut killed = scene.start(Start {
        failpoints: "pre_commit=crash@hit:2",
        undefended,
        interval_ms: 5_000,
        ..Start::on("one")
    })?;
    scene.send(["a", "b", "c", "d"])?;
    killed.await_killed(PATIENCE)?;
    let begins = scene.client.start_offsets(&words)?[0];
    if undefended.is_empty() {
        ensure!(begins <= committed, "{begins} > {committed}: too early");
        let mut successor = scene.start(Start::on("one"))?;
        scene.await_counted(&mut successor)?;
        stop(&mut successor)?;
        ensure!(!rows(&successor).is_empty(), "it had no state");
    } else {
        ensure!(begins > committed, "{begins}: nothing was deleted");
        // The deleted records are lost, so the successor must stop with an error.
        let mut successor = scene.start(Start::on("one"))?;
        let well = successor.await_any_end(PATIENCE)?;
        let says = "Records were deleted before they were read";
        ensure!(!well && successor.log().contains(says), "it went on");
    }
    scene.judge()
}

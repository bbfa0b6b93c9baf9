//! What keeps state exact, taken away one by one: the same schedule is exact with the defence, and loses
//! or doubles without it, as the output, the changelog and the databases show.
//!
//! `cargo test -p integration-tests --test kafka state_controls:: -- --nocapture`; `EOS_CASE=restoring` does those
//! whose name holds this.

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
/// One of these after the other, by its processes' log.
const COMMITTED: &str = ": committed app=";
/// It knows where to begin.
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
    /// What is taken away.
    defence: &'static str,
    /// What happens, in words.
    case: &'static str,
    counter: Counter,
    /// How many faults fire.
    faults: usize,
    run: fn(&mut Scene, undefended: &str) -> Result<Findings>,
    /// Whether this is what is wrong without the defence.
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
    // What is compiled first takes its time.
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

/// Rule 2. An owner of two tasks took a record of one of them and freezes before EndTxn; its session ends,
/// its transaction does not. With the offset of that task in its transaction the successor waits for its
/// end. With the other task's in its place nothing holds the successor back: it counts the record too, and
/// both commit.
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

    // By its log: what the zombie holds open hides offsets and outputs from everybody else.
    let successor = scene.start(Start::on("other"))?;
    let commits = |member: &Member| member.log().matches(COMMITTED).count();
    if undefended.is_empty() {
        // It works on what the zombie did not touch, and on that alone.
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

/// The position `Restoring`. A restore is killed after its first batch. That batch says that it is a part;
/// if it says that it is all, the next start believes it, and keys beyond it begin again.
fn killed_in_a_restore(scene: &mut Scene, undefended: &str) -> Result<Findings> {
    // A load of a restore is a mebibyte at least, and 4096 records at most beyond that: this is more than two.
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

/// LSO after apply. A process freezes when its transaction is committed and its database has it not yet; a
/// successor counts a key; the process goes on, applies what is its own, and dies. Where the changelog was
/// before is what its database may hold. Where it is by now lies behind the successor's key, which no
/// replay from there brings back. (The successor commits once more: a copy that comes without the last
/// commit record is found out by that.)
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

/// Purge after commit. Words are in a repartition topic, and are counted in a transaction that is never
/// committed: its process is killed. They have to be there still.
fn killed_before_the_commit(scene: &mut Scene, undefended: &str) -> Result<Findings> {
    scene.run(Start::on("one"), ["a", "b", "a"])?;
    let words = format!("{}-words-repartition", scene.app);
    let committed = scene.committed(&words)?[0];
    // The first transaction brings the words into the repartition topic, the second one counts them. It
    // stays open for long enough that whatever is done with is deleted.
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
        // The deleted records are lost: no count goes on from them.
        let mut successor = scene.start(Start::on("one"))?;
        let well = successor.await_any_end(PATIENCE)?;
        let says = "Records were deleted before they were read";
        ensure!(!well && successor.log().contains(says), "it went on");
    }
    scene.judge()
}

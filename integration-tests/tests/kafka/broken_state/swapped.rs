//! Changes to the state directory from outside.
//!
//! The directory is deleted, or replaced by an older copy or by another app's state, or the store gets another codec.

use std::fs;

use anyhow::{Result, ensure};
use eos_core::errors::WorkerError;
use eos_core::run::StopMode;
use eos_core::{Error, KeyValueStore, Topic};

use super::Told;
use crate::common::{ended, says};
use crate::restart_table::scene::Scene;

/// The app may continue or stop with an error. In both cases, no record is lost.
pub(crate) fn deleted_running(scene: &mut Scene) -> Result<Told> {
    scene.run(&["a", "b"])?;
    let mut running = scene.begin()?;
    scene.send(&["a", "b", "c"])?;
    scene.await_committed()?;
    scene.delete_databases()?;
    scene.send(&["a", "b", "c"])?;
    scene.await_committed()?;
    running.handle().stop(StopMode::Leave);
    let end = match ended(&mut running)? {
        Ok(()) => "it went on".to_owned(),
        Err(Error::Worker(error @ WorkerError::Store { .. })) => error.to_string(),
        Err(error) => return Err(error.into()),
    };
    let state = scene.log();
    ensure!(!state.is_empty(), "no log");
    let began = scene.run(&["a", "c"])?;
    began.took("no_state")?;
    scene.judge()?;
    Ok((format!("exact; {end}; then rebuilt"), 1))
}

/// The database is replaced while the app runs, and the app continues. At its next start, the database is older or
/// damaged.
pub(crate) fn older_copy_running(scene: &mut Scene) -> Result<Told> {
    scene.run(&["a", "b"])?;
    let older = scene.keep()?;
    scene.run(&["a", "b"])?;
    let mut ways = Vec::new();
    for times in 1..=3 {
        let mut running = scene.begin()?;
        scene.send(&["a", "b", "c"])?;
        scene.await_committed()?;
        // The lock and the instance file stay. Only the database is replaced.
        scene.put_database_back(&older)?;
        for _ in 0..times {
            scene.send(&["a", "b", "c"])?;
            scene.await_committed()?;
        }
        running.handle().stop(StopMode::Leave);
        if let Err(error) = ended(&mut running)? {
            ensure!(
                matches!(error, Error::Worker(WorkerError::Store { .. })),
                "{error}"
            );
        }
        let began = scene.run(&["a", "c"])?;
        ensure!(
            began.rows == ["replay"] || began.rows == ["no_state"],
            "{began:?}"
        );
        // A clean stop may treat the copy's log as an obsolete log of its own. Then the database is empty.
        ways.extend(began.rows);
        scene.judge()?;
    }
    let mut child = scene.child("", "")?;
    scene.send(&["a", "b", "c"])?;
    scene.await_committed()?;
    scene.put_database_back(&older)?;
    scene.send(&["a", "b", "c"])?;
    scene.await_committed()?;
    child.kill()?;
    let began = scene.run(&["a", "c"])?;
    began.took("replay")?;
    scene.judge()?;
    let ways = ways.join(", ");
    Ok((format!("exact; stopped: {ways}; killed: replay"), 4))
}

pub(crate) fn of_another_cluster(scene: &mut Scene) -> Result<Told> {
    scene.run(&["a", "b"])?;
    edit_owner(scene, "cluster ", "cluster AAAAAAAAAAAAAAAAAAAAAA")?;
    let began = scene.run(&["a", "c"])?;
    began.took("no_state")?;
    began.says("deleting state that does not belong to this task")?;
    began.says("it holds state from cluster AAAAAAAAAAAAAAAAAAAAAA")?;
    scene.judge()?;
    Ok(("exact; cleared loudly and rebuilt".into(), 1))
}

pub(crate) fn of_another_task(scene: &mut Scene) -> Result<Told> {
    scene.run(&["a", "b"])?;
    edit_owner(scene, "task ", "task 0_7")?;
    let began = scene.run(&["a", "c"])?;
    began.took("no_state")?;
    began.says("it holds state of task 0_7, not 0_0")?;
    scene.judge()?;
    Ok(("exact; cleared loudly and rebuilt".into(), 1))
}

/// The state of another app was copied there from outside. The app must not delete it.
pub(crate) fn of_another_app(scene: &mut Scene) -> Result<Told> {
    scene.run(&["a", "b"])?;
    edit_owner(scene, "app ", "app of-another-app")?;
    let app = scene.counting("counts");
    let error = scene.case.failure_of(app)?;
    ensure!(
        matches!(&error, Error::Worker(WorkerError::Home { .. })),
        "{error}"
    );
    says(&error, &["of-another-app", "tasks/0_0"])?;
    ensure!(scene.database()?.is_dir(), "it was deleted");
    scene.delete_databases()?;
    scene.run(&["a", "c"])?.took("no_state")?;
    scene.judge()?;
    Ok(("refused by name; exact once it was moved away".into(), 1))
}

/// The store has another codec under its old name.
pub(crate) fn unreadable_value(scene: &mut Scene) -> Result<Told> {
    scene.run(&["a", "b"])?;
    let (total, outputs) = (scene.total(), scene.case.output()?.len());
    let mut app = scene.case.app();
    app.source(&Topic::<String, String>::plain(&scene.case.input))
        .group_by_key()
        .count(&KeyValueStore::<String, u64>::json("counts"))
        .to(&Topic::plain(&scene.case.output));
    scene.send(&["a"])?;
    let error = scene.case.failure_of(app)?;
    says(&error, &["record 2 of", "counts"])?;
    ensure!(scene.case.committed()? == Some(total), "it was skipped");
    ensure!(scene.case.output()?.len() == outputs, "it was counted");
    // The old codec again.
    scene.run(&["a"])?.took("exact")?;
    scene.judge()?;
    let verdict = "stopped at the record, with store and codec named; exact with the old codec";
    Ok((verdict.into(), 1))
}

fn edit_owner(scene: &Scene, begins: &str, line: &str) -> Result<()> {
    let path = scene.database()?.with_file_name("owner");
    let text = fs::read_to_string(&path)?;
    let changed: Vec<&str> = text
        .lines()
        .map(|old| if old.starts_with(begins) { line } else { old })
        .collect();
    let changed = changed.join("\n") + "\n";
    ensure!(changed != text, "{text}");
    Ok(fs::write(path, changed)?)
}

//! A power loss, and a faulty disk: databases at an earlier point, without the end of their log, or with flipped bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use eos_core::Error;
use eos_core::errors::WorkerError;
use integration_tests::faults::is_full;
use integration_tests::kill::Random;
use kafka_launcher::os::Signal;

use super::Told;
use crate::restart_table::scene::Scene;

const WORDS: [&str; 5] = ["a", "b", "c", "d", "e"];
/// The words that are in a table file and not in the log.
const TABLED: [&str; 5] = ["v", "w", "x", "y", "z"];

/// The database of a program is copied while the process is frozen, and restored after its SIGKILL, at several points.
pub(crate) fn earlier_point(scene: &mut Scene) -> Result<Told> {
    let times = if is_full() { 10 } else { 3 };
    let mut rows = BTreeMap::<String, u64>::new();
    for _ in 0..times {
        let mut child = scene.child("", "")?;
        scene.send(&WORDS)?;
        scene.await_committed()?;
        scene.send(&WORDS)?;
        thread::sleep(Duration::from_millis(30));
        child.signal(Signal::Stop)?;
        let earlier = scene.keep()?;
        child.signal(Signal::Continue)?;
        scene.send(&WORDS)?;
        scene.await_committed()?;
        child.kill()?;
        scene.put_back(&earlier)?;
        let began = scene.run(&["a"])?;
        began.took("replay")?;
        *rows.entry("replay".to_owned()).or_default() += 1;
        scene.judge()?;
    }
    Ok((format!("exact; {}", told(&rows)), times))
}

/// The newest log is cut at a random byte.
pub(crate) fn log_cut_short(scene: &mut Scene) -> Result<Told> {
    let times = if is_full() { 60 } else { 12 };
    let left = killed(scene)?;
    let (mut random, mut rows) = (Random::new(6), BTreeMap::<String, u64>::new());
    for _ in 0..times {
        scene.put_back(&left)?;
        let log = newest(&scene.database()?, ".log")?;
        let length = fs::metadata(&log)?.len();
        let keep = random.roll() % length;
        fs::File::options().write(true).open(&log)?.set_len(keep)?;
        let began = scene.run(&["a"])?;
        // With an empty log, the database looks as if it was never written to.
        for row in &began.rows {
            ensure!(
                ["replay", "no_state"].contains(&row.as_str()),
                "{row} after {keep} of {length} bytes"
            );
            *rows.entry(row.clone()).or_default() += 1;
        }
        scene.judge()?;
    }
    Ok((format!("exact; {}", told(&rows)), times))
}

/// One byte of a table, a log, the manifest or CURRENT is changed.
pub(crate) fn flipped(scene: &mut Scene) -> Result<Told> {
    let each = if is_full() { 25 } else { 4 };
    // The replay of a log writes a table.
    scene.run(&TABLED)?;
    scene.run(&TABLED)?;
    let left = killed(scene)?;
    let (mut random, mut found) = (Random::new(6), BTreeMap::<String, u64>::new());
    let mut times = 0;
    for kind in [".sst", ".log", "MANIFEST", "CURRENT"] {
        for _ in 0..each {
            scene.put_back(&left)?;
            let file = newest(&scene.database()?, kind)?;
            let mut bytes = fs::read(&file)?;
            let at = random.index(bytes.len());
            bytes[at] ^= 1 << random.index(8);
            fs::write(&file, bytes)?;
            let how = heal(scene).with_context(|| format!("byte {at} of {}", file.display()))?;
            times += 1;
            // Damage in unread records is detected only by their first reader.
            match scene.judge() {
                Err(error) if error.to_string().contains("Corruption") => {
                    let how = "not read yet, and found by a program that reads all";
                    *found.entry(how.to_owned()).or_default() += 1;
                    scene.delete_databases()?;
                    scene.run(&WORDS)?;
                    scene.judge()?;
                }
                judged => {
                    judged?;
                    *found.entry(how).or_default() += 1;
                }
            }
        }
    }
    Ok((format!("exact; {}", told(&found)), times))
}

/// Starts the app, and applies the fix in its error if it stops. Returns a description of the outcome.
fn heal(scene: &mut Scene) -> Result<String> {
    scene.send(&WORDS)?;
    scene.send(&TABLED)?;
    let app = scene.counting("counts");
    let error = match scene.run_to_end(app)? {
        Ok(began) => {
            let cleared = began.says("removing the damaged database").is_ok();
            return Ok(match cleared {
                true => "found at the start and rebuilt".to_owned(),
                false => began.rows.join(", "),
            });
        }
        Err(error) => error,
    };
    let Error::Worker(WorkerError::Store { .. } | WorkerError::Home { .. }) = &error else {
        bail!("{error}");
    };
    let says = error.to_string();
    ensure!(
        says.contains("Move the directory away and restart"),
        "{says}"
    );
    scene.delete_databases()?;
    let app = scene.counting("counts");
    match scene.run_to_end(app)? {
        Ok(_) => Ok("found later, stopped, and rebuilt as the error says".to_owned()),
        Err(error) => bail!("{error}, after its directory was moved away"),
    }
}

/// Returns a copy of the state of a program that was killed after a while.
fn killed(scene: &mut Scene) -> Result<crate::restart_table::scene::Kept> {
    let mut child = scene.child("", "")?;
    for _ in 0..12 {
        scene.send(&WORDS)?;
        thread::sleep(Duration::from_millis(40));
    }
    scene.await_committed()?;
    child.kill()?;
    scene.keep()
}

/// Returns the newest file of a database whose name contains `kind`.
fn newest(database: &Path, kind: &str) -> Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(database)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.contains(kind) && entry.metadata()?.len() > 0 {
            found.push(entry.path());
        }
    }
    found.sort();
    found
        .pop()
        .with_context(|| format!("no {kind} in the database"))
}

fn told(counts: &BTreeMap<String, u64>) -> String {
    let words = counts.iter().map(|(what, n)| format!("{what}: {n}"));
    words.collect::<Vec<_>>().join(", ")
}

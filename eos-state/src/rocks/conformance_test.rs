//! The engine on disk compared with the model, and after the death of its process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use eos_protocol::state::Family;
use tempfile::tempdir;

use super::*;
use crate::TaskStore;
use crate::conformance::{Crash, Engine, History, Lasts, check, check_due, contents};

pub(super) static MEMORY: LazyLock<StateMemory> = LazyLock::new(|| StateMemory::new(16 << 20));

/// The engine on disk, under test.
pub(super) struct Rocks;

impl Engine for Rocks {
    fn open(&self, dir: &Path) -> Result<Box<dyn StoreBackend>, StoreError> {
        Ok(Box::new(RocksBackend::open(dir, &Family::ALL, &MEMORY)?))
    }

    fn lasts(&self) -> Lasts {
        Lasts::Disk
    }
}

#[test]
fn it_conforms() {
    check(&Rocks, tempdir().unwrap().path(), 40).unwrap();
}

#[test]
fn due_stores_conform() {
    check_due(&Rocks, tempdir().unwrap().path(), 40).unwrap();
}

const DIR: &str = "EOS_STATE_TEST_DIR";
/// A number of steps, or one of the two texts below.
const STEPS: &str = "EOS_STATE_TEST_STEPS";
const FLUSHING: &str = "until it is killed, flushing now and then";
const LOGGING: &str = "until it fails, the log growing";

/// Returns the same test binary, which runs only the life below. `told` also runs shell commands before it.
fn life(dir: &Path, steps: &str) -> Command {
    told("", dir, steps)
}

fn told(shell: &str, dir: &Path, steps: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{shell} exec \"$@\""), "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "rocks::conformance_test::a_life"])
        .env(DIR, dir)
        .env(STEPS, steps)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Does nothing, except in the processes that the next tests start.
#[test]
fn a_life() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else {
        return;
    };
    let steps = std::env::var(STEPS).unwrap();
    if let Ok(steps) = steps.parse() {
        let Err(error) = Crash { dir, steps }.live(&Rocks);
        panic!("{error}");
    }
    let mut store = History.stores(Rocks.open(&dir).unwrap()).unwrap();
    for seq in 1.. {
        if let Err(error) = History.commit(&mut store, seq) {
            return failed(&mut store, seq, &error);
        }
        if seq % 64 == 0 && steps == FLUSHING {
            store.flush().unwrap();
        }
    }
}

/// Checks that after a failure every call returns that failure.
fn failed(store: &mut TaskStore, seq: u64, error: &StoreError) {
    assert!(matches!(error, StoreError::Io { .. }), "{error:?}");
    for _ in 0..3 {
        assert_eq!(History.commit(store, seq).unwrap_err(), *error);
        assert_eq!(contents(store).unwrap_err(), *error);
    }
    let dir = std::env::var_os(DIR).map(PathBuf::from).unwrap();
    std::fs::write(dir.with_extension("failed"), seq.to_string()).unwrap();
}

/// Simulates a full disk for one process: files may not grow over a limit.
#[test]
fn a_store_that_cannot_write_stops_and_heals_once_it_can() {
    let temp = tempdir().unwrap();
    let dir = temp.path().join("limited");
    let shell = "trap '' XFSZ; ulimit -f 64;";
    assert!(told(shell, &dir, LOGGING).status().unwrap().success());
    let failed = std::fs::read_to_string(dir.with_extension("failed")).unwrap();
    let failed: u64 = failed.parse().unwrap();
    let mut store = History.stores(Rocks.open(&dir).unwrap()).unwrap();
    let seq = History.compare(&store).unwrap().unwrap();
    assert!(
        seq == failed - 1 && seq > 10,
        "it failed at {failed} and is at {seq}"
    );
    History.commit(&mut store, failed).unwrap();
    assert_eq!(History.compare(&store).unwrap(), Ok(failed));
}

#[test]
fn a_process_that_dies_between_any_two_writes_leaves_whole_transactions() {
    let dir = tempdir().unwrap();
    for steps in 0..=Crash::steps_of_one() * 5 {
        let crash = Crash {
            dir: dir.path().join(steps.to_string()),
            steps,
        };
        let status = life(&crash.dir, &steps.to_string()).status().unwrap();
        assert!(!status.success(), "it was to die after {steps} steps");
        crash.judge(&Rocks).unwrap();
    }
}

#[test]
fn a_process_that_is_killed_at_any_time_leaves_whole_transactions() {
    let dir = tempdir().unwrap();
    let mut ends = Vec::new();
    for round in 0..12 {
        let dir = dir.path().join(round.to_string());
        let mut child = life(&dir, FLUSHING).spawn().unwrap();
        while !dir.join("CURRENT").exists() {
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_millis(20 + 13 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let store = History.stores(Rocks.open(&dir).unwrap()).unwrap();
        ends.push(History.compare(&store).unwrap().unwrap());
    }
    assert!(
        ends.iter().any(|seq| *seq > 64),
        "no life was long: {ends:?}"
    );
}

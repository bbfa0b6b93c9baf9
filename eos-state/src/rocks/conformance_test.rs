//! The engine on disk beside the model, and after deaths of its process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use eos_protocol::state::Family;
use tempfile::tempdir;

use super::*;
use crate::conformance::{Crash, Engine, History, Lasts, check};

pub(super) static MEMORY: LazyLock<StateMemory> = LazyLock::new(|| StateMemory::new(16 << 20));

/// The engine on disk, to be tested.
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
    check(&Rocks, tempdir().unwrap().path(), 60).unwrap();
}

const DIR: &str = "EOS_STATE_TEST_DIR";
const STEPS: &str = "EOS_STATE_TEST_STEPS";

/// The same test binary, running only the life below.
fn life(dir: &Path, steps: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "rocks::conformance_test::a_life"])
        .env(DIR, dir)
        .env(STEPS, steps)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Does nothing, except in the processes that the next two tests start.
#[test]
fn a_life() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else {
        return;
    };
    if let Ok(steps) = std::env::var(STEPS).unwrap().parse() {
        let Err(error) = Crash { dir, steps }.live(&Rocks);
        panic!("{error}");
    }
    let mut store = History.stores(Rocks.open(&dir).unwrap()).unwrap();
    for seq in 1.. {
        History.commit(&mut store, seq).unwrap();
        if seq % 64 == 0 {
            store.flush().unwrap();
        }
    }
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
        let mut child = life(&dir, "endless").spawn().unwrap();
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

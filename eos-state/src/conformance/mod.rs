//! The test suite for engines.
//!
//! [`check`] runs random sequences of operations on a [`TaskStore`](crate::TaskStore) over the engine and on a model, a
//! plain ordered map. It compares every result, and closes and reopens the engine in between. If the engine has a
//! [`reader`](crate::StoreBackend::reader), its snapshots are compared as well: each has whole transactions, stays the
//! same, and is refused once the engine is closed. [`Crash`] aborts a process between any two writes, and checks the
//! remaining state. [`check_due`] runs random sequences on due stores, and compares items, their order and the index
//! with a model. [`check_global`] does the same for engines of global tables and their snapshots.
//!
//! To test an engine, implement [`Engine`] for it, and write a test for each of these.

mod crash;
mod due;
mod global;
mod history;
mod model;
mod operation;
mod run;
mod snapshots;

use std::cell::Cell;
use std::path::Path;

use eos_protocol::state::{Identity, PerFamily, Position, Standing, StoresHash};
use eos_protocol::{Nonce, Seq, TaskId, Timestamp};
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

pub use crash::Crash;
pub use due::check_due;
pub use global::{GlobalUnderTest, check_global};
pub use history::{Contents, History, contents};

use crate::{StoreBackend, StoreError};

/// An engine under test.
pub trait Engine {
    /// Opens the data in this directory, or creates it.
    ///
    /// # Errors
    /// As the engine's own.
    fn open(&self, dir: &Path) -> Result<Box<dyn StoreBackend>, StoreError>;

    /// Returns the durability of applied data.
    fn lasts(&self) -> Lasts;
}

/// The durability of applied data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasts {
    /// Until the process ends: after reopening there is no position and no data.
    Process,
    /// Until it is deleted: after reopening, the engine is at its last position.
    Disk,
}

/// A failure of an engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(pub(crate) String);

/// Compares the engine with the model in this many random sequences of operations. The sequences are the same every
/// time, so a failure is reproducible.
///
/// # Errors
/// The failure, with the shortest sequence found that shows it.
pub fn check(engine: &dyn Engine, dir: &Path, sequences: u32) -> Result<(), Violation> {
    run_sequences(dir, sequences, &operation::sequence(), |dir, operations| {
        run::run(engine, dir, operations)
    })
}

/// Runs a test on random inputs, each with a directory of its own.
fn run_sequences<S: Strategy>(
    dir: &Path,
    sequences: u32,
    inputs: &S,
    test: impl Fn(&Path, &S::Value) -> Result<(), TestCaseError>,
) -> Result<(), Violation> {
    let config = Config {
        cases: sequences,
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let count = Cell::new(0);
    TestRunner::new_with_rng(config, rng)
        .run(inputs, |input| {
            count.set(count.get() + 1);
            let dir = dir.join(format!("sequence-{}", count.get()));
            let run = test(&dir, &input);
            // The sequence reproduces a failure, so its files are not needed.
            let _ = std::fs::remove_dir_all(&dir);
            run
        })
        .map_err(|error| Violation(error.to_string()))
}

/// Returns a position of the test task: transaction `seq`.
#[must_use]
pub fn position(seq: u64) -> Position {
    Position {
        identity: Identity {
            cluster: "cluster".into(),
            app: "app".into(),
            task: TaskId::default(),
            topics: Vec::new(),
            stores: StoresHash(1),
        },
        standing: Standing::At {
            seq: Seq(seq),
            nonce: Nonce(seq ^ 0xfeed),
            inputs: Vec::new(),
            commit_records: PerFamily::default(),
            stream_time: None,
            wall_time: Timestamp(0),
        },
        changelogs: PerFamily::default(),
    }
}

/// Returns the transaction of a position.
pub(crate) fn seq_of(position: &Position) -> Option<u64> {
    match position.standing {
        Standing::At { seq, .. } => Some(seq.0),
        Standing::Restoring { .. } => None,
    }
}

#[cfg(test)]
#[path = "planted_test.rs"]
mod planted_test;

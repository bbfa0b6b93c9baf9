//! What every engine has to pass.
//!
//! [`check`] runs random sequences of operations on a [`TaskStore`](crate::TaskStore) over the
//! engine and on a model beside it, a plain ordered map, and compares every answer; the engine is
//! closed and opened again in between. [`Crash`] has a process die between any two writes, and
//! looks at what it left behind.
//!
//! Write an [`Engine`] for yours and a test for each of the two.

mod crash;
mod history;
mod operation;
mod run;

use std::cell::Cell;
use std::path::Path;

use eos_protocol::state::{Identity, PerFamily, Position, Standing, StoresHash};
use eos_protocol::{Nonce, Seq, TaskId, Timestamp};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

pub use crash::Crash;
pub use history::{Contents, History, contents};

use crate::{StoreBackend, StoreError};

/// An engine to be tested.
pub trait Engine {
    /// Opens what is in this directory, or makes it.
    ///
    /// # Errors
    /// As the engine's own.
    fn open(&self, dir: &Path) -> Result<Box<dyn StoreBackend>, StoreError>;

    /// How long what was applied has to last.
    fn lasts(&self) -> Lasts;
}

/// How long what was applied has to last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasts {
    /// As long as the process: opened again, it has no position, and no data.
    Process,
    /// Until it is deleted: opened again, it is at its last position.
    Disk,
}

/// What an engine did wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(pub(crate) String);

/// Compares the engine with the model in this many random sequences of operations. The same ones every time,
/// so that a failure comes again.
///
/// # Errors
/// What is wrong, with the shortest sequence found that shows it.
pub fn check(engine: &dyn Engine, dir: &Path, sequences: u32) -> Result<(), Violation> {
    let config = Config {
        cases: sequences,
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let count = Cell::new(0);
    TestRunner::new_with_rng(config, rng)
        .run(&operation::sequence(), |operations| {
            count.set(count.get() + 1);
            let dir = dir.join(format!("sequence-{}", count.get()));
            let run = run::run(engine, &dir, &operations);
            // What is left of a failed one is in its sequence already.
            let _ = std::fs::remove_dir_all(&dir);
            run
        })
        .map_err(|error| Violation(error.to_string()))
}

/// A position of a made-up task: transaction `seq`.
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

/// The transaction that a position stands at.
pub(crate) fn seq_of(position: &Position) -> Option<u64> {
    match position.standing {
        Standing::At { seq, .. } => Some(seq.0),
        Standing::Restoring { .. } => None,
    }
}

#[cfg(test)]
#[path = "planted_test.rs"]
mod planted_test;

//! A process that dies between two writes.

use std::convert::Infallible;
use std::path::PathBuf;

use super::{Engine, History, Violation};
use crate::{StoreError, TaskStore};

/// A life that ends after a given number of steps, by abort.
///
/// The steps of each transaction are its writes and the apply. Every fourth transaction is flushed after it. Each
/// step ends where the next one begins, so a death can fall between any two.
#[derive(Debug, Clone)]
pub struct Crash {
    /// The directory of the engine's data.
    pub dir: PathBuf,
    /// The number of steps before the process dies.
    pub steps: u64,
}

impl Crash {
    /// Returns the number of steps of one transaction: its writes, the apply, and an occasional flush.
    #[must_use]
    pub fn steps_of_one() -> u64 {
        History.writes() + 2
    }

    /// Runs the life in its own process and aborts the process. Returns only an earlier failure.
    ///
    /// # Errors
    /// If the engine fails before the abort.
    pub fn live(&self, engine: &dyn Engine) -> Result<Infallible, StoreError> {
        let mut store = History.stores(engine.open(&self.dir)?)?;
        for step in 0..self.steps {
            take(&mut store, step)?;
        }
        std::process::abort()
    }

    /// Checks the state after the death: the last applied transaction, whole, and no write of the open one.
    ///
    /// # Errors
    /// The difference found.
    pub fn judge(&self, engine: &dyn Engine) -> Result<(), Violation> {
        let failed =
            |error: StoreError| Violation(format!("after {} steps: {error:?}", self.steps));
        let found = (engine.open(&self.dir))
            .and_then(|backend| History.compare(&History.stores(backend)?))
            .map_err(failed)??;
        let applied = (0..self.steps).filter(|step| kind(*step) == History.writes());
        let expected = applied.count() as u64;
        if found != expected {
            return Err(Violation(format!(
                "after {} steps it is at {found}, not at {expected}",
                self.steps
            )));
        }
        Ok(())
    }
}

const fn kind(step: u64) -> u64 {
    step % (History.writes() + 2)
}

fn take(store: &mut TaskStore, step: u64) -> Result<(), StoreError> {
    let seq = step / Crash::steps_of_one() + 1;
    let kind = kind(step);
    if kind < History.writes() {
        History.write_one(store, seq, kind)
    } else if kind == History.writes() {
        store.apply(&super::position(seq))
    } else if seq.is_multiple_of(4) {
        store.flush()
    } else {
        Ok(())
    }
}

//! A process that dies between any two writes.

use std::convert::Infallible;
use std::path::PathBuf;

use super::{Engine, History, Violation};
use crate::{StoreError, TaskStore};

/// A life that ends after a given number of steps, by abort.
///
/// The steps of each transaction are its writes and the apply; every fourth transaction is flushed
/// after it. Each step ends with the next one's beginning, so that the deaths fall between any two.
#[derive(Debug, Clone)]
pub struct Crash {
    /// Where the engine's data are.
    pub dir: PathBuf,
    /// The life ends after this many steps.
    pub steps: u64,
}

impl Crash {
    /// Steps of one transaction: its writes, the apply, the flush that some have.
    #[must_use]
    pub fn steps_of_one() -> u64 {
        History.writes() + 2
    }

    /// Lives, in a process of its own, and aborts it: it returns only what went wrong before.
    ///
    /// # Errors
    /// If the engine fails before.
    pub fn live(&self, engine: &dyn Engine) -> Result<Infallible, StoreError> {
        let mut store = History.stores(engine.open(&self.dir)?)?;
        for step in 0..self.steps {
            take(&mut store, step)?;
        }
        std::process::abort()
    }

    /// What the death left behind: the last transaction that was applied, whole, and nothing of the
    /// one that was open.
    ///
    /// # Errors
    /// What is wrong with it.
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

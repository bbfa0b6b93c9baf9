//! Tests that run after all others: alone, or a few at a time.
//!
//! They measure time, need the whole machine, or use Kafka's usual port. The tests in `FEW`
//! (`tools/xtask/src/test/pool.rs`) tolerate a few parallel tests.

#[path = "../common/mod.rs"]
mod common;
#[path = "../proxied/mod.rs"]
mod proxied;

mod backlog;
mod brokers;
mod churn;
mod counts;
mod examples;
mod hanging_call;
mod kill;
mod kip890_gap;
mod readme;
mod revocations;
mod slow;
mod small_machine;
mod windowed_counts;
mod wire_producer_delivers_once;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks out the other tests of this process. (`cargo xtask test` starts a process for each test.)
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

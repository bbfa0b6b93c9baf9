//! Tests that measure time, need the whole machine, or use Kafka's usual port: one at a time.

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

/// Keeps the other tests of this process waiting. (`cargo xtask test` starts one process at a time.)
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Tests on a real Kafka that measure time or need the whole machine: one at a time.

#[path = "../common/mod.rs"]
mod common;
#[path = "../proxied/mod.rs"]
mod proxied;

mod brokers;
mod churn;
mod counts;
mod hanging_call;
mod kill;
mod kip890_gap;
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

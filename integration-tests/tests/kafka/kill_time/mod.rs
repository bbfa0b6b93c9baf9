//! Windows, sessions, timers, parked keys, deduplication, joins, tables, and rows in PostgreSQL under SIGKILL.
//!
//! Two processes with two workers each run a pipeline of `examples/timed`, or `examples/orders`. They are killed and
//! started again while records arrive. In a full run one also freezes for longer than its session. At the end the
//! committed output must be what one loop over the input computes. The loops are in these files and use no code of the
//! framework.
//!
//! All records of a key are in the partition with the number of its output partition, nearly in the order of their
//! times: the disorder is smaller than the grace. So no record is late, and each output partition has one possible
//! content.
//!
//! `cargo test -p integration-tests --test kafka kill_time::` runs the small size. `EOS_FULL=1` runs the full size, as
//! `cargo xtask soak time` does. `EOS_SEED=n` repeats a run. `EOS_UNDEFENDED=fire_once` (or `cursor_inside`,
//! `idle_evidence`, `old_row_first`, `restart_table`, `subtract_without_add`) disables a defence of the processes,
//! which must make tests fail.

mod at_once;
mod duplicates;
mod foreign;
mod hopping;
mod idle;
mod joins;
mod orders;
mod parked;
mod poison;
mod results;
mod scene;
mod sent;
mod sessions;
mod shop;
mod standbys;
mod tables;
mod timers;
mod windows;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks out the other tests of this module. `cargo xtask test` starts a process for each test.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

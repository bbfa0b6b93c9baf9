//! Windows, sessions and timers under SIGKILL.
//!
//! Two processes with two workers each run a pipeline of `examples/timed.rs`. They are killed and started again while
//! records arrive. In a full run one also freezes for longer than its session. At the end the committed output must be
//! what one loop over the input computes. The loops are in these files and use no code of the framework.
//!
//! All records of a key are in the partition with the number of its output partition, nearly in the order of their
//! times: the disorder is smaller than the grace. So no record is late, and each output partition has one possible
//! content.
//!
//! `cargo test -p integration-tests --test kafka kill_time::` runs the small size, and `EOS_FULL=1` the full size.
//! `EOS_SEED=n` repeats a run.

mod at_once;
mod hopping;
mod idle;
mod results;
mod scene;
mod sessions;
mod timers;
mod windows;

//! Tests that only `cargo xtask soak` runs.
//!
//! `cargo test` leaves this target out (`test = false`), because it takes an hour, or compiles programs again.

mod hour;
mod unarmed;

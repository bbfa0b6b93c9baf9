//! Tests that only `cargo xtask soak` runs.
//!
//! `cargo test` leaves this target out (`test = false`), because its tests take an hour or compile programs again.

mod hour;
mod unarmed;

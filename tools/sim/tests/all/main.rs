//! Tests of the simulation and of the program `eos-sim`.
#![allow(clippy::unwrap_used, reason = "tests")]

mod eos_sim;
mod scale;
mod simulation;

//! The simulation, and the program that runs it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod eos_sim;
mod simulation;

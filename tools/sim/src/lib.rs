//! A simulation of the whole runtime under a seed.
//!
//! Several workers run on one thread in virtual time, with faults at every action. The seed determines the whole run,
//! so a failed run can be repeated and traced step by step.
//!
//! ```text
//! Simulation ─► Processes: Worker::step()  ─► clients on the model ─► broker model
//!   │              │                              │
//!   │              └── databases in memory        └── Nemesis: crashes, stalls, lost and late requests, …
//!   └── Case: the app of the shape, its records, its check
//!
//! the checks at the end: each input once in each output, in order; counts without gap; state as from a simple loop
//! ```
#![forbid(unsafe_code)]

mod calls;
mod case;
mod cases;
mod check;
mod clocks;
mod cogroup;
mod coverage;
mod dedup;
mod disks;
mod expiring;
mod fault;
mod foreign;
mod foreign_keys;
mod guarantees;
mod idle;
mod joined;
mod joins;
mod ledger;
mod loops;
mod merged;
mod nemesis;
mod on_close;
mod parked;
mod plain;
mod policies;
mod processes;
mod record;
mod remains;
mod reorder;
mod run;
mod scale;
mod seeds;
mod sequences;
mod sessions;
mod shape;
mod shrink;
mod simulation;
mod sliding;
mod stores;
mod tables;
mod timers;
mod topics;
mod wall_timers;
mod windowed;
mod without;

pub use coverage::Coverage;
pub use disks::{Disks, InMemory, ProcessDisk};
pub use fault::{Api, Fault, Kind, Place};
pub use run::{Outcome, Run};
pub use scale::{Scale, ScaleReport, Scenario, Settled, Traffic, Work};
pub use seeds::{Seeds, Summary};
pub use shape::Shape;
pub use shrink::shrink;
pub use without::{NoDefence, check_defence, check_runtime_defence};

//! The simulation with RocksDB, and with planted bugs.
//!
//! These tests need C code.

mod lost_positions;
mod planted_bugs;
mod simulation_on_rocksdb;

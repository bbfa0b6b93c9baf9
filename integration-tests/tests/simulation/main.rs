//! The simulation with what needs C: state in RocksDB, and defences that are taken away.

mod planted_bugs;
mod simulation_on_rocksdb;

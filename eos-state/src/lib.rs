//! Stores of eos: state that commits with the Kafka transaction and survives what kills a process.
//!
//! What a position says and what a restart makes of it are decided in [`eos_protocol::state`]; here
//! are the bytes and the files.
//!
//! | module | holds |
//! |---|---|
//! | [`changelog`] | what the records of a changelog topic look like |
//! | [`directory`] | where the state of tasks lies on disk, and whose it is |
#![forbid(unsafe_code)]

pub mod changelog;
pub mod directory;

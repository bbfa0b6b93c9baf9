//! State that commits with the Kafka transaction: stores, engines, open writes.
//!
//! A task's stores live in one engine. One atomic write adds all writes of a transaction to the engine, beside the
//! [`Position`](eos_protocol::state::Position) that names the transaction. This happens only after the commit is
//! known. A crash therefore leaves an earlier position with exactly its data, and an abort has nothing to undo.
//!
//! | module | content |
//! |---|---|
//! | [`global`] | the copy of a global table, its versions and its engines |
//! | [`changelog`] | the format of a changelog topic's records |
//! | [`directory`] | the directories of tasks on disk, and their owners |
//! | [`TaskStore`] | all stores of a task from a record's view: scratch over overlay over in flight over backend |
//! | [`DueItem`], [`NextDue`] | rows with a moment, found by an index when they are due |
//! | [`ExpiredRows`] | rows that a commit deletes because they expired |
//! | [`StoreBackend`] | the interface of an engine |
//! | [`Around`] | an engine around another one |
//! | [`StateReader`] | snapshots of a database for other threads |
//! | [`MemoryBackend`] | the engine in memory |
//! | `rocks` | the engine on disk, and the memory shared by all its databases (feature `rocksdb`) |
//! | [`pressure`] | which database flushes when all together hold too much |
//! | [`StoreError`] | store errors and their fixes |
//! | `conformance` | the test suite for engines (feature `conformance`) |
#![forbid(unsafe_code)]

mod around;
mod backend;
mod batch;
mod cache;
pub mod changelog;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod cursor;
pub mod directory;
mod due;
mod error;
mod expired;
pub mod global;
mod in_flight;
mod load;
mod memory;
mod new_windows;
mod overlay;
pub mod pressure;
mod range;
mod reader;
#[cfg(feature = "rocksdb")]
pub mod rocks;
mod scan;
mod task_store;
#[cfg(test)]
mod testing;

pub use around::Around;
pub use backend::StoreBackend;
pub use batch::{Batch, Write};
pub use cache::CacheMemory;
pub use cursor::{Cursor, KeyValue};
pub use due::{due_range, due_row};
pub use error::{EngineFault, StoreError};
pub use expired::ExpiredRows;
pub use in_flight::InFlight;
pub use load::Load;
pub use memory::MemoryBackend;
pub use overlay::StoreKind;
pub use range::{Direction, KeyRange};
pub use reader::{Page, SnapshotOf, StateReader, StateSnapshot, TakeSnapshot};
pub use scan::Scan;
pub use task_store::{Changed, Defences, DueItem, MomentOf, NextDue, SetItem, TaskStore};

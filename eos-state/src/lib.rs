//! State that commits with the Kafka transaction: stores, their engines, what is still open.
//!
//! A task's stores live in one engine, and everything one transaction wrote becomes the engine's
//! in one atomic write, beside the [`Position`](eos_protocol::state::Position) that says which
//! transaction that was. It happens after the commit is known and never before, so a crash leaves
//! an earlier position and exactly its data, and an abort leaves nothing to undo.
//!
//! | module | what |
//! |---|---|
//! | [`changelog`] | what the records of a changelog topic look like |
//! | [`directory`] | where the state of tasks lies on disk, and whose it is |
//! | [`TaskStore`] | all stores of a task as a record sees them: scratch over overlay over backend |
//! | [`StoreBackend`] | what is asked of an engine |
//! | [`Around`] | an engine around another one |
//! | [`MemoryBackend`] | the engine in memory |
//! | `rocks` | the engine on disk, and the memory that all of them share (feature `rocksdb`) |
//! | [`pressure`] | which database flushes when together they hold too much |
//! | [`StoreError`] | what can go wrong, and what to do about it |
//! | `conformance` | what every engine has to pass (feature `conformance`) |
#![forbid(unsafe_code)]

mod around;
mod backend;
mod batch;
mod cache;
pub mod changelog;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod directory;
mod error;
mod memory;
mod overlay;
pub mod pressure;
mod range;
#[cfg(feature = "rocksdb")]
pub mod rocks;
mod scan;
mod task_store;
#[cfg(test)]
mod testing;

pub use around::Around;
pub use backend::{Cursor, KeyValue, StoreBackend};
pub use batch::{Batch, Write};
pub use cache::CacheMemory;
pub use error::{EngineFault, StoreError};
pub use memory::MemoryBackend;
pub use overlay::StoreKind;
pub use range::{Direction, KeyRange};
pub use scan::Scan;
pub use task_store::{Changed, TaskStore};

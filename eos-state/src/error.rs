//! Store errors and their fixes.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use eos_protocol::state::{PositionError, StoreId};

/// The reason why a store can't be opened, read or written.
///
/// Cheap to clone, because a poisoned store returns the error that poisoned it from every call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The disk has no room left.
    #[error(
        "the disk is full under the state in {path} ({source}): no later transaction was \
         committed. Free some space and restart; missing state is restored from the changelog"
    )]
    DiskFull {
        /// The database.
        path: PathBuf,
        /// The engine's message.
        source: EngineFault,
    },
    /// The disk or the file system refused an operation.
    #[error(
        "the state in {path} can't be read or written ({source}): no later transaction was \
         committed. Repair the disk or the permissions, and restart"
    )]
    Io {
        /// The database.
        path: PathBuf,
        /// The engine's message.
        source: EngineFault,
    },
    /// Another process, or another task of this one, has the database open.
    #[error(
        "the state in {path} is already open, in another process or in another task of this one ({source}). Stop \
         the other process, or give this one another state.dir"
    )]
    InUse {
        /// The database.
        path: PathBuf,
        /// The engine's message.
        source: EngineFault,
    },
    /// Bytes on the disk differ from the written bytes.
    #[error(
        "the state in {path} is damaged ({source}). Move the directory away and restart: the state \
         is rebuilt from the changelog. Then check the disk"
    )]
    Damaged {
        /// The database.
        path: PathBuf,
        /// The engine's message.
        source: EngineFault,
    },
    /// The database belongs to a newer version of this library.
    #[error(
        "the state in {path} has format {found} and this version reads up to {known}: start the \
         newer version, or move the directory away to have it rebuilt from the changelog"
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// The format found.
        found: u32,
        /// The newest format that this version reads.
        known: u32,
    },
    /// The position in the database can't be read.
    #[error(
        "the position of the state in {path} can't be read ({source}): start the version that wrote it, or \
         move the directory away to have it rebuilt from the changelog"
    )]
    Position {
        /// The database.
        path: PathBuf,
        /// The cause.
        source: PositionError,
    },
    /// Another failure of the engine.
    #[error(
        "the engine of the state in {path} failed ({source}). Restart, and report the error if it \
         happens again"
    )]
    Engine {
        /// The database.
        path: PathBuf,
        /// The engine's message.
        source: EngineFault,
    },
    /// The task has no such store.
    #[error("the task has no store {store}: declare it on the stage that uses it")]
    UnknownStore {
        /// The requested store.
        store: StoreId,
    },
    /// Two stores of the task have names with the same hash.
    #[error("two stores of the task share the id {store}: rename one of them")]
    SameId {
        /// The id.
        store: StoreId,
    },
    /// A key or a value is too large for a store, and far too large for a changelog record.
    #[error("a {what} of {bytes} bytes can't be stored: the limit is {}", u32::MAX)]
    TooLarge {
        /// "key" or "value".
        what: &'static str,
        /// Its size.
        bytes: usize,
    },
    /// A key and its value exceed the changelog's `max.message.bytes`.
    #[error(
        "a key of store {store} and its value take {bytes} bytes in the changelog, but its max.message.bytes is \
         {limit}. Keep less data under one key, or raise max.message.bytes of the changelog topic"
    )]
    Oversize {
        /// The store.
        store: StoreId,
        /// The size in bytes of a record batch with only this record.
        bytes: usize,
        /// The changelog's `max.message.bytes`.
        limit: usize,
    },
    /// A row of a store with moments, or its mark, can't be read.
    #[error(
        "the moments of store {store} can't be read ({found}): start the newest version that ever ran in this group. \
         If this is the newest one, another program wrote to the changelog: delete the topic and the app's offsets \
         together, or give the app another name"
    )]
    DueRow {
        /// The store.
        store: StoreId,
        /// A description of the content.
        found: &'static str,
    },
    /// A row of an operator's store can't be read.
    #[error("a row of the store {store} can't be read: {found}")]
    Row {
        /// The name of the store.
        store: Arc<str>,
        /// A description of the content, with the fix.
        found: Arc<str>,
    },
    /// A store's moments belong to another clock.
    #[error(
        "the store with the id {store} can't be opened: its moments belong to another clock. Restore the clock of the timer, or for \
         sessions and sliding windows the use of `emit_on_close`, or start under another app name"
    )]
    OtherClock {
        /// The store.
        store: StoreId,
    },
    /// A position from outside is to be written while a transaction has uncommitted writes.
    #[error("the store holds writes of an open transaction: apply or discard them first")]
    OpenTransaction,
    /// The database was closed. Its owner may have moved to another process.
    #[error(
        "the database is closed: its task was stopped, or moved to another worker or process. Take a new view"
    )]
    Closed,
}

impl StoreError {
    /// Returns whether the store must no longer be read or written.
    ///
    /// After such an error, the engine's own view may differ from the disk. Only reopening the store shows the state
    /// on disk.
    #[must_use]
    pub const fn poisons(&self) -> bool {
        !matches!(
            self,
            Self::UnknownStore { .. }
                | Self::SameId { .. }
                | Self::TooLarge { .. }
                | Self::Oversize { .. }
                | Self::OtherClock { .. }
                | Self::OpenTransaction
                | Self::Closed
        )
    }
}

/// A storage engine's message about its failure.
#[derive(Clone, PartialEq, Eq)]
pub struct EngineFault(Arc<str>);

impl EngineFault {
    /// Wraps the engine's message.
    #[must_use]
    pub fn new(words: impl Into<Arc<str>>) -> Self {
        Self(words.into())
    }
}

impl fmt::Display for EngineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for EngineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl std::error::Error for EngineFault {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logs show the text alone, so it must hold every detail.
    #[test]
    fn an_error_contains_the_text_of_its_source() {
        let path = || PathBuf::from("/state/db");
        let source = || EngineFault::new("what the engine said");
        let all = [
            StoreError::DiskFull {
                path: path(),
                source: source(),
            },
            StoreError::Io {
                path: path(),
                source: source(),
            },
            StoreError::InUse {
                path: path(),
                source: source(),
            },
            StoreError::Damaged {
                path: path(),
                source: source(),
            },
            StoreError::Engine {
                path: path(),
                source: source(),
            },
            StoreError::Position {
                path: path(),
                source: PositionError::Newer { version: 9 },
            },
        ];
        for error in all {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            let (text, source) = (error.to_string(), source.unwrap());
            assert!(text.contains(&source), "{text}: without {source:?}");
            assert!(text.contains("/state/db"), "{text}");
        }
    }
}

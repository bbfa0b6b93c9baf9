//! The versions of a global table that are still read.

use std::sync::{Arc, OnceLock};

use super::GlobalBatch;

/// A version of the rows, with the way to the newest one. Only readers and later versions keep it: a version without
/// readers is freed with the rows that the next batch replaced.
#[derive(Debug, Default)]
pub(super) struct Version(OnceLock<Change>);

#[derive(Debug)]
struct Change {
    /// The rows before the batch that made the next version.
    before: GlobalBatch,
    next: Arc<Version>,
}

impl Version {
    /// Adds the next version, in which a batch has replaced these rows. Returns it.
    pub(super) fn replaced(&self, before: GlobalBatch) -> Arc<Version> {
        let add = || Change {
            before,
            next: Arc::default(),
        };
        Arc::clone(&self.0.get_or_init(add).next)
    }

    /// Returns the row of a key in this version, if a later version replaced it.
    pub(super) fn before(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let mut version = self;
        loop {
            let change = version.0.get()?;
            if let Some(before) = change.before.get(key) {
                return Some(before.as_deref());
            }
            version = &change.next;
        }
    }
}

impl Drop for Version {
    /// Frees the following versions one by one. Recursion from a very old version would overflow the stack.
    fn drop(&mut self) {
        let mut next = self.0.take().map(|change| change.next);
        while let Some(version) = next.and_then(Arc::into_inner) {
            let mut version = version;
            next = version.0.take().map(|change| change.next);
        }
    }
}

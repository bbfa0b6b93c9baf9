//! Rows that are part of the local state only.

use eos_protocol::state::{Family, StoreId};

use super::TaskStore;
use crate::StoreError;
use crate::load::Load;
use crate::overlay::StoreKind;

/// The store of notes. Its keys begin with letters.
const NOTES_ID: StoreId = StoreId::commit_record(Family::Windowed);

impl TaskStore {
    /// Allows notes: rows that are committed with a transaction, but are in no changelog. A restore from a changelog finds
    /// none, and a version of this library that does not know a note ignores it.
    #[must_use]
    pub fn with_notes(mut self) -> Self {
        if !self.has_notes {
            let at = usize::from(self.due.is_some());
            self.insert_reserved(at, NOTES_ID, StoreKind::Point);
            self.has_notes = true;
        }
        self
    }

    /// Returns a committed note.
    ///
    /// # Errors
    /// If the engine can't read.
    pub fn note(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.healthy()?;
        let mut note = Vec::new();
        let found = self.backend.get(NOTES_ID, name.as_bytes(), &mut note);
        Ok(self.poisoning(found)?.then_some(note))
    }

    /// Writes a note for the transaction, even if the current record fails. Does nothing without
    /// [`with_notes`](Self::with_notes).
    pub fn put_note(&mut self, name: &str, note: &[u8]) {
        let at = usize::from(self.due.is_some());
        if !self.has_notes {
            return;
        }
        let hash = self.hasher.hash(name.as_bytes());
        if let Some(slot) = self.slots.get_mut(at) {
            (slot.overlay).write(hash, name.as_bytes(), Some(note));
            slot.sorted = None;
        }
    }
}

impl Load {
    /// Adds a note.
    pub fn note(&mut self, name: &str, note: &[u8]) {
        self.write(NOTES_ID, name.as_bytes(), Some(note));
    }
}

#[cfg(test)]
mod tests {
    use eos_protocol::Clock;

    use super::*;
    use crate::MemoryBackend;
    use crate::testing::at;

    const COUNTS: StoreId = StoreId::windowed("counts");

    #[test]
    fn a_note_is_committed_with_its_transaction_and_in_no_changelog() {
        for due in [false, true] {
            let store = TaskStore::new(
                Box::new(MemoryBackend::new()),
                [
                    (COUNTS, StoreKind::Point),
                    (StoreId::plain("timer"), StoreKind::Point),
                ],
            );
            let store = store.unwrap().with_notes();
            let timers = due.then_some((StoreId::plain("timer"), Clock::Stream));
            let mut store = store.with_due(timers).unwrap().with_notes();
            store.put(COUNTS, b"12345678a", b"1").unwrap();
            store.keep_record();
            store.put_note("trim", b"aborted");
            store.discard();
            store.put(COUNTS, b"12345678a", b"1").unwrap();
            store.keep_record();
            store.put_note("trim", b"of one");
            let sent: Vec<_> = store.changes(Family::Windowed).map(|it| it.store).collect();
            assert_eq!(sent, [COUNTS]);
            assert_eq!(store.note("trim").unwrap(), None);
            store.begin_apply(at(1), Vec::new()).unwrap();
            assert!(store.end_apply(true).is_ready());
            assert_eq!(store.note("trim").unwrap().as_deref(), Some(&b"of one"[..]));
            assert_eq!(store.held().unwrap(), [COUNTS]);
        }
    }
}

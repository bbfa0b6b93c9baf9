//! Rows that are part of the local state only.

use eos_protocol::state::{Family, StoreId};

use super::TaskStore;
use crate::StoreError;
use crate::overlay::StoreKind;

/// The id of the notes, which is the reserved id of the windowed family. Names of notes begin with a letter, so that other
/// rows under this id can have another first byte.
const NOTES_ID: StoreId = StoreId::commit_record(Family::Windowed);

impl TaskStore {
    /// Adds notes to the task's state. A note is a row that commits with a transaction and is in no changelog. A restore from
    /// the changelog does not bring notes back. Earlier versions of this library ignore unknown notes.
    #[must_use]
    pub fn with_notes(mut self) -> Self {
        if !self.has_notes {
            let at = usize::from(self.due.is_some());
            self.insert_reserved(at, NOTES_ID, StoreKind::Point);
            self.has_notes = true;
        }
        self
    }

    /// Returns a note that the engine has applied. `None` if there is none.
    ///
    /// # Errors
    /// If the engine can't read.
    pub fn note(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.healthy()?;
        let mut note = Vec::new();
        let found = self.backend.get(NOTES_ID, name.as_bytes(), &mut note);
        Ok(self.poisoning(found)?.then_some(note))
    }

    /// Writes a note into the open transaction. If the current record fails, the note stays. Does nothing without
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

#[cfg(test)]
mod tests {
    use eos_protocol::Clock;

    use super::*;
    use crate::testing::at;
    use crate::{CacheMemory, MemoryBackend};

    const COUNTS: StoreId = StoreId::windowed("counts");
    const TIMER: StoreId = StoreId::plain("timer");

    #[test]
    fn a_note_is_committed_with_its_transaction_and_in_no_changelog() {
        for (due, first) in [(false, true), (true, true), (true, false)] {
            let store = TaskStore::new(
                Box::new(MemoryBackend::new()),
                [(COUNTS, StoreKind::Point), (TIMER, StoreKind::Point)],
            );
            let store = store.unwrap().cached(&CacheMemory::new(1 << 20));
            let timers = due.then_some((TIMER, Clock::Stream));
            let mut store = match first {
                true => store.with_notes().with_due(timers).unwrap(),
                false => store.with_due(timers).unwrap().with_notes(),
            };
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

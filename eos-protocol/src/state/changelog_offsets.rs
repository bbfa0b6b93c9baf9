//! Which changelog offset a position may hold.

use super::Family;
use super::PerFamily;
use crate::ids::Offset;

/// From where a restore of one open store would have to read its changelogs.
///
/// Delivery reports are off, so the offsets of a transaction's records are unknown. The LSO bounds
/// them: everything below it is decided. But the LSO is read some time after a commit, and by then
/// another worker may own the task. Then the LSO lies behind *that worker's* records, which our state
/// lacks. Stored beside our state, it would skip them for ever.
///
/// So an LSO is only *heard* at first. It is stored in the batch of the next transaction that touches
/// the task, if it was read before that transaction began to commit. The commit proves that no other
/// owner came between (design rule 2: it carried the task's offsets, fenced by the group). An LSO that
/// is read later waits for the transaction after. Nothing else moves a stored offset.
///
/// ```text
/// apply(k) ─ heard: LSO ─ seal(k+1) ─ commit(k+1) ok ─→ batch of k+1 stores it
///                           └ heard here: for the batch of k+2
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangelogOffsets {
    stored: PerFamily<Option<Offset>>,
    heard: PerFamily<Option<Offset>>,
    /// What was heard before the transaction was sealed that is under way.
    sealed: PerFamily<Option<Offset>>,
}

impl ChangelogOffsets {
    /// A store was opened, or restored, whose position holds these.
    #[must_use]
    pub fn opened(stored: PerFamily<Option<Offset>>) -> Self {
        Self {
            stored,
            heard: PerFamily::default(),
            sealed: PerFamily::default(),
        }
    }

    /// The broker told the LSO of the task's partition of a changelog.
    pub fn heard(&mut self, family: Family, lso: Offset) {
        let heard = self.heard.get_mut(family);
        *heard = (*heard).max(Some(lso));
    }

    /// A transaction that touches the task is sealed: it is about to ask to commit.
    pub fn sealed(&mut self) {
        self.sealed = self.heard;
    }

    /// That transaction is known to be committed: answers what its batch stores.
    pub fn committed(&mut self) -> PerFamily<Option<Offset>> {
        let sealed = std::mem::take(&mut self.sealed);
        self.stored = PerFamily::from_fn(|family| {
            // Never back: a lower LSO says that the changelog lost data, which is found at the next
            // start, by what is stored.
            *self.stored.get(family).max(sealed.get(family))
        });
        self.stored
    }

    /// That transaction is known not to be committed. What was heard is still good for the next one.
    pub fn discarded(&mut self) {
        self.sealed = PerFamily::default();
    }

    /// What the position holds.
    #[must_use]
    pub const fn stored(&self) -> PerFamily<Option<Offset>> {
        self.stored
    }
}

#[cfg(test)]
#[path = "changelog_offsets_test.rs"]
mod tests;

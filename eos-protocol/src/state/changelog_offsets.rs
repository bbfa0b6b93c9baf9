//! The changelog offsets that a position may hold.

use super::Family;
use super::PerFamily;
use crate::ids::Offset;

/// The offsets from which a restore of one open store reads its changelogs.
///
/// Delivery reports are off, so the offsets of a transaction's records are unknown. The LSO bounds them: everything
/// below it is decided. But the LSO is read some time after a commit, and by then another worker may own the task.
/// Then the LSO lies behind *that worker's* records, which the local state lacks. With that LSO in its position, a
/// restore would skip them forever.
///
/// So an LSO is only *observed* at first. The batch of the next transaction that touches the task stores it, if it was
/// read before that transaction began to commit. The commit proves that no other owner came between (design rule 2:
/// it carried the task's offsets, fenced by the group). An LSO that is read later waits for the following
/// transaction. No other event moves a stored offset.
///
/// ```text
/// apply(k) ─ observed: LSO ─ seal(k+1) ─ commit(k+1) ok ─→ batch of k+1 stores it
///                           └ observed here: for the batch of k+2
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangelogOffsets {
    stored: PerFamily<Option<Offset>>,
    observed: PerFamily<Option<Offset>>,
    /// The LSOs observed before the transaction under way was sealed.
    sealed: PerFamily<Option<Offset>>,
}

impl ChangelogOffsets {
    /// Records that a store with these offsets in its position was opened or restored.
    #[must_use]
    pub fn opened(stored: PerFamily<Option<Offset>>) -> Self {
        Self {
            stored,
            observed: PerFamily::default(),
            sealed: PerFamily::default(),
        }
    }

    /// Records the LSO of the task's partition of a changelog.
    pub fn observe(&mut self, family: Family, lso: Offset) {
        let observed = self.observed.get_mut(family);
        *observed = (*observed).max(Some(lso));
    }

    /// Records that a transaction that touches the task is sealed: its commit is the next step.
    pub fn sealed(&mut self) {
        self.sealed = self.observed;
    }

    /// Records that this transaction is known to be committed. Returns the offsets for its batch.
    pub fn committed(&mut self) -> PerFamily<Option<Offset>> {
        let sealed = std::mem::take(&mut self.sealed);
        self.stored = PerFamily::from_fn(|family| {
            // Never back: a lower LSO means that the changelog lost data. The next start finds that loss by the
            // stored offset.
            *self.stored.get(family).max(sealed.get(family))
        });
        self.stored
    }

    /// Records that this transaction is known not to be committed. The observed LSOs remain valid for the next one.
    pub fn discarded(&mut self) {
        self.sealed = PerFamily::default();
    }

    /// The offsets in the position.
    #[must_use]
    pub const fn stored(&self) -> PerFamily<Option<Offset>> {
        self.stored
    }
}

#[cfg(test)]
#[path = "changelog_offsets_test.rs"]
mod tests;

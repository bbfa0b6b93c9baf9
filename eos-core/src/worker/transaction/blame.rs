//! The search for a record that aborts every transaction with it.

use eos_protocol::{Isolation, Offset, Taken, TopicPartition};

/// Finds the record to blame for aborts.
#[derive(Debug, Default)]
pub(in crate::worker) struct Blame {
    isolation: Isolation,
    /// Whether a record may be the cause of the end of the open transaction.
    possible: bool,
}

impl Blame {
    /// A failure that a record may have caused.
    pub(super) fn add(&mut self, possible: bool) {
        self.possible |= possible;
    }

    /// The record is known to abort its transactions.
    pub(in crate::worker) fn is_culprit(&self, partition: &TopicPartition, offset: Offset) -> bool {
        self.isolation.is_culprit(partition, offset)
    }

    /// Its dead letter aborts them, too.
    pub(in crate::worker) fn is_hopeless(
        &self,
        partition: &TopicPartition,
        offset: Offset,
    ) -> bool {
        self.isolation.is_hopeless(partition, offset)
    }

    /// How many records a transaction may have during the search.
    pub(super) fn most_records(&self) -> Option<u64> {
        self.isolation.limit()
    }

    /// The transaction of these records is committed.
    pub(in crate::worker) fn committed(&mut self, taken: impl Iterator<Item = Taken>) {
        self.isolation.committed(taken);
        self.possible = false;
    }

    /// The transaction of these records is gone.
    pub(in crate::worker) fn discarded(
        &mut self,
        taken: impl Iterator<Item = Taken>,
        records: u64,
    ) {
        if std::mem::take(&mut self.possible) {
            let taken: Vec<Taken> = taken.collect();
            if !taken.is_empty() {
                self.isolation.aborted(&taken, records);
            }
        }
    }

    pub(in crate::worker) fn revoked(&mut self, partition: &TopicPartition) {
        self.isolation.revoked(partition);
    }
}

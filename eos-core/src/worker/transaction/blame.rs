//! The search for a record that aborts every transaction with it.

use eos_protocol::{Isolation, Offset, Taken, TopicPartition};

/// Finds the record to blame for aborts.
#[derive(Debug, Default)]
pub(in crate::worker) struct Blame {
    isolation: Isolation,
    /// Whether a record's output may be the cause of the end of the open transaction.
    is_refused: bool,
    /// Whether the open transaction has outlived its time.
    is_late: bool,
}

impl Blame {
    /// A failure that a record's output may have caused.
    pub(super) fn refused(&mut self, possible: bool) {
        self.is_refused |= possible;
    }

    /// The transaction has outlived its time.
    pub(super) fn late(&mut self, is_late: bool) {
        self.is_late |= is_late;
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
        (self.is_refused, self.is_late) = (false, false);
    }

    /// The transaction of these records is gone.
    pub(in crate::worker) fn discarded(
        &mut self,
        taken: impl Iterator<Item = Taken>,
        records: u64,
    ) {
        // A transaction begins when its first record is processed. If it has only that one and is late all the same,
        // the worker stood still: the closure of the record took no time of it.
        let is_late = std::mem::take(&mut self.is_late) && records > 1;
        if std::mem::take(&mut self.is_refused) || is_late {
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

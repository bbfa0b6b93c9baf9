//! The search for a record that aborts its transactions.

use eos_protocol::{Isolation, Offset, Taken, TopicPartition};

/// Finds the record to blame for aborts.
#[derive(Debug, Default)]
pub(in crate::worker) struct Blame {
    isolation: Isolation,
    /// Whether a record's output may have ended the open transaction.
    is_refused: bool,
    /// Whether the open transaction has exceeded its timeout.
    is_late: bool,
}

impl Blame {
    /// Records a failure that a record's output may have caused.
    pub(super) fn refused(&mut self, possible: bool) {
        self.is_refused |= possible;
    }

    /// Records whether the transaction has exceeded its timeout.
    pub(super) fn late(&mut self, is_late: bool) {
        self.is_late |= is_late;
    }

    /// Returns whether any record or due item is known to abort its transactions.
    pub(in crate::worker) fn has_culprit(&self) -> bool {
        self.isolation.culprit().is_some()
    }

    /// Returns whether any record is known to abort its transactions.
    #[inline]
    pub(in crate::worker) fn has_culprits(&self) -> bool {
        self.isolation.has_culprits()
    }

    /// Returns whether the record is known to abort its transactions.
    pub(in crate::worker) fn is_culprit(&self, partition: &TopicPartition, offset: Offset) -> bool {
        self.isolation.is_culprit(partition, offset)
    }

    /// Returns whether the record's dead letter also aborts its transactions.
    pub(in crate::worker) fn is_hopeless(
        &self,
        partition: &TopicPartition,
        offset: Offset,
    ) -> bool {
        self.isolation.is_hopeless(partition, offset)
    }

    /// Returns the limit of records per transaction during the search.
    pub(super) fn most_records(&self) -> Option<u64> {
        self.isolation.limit()
    }

    /// Records the commit of the transaction of these records.
    pub(in crate::worker) fn committed(&mut self, taken: impl Iterator<Item = Taken>) {
        self.isolation.committed(taken);
        (self.is_refused, self.is_late) = (false, false);
    }

    /// Records the end of the transaction of these records.
    pub(in crate::worker) fn discarded(
        &mut self,
        taken: impl Iterator<Item = Taken>,
        records: u64,
    ) {
        // A transaction begins when its first record is processed. If it has only that record and is late all the same,
        // the worker stood still: the transaction does not include the time of the record's closure.
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

    pub(in crate::worker) fn revoked_all(&mut self, is_gone: impl Fn(&TopicPartition) -> bool) {
        self.isolation.revoked_all(is_gone);
    }
}

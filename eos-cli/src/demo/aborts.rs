//! The number of aborted transactions, counted from the markers in the log.

use std::collections::BTreeMap;

use kafka_wire::EndedBy;

/// The abort markers found so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Aborts {
    /// The number of markers of a producer in each partition.
    found: BTreeMap<EndedBy, BTreeMap<usize, u64>>,
}

impl Aborts {
    /// Adds a marker. `partition` is any number that identifies the partition.
    pub(crate) fn add(&mut self, partition: usize, by: EndedBy) {
        *self
            .found
            .entry(by)
            .or_default()
            .entry(partition)
            .or_default() += 1;
    }

    /// Returns the number of transactions that these markers ended, at least.
    ///
    /// A transaction has one marker in each partition that it wrote to. Markers of one producer
    /// and epoch are of the same transaction unless a partition holds several.
    pub(crate) fn transactions(&self) -> u64 {
        let most = |partitions: &BTreeMap<usize, u64>| partitions.values().copied().max();
        self.found.values().filter_map(most).sum()
    }

    /// Returns the number of markers.
    pub(crate) fn markers(&self) -> u64 {
        self.found.values().flat_map(BTreeMap::values).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(producer_id: i64, producer_epoch: i16) -> EndedBy {
        EndedBy {
            producer_id,
            producer_epoch,
        }
    }

    #[test]
    fn markers_of_one_transaction_count_once() {
        let mut aborts = Aborts::default();
        for partition in 0..4 {
            aborts.add(partition, by(1, 3));
        }
        aborts.add(0, by(2, 3));
        assert_eq!((aborts.transactions(), aborts.markers()), (2, 5));
    }

    #[test]
    fn another_epoch_or_a_second_marker_is_another_transaction() {
        let mut aborts = Aborts::default();
        aborts.add(0, by(1, 3));
        aborts.add(0, by(1, 4));
        aborts.add(0, by(1, 4));
        aborts.add(1, by(1, 4));
        assert_eq!((aborts.transactions(), aborts.markers()), (3, 4));
    }
}

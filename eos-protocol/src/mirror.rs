//! Copies of a ledger's positions in the consumer group.
//!
//! The positions of an app with a ledger are in the ledger. Tools that show lag read the offsets of the consumer group,
//! so a worker copies the positions there. No task starts at a copy: it may be behind or ahead of the ledger, for
//! example after a failover of the ledger.

use crate::{FirstStart, Offset, TopicPartition};

/// The begin of the metadata of a copy.
const MARK: &str = "eos-mirror;";

/// Returns the metadata of a copied offset. `name` is the name of the transaction that committed it.
#[must_use]
pub fn mirror_metadata(name: &str) -> String {
    format!("{MARK}{name}")
}

/// Returns the offset of the consumer group at which a partition without a position in the ledger starts. `None` if the
/// policy for a first start applies.
///
/// # Errors
/// [`FirstPositionError`] if a start anywhere would lose or double records.
pub fn first_position(
    partition: &TopicPartition,
    group: Option<Offset>,
    metadata: &str,
    policy: FirstStart,
) -> Result<Option<Offset>, FirstPositionError> {
    let Some(offset) = group else {
        return Ok(None);
    };
    let partition = partition.clone();
    if metadata.starts_with(MARK) {
        return Err(FirstPositionError::PositionMissing { partition, offset });
    }
    match policy {
        FirstStart::Group => Ok(Some(offset)),
        _ => Err(FirstPositionError::OffsetOfAnother { partition, offset }),
    }
}

/// The reason why a partition without a position in the ledger must not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FirstPositionError {
    /// The ledger lost the position.
    #[error(
        "the ledger has no position of {partition}, but the consumer group has a copy of one: {offset}. The positions of \
         this app are gone, or this is another database. Restore the positions together with the rows of the app. Or \
         delete the rows and the offsets of the group (kafka-consumer-groups.sh --delete-offsets) to write all rows again"
    )]
    PositionMissing {
        /// The partition.
        partition: TopicPartition,
        /// The copied position.
        offset: Offset,
    },
    /// The group has an offset that no ledger committed.
    #[error(
        "the ledger has no position of {partition}, but another program committed the offset {offset} for its consumer \
         group. To continue there, set first_start(FirstStart::Group) (auto.offset.reset = group). To start elsewhere, \
         delete the offsets of the group (kafka-consumer-groups.sh --delete-offsets), or give the app another name"
    )]
    OffsetOfAnother {
        /// The partition.
        partition: TopicPartition,
        /// The offset of the group.
        offset: Offset,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Partition;

    fn start(
        group: Option<i64>,
        metadata: &str,
        policy: FirstStart,
    ) -> Result<Option<i64>, String> {
        let partition = TopicPartition::new("orders", Partition::new(3).unwrap());
        let start = first_position(
            &partition,
            group.map(|offset| Offset::new(offset).unwrap()),
            metadata,
            policy,
        );
        start
            .map(|offset| offset.map(|it| it.get()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn without_an_offset_the_policy_applies() {
        for policy in [FirstStart::Earliest, FirstStart::Latest, FirstStart::Group] {
            assert_eq!(start(None, "", policy), Ok(None));
        }
    }

    #[test]
    fn the_offset_of_another_program_is_taken_over_on_request() {
        assert_eq!(start(Some(7), "", FirstStart::Group), Ok(Some(7)));
        for policy in [FirstStart::Earliest, FirstStart::Latest] {
            let error = start(Some(7), "x", policy).unwrap_err();
            assert!(
                error.contains("orders-3") && error.contains("offset 7"),
                "{error}"
            );
            assert!(error.contains("FirstStart::Group"), "{error}");
        }
    }

    #[test]
    fn a_copy_proves_that_the_position_is_lost() {
        for policy in [FirstStart::Earliest, FirstStart::Latest, FirstStart::Group] {
            let error = start(Some(7), &mirror_metadata("x"), policy).unwrap_err();
            assert!(
                error.contains("orders-3") && error.contains("copy of one: 7"),
                "{error}"
            );
        }
    }
}

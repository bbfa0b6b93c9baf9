//! The reasons to reject local state.

use std::time::Duration;

use crate::ids::{Offset, Seq, TopicPartition};
use crate::name::TransactionName;
use crate::state::{Difference, Family, PerFamily, PositionError};

/// The reason why local state can't be used and is rebuilt from the changelog.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// There is none: this host never had the task, or its directory was deleted.
    #[error("there is no local state")]
    NoState,
    /// Its position can't be read.
    #[error("{0}")]
    Damaged(PositionError),
    /// It belongs to another task.
    #[error("{0}")]
    Identity(Difference),
    /// It holds an attempt at the last transaction that did not commit.
    #[error(
        "it holds another attempt at transaction {}, which did not commit", seq.0
    )]
    OtherAttempt {
        /// The transaction's number.
        seq: Seq,
    },
    /// It holds more than the committed transactions.
    #[error("it is at transaction {}, but {} was the last one committed", local.0, committed.0)]
    Ahead {
        /// Its transaction's number.
        local: Seq,
        /// The last committed number.
        committed: Seq,
    },
    /// It holds changes that the committed offsets do not include.
    #[error(
        "it holds changes to the {family} stores up to transaction {}, which the committed offsets \
         do not include",
        local.0
    )]
    UnknownChanges {
        /// The family of stores.
        family: Family,
        /// The last commit record that it holds.
        local: Seq,
    },
    /// At least once, an interrupted restore can't be resumed: it does not know the newest attempt that it has read.
    #[error(
        "its restore was interrupted, and records of former owners can't be told from newer ones"
    )]
    Interrupted,
    /// Deletions that it missed may have disappeared from the changelog.
    #[error(
        "it is {} s old by this host's clock; beyond {} s (half of delete.retention.ms of \
         {changelog}) tombstones that it missed may have been removed from the changelog",
        age.as_secs(),
        limit.as_secs()
    )]
    TooOld {
        /// The changelog's partition.
        changelog: TopicPartition,
        /// Its age, or its distance into the future.
        age: Duration,
        /// The maximum age.
        limit: Duration,
    },
    /// Changes that it missed were deleted from the changelog.
    #[error("it needs {changelog} from offset {position}, which begins at {start}")]
    Trimmed {
        /// The changelog's partition.
        changelog: TopicPartition,
        /// The first offset to read.
        position: Offset,
        /// The first offset in the log.
        start: Offset,
    },
}

impl Why {
    /// Returns whether an operator should see a warning: for every reason but a task's first start on a host.
    #[must_use]
    pub const fn is_loud(&self) -> bool {
        !matches!(self, Self::NoState | Self::Interrupted)
    }

    /// Its row of the restart table, for logs.
    #[must_use]
    pub const fn row(&self) -> &'static str {
        match self {
            Self::NoState => "no_state",
            Self::Damaged(_) => "damaged",
            Self::Identity(_) => "other_identity",
            Self::OtherAttempt { .. } => "other_attempt",
            Self::Ahead { .. } => "ahead",
            Self::UnknownChanges { .. } => "unknown_changes",
            Self::Interrupted => "interrupted",
            Self::TooOld { .. } => "too_old",
            Self::Trimmed { .. } => "trimmed",
        }
    }

    /// Returns the reason why a copy at `seq` with these commit records is not a predecessor of transaction `name`.
    pub(super) fn of_another_history(
        seq: Seq,
        held: &PerFamily<Option<Seq>>,
        name: &TransactionName,
    ) -> Option<Self> {
        if seq == name.seq {
            return Some(Self::OtherAttempt { seq });
        }
        if seq > name.seq {
            let (local, committed) = (seq, name.seq);
            return Some(Self::Ahead { local, committed });
        }
        let known = name.commit_records();
        let mut unknown = held
            .iter()
            .filter(|(family, held)| **held > *known.get(*family));
        unknown.find_map(|(family, held)| {
            let local = (*held)?;
            Some(Self::UnknownChanges { family, local })
        })
    }
}

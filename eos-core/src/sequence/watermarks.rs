//! The definition of a store of high watermarks.

use std::sync::Arc;

use eos_protocol::identity::Mark;
use eos_protocol::state::{OwnRows, StoreId};
use eos_state::StoreBackend;

use crate::codec::CodecError;
use crate::store::{RowsError, RowsOf, StoreRows, StoreSpec, live_rows};

/// The place of a record in the sequence of its producer.
///
/// ```
/// # use eos_core::identity::Sequence;
/// # struct Change { server: String, restarts: u64, lsn: u64, place: u64 }
/// let of = |change: &Change| Sequence {
///     producer: change.server.clone(),
///     epoch: change.restarts,
///     // Of two numbers, the higher bits compare first.
///     number: u128::from(change.lsn) << 64 | u128::from(change.place),
/// };
/// # of(&Change { server: String::new(), restarts: 0, lsn: 1, place: 2 });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequence<I> {
    /// The name of the producer: text, bytes or an integer. `None`, empty text and empty bytes do not count as a name.
    pub producer: I,
    /// The incarnation of the producer. A producer that restarts its numbers needs a higher epoch. 0 if the producer
    /// never restarts them.
    pub epoch: u64,
    /// The number of the record. It rises from record to record of a producer.
    pub number: u128,
}

/// The action for a record whose number does not follow the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Gaps {
    /// Accept the record. The metric `eos_dedup_gaps_total` counts the gap.
    #[default]
    Accept,
    /// Fail the record with [`IdentityError::Gap`](crate::identity::IdentityError::Gap). The error policy of the source
    /// decides. If the policy skips the record or writes a dead letter, the high watermark does not rise. So later
    /// records of the producer fail as well, until the missing and the failed numbers arrive in order, or the producer
    /// begins a higher epoch.
    Fail,
}

/// The definition of a store of high watermarks: for each producer, the highest epoch and number that have passed.
///
/// The store has one row per producer and input topic, whatever the number of records. The name identifies the store.
/// A later version of the program may change [`gaps`](Self::gaps). If another operator has used the name, the app does
/// not start.
///
/// ```
/// # use eos_core::identity::{Gaps, HighWatermarks};
/// let marks = HighWatermarks::new("meters").gaps(Gaps::Fail);
/// ```
#[derive(Debug, Clone)]
pub struct HighWatermarks {
    pub(super) name: Arc<str>,
    pub(crate) gaps: Gaps,
}

impl HighWatermarks {
    /// Creates a store that accepts gaps.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            gaps: Gaps::Accept,
        }
    }

    /// Sets the action for gaps.
    ///
    /// A gap consists of missing numbers between two records of one epoch. The first number of a producer and of an
    /// epoch is never a gap. Gaps are normal if a producer writes to several partitions, or if its numbers are log
    /// positions. Otherwise a gap shows lost records, or several threads under one producer name.
    #[must_use]
    pub fn gaps(self, gaps: Gaps) -> Self {
        Self { gaps, ..self }
    }

    /// The name of the store.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn spec(&self) -> StoreSpec {
        super::spec(&self.name, OwnRows::Watermarks)
    }
}

impl StoreRows for HighWatermarks {
    /// The encoded key: the replay generation, the topic and the producer.
    type Key = Vec<u8>;
    /// Epoch and number.
    type Value = (u64, u128);

    fn store_name(&self) -> &str {
        &self.name
    }

    fn rows(&self, database: &dyn StoreBackend) -> Result<RowsOf<Self>, RowsError> {
        let rows = live_rows(database, StoreId::own(&self.name, OwnRows::Watermarks))?;
        let read = |(key, row): (Vec<u8>, Vec<u8>)| {
            let mark = Mark::decode(&row).map_err(|error| RowsError::Row {
                store: self.name.to_string(),
                source: CodecError::invalid("a high watermark", error),
            })?;
            Ok((key, (mark.epoch, mark.number)))
        };
        rows.into_iter().map(read).collect()
    }
}

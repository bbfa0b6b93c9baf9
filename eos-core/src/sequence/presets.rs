//! Deduplication with the sequence numbers of other systems.

use std::fmt;
use std::sync::Arc;

use eos_protocol::identity::Mark;

use super::{HighWatermarks, Sequence};
use crate::codec::{Encoded, PlainType};
use crate::failure::Failure;
use crate::record::Record;
use crate::topology::{Fault, MarkOf};

/// A store of high watermarks and a sequence number. Made by [`pulsar`] and [`debezium`], taken by
/// [`Stream::dedup_by_sequence_as`](crate::Stream::dedup_by_sequence_as).
#[must_use = "a preset does nothing until `Stream::dedup_by_sequence_as` takes it"]
pub struct SequencePreset<K, V> {
    pub(super) marks: HighWatermarks,
    pub(super) mark: MarkOf<K, V>,
}

impl<K, V> SequencePreset<K, V> {
    /// Changes the settings of the store: its handling of gaps.
    ///
    /// ```
    /// # use eos_core::identity::Gaps;
    /// # use eos_core::identity::presets::{SequencePreset, pulsar};
    /// let preset: SequencePreset<String, u64> =
    ///     pulsar("seen", |number: &u64| ("web".to_owned(), *number)).configure(|marks| marks.gaps(Gaps::Fail));
    /// ```
    pub fn configure(self, change: impl FnOnce(HighWatermarks) -> HighWatermarks) -> Self {
        Self {
            marks: change(self.marks),
            ..self
        }
    }
}

impl<K, V> fmt::Debug for SequencePreset<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SequencePreset")
            .field("marks", &self.marks)
            .finish_non_exhaustive()
    }
}

/// Reads the sequence of a record. `None` and an empty name do not count as a producer.
pub(super) fn mark_of<K: 'static, V: 'static, I: PlainType>(
    f: impl Fn(&Record<K, V>) -> Result<Option<Sequence<I>>, Failure> + Send + Sync + 'static,
) -> MarkOf<K, V> {
    Arc::new(move |record: &Record<K, V>, into: &mut Vec<u8>| {
        let Some(sequence) = f(record).map_err(Fault::user)? else {
            return Ok(None);
        };
        let Sequence {
            producer,
            epoch,
            number,
        } = sequence;
        let written = producer.write(into);
        producer.recycle();
        let has_name = written == Encoded::Bytes && !into.is_empty();
        Ok(has_name.then_some(Mark { epoch, number }))
    })
}

/// Apache Pulsar: the name of the producer and its sequence id.
///
/// Pulsar remembers the highest sequence id of each producer name in a topic. So does this preset, for each partition.
/// A producer that loses its last sequence id must take another name, as in Pulsar.
///
/// ```
/// # use eos_core::identity::presets;
/// # use eos_core::{App, Topic};
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Message { producer: String, sequence_id: u64, text: String }
///
/// # let mut app = App::new("a");
/// # let messages = Topic::<String, Message, _, _>::json("messages");
/// app.source(&messages)
///     .dedup_by_sequence_as(presets::pulsar("seen-messages", |message: &Message| {
///         (message.producer.clone(), message.sequence_id)
///     }))
///     .accepted()
///     .to(&Topic::json("accepted"));
/// ```
pub fn pulsar<K: 'static, V: 'static, I: PlainType>(
    name: &str,
    producer_and_sequence_id: impl Fn(&V) -> (I, u64) + Send + Sync + 'static,
) -> SequencePreset<K, V> {
    SequencePreset {
        marks: HighWatermarks::new(name),
        mark: mark_of(move |record: &Record<K, V>| {
            let (producer, number) = producer_and_sequence_id(&record.value);
            Ok(Some(Sequence {
                producer,
                epoch: 0,
                number: number.into(),
            }))
        }),
    }
}

/// The position of a change in the log of a database, for [`debezium`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPosition<I> {
    /// The name of the connector: `source.name`. `None` and empty text do not count as a name.
    pub connector: I,
    /// The position of the last commit before the change: the first number of `source.sequence`. All changes of a
    /// transaction have the same one.
    pub commit: u64,
    /// The position of the change within its transaction: the second number of `source.sequence` (the LSN of the
    /// change), or `transaction.total_order`.
    pub change: u64,
}

impl<I> LogPosition<I> {
    /// Reads `source.sequence` of Debezium's connector for PostgreSQL, such as `["24023119","24023128"]`. A commit that
    /// is `null` is 0. Returns `None` for another text.
    ///
    /// ```
    /// # use eos_core::identity::presets::LogPosition;
    /// let position = LogPosition::parse("shop", r#"["24023119","24023128"]"#);
    /// let (connector, commit, change) = ("shop", 24_023_119, 24_023_128);
    /// assert_eq!(position, Some(LogPosition { connector, commit, change }));
    /// assert_eq!(LogPosition::parse("shop", "24023128"), None);
    /// ```
    #[must_use]
    pub fn parse(connector: I, sequence: &str) -> Option<Self> {
        let (commit, change): (Option<String>, String) = serde_json::from_str(sequence).ok()?;
        Some(Self {
            connector,
            commit: commit.map_or(Some(0), |commit| commit.parse().ok())?,
            change: change.parse().ok()?,
        })
    }
}

/// Changes of a PostgreSQL database from Debezium: the position of the commit, then that of the change.
///
/// A connector that restarts sends changes again. This preset drops them. The LSN of a change is not enough, because
/// concurrent transactions interleave in the log, but arrive one after another.
///
/// A record without a position fails. [`pass_without_producer`](super::BySequence::pass_without_producer) passes it.
///
/// - **Snapshots**: all rows of a snapshot have one position. Return `None` if `op` is `r`, and call
///   `pass_without_producer`.
/// - **`COPY`**: the rows of one `COPY` may share an LSN. Set `provide.transaction.metadata=true` in the connector, and
///   use `transaction.total_order` instead.
/// - **Tombstones** have no position, and a repeated one that passes deletes a newer row. Set
///   `tombstones.on.delete=false`.
/// - **A restored database** may begin at a lower position, so all its changes would count as duplicates. Give its
///   connector another name.
///
/// ```
/// # use eos_core::identity::presets::{self, LogPosition};
/// # use eos_core::{App, Topic};
/// # use serde::{Deserialize, Serialize};
/// #[derive(Serialize, Deserialize)]
/// struct Change { op: String, source: Source }
/// #[derive(Serialize, Deserialize)]
/// struct Source { name: String, sequence: String }
///
/// # let mut app = App::new("a");
/// # let changes = Topic::<String, Change, _, _>::json("shop.public.orders");
/// app.source(&changes)
///     .dedup_by_sequence_as(presets::debezium("seen-changes", |change: &Change| {
///         let Source { name, sequence } = &change.source;
///         let is_snapshot = change.op == "r";
///         (!is_snapshot).then(|| LogPosition::parse(name.clone(), sequence)).flatten()
///     }))
///     .pass_without_producer()
///     .accepted()
///     .to(&Topic::json("accepted"));
/// ```
pub fn debezium<K: 'static, V: 'static, I: PlainType>(
    name: &str,
    position: impl Fn(&V) -> Option<LogPosition<I>> + Send + Sync + 'static,
) -> SequencePreset<K, V> {
    SequencePreset {
        marks: HighWatermarks::new(name),
        mark: mark_of(move |record: &Record<K, V>| {
            let position = position(&record.value);
            Ok(position.map(|position| Sequence {
                producer: position.connector,
                epoch: 0,
                number: u128::from(position.commit) << 64 | u128::from(position.change),
            }))
        }),
    }
}

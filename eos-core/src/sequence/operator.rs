//! Deduplication by the sequence numbers of producers.

use std::fmt;
use std::sync::Arc;

use eos_protocol::identity::Seen;

use super::presets::{SequencePreset, mark_of};
use super::{End, HighWatermarks, Sequence, divert, end_in};
use crate::codec::{Encode, PlainType};
use crate::dedup::Judged;
use crate::failure::Failure;
use crate::keys::Colocated;
use crate::record::Record;
use crate::streams::Stream;
use crate::topic::Topic;
use crate::topology::{Kind, MarkOf, Node, Sequenced};

impl<K: 'static, V: 'static, P> Stream<K, V, P> {
    /// Drops repeated records of a producer. The sequence numbers of the producer identify them.
    ///
    /// A record passes if its epoch and number are higher than those of all earlier records of its producer in the same
    /// topic and partition. The store has one row per producer, so this costs far less than [`dedup`](Self::dedup) for
    /// long windows. It needs producers that number their records, and one writing thread per producer name.
    ///
    /// [`accepted`](BySequence::accepted) ends the declaration.
    ///
    /// ```
    /// # use eos_core::identity::{Gaps, HighWatermarks, Sequence};
    /// # use eos_core::{App, Topic};
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Reading { meter: String, restarts: u64, number: u64 }
    /// # let mut app = App::new("a");
    /// # let readings = Topic::<String, Reading, _, _>::json("readings");
    /// app.source(&readings)
    ///     .dedup_by_sequence(&HighWatermarks::new("meters").gaps(Gaps::Accept), |reading| Sequence {
    ///         producer: reading.meter.clone(),
    ///         epoch: reading.restarts,
    ///         number: reading.number.into(),
    ///     })
    ///     .accepted()
    ///     .to(&Topic::json("accepted"));
    /// ```
    ///
    /// # Order
    /// The records of a producer must be in the order of their numbers. If two threads write under one producer name,
    /// or if a [`repartition`](Self::repartition) is in front, a higher number can overtake a lower one. The lower one
    /// is then dropped as a duplicate. The metric `eos_dedup_gaps_total` counts such gaps. Give each thread its own
    /// producer name.
    ///
    /// # Exactly-once
    /// The high watermark is stored in the transaction that commits the effects of its record. If a later step fails
    /// and the record is skipped or becomes a dead letter, the watermark does not change, so a retry passes. Once a
    /// higher number of the producer has passed, a later copy is a duplicate. A replayed dead letter then fails,
    /// because the watermark does not show whether the letter was processed. With
    /// [`as_generation`](crate::replays::Replay::as_generation), the letter passes once.
    ///
    /// # Errors
    /// A record without a producer fails, unless [`pass_without_producer`](BySequence::pass_without_producer) is set. A
    /// gap fails with [`Gaps::Fail`](super::Gaps::Fail). The error policy of the source decides about failed records.
    pub fn dedup_by_sequence<I: PlainType>(
        self,
        marks: &HighWatermarks,
        f: impl Fn(&V) -> Sequence<I> + Send + Sync + 'static,
    ) -> BySequence<K, V>
    where
        P: Colocated,
    {
        self.dedup_record_by_sequence(marks, move |record| Ok(f(&record.value)))
    }

    /// As [`dedup_by_sequence`](Self::dedup_by_sequence), for numbers in the key or in the headers of a record. An
    /// error fails the record.
    ///
    /// ```
    /// # use eos_core::identity::{HighWatermarks, Sequence};
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// let readings = Topic::<String, String>::plain("readings");
    /// app.source(&readings)
    ///     .dedup_record_by_sequence(&HighWatermarks::new("meters"), |record| {
    ///         let number = record.headers.get("number").unwrap_or_default();
    ///         Ok(Sequence {
    ///             producer: record.key.clone(),
    ///             epoch: 0,
    ///             number: str::from_utf8(number)?.parse()?,
    ///         })
    ///     })
    ///     .accepted()
    ///     .to(&Topic::plain("accepted"));
    /// ```
    ///
    /// # Errors
    /// As [`dedup_by_sequence`](Self::dedup_by_sequence).
    pub fn dedup_record_by_sequence<I: PlainType>(
        self,
        marks: &HighWatermarks,
        f: impl Fn(&Record<K, V>) -> Result<Sequence<I>, Failure> + Send + Sync + 'static,
    ) -> BySequence<K, V>
    where
        P: Colocated,
    {
        self.dedup_by_sequence_as(SequencePreset {
            marks: marks.clone(),
            mark: mark_of(move |record| f(record).map(Some)),
        })
    }

    /// Drops duplicates like another system: a [preset](crate::identity::presets) sets the sequence numbers.
    ///
    /// ```
    /// # use eos_core::identity::presets;
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// let clicks = Topic::<String, u64>::plain("clicks");
    /// app.source(&clicks)
    ///     .dedup_by_sequence_as(presets::pulsar("seen-clicks", |number: &u64| ("web".to_owned(), *number)))
    ///     .accepted()
    ///     .to(&Topic::plain("new-clicks"));
    /// ```
    ///
    /// # Exactly-once
    /// See [`dedup_by_sequence`](Self::dedup_by_sequence).
    ///
    /// # Errors
    /// See [`dedup_by_sequence`](Self::dedup_by_sequence).
    pub fn dedup_by_sequence_as(self, preset: SequencePreset<K, V>) -> BySequence<K, V>
    where
        P: Colocated,
    {
        let SequencePreset { marks, mark } = preset;
        BySequence {
            stream: self.partitioned(),
            marks,
            mark,
            duplicates: None,
            stale: None,
            passes_without: false,
        }
    }
}

/// The builder of a deduplication by sequence numbers. Returned by
/// [`Stream::dedup_by_sequence`](crate::Stream::dedup_by_sequence).
///
/// Call [`accepted`](Self::accepted) or [`judged`](Self::judged) last.
///
/// # Replays
/// The header `eos-replay-generation` has the same format as for [`Dedup`](crate::identity::Dedup). In a generation
/// above 0, there are no high watermarks: each number passes once, in any order, and has a row of its own.
#[must_use = "a deduplication does nothing until `accepted` or `judged` ends its declaration"]
pub struct BySequence<K, V> {
    stream: Stream<K, V>,
    marks: HighWatermarks,
    mark: MarkOf<K, V>,
    duplicates: Option<End<K, V>>,
    stale: Option<End<K, V>>,
    passes_without: bool,
}

impl<K: 'static, V: 'static> BySequence<K, V> {
    /// Writes duplicates unchanged to this topic: records whose number is not higher than the last one of their epoch.
    /// Without this call they are dropped. The metric `eos_dedup_duplicates_total` counts them in both cases.
    pub fn duplicates_to<KC, VC>(mut self, topic: &Topic<K, V, KC, VC>) -> Self
    where
        KC: Encode<K>,
        VC: Encode<V>,
    {
        self.duplicates = Some(end_in(topic));
        self
    }

    /// Writes stale records unchanged to this topic: records whose epoch is lower than the last one of their producer.
    /// Without this call they are dropped. The metric `eos_dedup_stale_total` counts them in both cases.
    pub fn stale_to<KC, VC>(mut self, topic: &Topic<K, V, KC, VC>) -> Self
    where
        KC: Encode<K>,
        VC: Encode<V>,
    {
        self.stale = Some(end_in(topic));
        self
    }

    /// Passes records without a producer, instead of failing them. Some of them may be duplicates.
    pub fn pass_without_producer(self) -> Self {
        Self {
            passes_without: true,
            ..self
        }
    }

    /// Returns the accepted records.
    pub fn accepted(mut self) -> Stream<K, V> {
        let (duplicates, stale) = (self.duplicates.take(), self.stale.take());
        let stream = self.then();
        let is_duplicate = |seen| matches!(seen, Seen::Duplicate { .. });
        let stream = divert(stream, duplicates, is_duplicate);
        let stream = divert(stream, stale, |seen| seen == Seen::Stale);
        stream.filter_map(|record| match record.seen {
            Seen::Duplicate { .. } | Seen::Stale => None,
            _ => Some(record.value),
        })
    }

    /// Returns each judged record with its [`Seen`], including duplicates, stale records and records without a
    /// producer. The settings `duplicates_to`, `stale_to` and `pass_without_producer` have no effect. Gaps under
    /// [`Gaps::Fail`](super::Gaps::Fail) and replayed numbers that are not above the high watermark still fail.
    ///
    /// ```
    /// # use eos_core::identity::{HighWatermarks, Seen, Sequence};
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// let clicks = Topic::<String, u64>::plain("clicks");
    /// app.source(&clicks)
    ///     .dedup_by_sequence(&HighWatermarks::new("clicks"), |number| Sequence {
    ///         producer: "web".to_owned(),
    ///         epoch: 0,
    ///         number: (*number).into(),
    ///     })
    ///     .judged()
    ///     .filter(|click| click.seen == Seen::New)
    ///     .map(|click| click.value)
    ///     .to(&Topic::plain("new-clicks"));
    /// ```
    pub fn judged(mut self) -> Stream<K, Judged<V>> {
        self.passes_without = true;
        self.then()
    }

    fn then(self) -> Stream<K, Judged<V>> {
        let Self {
            stream,
            marks,
            mark,
            passes_without,
            ..
        } = self;
        let store = stream.own(marks.spec());
        let app: Arc<str> = stream.app_name().into();
        let make = move || -> Box<dyn Node> {
            Box::new(Sequenced {
                app: Arc::clone(&app),
                store,
                marks: marks.clone(),
                mark: Arc::clone(&mark),
                passes_without,
            })
        };
        stream.then(Kind::DedupBySequence(store), make)
    }
}

impl<K, V> fmt::Debug for BySequence<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BySequence")
            .field("marks", &self.marks)
            .finish_non_exhaustive()
    }
}

//! Joins of two streams.

mod rows;
mod store;

use std::fmt;
use std::sync::Arc;

use eos_protocol::joins::{JoinKind, JoinTerms, Side, Within};

pub(crate) use rows::JoinRows;
pub use store::JoinStore;

use crate::codec::Encode;
use crate::keys::Colocated;
use crate::sequence::{End, end_in};
use crate::sides::{Sided, Sides};
use crate::streams::Stream;
use crate::topic::Topic;
use crate::topology::{JoinSide, JoinWithin, Kind, Mistake, Node};

impl<K: 'static, V: 'static, P> Stream<K, V, P> {
    /// Joins two streams. Each pair of records with the same key and nearby times gives one result.
    ///
    /// A left record at `t` and a right record at `u` are a pair if `t - before <= u <= t + after` ([`Within`]). One
    /// record may be in many pairs, so the closure receives references. A result has the later timestamp of its two
    /// records, and the headers of the record that arrived last. The results of a record are in the order of its
    /// partners' times.
    ///
    /// One task reads both streams in time order, as with [`merge`](Self::merge). Their topics need equal numbers of
    /// partitions.
    ///
    /// ```
    /// # use eos_core::state::JoinStore;
    /// # use eos_core::windows::Within;
    /// # use eos_core::{App, Topic};
    /// # use std::time::Duration;
    /// # let mut app = App::new("a");
    /// let orders = app.source(&Topic::<String, String>::plain("orders"));
    /// let shipments = app.source(&Topic::<String, String>::plain("shipments"));
    /// let within = Within::of(Duration::ZERO).after(Duration::from_secs(3600)).grace(Duration::from_secs(60));
    /// orders
    ///     .join_within(shipments, within, &JoinStore::plain("orders-shipments"), |order, shipment| {
    ///         format!("{order} shipped as {shipment}")
    ///     })
    ///     .late_to(&Topic::plain("late-orders"))
    ///     .late_right_to(&Topic::plain("late-shipments"))
    ///     .to(&Topic::plain("shipped-orders"));
    /// ```
    ///
    /// # Time
    /// A left record closes when stream time exceeds `t + after + grace`. A right record closes when stream time
    /// exceeds `u + before + grace`. A record that is already closed when it arrives is late and has no results. A
    /// closed record has no further pairs, so results do not depend on the stored rows. Kafka Streams has no such
    /// limit: its inner join finds all records that are still in its store.
    ///
    /// # Cost
    /// Each record reads at most two rows and writes one. A row contains the records of one key in one range of time.
    /// Above 4 KiB, its records become rows of their own, so a key with many records does not increase the cost per
    /// record.
    ///
    /// # Exactly-once
    /// The stored records and the results commit in the transaction of the offset. Each pair gives one result, even
    /// after a crash.
    ///
    /// # Errors
    /// A record fails if it has no timestamp, if its key or value is null, or if its key or value can't be encoded. The
    /// error policy of its source applies.
    pub fn join_within<W: 'static, Q: Colocated, U: 'static>(
        self,
        right: Stream<K, W, Q>,
        within: Within,
        store: &JoinStore<K, V, W>,
        f: impl Fn(&V, &W) -> U + Send + Sync + 'static,
    ) -> JoinedStreams<K, V, W, U>
    where
        P: Colocated,
    {
        let pair = move |sides: Sides<&V, &W>| match sides {
            Sides::Both(left, right) => Some(f(left, right)),
            _ => None,
        };
        self.partitioned()
            .joined_within(JoinKind::Inner, right.partitioned(), within, store, pair)
    }

    /// Like [`join_within`](Self::join_within), with an additional result for each left record without a pair. `f` then
    /// receives `None`.
    ///
    /// This unpaired result is emitted once, when the record closes: when stream time passes its last partner and the
    /// grace. It has the record's timestamp and no headers. With [`close_when_idle`](Self::close_when_idle), it needs
    /// no further record. No record has both an unpaired result and a pair. Kafka Streams emits unpaired results before
    /// the grace is over, and may join the records afterwards.
    ///
    /// ```
    /// # use eos_core::state::JoinStore;
    /// # use eos_core::windows::Within;
    /// # use eos_core::{App, Topic};
    /// # use std::time::Duration;
    /// # let mut app = App::new("a");
    /// let orders = app.source(&Topic::<String, String>::plain("orders"));
    /// let payments = app.source(&Topic::<String, u64>::plain("payments"));
    /// orders
    ///     .left_join_within(
    ///         payments,
    ///         Within::of(Duration::from_secs(600)),
    ///         &JoinStore::plain("orders-payments"),
    ///         |order, payment| match payment {
    ///             Some(amount) => format!("{order}: {amount}"),
    ///             None => format!("{order}: not paid within ten minutes"),
    ///         },
    ///     )
    ///     .to(&Topic::plain("paid-orders"));
    /// ```
    ///
    /// # Time
    /// When later steps process an unpaired result, stream time is the moment at which the record closed. Windows and
    /// joins in later steps therefore need a grace of at least `after`, plus the grace of this join, plus 1 ms. With
    /// less, the app does not start.
    ///
    /// # Exactly-once
    /// As for [`join_within`](Self::join_within). An unpaired result is emitted once, and commits with the mark that it
    /// was emitted.
    ///
    /// # Errors
    /// As for [`join_within`](Self::join_within). If an unpaired result fails in a later step, the policy applies as
    /// well. Its dead letter has the key and the value in the codecs of the store, and the header `eos-join-side`
    /// (`left` or `right`).
    pub fn left_join_within<W: 'static, Q: Colocated, U: 'static>(
        self,
        right: Stream<K, W, Q>,
        within: Within,
        store: &JoinStore<K, V, W>,
        f: impl Fn(&V, Option<&W>) -> U + Send + Sync + 'static,
    ) -> JoinedStreams<K, V, W, U>
    where
        P: Colocated,
    {
        let pair = move |sides: Sides<&V, &W>| match sides {
            Sides::Both(left, right) => Some(f(left, Some(right))),
            Sides::Left(left) => Some(f(left, None)),
            Sides::Right(_) => None,
        };
        self.partitioned()
            .joined_within(JoinKind::Left, right.partitioned(), within, store, pair)
    }

    /// Like [`left_join_within`](Self::left_join_within), with unpaired results for the records of both sides.
    ///
    /// ```
    /// # use eos_core::state::JoinStore;
    /// # use eos_core::windows::{Sides, Within};
    /// # use eos_core::{App, Topic};
    /// # use std::time::Duration;
    /// # let mut app = App::new("a");
    /// let ours = app.source(&Topic::<String, u64>::plain("our-trades"));
    /// let theirs = app.source(&Topic::<String, u64>::plain("their-trades"));
    /// ours.outer_join_within(
    ///     theirs,
    ///     Within::of(Duration::from_secs(5)),
    ///     &JoinStore::plain("trades"),
    ///     |sides| match sides {
    ///         Sides::Both(ours, theirs) => format!("{ours} and {theirs}"),
    ///         Sides::Left(ours) => format!("only ours: {ours}"),
    ///         Sides::Right(theirs) => format!("only theirs: {theirs}"),
    ///     },
    /// )
    /// .to(&Topic::plain("compared-trades"));
    /// ```
    ///
    /// # Time
    /// As for [`left_join_within`](Self::left_join_within), with the larger one of `before` and `after`.
    ///
    /// # Exactly-once
    /// As for [`left_join_within`](Self::left_join_within).
    ///
    /// # Errors
    /// As for [`left_join_within`](Self::left_join_within).
    pub fn outer_join_within<W: 'static, Q: Colocated, U: 'static>(
        self,
        right: Stream<K, W, Q>,
        within: Within,
        store: &JoinStore<K, V, W>,
        f: impl Fn(Sides<&V, &W>) -> U + Send + Sync + 'static,
    ) -> JoinedStreams<K, V, W, U>
    where
        P: Colocated,
    {
        let pair = move |sides: Sides<&V, &W>| Some(f(sides));
        self.partitioned()
            .joined_within(JoinKind::Outer, right.partitioned(), within, store, pair)
    }
}

impl<K: 'static, V: 'static> Stream<K, V> {
    fn joined_within<W: 'static, U: 'static>(
        self,
        kind: JoinKind,
        right: Stream<K, W>,
        within: Within,
        store: &JoinStore<K, V, W>,
        f: impl Fn(Sides<&V, &W>) -> Option<U> + Send + Sync + 'static,
    ) -> JoinedStreams<K, V, W, U> {
        if let Err(reason) = within.check() {
            self.wrong(Mistake::Windows {
                store: store.name().to_owned(),
                reason,
            });
        }
        let rows = self.own(store.rows_spec(JoinTerms::new(kind, within)));
        let has_alone = Side::ALL.iter().any(|side| kind.emits_alone(*side));
        let alone = has_alone.then(|| self.own(store.alone_spec()));
        let join = JoinSide { rows, alone, kind };
        let this = self.apply(Kind::JoinThis(join), |record, next| {
            let (value, rest) = record.split();
            next.record(rest.with_value(Sided::<V, W>::Left(value)))
        });
        let other = right.apply(Kind::JoinOther(join), |record, next| {
            let (value, rest) = record.split();
            next.record(rest.with_value(Sided::<V, W>::Right(value)))
        });
        let f = Arc::new(f);
        let make = move || -> Box<dyn Node> {
            let f = Arc::clone(&f);
            Box::new(JoinWithin::<K, V, W, U, _>::new(rows, alone, f))
        };
        let both: Stream<K, Sided<V, W>> = Stream::merge(this, other);
        let (results, late) = both.then_or_else(Kind::JoinWithin(join), make);
        JoinedStreams {
            results,
            late,
            late_left: None,
            late_right: None,
        }
    }
}

/// The results of a join of streams. Returned by [`join_within`](crate::Stream::join_within),
/// [`left_join_within`](crate::Stream::left_join_within) and [`outer_join_within`](crate::Stream::outer_join_within).
///
/// A record that is already closed when it arrives is late. By default, it is dropped, and the metric
/// `eos_late_records_total` counts it.
///
/// If `before` and `after` differ, a record may be open although its partner has closed. The two are not a pair, and
/// the metric `eos_join_too_late_pairs_total` counts the missed pair. If a record has no pair for this reason, and its
/// side has no unpaired results, it goes to the same output as late records. It stays in the store, so it may still
/// form a pair with a later record.
#[must_use = "a join does nothing until it ends in `to` or `to_stream`"]
pub struct JoinedStreams<K, V, W, U> {
    results: Stream<K, U>,
    late: Stream<K, Sided<V, W>>,
    late_left: Option<End<K, V>>,
    late_right: Option<End<K, W>>,
}

impl<K: 'static, V: 'static, W: 'static, U: 'static> JoinedStreams<K, V, W, U> {
    /// Writes late records of the left side unchanged to this topic.
    pub fn late_to<KC, VC>(mut self, topic: &Topic<K, V, KC, VC>) -> Self
    where
        KC: Encode<K>,
        VC: Encode<V>,
    {
        self.late_left = Some(end_in(topic));
        self
    }

    /// Writes late records of the right side unchanged to this topic.
    pub fn late_right_to<KC, WC>(mut self, topic: &Topic<K, W, KC, WC>) -> Self
    where
        KC: Encode<K>,
        WC: Encode<W>,
    {
        self.late_right = Some(end_in(topic));
        self
    }

    /// Writes each result to a topic.
    pub fn to<KC, UC>(self, topic: &Topic<K, U, KC, UC>)
    where
        KC: Encode<K>,
        UC: Encode<U>,
    {
        self.to_stream().to(topic);
    }

    /// Returns the stream of results.
    pub fn to_stream(self) -> Stream<K, U> {
        let Self {
            results,
            late,
            late_left,
            late_right,
        } = self;
        if late_left.is_none() && late_right.is_none() {
            return results;
        }
        let (left, right) = late.map(Sided::into_result).split_result();
        match late_left {
            Some(end) => end(left),
            None => left.ignore(),
        }
        match late_right {
            Some(end) => end(right),
            None => right.ignore(),
        }
        results
    }
}

impl<K, V, W, U> fmt::Debug for JoinedStreams<K, V, W, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinedStreams")
            .field("results", &self.results)
            .finish_non_exhaustive()
    }
}

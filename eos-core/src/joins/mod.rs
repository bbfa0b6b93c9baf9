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
    /// Joins two streams: each pair of records with one key and nearby times is a result.
    ///
    /// A left record at `t` and a right record at `u` are a pair if `t - before <= u <= t + after` ([`Within`]). One record
    /// may be in many pairs, so the closure gets references. The time of a result is the later one of both. The results of a
    /// record are in the order of the times of its partners. The headers are those of the record that came last.
    ///
    /// One task reads both streams in order of time, as [`merge`](Self::merge) does. Their topics need equal numbers of
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
    /// A left record closes when stream time exceeds `t + after + grace`, a right one when it exceeds `u + before + grace`. A
    /// record that is closed when it comes is late: it has no results. A closed record has no further pairs, so results do
    /// not depend on what is still stored. Kafka Streams has no such limit: there, an inner join finds what its store still has.
    ///
    /// # Cost
    /// A record reads two rows at most and writes one. A row has the records of one key of a stretch of time. Above 4 KiB,
    /// its records become rows of their own, so a key with many records costs no more for each record.
    ///
    /// # Exactly-once
    /// The stored records and the results commit in the transaction of the offset. Each pair is a result once, also after a
    /// crash.
    ///
    /// # Errors
    /// These records fail, and the error policy of the source decides: a record without a timestamp, a record with a null key
    /// or value, and one whose key or value can't be encoded.
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

    /// Like [`join_within`](Self::join_within), and a left record without a pair is a result without a right value.
    ///
    /// Such a record goes out once, when it closes: when stream time passes its last partner and the grace. It has its own
    /// time and no headers. With [`close_when_idle`](Self::close_when_idle), it needs no further record. No record is both
    /// alone and in a pair. Kafka Streams sends records alone before their grace is over, and joins them afterwards.
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
    /// For the steps behind, stream time is the moment at which the record closes. So windows and joins behind it need a grace
    /// of at least `after`, the grace and 1 ms; with less, the app does not start.
    ///
    /// # Exactly-once
    /// As for [`join_within`](Self::join_within). A result alone is out once, and its mark commits with it.
    ///
    /// # Errors
    /// As for [`join_within`](Self::join_within). If a result alone fails behind this operator, the policy decides as well. Its
    /// dead letter has the key and the value in the codecs of the store, and the header `eos-join-side` (`left` or `right`).
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

    /// Like [`left_join_within`](Self::left_join_within), for both sides: each record without a pair is a result.
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
/// A record that is closed when it comes is late. By default, it is dropped, and the metric `eos_late_records_total` counts it.
///
/// A record may be in time although a partner has closed, if `before` and `after` allow it to wait longer than that one. They are no
/// pair, and the metric `eos_join_too_late_pairs_total` counts it. A record that meets no other record for this reason goes where late
/// records go, if its side has no results alone. It stays in the store, so a later record may still meet it.
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

//! Streams whose records are put in order.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::Clock as DueClock;
use eos_protocol::state::OwnRows;

use super::{OnGap, OrderError, Reorder, ReorderStore};
use crate::codec::Encode;
use crate::keys::Colocated;
use crate::sequence::{End, end_in};
use crate::streams::Stream;
use crate::topic::Topic;
use crate::topology::{Kind, Late, Mistake, Node, ReorderByNumber, ReorderByTime, Repairs};

impl<K: 'static, V: 'static, P> Stream<K, V, P> {
    /// Puts the records of a task in order of their timestamps.
    ///
    /// Each record waits until stream time is `within` ahead of it, so records that are at most this late come out in
    /// order. Records with equal timestamps keep the order of their arrival. The order covers all records of a task,
    /// not only those of a key. It restores the order that a repartition topic loses. [`ordered`](Reordered::ordered)
    /// ends the declaration.
    ///
    /// ```
    /// # use eos_core::state::ReorderStore;
    /// # use eos_core::{App, Topic};
    /// # use std::time::Duration;
    /// # let mut app = App::new("a");
    /// let trades = Topic::<String, u64>::plain("trades");
    /// app.source(&trades)
    ///     .reorder_by_time(Duration::from_secs(10), &ReorderStore::plain("waiting"))
    ///     .late_to(&Topic::plain("late-trades"))
    ///     .ordered()
    ///     .to(&Topic::plain("ordered-trades"));
    /// ```
    ///
    /// # Time
    /// A record is forwarded when stream time reaches its timestamp plus `within`. A later record or
    /// [`close_when_idle`](Self::close_when_idle) advances stream time that far. For the next steps, stream time is
    /// this moment. So their windows need a grace of at least `within`. With less, the app does not start.
    ///
    /// # Exactly-once
    /// A waiting record is a row of the store, which commits in the transaction of its offset. When it is forwarded,
    /// the row is deleted in the transaction of its effects.
    ///
    /// # Errors
    /// These records fail, and the error policy of the source decides:
    ///
    /// - A record without a timestamp.
    /// - A record that is more than `within` behind stream time, unless [`late_to`](Reordered::late_to),
    ///   [`pass_late`](Reordered::pass_late) or [`drop_late`](Reordered::drop_late) is set.
    /// - A record that would raise the waiting records of a task and store above 64 MiB, unless its timestamp ends the
    ///   wait of another record.
    /// - A waiting record that fails in a later step. Its dead letter has the key and the value in the codecs of the
    ///   store.
    pub fn reorder_by_time(self, within: Duration, store: &ReorderStore<K, V>) -> Reordered<K, V>
    where
        P: Colocated,
    {
        let stream = self.partitioned();
        if within < Duration::from_millis(1) {
            stream.wrong(Mistake::Order {
                store: store.name().to_owned(),
                reason: OrderError::Within(within),
            });
        }
        let at = stream.own(store.spec(OwnRows::WaitingByTime, DueClock::Stream));
        let store = store.clone();
        let make = move |late| -> Box<dyn Node> {
            Box::new(ReorderByTime {
                store: at,
                rows: store.clone(),
                within: i64::try_from(within.as_millis()).unwrap_or(i64::MAX),
                late,
            })
        };
        Reordered {
            stream,
            kind: Kind::ReorderByTime(at, within),
            make: Box::new(make),
            late: Late::Fail,
            end: None,
        }
    }

    /// Puts the records of each key in order of their numbers.
    ///
    /// The numbers of a key are consecutive. A record is forwarded at once if its number is the next one of its key.
    /// Otherwise it waits for the numbers before it. [`Reorder`] limits the wait and sets the action for missing
    /// numbers that do not arrive. [`ordered`](Reordered::ordered) ends the declaration.
    ///
    /// ```
    /// # use eos_core::reorder::{OnGap, Reorder};
    /// # use eos_core::state::ReorderStore;
    /// # use eos_core::timers::Clock;
    /// # use eos_core::{App, Topic};
    /// # use std::time::Duration;
    /// # let mut app = App::new("a");
    /// let steps = Topic::<String, u64>::plain("steps");
    /// let settings = Reorder::max_gap(100).max_wait(Duration::from_secs(60), Clock::Wall);
    /// app.source(&steps)
    ///     .reorder_by(|step| *step, settings.on_gap(OnGap::PassOn), &ReorderStore::plain("waiting"))
    ///     .drop_late()
    ///     .ordered()
    ///     .to(&Topic::plain("ordered-steps"));
    /// ```
    ///
    /// # Exactly-once
    /// As for [`reorder_by_time`](Self::reorder_by_time). The next number of each key is a row of the store.
    ///
    /// # Errors
    /// A record fails if its number was forwarded or given up before, unless [`late_to`](Reordered::late_to),
    /// [`pass_late`](Reordered::pass_late) or [`drop_late`](Reordered::drop_late) is set. Gaps fail with
    /// [`OnGap::Fail`]. The error policy of the source decides. If it skips a waiting record, the missing numbers
    /// before this record are given up.
    pub fn reorder_by<N: Into<u64>>(
        self,
        number: impl Fn(&V) -> N + Send + Sync + 'static,
        settings: Reorder,
        store: &ReorderStore<K, V>,
    ) -> Reordered<K, V>
    where
        P: Colocated,
    {
        let stream = self.partitioned();
        let is_valid = (1..=Reorder::LONGEST_GAP).contains(&settings.gap);
        if !is_valid || settings.wait < Duration::from_millis(1) {
            let Reorder { gap, wait, .. } = settings;
            stream.wrong(Mistake::Order {
                store: store.name().to_owned(),
                reason: OrderError::Limits { gap, wait },
            });
        }
        let clock = settings.clock.into();
        let at = stream.own(store.spec(OwnRows::WaitingByNumber, clock));
        let number = Arc::new(move |value: &V| number(value).into());
        let store = store.clone();
        let make = move |late| -> Box<dyn Node> {
            Box::new(ReorderByNumber {
                repairs: Repairs::default(),
                store: at,
                rows: store.clone(),
                number: Arc::clone(&number) as Arc<dyn Fn(&V) -> u64 + Send + Sync>,
                settings,
                late,
            })
        };
        Reordered {
            stream,
            kind: Kind::Reorder {
                store: at,
                held_back: (clock == DueClock::Stream).then_some(settings.wait),
                needs_letters: settings.on_gap == OnGap::DeadLetter,
            },
            make: Box::new(make),
            late: Late::Fail,
            end: None,
        }
    }
}

/// Makes the node.
type MakeOrdered = Box<dyn Fn(Late) -> Box<dyn Node> + Send + Sync>;

/// The builder of an order of records. Returned by [`Stream::reorder_by_time`](crate::Stream::reorder_by_time) and
/// [`Stream::reorder_by`](crate::Stream::reorder_by).
///
/// A record is late if its place in the order has passed. By default, late records fail.
#[must_use = "the order does nothing until `ordered` ends its declaration"]
pub struct Reordered<K, V> {
    stream: Stream<K, V>,
    kind: Kind,
    make: MakeOrdered,
    late: Late,
    end: Option<End<K, V>>,
}

impl<K: 'static, V: 'static> Reordered<K, V> {
    /// Writes late records unchanged to this topic. The metric `eos_late_records_total` counts them, also with
    /// [`pass_late`](Self::pass_late) and [`drop_late`](Self::drop_late).
    pub fn late_to<KC, VC>(self, topic: &Topic<K, V, KC, VC>) -> Self
    where
        KC: Encode<K>,
        VC: Encode<V>,
    {
        let (late, end) = (Late::Leave, Some(end_in(topic)));
        Self { late, end, ..self }
    }

    /// Forwards late records at once, out of order.
    pub fn pass_late(self) -> Self {
        let (late, end) = (Late::Pass, None);
        Self { late, end, ..self }
    }

    /// Drops late records.
    pub fn drop_late(self) -> Self {
        let (late, end) = (Late::Leave, None);
        Self { late, end, ..self }
    }

    /// Returns the records in order.
    pub fn ordered(self) -> Stream<K, V> {
        let Self {
            stream,
            kind,
            make,
            late,
            end,
        } = self;
        let (ordered, left) = stream.then_or_else(kind, move || make(late));
        if let Some(end) = end {
            end(left);
        }
        ordered
    }
}

impl<K, V> fmt::Debug for Reordered<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reordered")
            .field("kind", &self.kind)
            .field("late", &self.late)
            .finish_non_exhaustive()
    }
}

//! Windowed aggregations.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use eos_protocol::windows::{
    AnyWindows, Expiry, Hopping, Session, Sliding, Tumbling, check_retention,
};

use crate::codec::Encode;
use crate::grouped::Grouped;
use crate::sessions::SessionGroup;
use crate::sliding::SlidingGroup;
use crate::store::{Stamped, StampedCodec, StoreSpec, WindowStore};
use crate::streams::{EndLate, Stream};
use crate::topic::Topic;
use crate::topology::{Kind, Mistake, Node, WindowedAggregate};
use crate::windowed_table::WindowedTable;

impl<K: 'static, V: 'static> Grouped<K, V> {
    /// Groups the records of each key by time windows, to count, reduce or aggregate them. Each key and window has its
    /// own result.
    ///
    /// Windows use *stream time*, so a replay gives the same results. Stream time is the highest timestamp of the
    /// task's records ([`Ctx::stream_time`](crate::Ctx::stream_time)). It follows the clock only in a stage with
    /// [`close_when_idle`](crate::Stream::close_when_idle). A window accepts records until stream time reaches its end
    /// plus grace. [`late_to`](WindowedGroup::late_to) receives later records.
    ///
    /// ```
    /// # use eos_core::state::WindowStore;
    /// # use eos_core::windows::Tumbling;
    /// # use eos_core::{App, Topic};
    /// # use eos_core::codec::{Plain, TimeWindowed};
    /// # use std::time::Duration;
    /// # let mut app = App::new("a");
    /// let hour = Duration::from_secs(3600);
    /// let views = Topic::<String, String>::plain("views");
    /// app.source(&views)
    ///     .group_by_key()
    ///     .windowed_by(Tumbling::of(hour).grace(Duration::from_secs(60)))
    ///     .late_to(&Topic::plain("late-views"))
    ///     .count(&WindowStore::plain("views-per-hour"))
    ///     .to(&Topic::with("views-per-hour", TimeWindowed::of(hour), Plain));
    /// ```
    ///
    /// # Timestamps in the future
    /// A record that is more than an hour ahead of the machine's clock (`max.timestamp.ahead.ms`) fails, and the
    /// [`ErrorPolicy`](crate::ErrorPolicy) applies. It does not advance stream time. Otherwise it would close every
    /// earlier window in its partition, and the following records would be late.
    /// [`trust_times`](crate::Stream::trust_times) accepts such records.
    ///
    /// A record without a timestamp fails, and the [`ErrorPolicy`](crate::ErrorPolicy) applies.
    ///
    /// # Windows that overlap
    /// With [`Hopping`] windows, a record is in several windows. It updates each of them, in the order of their starts.
    /// Its key and value are cloned for each; `count` clones only the key. A record is late if all of its windows are
    /// closed. If only some are closed, it updates the open ones.
    ///
    /// # Sessions
    /// [`Session`] windows have no fixed length. See [`SessionGroup`]. [`Sliding`] windows start and end at records.
    /// See [`SlidingGroup`].
    pub fn windowed_by<W: Windows>(self, windows: W) -> W::Group<K, V> {
        windows.group(self.stream)
    }
}

/// A kind of windows: [`Tumbling`], [`Hopping`], [`Session`] or [`Sliding`]. This trait is sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a kind of windows",
    note = "`windowed_by` takes `Tumbling::of(size)`, `Hopping::of(size).every(advance)`, `Session::gap(duration)` or \
            `Sliding::of(difference)`"
)]
pub trait Windows: sealed::Sealed {
    /// A stream grouped by key and window.
    type Group<K: 'static, V: 'static>;

    #[doc(hidden)]
    fn group<K: 'static, V: 'static>(self, stream: Stream<K, V>) -> Self::Group<K, V>;
}

impl Windows for Tumbling {
    type Group<K: 'static, V: 'static> = WindowedGroup<K, V, Self>;

    fn group<K: 'static, V: 'static>(self, stream: Stream<K, V>) -> Self::Group<K, V> {
        WindowedGroup::new(stream, self.into())
    }
}

impl Windows for Hopping {
    type Group<K: 'static, V: 'static> = WindowedGroup<K, V, Self>;

    fn group<K: 'static, V: 'static>(self, stream: Stream<K, V>) -> Self::Group<K, V> {
        WindowedGroup::new(stream, self)
    }
}

impl Windows for Sliding {
    type Group<K: 'static, V: 'static> = SlidingGroup<K, V>;

    fn group<K: 'static, V: 'static>(self, stream: Stream<K, V>) -> Self::Group<K, V> {
        SlidingGroup::new(stream, self)
    }
}

impl Windows for Session {
    type Group<K: 'static, V: 'static> = SessionGroup<K, V>;

    fn group<K: 'static, V: 'static>(self, stream: Stream<K, V>) -> Self::Group<K, V> {
        SessionGroup::new(stream, self)
    }
}

/// Windows that can take records of these types. [`Hopping`] windows need keys and values that are `Clone`. To count
/// records, `V` is `()`.
#[diagnostic::on_unimplemented(
    message = "windows that overlap need a key and a value that are `Clone`",
    label = "`{K}` or `{V}` is not `Clone`",
    note = "each record is in several windows: derive `Clone`, or map the values to a type that is `Clone`"
)]
pub trait WindowsOf<K, V>: Windows + sealed::Copies<K, V> {}

impl<K, V, W: Windows + sealed::Copies<K, V>> WindowsOf<K, V> for W {}

mod sealed {
    use super::{Hopping, Session, Sliding, Tumbling};
    use crate::topology::CopyBoth;

    pub trait Sealed {}

    impl Sealed for Tumbling {}
    impl Sealed for Hopping {}
    impl Sealed for Session {}
    impl Sealed for Sliding {}

    /// The copies of a key and a value, for windows that overlap.
    pub trait Copies<K, V> {
        /// Copies both. `None` for windows that do not overlap.
        const COPY: Option<CopyBoth<K, V>>;
    }

    impl<K, V> Copies<K, V> for Tumbling {
        const COPY: Option<CopyBoth<K, V>> = None;
    }

    impl<K: Clone, V: Clone> Copies<K, V> for Hopping {
        const COPY: Option<CopyBoth<K, V>> = Some(|key, value| (key.clone(), value.clone()));
    }
}

fn same<T>(value: T) -> T {
    value
}

/// A stream grouped by key and time window. Returned by [`Grouped::windowed_by`].
#[must_use = "windows do nothing until they are counted, reduced or aggregated"]
pub struct WindowedGroup<K, V, W = Tumbling> {
    stream: Stream<K, V>,
    windows: Hopping,
    late: Option<EndLate<K, V>>,
    kind: PhantomData<fn() -> W>,
}

impl<K: 'static, V: 'static, W> WindowedGroup<K, V, W> {
    fn new(stream: Stream<K, V>, windows: Hopping) -> Self {
        Self {
            stream,
            windows,
            late: None,
            kind: PhantomData,
        }
    }
}

impl<K: 'static, V: 'static, W> WindowedGroup<K, V, W> {
    /// Writes late records unchanged to this topic: key, value, timestamp and headers. By default late records are
    /// dropped. The metric `eos_late_records_total` counts them in both cases.
    ///
    /// # Exactly-once
    /// Each late record is written in the transaction that commits its offset. Only earlier records decide whether a
    /// record is late, so a crash does not change it.
    pub fn late_to<KC, VC>(mut self, topic: &Topic<K, V, KC, VC>) -> Self
    where
        KC: Encode<K>,
        VC: Encode<V>,
    {
        let topic = topic.clone();
        self.late = Some(Box::new(move |late| late.to(&topic)));
        self
    }

    /// Counts the records of each key and window.
    pub fn count(self, store: &WindowStore<K, u64>) -> WindowedTable<K, u64, u64>
    where
        W: WindowsOf<K, ()>,
    {
        self.kept_or_deleted(Kind::Count, store, same, drop, |_, (), count| {
            Some(count.unwrap_or(0) + 1)
        })
    }
}

impl<K: 'static, V: 'static, W: WindowsOf<K, V>> WindowedGroup<K, V, W> {
    /// Combines all values of a key and window into one, like [`Grouped::reduce`].
    pub fn reduce(
        self,
        store: &WindowStore<K, V>,
        f: impl Fn(V, V) -> V + Send + Sync + 'static,
    ) -> WindowedTable<K, V, V> {
        self.kept(Kind::Reduce, store, move |_, value, result| match result {
            Some(result) => f(result, value),
            None => value,
        })
    }

    /// Like [`reduce`](Self::reduce), and `f` may return `None` to delete the key from the window. The update is then a
    /// tombstone, and the next value starts a new result.
    ///
    /// A Kafka Streams reducer that returns null does the same; see [`Grouped::reduce_or_delete`].
    pub fn reduce_or_delete(
        self,
        store: &WindowStore<K, V>,
        f: impl Fn(V, V) -> Option<V> + Send + Sync + 'static,
    ) -> WindowedTable<K, V> {
        let kind = Kind::ReduceOrDelete;
        self.kept_or_deleted(
            kind,
            store,
            Some,
            same,
            move |_, value, result| match result {
                Some(result) => f(result, value),
                None => Some(value),
            },
        )
    }

    /// Combines all values of a key and window into a result of another type, like [`Grouped::aggregate`].
    pub fn aggregate<A: 'static>(
        self,
        store: &WindowStore<K, A>,
        init: impl Fn() -> A + Send + Sync + 'static,
        f: impl Fn(&K, V, A) -> A + Send + Sync + 'static,
    ) -> WindowedTable<K, A, A> {
        self.kept(Kind::Aggregate, store, move |key, value, result| {
            f(key, value, result.unwrap_or_else(&init))
        })
    }

    /// Like [`aggregate`](Self::aggregate), and `f` may return `None` to delete the key from the window. The update is
    /// then a tombstone, and the next value starts with `init` again.
    ///
    /// ```
    /// # use eos_core::codec::{Json, TimeWindowed};
    /// # use eos_core::state::WindowStore;
    /// # use eos_core::windows::Tumbling;
    /// # use eos_core::{App, Topic};
    /// # use std::time::Duration;
    /// # let mut app = App::new("a");
    /// // Alarms of each machine and hour that are not acknowledged.
    /// let hour = Duration::from_secs(3600);
    /// let events = Topic::<String, String>::plain("machine-events");
    /// app.source(&events)
    ///     .group_by_key()
    ///     .windowed_by(Tumbling::of(hour))
    ///     .aggregate_or_delete(
    ///         &WindowStore::<String, Vec<String>>::json("alarms"),
    ///         Vec::new,
    ///         |_machine, event, mut alarms| {
    ///             if event == "acknowledged" {
    ///                 return None;
    ///             }
    ///             alarms.push(event);
    ///             Some(alarms)
    ///         },
    ///     )
    ///     .to(&Topic::with("open-alarms", TimeWindowed::of(hour), Json));
    /// ```
    ///
    /// The deletion of a missing key is an update, too. A Kafka Streams aggregator that returns null does the same.
    pub fn aggregate_or_delete<A: 'static>(
        self,
        store: &WindowStore<K, A>,
        init: impl Fn() -> A + Send + Sync + 'static,
        f: impl Fn(&K, V, A) -> Option<A> + Send + Sync + 'static,
    ) -> WindowedTable<K, A> {
        let kind = Kind::AggregateOrDelete;
        self.kept_or_deleted(kind, store, Some, same, move |key, value, result| {
            f(key, value, result.unwrap_or_else(&init))
        })
    }

    fn kept<A: 'static>(
        self,
        kind: fn(usize) -> Kind,
        store: &WindowStore<K, A>,
        f: impl Fn(&K, V, Option<A>) -> A + Send + Sync + 'static,
    ) -> WindowedTable<K, A, A> {
        let f = move |key: &K, value, result| Some(f(key, value, result));
        self.kept_or_deleted(kind, store, same, same, f)
    }
}

impl<K: 'static, V: 'static, W> WindowedGroup<K, V, W> {
    /// `part` returns the part of a value that `f` receives. Windows that overlap copy only this part.
    fn kept_or_deleted<P: 'static, A: 'static, U: 'static>(
        self,
        kind: fn(usize) -> Kind,
        store: &WindowStore<K, A>,
        update: fn(Option<A>) -> Option<U>,
        part: fn(V) -> P,
        f: impl Fn(&K, P, Option<A>) -> Option<A> + Send + Sync + 'static,
    ) -> WindowedTable<K, A, U>
    where
        W: WindowsOf<K, P>,
    {
        let (windows, least) = (self.windows, self.windows.lifetime());
        let retention = store.retention.unwrap_or(least);
        let name = store.name().to_owned();
        if let Err(reason) = windows.check().and_then(|()| check_retention(retention)) {
            let error = Mistake::Windows {
                store: name,
                reason,
            };
            self.stream.wrong(error);
        } else if retention < least {
            self.stream.wrong(Mistake::Retention {
                store: name,
                retention,
                least,
            });
        }
        let f = Arc::new(f);
        let expiry = Expiry::new(retention, windows.size()).every(windows.advance());
        let spec = StoreSpec {
            windows: Some(AnyWindows::Fixed(windows)),
            ..store.stamped().spec(expiry)
        };
        let store = self.stream.own(spec);
        let copy = <W as sealed::Copies<K, P>>::COPY;
        let make = move || -> Box<dyn Node> {
            let f = Arc::clone(&f);
            Box::new(WindowedAggregate {
                store,
                windows,
                part,
                copy,
                f,
                update,
            })
        };
        let (stream, late) = self.stream.then_or_else(kind(store), make);
        if let Some(end) = self.late {
            end(late);
        }
        WindowedTable::new(stream, store, windows)
    }
}

impl<K, V, W> fmt::Debug for WindowedGroup<K, V, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowedGroup")
            .field("windows", &self.windows)
            .field("late", &self.late.is_some())
            .finish_non_exhaustive()
    }
}

impl<K: 'static, V: 'static> WindowStore<K, V> {
    /// The same store, with a timestamp for each value.
    fn stamped(&self) -> WindowStore<K, Stamped<V>> {
        WindowStore {
            name: Arc::clone(&self.name),
            key: Arc::clone(&self.key),
            value: Arc::new(StampedCodec(Arc::clone(&self.value))),
            retention: self.retention,
            is_stamped: true,
        }
    }
}

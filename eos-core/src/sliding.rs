//! Aggregations of sliding windows.

use std::fmt;
use std::sync::Arc;

use eos_protocol::windows::{AnyWindows, Sliding};

use crate::codec::Encode;
use crate::keys::Partitioned;
use crate::state::SlidingStore;
use crate::streams::{EndLate, Stream};
use crate::topic::Topic;
use crate::topology::{Kind, Mistake, Node, SlidingAggregate};
use crate::windowed_key::Windowed;

/// A stream grouped by key and sliding window. Returned by
/// [`windowed_by(Sliding::of(..))`](crate::stream::Grouped::windowed_by).
///
/// A record updates every open window around it, and makes up to three new ones. So `n` records of a key within the
/// length of a window cause up to `n` updates each. A key has one row with all of its windows, which a record reads and
/// writes as a whole.
///
/// The row must fit into a record of the changelog (`max.message.bytes`). Each window takes 20 bytes and its result, so
/// about 37,000 counts fit into 1 MiB. Beyond that, each further record of the key fails, and the
/// [`ErrorPolicy`](crate::ErrorPolicy) applies, until windows have closed. [`Hopping`](crate::windows::Hopping) windows
/// have no such limit.
///
/// ```
/// # use eos_core::codec::{Plain, TimeWindowed};
/// # use eos_core::state::SlidingStore;
/// # use eos_core::windows::Sliding;
/// # use eos_core::{App, Topic};
/// # use std::time::Duration;
/// # let mut app = App::new("a");
/// // Failed logins of a user within ten minutes.
/// let minutes = Duration::from_secs(600);
/// let failures = Topic::<String, String>::plain("failed-logins");
/// app.source(&failures)
///     .group_by_key()
///     .windowed_by(Sliding::of(minutes))
///     .count(&SlidingStore::plain("failures"))
///     .to_stream()
///     .filter(|count| *count >= 3)
///     .to(&Topic::with("attacks", TimeWindowed::of(minutes), Plain));
/// ```
#[must_use = "windows do nothing until they are counted, reduced or aggregated"]
pub struct SlidingGroup<K, V> {
    stream: Stream<K, V>,
    windows: Sliding,
    late: Option<EndLate<K, V>>,
}

impl<K: 'static, V: 'static> SlidingGroup<K, V> {
    pub(crate) fn new(stream: Stream<K, V>, windows: Sliding) -> Self {
        Self {
            stream,
            windows,
            late: None,
        }
    }

    /// Writes late records unchanged to this topic, like
    /// [`WindowedGroup::late_to`](crate::windows::WindowedGroup::late_to). A record is late if the window that starts
    /// after it is closed.
    pub fn late_to<KC, VC>(mut self, topic: &Topic<K, V, KC, VC>) -> Self
    where
        KC: Encode<K>,
        VC: Encode<V>,
    {
        let topic = topic.clone();
        self.late = Some(Box::new(move |late| late.to(&topic)));
        self
    }

    /// Counts the records of each window.
    pub fn count(self, store: &SlidingStore<K, u64>) -> SlidingTable<K, u64> {
        self.keep(Kind::Count, store, |_, _, count| count.unwrap_or(0) + 1)
    }

    /// Combines all values of a window into one, like [`Grouped::reduce`](crate::stream::Grouped::reduce). A value is
    /// cloned for each window of its record.
    pub fn reduce(
        self,
        store: &SlidingStore<K, V>,
        f: impl Fn(V, V) -> V + Send + Sync + 'static,
    ) -> SlidingTable<K, V>
    where
        V: Clone,
    {
        self.keep(
            Kind::Reduce,
            store,
            move |_, value: &V, result| match result {
                Some(result) => f(result, value.clone()),
                None => value.clone(),
            },
        )
    }

    /// Combines all values of a window into a result of another type, like
    /// [`Grouped::aggregate`](crate::stream::Grouped::aggregate). A value is cloned for each window of its record.
    pub fn aggregate<A: 'static>(
        self,
        store: &SlidingStore<K, A>,
        init: impl Fn() -> A + Send + Sync + 'static,
        f: impl Fn(&K, V, A) -> A + Send + Sync + 'static,
    ) -> SlidingTable<K, A>
    where
        V: Clone,
    {
        self.keep(Kind::Aggregate, store, move |key, value: &V, result| {
            f(key, value.clone(), result.unwrap_or_else(&init))
        })
    }

    fn keep<A: 'static>(
        self,
        kind: fn(usize) -> Kind,
        store: &SlidingStore<K, A>,
        f: impl Fn(&K, &V, Option<A>) -> A + Send + Sync + 'static,
    ) -> SlidingTable<K, A> {
        let windows = self.windows;
        if let Err(reason) = windows.check() {
            self.stream.wrong(Mistake::Windows {
                store: store.name().to_owned(),
                reason,
            });
        }
        let f = Arc::new(f);
        let spec = store.inner.spec(AnyWindows::Sliding(windows));
        let store = self.stream.own(spec);
        let make = move || -> Box<dyn Node> {
            let f = Arc::clone(&f);
            Box::new(SlidingAggregate::<K, V, A, _>::new(store, windows, f))
        };
        let (stream, late) = self.stream.then_or_else(kind(store), make);
        if let Some(end) = self.late {
            end(late);
        }
        SlidingTable { stream, store }
    }
}

impl<K, V> fmt::Debug for SlidingGroup<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlidingGroup")
            .field("windows", &self.windows)
            .field("late", &self.late.is_some())
            .finish_non_exhaustive()
    }
}

/// The latest result of each key and sliding window.
///
/// The table emits every update at once, with the highest timestamp of the window's records. The key of an update
/// contains the window. A [`Window`](crate::windows::Window) does not include its end, so the end is one millisecond
/// after the last possible record.
#[must_use = "the table has no output until it ends in `to`, `to_stream` or `emit_on_close`"]
pub struct SlidingTable<K, A> {
    stream: Stream<Windowed<K>, A>,
    /// The index of the store with the results.
    store: usize,
}

impl<K: 'static, A: 'static> SlidingTable<K, A> {
    /// Writes each update to a topic. Its key codec is [`TimeWindowed`](crate::codec::TimeWindowed) of the time
    /// difference, or your own.
    pub fn to<KC, VC>(self, topic: &Topic<Windowed<K>, A, KC, VC>)
    where
        KC: Encode<Windowed<K>>,
        VC: Encode<A>,
    {
        self.stream.to(topic);
    }

    /// Returns the stream of updates.
    pub fn to_stream(self) -> Stream<Windowed<K>, A, Partitioned> {
        self.stream
    }

    /// Emits only final results: each window once, after it has closed, and never again. See
    /// [`WindowedTable::emit_on_close`](crate::windows::WindowedTable::emit_on_close).
    ///
    /// Later versions of the app must keep this choice, because the store formats differ. Otherwise the app does not
    /// start.
    pub fn emit_on_close(self) -> Stream<Windowed<K>, A> {
        self.stream.emit_when_closed(self.store);
        self.stream
            .apply(Kind::OnClose(self.store), |record, next| {
                next.record(record)
            })
    }
}

impl<K, A> fmt::Debug for SlidingTable<K, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SlidingTable").field(&self.stream).finish()
    }
}

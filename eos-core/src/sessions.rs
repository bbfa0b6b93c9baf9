//! Aggregations of sessions.

use std::fmt;
use std::sync::Arc;

use eos_protocol::windows::{AnyWindows, Session};

use crate::codec::Encode;
use crate::keys::Partitioned;
use crate::state::SessionStore;
use crate::streams::{EndLate, Stream};
use crate::topic::Topic;
use crate::topology::{Kind, Mistake, Node, SessionAggregate};
use crate::windowed_key::Windowed;

/// A stream grouped by key and session. Returned by
/// [`windowed_by(Session::gap(..))`](crate::stream::Grouped::windowed_by).
///
/// A record joins every open session of its key that is at most the gap before or after it. Several joined sessions
/// become one.
///
/// ```
/// # use eos_core::codec::{Plain, SessionWindowed};
/// # use eos_core::state::SessionStore;
/// # use eos_core::windows::Session;
/// # use eos_core::{App, Topic};
/// # use std::time::Duration;
/// # let mut app = App::new("a");
/// // The number of pages in each visit, after the visit has ended.
/// let views = Topic::<String, String>::plain("views");
/// app.source(&views)
///     .group_by_key()
///     .windowed_by(Session::gap(Duration::from_secs(30 * 60)).grace(Duration::from_secs(60)))
///     .count(&SessionStore::plain("visits"))
///     .emit_on_close()
///     .to(&Topic::with("visits", SessionWindowed::of(Plain), Plain));
/// ```
#[must_use = "sessions do nothing until they are counted, reduced or aggregated"]
pub struct SessionGroup<K, V> {
    stream: Stream<K, V>,
    windows: Session,
    late: Option<EndLate<K, V>>,
}

impl<K: 'static, V: 'static> SessionGroup<K, V> {
    pub(crate) fn new(stream: Stream<K, V>, windows: Session) -> Self {
        Self {
            stream,
            windows,
            late: None,
        }
    }

    /// Writes late records unchanged to this topic, like
    /// [`WindowedGroup::late_to`](crate::windows::WindowedGroup::late_to). A record is late if it joins no open session
    /// and its own session would be closed.
    pub fn late_to<KC, VC>(mut self, topic: &Topic<K, V, KC, VC>) -> Self
    where
        KC: Encode<K>,
        VC: Encode<V>,
    {
        let topic = topic.clone();
        self.late = Some(Box::new(move |late| late.to(&topic)));
        self
    }

    /// Counts the records of each session.
    pub fn count(self, store: &SessionStore<K, u64>) -> SessionTable<K, u64> {
        self.keep(Kind::Count, store, |_, _, counts| {
            counts.into_iter().sum::<u64>() + 1
        })
    }

    /// Combines all values of a session into one, like [`Grouped::reduce`](crate::stream::Grouped::reduce). The same
    /// `f` combines the results of sessions that become one.
    pub fn reduce(
        self,
        store: &SessionStore<K, V>,
        f: impl Fn(V, V) -> V + Send + Sync + 'static,
    ) -> SessionTable<K, V> {
        self.keep(
            Kind::Reduce,
            store,
            move |_, value, results| match results.into_iter().reduce(&f) {
                Some(result) => f(result, value),
                None => value,
            },
        )
    }

    /// Combines all values of a session into a result of another type. `merge` combines the results of sessions that
    /// become one, in the order of their times and beginning with `init`. Then `add` adds the value of the record.
    pub fn aggregate<A: 'static>(
        self,
        store: &SessionStore<K, A>,
        init: impl Fn() -> A + Send + Sync + 'static,
        add: impl Fn(&K, V, A) -> A + Send + Sync + 'static,
        merge: impl Fn(&K, A, A) -> A + Send + Sync + 'static,
    ) -> SessionTable<K, A> {
        self.keep(Kind::Aggregate, store, move |key, value, results| {
            let merged = results.into_iter();
            let merged = merged.fold(init(), |merged, result| merge(key, merged, result));
            add(key, value, merged)
        })
    }

    fn keep<A: 'static>(
        self,
        kind: fn(usize) -> Kind,
        store: &SessionStore<K, A>,
        f: impl Fn(&K, V, Vec<A>) -> A + Send + Sync + 'static,
    ) -> SessionTable<K, A> {
        let windows = self.windows;
        if let Err(reason) = windows.check() {
            self.stream.wrong(Mistake::Windows {
                store: store.name().to_owned(),
                reason,
            });
        }
        let f = Arc::new(f);
        let store = self.stream.own(store.spec(AnyWindows::Session(windows)));
        let make = move || -> Box<dyn Node> {
            let f = Arc::clone(&f);
            Box::new(SessionAggregate::<K, V, A, _>::new(store, windows, f))
        };
        let (stream, late) = self.stream.then_or_else(kind(store), make);
        if let Some(end) = self.late {
            end(late);
        }
        SessionTable { stream, store }
    }
}

impl<K, V> fmt::Debug for SessionGroup<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionGroup")
            .field("windows", &self.windows)
            .field("late", &self.late.is_some())
            .finish_non_exhaustive()
    }
}

/// The latest result of each key and session.
///
/// The table emits every update at once. The key of an update contains the key and the session as a window. The
/// window's start is the time of the first record. Its exclusive end is one millisecond after the last record. An
/// update has the timestamp of the session's last record. A session that becomes longer or joins another one has a new
/// key, so a tombstone (`None`) for the earlier key comes first.
#[must_use = "the table has no output until it ends in `to`, `to_stream` or `emit_on_close`"]
pub struct SessionTable<K, A> {
    stream: Stream<Windowed<K>, Option<A>>,
    /// The index of the store with the results.
    store: usize,
}

impl<K: 'static, A: 'static> SessionTable<K, A> {
    /// Writes each update to a topic. Its key codec is [`SessionWindowed`](crate::codec::SessionWindowed) or your own.
    pub fn to<KC, VC>(self, topic: &Topic<Windowed<K>, Option<A>, KC, VC>)
    where
        KC: Encode<Windowed<K>>,
        VC: Encode<Option<A>>,
    {
        self.stream.to(topic);
    }

    /// Returns the stream of updates.
    pub fn to_stream(self) -> Stream<Windowed<K>, Option<A>, Partitioned> {
        self.stream
    }

    /// Emits only final results: each session once, after it has closed, and never again. See
    /// [`WindowedTable::emit_on_close`](crate::windows::WindowedTable::emit_on_close). The results of a task are in the
    /// order of the sessions' ends, then of the keys' bytes.
    ///
    /// Later versions of the app must keep this choice, because the store formats differ. Otherwise the app does not
    /// start.
    pub fn emit_on_close(self) -> Stream<Windowed<K>, A> {
        self.stream.emit_when_closed(self.store);
        self.stream
            .apply(Kind::OnClose(self.store), |record, next| {
                let (result, rest) = record.split();
                match result {
                    Some(result) => next.record(rest.with_value(result)),
                    None => Ok(()),
                }
            })
    }
}

impl<K, A> fmt::Debug for SessionTable<K, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SessionTable").field(&self.stream).finish()
    }
}

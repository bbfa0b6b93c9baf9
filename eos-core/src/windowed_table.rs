//! Tables of results by key and window.

use std::fmt;
use std::marker::PhantomData;

use eos_protocol::windows::Hopping;

use crate::codec::Encode;
use crate::keys::Partitioned;
use crate::record::Record;
use crate::streams::Stream;
use crate::topic::Topic;
use crate::topology::{Kind, Node, OnClose, WindowedPerCommit};
use crate::windowed_key::Windowed;

/// The latest result of each key and window.
///
/// The table emits every update at once; with `emit_per_commit` it emits only the last update of each transaction. The
/// timestamp of an update is the highest one of its records. A result is final once its window is closed:
/// [`emit_on_close`](WindowedTable::emit_on_close) emits only final results.
///
/// `U` is the type of an update: the new result, or an `Option` of it if results can be deleted. `None` is a Kafka
/// tombstone.
#[must_use = "nothing uses a table until a stream reads its `rows`, or it ends in `to` or `to_stream`"]
pub struct WindowedTable<K, A, U = Option<A>> {
    stream: Stream<Windowed<K>, U>,
    /// The index of the store with the results.
    store: usize,
    windows: Hopping,
    types: PhantomData<fn() -> A>,
}

impl<K: 'static, A: 'static, U: 'static> WindowedTable<K, A, U> {
    /// Creates the table of the results in this store.
    pub(crate) fn new(stream: Stream<Windowed<K>, U>, store: usize, windows: Hopping) -> Self {
        Self {
            stream,
            store,
            windows,
            types: PhantomData,
        }
    }

    /// The stream of updates, and the index of the store with the results.
    pub(crate) fn parts(&self) -> (&Stream<Windowed<K>, U>, usize) {
        (&self.stream, self.store)
    }

    /// Writes each update to a topic. Its key codec is [`TimeWindowed`](crate::codec::TimeWindowed) or your own.
    pub fn to<KC, VC>(self, topic: &Topic<Windowed<K>, U, KC, VC>)
    where
        KC: Encode<Windowed<K>>,
        VC: Encode<U>,
    {
        self.stream.to(topic);
    }

    /// Returns the stream of updates.
    pub fn to_stream(self) -> Stream<Windowed<K>, U, Partitioned> {
        self.stream
    }

    /// Emits only final results: each key and window once, after the window has closed, and never again.
    ///
    /// A window closes when stream time reaches its end plus the grace. That needs a later record of the same task, or
    /// [`close_when_idle`](crate::Stream::close_when_idle).
    /// The results of a task are in the order of the windows' ends, then of the keys' bytes. The timestamp of a result
    /// is the highest one of its records. A deleted result is not emitted.
    ///
    /// This is Kafka Streams' `EmitStrategy.onWindowClose`, and `suppress(untilWindowCloses(..))` without a buffer in
    /// memory. To have updates as well, clone the stream before it is grouped, and aggregate it twice.
    ///
    /// ```
    /// # use eos_core::state::WindowStore;
    /// # use eos_core::windows::Tumbling;
    /// # use eos_core::{App, Topic};
    /// # use eos_core::codec::{Plain, TimeWindowed};
    /// # use std::time::Duration;
    /// # let mut app = App::new("a");
    /// let hour = Duration::from_secs(3600);
    /// app.source(&Topic::<String, String>::plain("views"))
    ///     .group_by_key()
    ///     .windowed_by(Tumbling::of(hour).grace(Duration::from_secs(60)))
    ///     .count(&WindowStore::plain("views-per-hour"))
    ///     .emit_on_close()
    ///     .to(&Topic::with("final-views-per-hour", TimeWindowed::of(hour), Plain));
    /// ```
    ///
    /// # Exactly-once
    /// The store keeps the position of the last emitted result, in the transaction of that result. A crash neither
    /// repeats nor loses a result. If many windows close at once, their results are spread over several transactions.
    ///
    /// # Errors
    /// A result that fails in a later step is subject to the strictest [`ErrorPolicy`](crate::ErrorPolicy) of the
    /// task's sources. A dead letter has the key and the value of the result, and the headers `eos-due` and
    /// `eos-window`.
    ///
    /// # Windows after final results
    /// A result comes later than its records, so downstream windows need a grace that covers this delay. Within a stage,
    /// the app checks the grace at startup, and the error names the minimum. After a
    /// [`repartition`](crate::Stream::repartition), the app can't check it.
    ///
    /// # Existing stores
    /// If an earlier version of the app emitted updates, only windows that are still open get final results. If a later
    /// version removes `emit_on_close`, it emits updates again. Versions of this library without final results refuse
    /// the store.
    pub fn emit_on_close(self) -> Stream<Windowed<K>, A> {
        let Self { store, windows, .. } = self;
        self.stream.emit_when_closed(store);
        let make = move || -> Box<dyn Node> { Box::new(OnClose::<K, A, U>::new(store, windows)) };
        self.stream.then(Kind::OnClose(store), make)
    }

    fn per_commit(self, update: fn(Option<A>) -> Option<U>) -> Self {
        let Self { store, windows, .. } = self;
        let make = move || -> Box<dyn Node> {
            Box::new(WindowedPerCommit::<K, A, U>::new(store, windows, update))
        };
        Self {
            stream: self.stream.then(Kind::PerCommit(store), make),
            ..self
        }
    }
}

impl<K: 'static, V: 'static> Stream<Windowed<K>, V> {
    /// Removes the windows from the keys. The records of a key stay in their task, because the window of a key does not
    /// decide its partition. You can therefore group the stream again, for example by longer windows.
    ///
    /// ```
    /// # use eos_core::state::WindowStore;
    /// # use eos_core::windows::Tumbling;
    /// # use eos_core::{App, Topic};
    /// # use eos_core::codec::{Plain, TimeWindowed};
    /// # use std::time::Duration;
    /// # let mut app = App::new("a");
    /// // The largest number of views per minute in each hour.
    /// let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
    /// app.source(&Topic::<String, String>::plain("views"))
    ///     .group_by_key()
    ///     .windowed_by(Tumbling::of(minute))
    ///     .count(&WindowStore::plain("views-per-minute"))
    ///     .emit_on_close()
    ///     .without_windows()
    ///     .group_by_key()
    ///     .windowed_by(Tumbling::of(hour).grace(minute))
    ///     .reduce(&WindowStore::plain("peaks"), u64::max)
    ///     .emit_on_close()
    ///     .to(&Topic::with("peaks", TimeWindowed::of(hour), Plain));
    /// ```
    pub fn without_windows(self) -> Stream<K, V> {
        self.apply(Kind::WithoutWindows, |record, next| {
            let (value, rest) = record.split();
            let key = rest.key.key;
            next.record(Record {
                key,
                value,
                timestamp: rest.timestamp,
                headers: rest.headers,
            })
        })
    }
}

impl<K: 'static, A: 'static> WindowedTable<K, A, A> {
    /// Emits only the last result of each key and window in a transaction, at the commit. See
    /// [`Table::emit_per_commit`](crate::Table::emit_per_commit), also for errors. Within a task the results are in the
    /// order of the windows' starts, then of the keys' bytes.
    ///
    /// The last result of a window that closes in the transaction is emitted, too.
    ///
    /// ```
    /// # use eos_core::state::WindowStore;
    /// # use eos_core::windows::Tumbling;
    /// # use eos_core::{App, Topic};
    /// # use eos_core::codec::{Plain, TimeWindowed};
    /// # use std::time::Duration;
    /// # let mut app = App::new("a");
    /// let hour = Duration::from_secs(3600);
    /// app.source(&Topic::<String, String>::plain("views"))
    ///     .group_by_key()
    ///     .windowed_by(Tumbling::of(hour))
    ///     .count(&WindowStore::plain("views-per-hour"))
    ///     .emit_per_commit()
    ///     .to(&Topic::with("views-per-hour", TimeWindowed::of(hour), Plain));
    /// ```
    pub fn emit_per_commit(self) -> Self {
        self.per_commit(|result| result)
    }
}

impl<K: 'static, A: 'static> WindowedTable<K, A> {
    /// Emits only the last result of each key and window in a transaction, or its deletion. See
    /// [`emit_per_commit`](WindowedTable::emit_per_commit) of tables without deletions. The timestamp of a tombstone is
    /// the task's stream time.
    pub fn emit_per_commit(self) -> Self {
        self.per_commit(Some)
    }
}

impl<K, A, U> fmt::Debug for WindowedTable<K, A, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WindowedTable").field(&self.stream).finish()
    }
}

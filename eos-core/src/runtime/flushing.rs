//! Flushes databases on a separate thread.
//!
//! The start of a flush may wait for the disk.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use eos_protocol::TaskId;
use eos_state::StoreError;
use eos_state::pressure::{Unflushed, to_flush};
use eos_state::rocks::Flusher;

/// A handle of a database, which keeps it open.
pub(super) trait Flushes: Clone + Send + 'static {
    fn unflushed(&self) -> Unflushed;

    /// Begins to flush the memory of the database to disk. RocksDB delays the flush while earlier written tables would
    /// stall it (`WaitUntilFlushWouldNotStallWrites`).
    fn begin(&self) -> Result<(), StoreError>;
}

impl Flushes for Flusher {
    fn unflushed(&self) -> Unflushed {
        Flusher::unflushed(self)
    }

    fn begin(&self) -> Result<(), StoreError> {
        Flusher::begin(self)
    }
}

/// The open databases, and the thread that flushes one of them on request. A request does not wait for the flush.
pub(super) struct Flushing<F> {
    shared: Arc<Shared<F>>,
    /// The thread, created at the first request. `None` if the system can't create a thread: then RocksDB flushes the
    /// database that is being written to.
    thread: OnceLock<Option<Thread>>,
}

struct Thread {
    /// The channel of requests. One queued request is as good as many.
    ask: SyncSender<()>,
    handle: JoinHandle<()>,
}

struct Shared<F> {
    /// The limit of all databases together, in bytes.
    limit: u64,
    open: Mutex<Open<F>>,
    begun: Condvar,
}

struct Open<F> {
    databases: BTreeMap<TaskId, F>,
    /// The database whose handle the thread holds.
    flushes: Option<TaskId>,
}

impl<F: Flushes> Flushing<F> {
    pub(super) fn new(limit: u64) -> Self {
        let open = Open {
            databases: BTreeMap::new(),
            flushes: None,
        };
        Self {
            shared: Arc::new(Shared {
                limit,
                open: Mutex::new(open),
                begun: Condvar::new(),
            }),
            thread: OnceLock::new(),
        }
    }

    pub(super) fn opened(&self, task: TaskId, database: F) {
        self.shared.lock().databases.insert(task, database);
    }

    /// Releases a database: no handle remains after the return. Waits for the start of this database's own flush, if
    /// one is in progress, and for no other flush.
    pub(super) fn closing(&self, task: TaskId) {
        let mut open = self.shared.lock();
        open.databases.remove(&task);
        while open.flushes == Some(task) {
            let waited = self.shared.begun.wait(open);
            open = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Requests a check of the total size of all databases.
    pub(super) fn ask(&self) {
        let thread = self.thread.get_or_init(|| Thread::start(&self.shared));
        if let Some(thread) = thread {
            // The channel is full: a request is already queued.
            let _asked = thread.ask.try_send(());
        }
    }
}

impl Thread {
    fn start<F: Flushes>(shared: &Arc<Shared<F>>) -> Option<Self> {
        let (ask, asked) = sync_channel(1);
        let shared = Arc::clone(shared);
        let work = move || shared.run(&asked);
        let started = std::thread::Builder::new()
            .name("eos-flush".into())
            .spawn(work);
        match started {
            Ok(handle) => Some(Self { ask, handle }),
            Err(error) => {
                tracing::warn!(%error, "starting the thread that flushes databases failed");
                None
            }
        }
    }
}

impl<F> Shared<F> {
    fn lock(&self) -> MutexGuard<'_, Open<F>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Flushes> Shared<F> {
    /// Runs until no more request can arrive.
    fn run(&self, asked: &Receiver<()>) {
        while asked.recv().is_ok() {
            let Some((task, database)) = self.take_largest() else {
                continue;
            };
            match database.begin() {
                Ok(()) => {
                    tracing::debug!(%task, "flushing a database: unflushed data exceeds the limit");
                }
                Err(error) => tracing::warn!(%task, %error, "flushing a database failed"),
            }
            // Released before the waiting thread continues.
            drop(database);
            self.lock().flushes = None;
            self.begun.notify_all();
        }
    }

    fn take_largest(&self) -> Option<(TaskId, F)> {
        let mut open = self.lock();
        let databases = open.databases.iter();
        let unflushed = databases.map(|(task, database)| (*task, database.unflushed()));
        let task = to_flush(self.limit, unflushed)?;
        let database = open.databases.get(&task)?.clone();
        open.flushes = Some(task);
        Some((task, database))
    }
}

impl<F> Drop for Flushing<F> {
    fn drop(&mut self) {
        if let Some(Thread { ask, handle }) = self.thread.take().flatten() {
            drop(ask);
            // The databases are closed, so the thread holds no handle.
            let _end = handle.join();
        }
    }
}

impl<F> fmt::Debug for Flushing<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.shared.lock();
        f.debug_struct("Flushing")
            .field("open", &open.databases.keys())
            .field("flushes", &open.flushes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eos_protocol::{Partition, StageId};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Sender, channel};
    use std::time::{Duration, Instant};

    const PATIENCE: Duration = Duration::from_secs(30);

    fn task(partition: i32) -> TaskId {
        TaskId {
            stage: StageId(0),
            partition: Partition::new(partition).unwrap(),
        }
    }

    /// A database whose disk stalls until the test releases it.
    #[derive(Clone)]
    struct Slow {
        bytes: u64,
        begins: Sender<()>,
        catches_up: Arc<Mutex<Receiver<()>>>,
    }

    impl Flushes for Slow {
        fn unflushed(&self) -> Unflushed {
            Unflushed {
                bytes: self.bytes,
                flushing: false,
            }
        }

        fn begin(&self) -> Result<(), StoreError> {
            self.begins.send(()).unwrap();
            let _told = self.catches_up.lock().unwrap().recv_timeout(PATIENCE);
            Ok(())
        }
    }

    #[test]
    fn no_task_waits_for_the_flush_of_another_database() {
        let ((begins, begun), (catch_up, catches_up)) = (channel(), channel());
        let catches_up = Arc::new(Mutex::new(catches_up));
        let slow = |bytes| Slow {
            bytes,
            begins: begins.clone(),
            catches_up: Arc::clone(&catches_up),
        };
        let flushing = Arc::new(Flushing::new(10));
        flushing.opened(task(0), slow(100));
        flushing.opened(task(1), slow(1));
        let since = Instant::now();
        flushing.ask();
        begun.recv_timeout(PATIENCE).unwrap();
        // The flush is in progress. The other tasks continue.
        for _ in 0..100 {
            flushing.ask();
        }
        flushing.closing(task(1));
        flushing.opened(task(2), slow(2));
        assert!(since.elapsed() < PATIENCE / 2, "{:?}", since.elapsed());

        // The close of the same database waits. Otherwise the database would still be open.
        let closed = Arc::new(AtomicBool::new(false));
        let closing = std::thread::spawn({
            let (flushing, closed) = (Arc::clone(&flushing), Arc::clone(&closed));
            move || {
                flushing.closing(task(0));
                closed.store(true, Ordering::SeqCst);
            }
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(!closed.load(Ordering::SeqCst));
        catch_up.send(()).unwrap();
        closing.join().unwrap();
        assert!(closed.load(Ordering::SeqCst));
        flushing.closing(task(2));
    }

    #[test]
    fn no_database_is_flushed_below_the_limit() {
        let (begins, begun) = channel();
        let (_catch_up, catches_up) = channel();
        let flushing = Flushing::new(200);
        let database = Slow {
            bytes: 100,
            begins,
            catches_up: Arc::new(Mutex::new(catches_up)),
        };
        flushing.opened(task(0), database);
        flushing.ask();
        assert!(begun.recv_timeout(Duration::from_millis(100)).is_err());
    }
}

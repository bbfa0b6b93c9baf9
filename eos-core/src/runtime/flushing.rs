//! Flushes databases on a thread of its own: to begin one may take as long as the disk is behind.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use eos_protocol::TaskId;
use eos_state::StoreError;
use eos_state::pressure::{Unflushed, to_flush};
use eos_state::rocks::Flusher;

/// A hold on a database, which keeps it open.
pub(super) trait Flushes: Clone + Send + 'static {
    fn unflushed(&self) -> Unflushed;

    /// Begins to move what it holds in memory to disk. RocksDB waits with that while tables that are
    /// written already would stall it (`WaitUntilFlushWouldNotStallWrites`).
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

/// The open databases, and the thread that flushes one of them when it is asked to. A request does not wait for the flush.
pub(super) struct Flushing<F> {
    shared: Arc<Shared<F>>,
    /// Made when it is first asked for. `None` if the system gave no thread: then RocksDB flushes whichever
    /// database is written to.
    thread: OnceLock<Option<Thread>>,
}

struct Thread {
    /// One question is as good as many.
    ask: SyncSender<()>,
    handle: JoinHandle<()>,
}

struct Shared<F> {
    /// How much all of them may hold together.
    limit: u64,
    open: Mutex<Open<F>>,
    begun: Condvar,
}

struct Open<F> {
    databases: BTreeMap<TaskId, F>,
    /// The one that the thread has a hold on.
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

    /// Releases a database: no handle remains when this returns. It waits for the beginning of
    /// that one's own flush, if that is under way, and for no other's.
    pub(super) fn closing(&self, task: TaskId) {
        let mut open = self.shared.lock();
        open.databases.remove(&task);
        while open.flushes == Some(task) {
            let waited = self.shared.begun.wait(open);
            open = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// They may be too large together.
    pub(super) fn ask(&self) {
        let thread = self.thread.get_or_init(|| Thread::start(&self.shared));
        if let Some(thread) = thread {
            // Full: it is asked already.
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
                tracing::warn!(%error, "no thread to flush databases with");
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
    /// Until no request can come.
    fn run(&self, asked: &Receiver<()>) {
        while asked.recv().is_ok() {
            let Some((task, database)) = self.take_largest() else {
                continue;
            };
            match database.begin() {
                Ok(()) => {
                    tracing::debug!(%task, "its database flushes: together they are too large");
                }
                Err(error) => tracing::warn!(%task, %error, "its database does not flush"),
            }
            // Released before the waiting thread goes on.
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
            // The databases are closed, so it has a hold on none.
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

    /// A database whose disk is behind until it is told otherwise.
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
    fn nobody_waits_for_the_flush_of_another_tasks_database() {
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
        // It is under way; the other tasks go on.
        for _ in 0..100 {
            flushing.ask();
        }
        flushing.closing(task(1));
        flushing.opened(task(2), slow(2));
        assert!(since.elapsed() < PATIENCE / 2, "{:?}", since.elapsed());

        // Its own close waits, or the database would be open still.
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
    fn nobody_flushes_below_the_limit() {
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

//! Background threads that write committed transactions and restored records.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread;

use eos_protocol::state::Position;

use super::bulk::Bulk;
use crate::in_flight::InFlight;
use crate::{EngineFault, StoreError};

type Job = Box<dyn FnOnce() + Send>;

/// The number of threads: one for each processor, within these limits. A write uses a processor, except while RocksDB
/// stalls it. Then other databases need a thread.
const THREADS: std::ops::RangeInclusive<usize> = 4..=8;
/// The same for restored records. Transactions never wait for them: the worker of a transaction waits for its write.
const LOAD_THREADS: std::ops::RangeInclusive<usize> = 2..=4;

/// The writer threads of a process, shared by all its databases. The threads end when the last clone is dropped.
#[derive(Clone)]
pub(super) struct Appliers {
    /// For transactions.
    jobs: Queue,
    /// For restored records.
    loads: Queue,
}

/// `None` if no thread could be started. Then each worker writes on its own thread.
type Queue = Option<Sender<Job>>;

impl Appliers {
    /// Starts the threads.
    pub(super) fn start() -> Self {
        Self {
            jobs: threads("eos-apply", THREADS),
            loads: threads("eos-load", LOAD_THREADS),
        }
    }

    /// Queues the write of a transaction or of restored records. Returns `None` if there is no thread.
    pub(super) fn begin(
        &self,
        bulk: &Bulk,
        path: &Path,
        in_flight: &Arc<InFlight>,
    ) -> Option<Applying> {
        let jobs = match in_flight.load() {
            Some(_) => self.loads.as_ref()?,
            None => self.jobs.as_ref()?,
        };
        let (done, result) = sync_channel(1);
        let position = in_flight.position().clone();
        let (bulk, path, in_flight) = (bulk.clone(), path.to_owned(), Arc::clone(in_flight));
        let job = move || {
            let written = bulk.write(&path, &in_flight);
            // After the result, the owner reuses the memory of the writes, and may close the database.
            drop((in_flight, bulk));
            // The send succeeds, because even the drop of the owner waits for the result.
            let _ = done.send(written);
        };
        jobs.send(Box::new(job)).ok()?;
        Some(Applying { result, position })
    }
}

fn threads(name: &str, count: std::ops::RangeInclusive<usize>) -> Queue {
    let (jobs, queue) = channel();
    let queue = Arc::new(Mutex::new(queue));
    let wanted = thread::available_parallelism().map_or(1, usize::from);
    let started = (0..wanted.clamp(*count.start(), *count.end())).filter(|_| {
        let queue = Arc::clone(&queue);
        let thread = thread::Builder::new().name(name.to_owned());
        thread.spawn(move || work(&queue)).is_ok()
    });
    (started.count() > 0).then_some(jobs)
}

fn work(queue: &Mutex<Receiver<Job>>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match job {
            Ok(job) => job(),
            Err(_) => return,
        }
    }
}

/// A write that was queued for a thread.
#[derive(Debug)]
pub(super) struct Applying {
    result: Receiver<Result<(), StoreError>>,
    /// The position of the database after the write.
    pub(super) position: Position,
}

impl Applying {
    pub(super) fn end(&self, path: &Path, wait: bool) -> Poll<Result<(), StoreError>> {
        let ended = match wait {
            true => self.result.recv().map_err(|_| TryRecvError::Disconnected),
            false => self.result.try_recv(),
        };
        match ended {
            Ok(written) => Poll::Ready(written),
            Err(TryRecvError::Empty) => Poll::Pending,
            Err(TryRecvError::Disconnected) => Poll::Ready(Err(StoreError::Engine {
                path: path.to_owned(),
                source: EngineFault::new("a writer thread ended before its write was finished"),
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use eos_protocol::state::{Family, StoreId};
    use tempfile::tempdir;

    use super::super::{RocksBackend, StateMemory};
    use super::*;
    use crate::testing::at;
    use crate::{StoreBackend, StoreKind, TaskStore};

    const STORE: StoreId = StoreId::plain("counts");

    /// Occupies every thread of a queue until the returned sender is dropped.
    fn occupy(queue: &Queue, threads: usize) -> Sender<()> {
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for _ in 0..threads {
            let held = Arc::clone(&held);
            let wait = move || {
                let _ = held.lock().unwrap().recv();
            };
            queue.as_ref().unwrap().send(Box::new(wait)).unwrap();
        }
        release
    }

    #[test]
    fn a_transaction_does_not_wait_for_restored_records() {
        let (dir, memory) = (tempdir().unwrap(), StateMemory::new(8 << 20));
        let backend = RocksBackend::open(dir.path(), &[Family::Plain], &memory).unwrap();
        let _busy = occupy(&memory.appliers.loads, 2 * LOAD_THREADS.end());
        let mut store = TaskStore::new(Box::new(backend), [(STORE, StoreKind::Point)]).unwrap();
        store.put(STORE, b"a", b"1").unwrap();
        store.keep_record();
        store.begin_apply(at(1), Vec::new()).unwrap();
        let patience = Instant::now() + Duration::from_secs(10);
        while store.end_apply(false).is_pending() {
            assert!(Instant::now() < patience, "it waits");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_closed_database_has_the_transaction_that_was_in_flight() {
        let (dir, memory) = (tempdir().unwrap(), StateMemory::new(8 << 20));
        let open = || RocksBackend::open(dir.path(), &[Family::Plain], &memory).unwrap();
        let release = occupy(&memory.appliers.jobs, *THREADS.end());
        let mut store = TaskStore::new(Box::new(open()), [(STORE, StoreKind::Point)]).unwrap();
        store.put(STORE, b"a", b"1").unwrap();
        store.keep_record();
        store.begin_apply(at(1), Vec::new()).unwrap();
        assert!(store.end_apply(false).is_pending());
        let closing = thread::spawn(move || drop(store));
        thread::sleep(Duration::from_millis(50));
        assert!(!closing.is_finished(), "it does not wait");
        drop(release);
        closing.join().unwrap();
        let database = open();
        let mut value = Vec::new();
        assert!(database.get(STORE, b"a", &mut value).unwrap());
        assert_eq!((database.position(), &value[..]), (Some(&at(1)), &b"1"[..]));
    }
}

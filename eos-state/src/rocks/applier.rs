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

/// The writer threads of a process, shared by all its databases. The threads end when the last clone is dropped.
#[derive(Clone)]
pub(super) struct Appliers {
    /// `None` if no thread could be started. Then each worker writes on its own thread.
    jobs: Option<Sender<Job>>,
}

impl Appliers {
    /// Starts the threads.
    pub(super) fn start() -> Self {
        let (jobs, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let wanted = thread::available_parallelism().map_or(1, usize::from);
        let started = (0..wanted.clamp(*THREADS.start(), *THREADS.end())).filter(|_| {
            let queue = Arc::clone(&queue);
            let thread = thread::Builder::new().name("eos-apply".to_owned());
            thread.spawn(move || work(&queue)).is_ok()
        });
        let jobs = (started.count() > 0).then_some(jobs);
        Self { jobs }
    }

    /// Queues the write of a transaction or of restored records. Returns `None` if there is no thread.
    pub(super) fn begin(
        &self,
        bulk: &Bulk,
        path: &Path,
        in_flight: &Arc<InFlight>,
    ) -> Option<Applying> {
        let jobs = self.jobs.as_ref()?;
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
    use std::time::Duration;

    use eos_protocol::state::{Family, StoreId};
    use tempfile::tempdir;

    use super::super::{RocksBackend, StateMemory};
    use super::*;
    use crate::testing::at;
    use crate::{StoreBackend, StoreKind, TaskStore};

    const STORE: StoreId = StoreId::plain("counts");

    #[test]
    fn a_closed_database_has_the_transaction_that_was_in_flight() {
        let (dir, memory) = (tempdir().unwrap(), StateMemory::new(8 << 20));
        let open = || RocksBackend::open(dir.path(), &[Family::Plain], &memory).unwrap();
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let jobs = memory.appliers.jobs.as_ref().unwrap();
        // Every thread is busy.
        for _ in 0..*THREADS.end() {
            let held = Arc::clone(&held);
            let wait = move || {
                let _ = held.lock().unwrap().recv();
            };
            jobs.send(Box::new(wait)).unwrap();
        }
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

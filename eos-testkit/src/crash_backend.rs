//! Databases with a crash point at each write.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use eos_core::spi::stepped::{Home, HomeError, TaskHome};
use eos_protocol::state::Position;
use eos_state::global::{GlobalBatch, GlobalEngine};
use eos_state::{Around, Batch, InFlight, StoreBackend, StoreError};

use crate::client::Edge;

/// Called before and after each write, with the number of writes since its database was opened, this write included.
/// It throws if the process dies there.
type AtWrite = dyn Fn(Edge, u64) + Send + Sync;

/// For each database that was ever opened, the number of workers that have it open.
type Opened = Arc<Mutex<BTreeMap<TaskHome, u32>>>;

/// A home of databases with crash points. A copy is the same home.
#[derive(Clone)]
pub struct CrashHome {
    home: Arc<dyn Home>,
    at_write: Arc<AtWrite>,
    opened: Opened,
    /// Whether most writes end some polls after they begin.
    overlaps: bool,
    /// Whether a position is written before its data: a planted bug.
    position_first: bool,
    /// Whether the process is being killed: pending writes are lost.
    dying: Arc<AtomicBool>,
    /// The number of opened databases.
    opens: Arc<AtomicU64>,
}

impl fmt::Debug for CrashHome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CrashHome").field(&self.home).finish()
    }
}

impl CrashHome {
    pub fn new(
        home: Arc<dyn Home>,
        at_write: impl Fn(Edge, u64) + Send + Sync + 'static,
    ) -> CrashHome {
        CrashHome {
            home,
            at_write: Arc::new(at_write),
            opened: Opened::default(),
            overlaps: false,
            position_first: false,
            dying: Arc::default(),
            opens: Arc::default(),
        }
    }

    /// Ends most writes of committed transactions some polls after they begin, like the threads of RocksDB.
    #[must_use]
    pub fn overlapping(self) -> CrashHome {
        let overlaps = true;
        CrashHome { overlaps, ..self }
    }

    /// Writes each position before its data: a planted bug.
    #[must_use]
    pub fn position_first(self) -> CrashHome {
        let position_first = true;
        CrashHome {
            position_first,
            ..self
        }
    }

    /// Discards pending writes, like the death of the process. The caller drops the process next.
    pub fn dies(&self) {
        self.dying.store(true, Ordering::Relaxed);
    }

    /// Every database that was ever opened, and the number of workers that have it open.
    pub fn known(&self) -> Vec<(TaskHome, u32)> {
        let opened = lock(&self.opened);
        opened
            .iter()
            .map(|(home, by)| (home.clone(), *by))
            .collect()
    }

    /// Opens a database without crash points.
    pub fn look(&self, task: &TaskHome) -> Result<Option<Box<dyn StoreBackend>>, HomeError> {
        self.home.open(task)
    }
}

fn lock(opened: &Opened) -> MutexGuard<'_, BTreeMap<TaskHome, u32>> {
    opened.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Home for CrashHome {
    fn open(&self, task: &TaskHome) -> Result<Option<Box<dyn StoreBackend>>, HomeError> {
        let Some(database) = self.home.open(task)? else {
            return Ok(None);
        };
        self.dying.store(false, Ordering::Relaxed);
        let opens = self.opens.fetch_add(1, Ordering::Relaxed);
        *lock(&self.opened).entry(task.clone()).or_default() += 1;
        Ok(Some(Box::new(CrashBackend {
            database,
            task: task.clone(),
            at_write: Arc::clone(&self.at_write),
            opened: Arc::clone(&self.opened),
            writes: 0,
            opens,
            overlaps: self.overlaps,
            position_first: self.position_first,
            dying: Arc::clone(&self.dying),
            pending: Vec::new(),
        })))
    }

    fn discard(&self, task: &TaskHome) -> Result<bool, HomeError> {
        self.home.discard(task)
    }

    fn open_global(&self, table: &str) -> Result<Box<dyn GlobalEngine>, HomeError> {
        Ok(Box::new(CrashGlobal {
            engine: self.home.open_global(table)?,
            at_write: Arc::clone(&self.at_write),
            writes: AtomicU64::new(0),
        }))
    }

    fn discard_global(&self, table: &str) -> Result<(), HomeError> {
        self.home.discard_global(table)
    }

    fn discard_other_globals(&self, tables: &[&str]) -> Result<Vec<String>, HomeError> {
        self.home.discard_other_globals(tables)
    }
}

/// The copy of a global table with a crash point at each write.
struct CrashGlobal {
    engine: Box<dyn GlobalEngine>,
    at_write: Arc<AtWrite>,
    /// The number of writes since the copy was opened.
    writes: AtomicU64,
}

impl fmt::Debug for CrashGlobal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CrashGlobal").field(&self.engine).finish()
    }
}

impl GlobalEngine for CrashGlobal {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        self.engine.get(key, value)
    }

    fn write(&self, batch: &GlobalBatch, mark: &[u8]) -> Result<(), StoreError> {
        let number = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        (self.at_write)(Edge::Before, number);
        self.engine.write(batch, mark)?;
        (self.at_write)(Edge::After, number);
        Ok(())
    }

    fn mark(&self) -> Result<Option<Vec<u8>>, StoreError> {
        self.engine.mark()
    }
}

struct CrashBackend {
    database: Box<dyn StoreBackend>,
    task: TaskHome,
    at_write: Arc<AtWrite>,
    opened: Opened,
    /// The number of writes since the database was opened.
    writes: u64,
    /// The number of databases that were opened before this one.
    opens: u64,
    overlaps: bool,
    position_first: bool,
    dying: Arc<AtomicBool>,
    /// The writes that have not ended: at most one, unless a defence is removed.
    pending: Vec<Pending>,
}

/// A write that has not ended.
#[derive(Debug)]
struct Pending {
    in_flight: Arc<InFlight>,
    /// The number of polls until the write ends.
    polls: u64,
}

impl fmt::Debug for CrashBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CrashBackend").field(&self.database).finish()
    }
}

impl CrashBackend {
    /// Ends the writes that are due.
    fn end(&mut self, is_due: impl Fn(&Pending) -> bool) -> Result<(), StoreError> {
        while let Some(at) = self.pending.iter().position(&is_due) {
            let Pending { in_flight, .. } = self.pending.remove(at);
            self.write(&in_flight)?;
            (self.at_write)(Edge::After, self.writes);
        }
        Ok(())
    }

    /// Writes a transaction as the runtime does, from begin to end.
    fn write(&mut self, in_flight: &Arc<InFlight>) -> Result<(), StoreError> {
        self.database.begin_apply(in_flight)?;
        match self.database.end_apply(true) {
            Poll::Ready(ended) => ended,
            Poll::Pending => Ok(()),
        }
    }
}

impl Drop for CrashBackend {
    fn drop(&mut self) {
        // Closing an engine completes its writes. The death of a process does not.
        if !self.dying.load(Ordering::Relaxed) && !std::thread::panicking() {
            for Pending { in_flight, .. } in std::mem::take(&mut self.pending) {
                let _ = self.write(&in_flight);
            }
        }
        if let Some(by) = lock(&self.opened).get_mut(&self.task) {
            *by -= 1;
        }
    }
}

impl Around for CrashBackend {
    type Inner = dyn StoreBackend;

    fn inner(&self) -> &Self::Inner {
        self.database.as_ref()
    }

    fn inner_mut(&mut self) -> &mut Self::Inner {
        self.database.as_mut()
    }

    fn apply_around(&mut self, batch: &Batch<'_>, position: &Position) -> Result<(), StoreError> {
        self.writes += 1;
        (self.at_write)(Edge::Before, self.writes);
        self.database.apply(batch, position)?;
        (self.at_write)(Edge::After, self.writes);
        Ok(())
    }

    fn begin_around(&mut self, in_flight: &Arc<InFlight>) -> Result<(), StoreError> {
        // Some writes end at once, and most of them during the next transaction or at its end.
        let polls = (self.writes + 1 + self.opens * 31).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59;
        if !self.overlaps || polls < 4 {
            self.writes += 1;
            (self.at_write)(Edge::Before, self.writes);
            self.write(in_flight)?;
            (self.at_write)(Edge::After, self.writes);
            return Ok(());
        }
        self.writes += 1;
        (self.at_write)(Edge::Before, self.writes);
        if self.position_first {
            self.database.apply(&Batch::new(), in_flight.position())?;
        }
        let in_flight = Arc::clone(in_flight);
        self.pending.push(Pending { in_flight, polls });
        Ok(())
    }

    fn end_around(&mut self, wait: bool) -> Poll<Result<(), StoreError>> {
        for pending in &mut self.pending {
            pending.polls = pending.polls.saturating_sub(1);
        }
        let ended = self.end(|pending| wait || pending.polls == 0);
        match self.pending.is_empty() {
            true => Poll::Ready(ended),
            false => Poll::Pending,
        }
    }
}

//! Snapshots of a database for other threads.
//!
//! The owner of a database never waits for a reader longer than one page of rows takes. Snapshots belong to the
//! database: [`StateReader::close`] ends them, and their next read is refused. So a forgotten snapshot keeps no database
//! open.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eos_protocol::state::{Position, StoreId};

use crate::StoreError;
use crate::cursor::Cursor;
use crate::range::{Direction, KeyRange};

/// The maximum number of rows that one read of a range copies.
const PAGE_ROWS: usize = 256;
/// The number of bytes of rows after which a read of a range ends.
const PAGE_BYTES: usize = 256 << 10;

/// Takes snapshots of an engine. An engine implements it for its [`StateReader`].
pub trait TakeSnapshot: Send {
    /// Takes a snapshot of the committed data.
    ///
    /// It contains whole transactions only, and stays the same while the owner applies others.
    ///
    /// # Errors
    /// If the engine can't read.
    fn take(&self) -> Result<Box<dyn SnapshotOf>, StoreError>;
}

/// A snapshot inside an engine: the committed data of all stores after one transaction.
pub trait SnapshotOf: Send {
    /// Returns the position in the snapshot; `None` before the first write.
    fn position(&self) -> Option<&Position>;

    /// Reads one key. Returns true if it exists; `value` then holds its value.
    ///
    /// # Errors
    /// If the engine can't read.
    fn get(&mut self, store: StoreId, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError>;

    /// Reads the first entries of a range, with [`Page::read`].
    ///
    /// # Errors
    /// If the engine can't read.
    fn page(
        &mut self,
        store: StoreId,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Page, StoreError>;
}

/// Takes snapshots of one open database, from any thread. Cheap to clone. It keeps no database open.
#[derive(Clone)]
pub struct StateReader(Arc<Mutex<Option<Open>>>);

/// The part that exists while the database is open.
struct Open {
    source: Box<dyn TakeSnapshot>,
    snapshots: Vec<Arc<Slot>>,
}

/// A snapshot, until it is dropped or the database closes.
type Slot = Mutex<Option<Box<dyn SnapshotOf>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StateReader {
    /// Creates the reader of an open database.
    #[must_use]
    pub fn new(source: impl TakeSnapshot + 'static) -> Self {
        let open = Open {
            source: Box::new(source),
            snapshots: Vec::new(),
        };
        Self(Arc::new(Mutex::new(Some(open))))
    }

    /// Takes a snapshot of the committed data of all stores.
    ///
    /// # Errors
    /// [`StoreError::Closed`] if the database is closed, or if the engine can't read.
    pub fn snapshot(&self) -> Result<StateSnapshot, StoreError> {
        let mut open = lock(&self.0);
        let open = open.as_mut().ok_or(StoreError::Closed)?;
        let taken = open.source.take()?;
        let position = taken.position().cloned();
        let slot = Arc::new(Mutex::new(Some(taken)));
        let is_live = |slot: &Arc<Slot>| slot.try_lock().map_or(true, |slot| slot.is_some());
        open.snapshots.retain(is_live);
        open.snapshots.push(Arc::clone(&slot));
        Ok(StateSnapshot { slot, position })
    }

    /// Ends all snapshots, and refuses further ones. Waits for reads under way: for one page of rows at most, for each
    /// snapshot. The owner of the database calls it before it closes the database.
    pub fn close(&self) {
        let Some(open) = lock(&self.0).take() else {
            return;
        };
        for slot in &open.snapshots {
            drop(lock(slot).take());
        }
    }
}

impl fmt::Debug for StateReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateReader")
    }
}

/// The committed data of all stores of a task after one transaction. Taken by [`StateReader::snapshot`].
///
/// # Errors
/// Reads return [`StoreError::Closed`] once the database is closed.
pub struct StateSnapshot {
    slot: Arc<Slot>,
    position: Option<Position>,
}

/// Entries of a range, and whether there may be more behind them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Keys and values, in order.
    pub rows: Vec<(Vec<u8>, Vec<u8>)>,
    /// The rest of the range, if there may be more entries.
    pub rest: Option<KeyRange>,
}

impl Page {
    /// Copies entries from a cursor at the beginning of this range: at most 256, and about 256 KiB.
    ///
    /// # Errors
    /// As the cursor's.
    pub fn read(
        cursor: &mut dyn Cursor,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Self, StoreError> {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while let Some((key, value)) = cursor.entry() {
            bytes += key.len() + value.len();
            rows.push((key.to_vec(), value.to_vec()));
            if rows.len() >= PAGE_ROWS || bytes >= PAGE_BYTES {
                let rest = match direction {
                    Direction::Forward => range.after(key),
                    Direction::Reverse => range.before(key),
                };
                let rest = Some(rest);
                return Ok(Self { rows, rest });
            }
            cursor.advance()?;
        }
        Ok(Self { rows, rest: None })
    }
}

impl StateSnapshot {
    /// Returns the position of the data; `None` before the first write.
    #[must_use]
    pub fn position(&self) -> Option<&Position> {
        self.position.as_ref()
    }

    /// Reads one key. Returns true if it exists; `value` then holds its value.
    ///
    /// # Errors
    /// If the database is closed, or the engine can't read.
    pub fn get(&self, store: StoreId, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        let mut slot = lock(&self.slot);
        let snapshot = slot.as_mut().ok_or(StoreError::Closed)?;
        snapshot.get(store, key, value)
    }

    /// Reads the first entries of a range: at most 256, and about 256 KiB. Each call is short, so that it delays the
    /// close of the database only a little.
    ///
    /// # Errors
    /// If the database is closed, or the engine can't read.
    pub fn page(
        &self,
        store: StoreId,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Page, StoreError> {
        let mut slot = lock(&self.slot);
        let snapshot = slot.as_mut().ok_or(StoreError::Closed)?;
        snapshot.page(store, range, direction)
    }
}

/// Drops the engine's part under its lock, so that a close waits for it.
impl Drop for StateSnapshot {
    fn drop(&mut self) {
        drop(lock(&self.slot).take());
    }
}

impl fmt::Debug for StateSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateSnapshot")
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::testing::at;
    use crate::{Batch, MemoryBackend, StoreBackend};

    const STORE: StoreId = StoreId::plain("s");

    fn write(backend: &mut MemoryBackend, seq: u64, keys: impl Iterator<Item = u32>, bytes: usize) {
        let keys: Vec<_> = keys.map(u32::to_be_bytes).collect();
        let value = vec![7; bytes];
        let mut batch = Batch::new();
        for key in &keys {
            batch.write(STORE, key, Some(&value));
        }
        backend.apply(&batch, &at(seq)).unwrap();
    }

    fn all(snapshot: &StateSnapshot, direction: Direction) -> (Vec<u32>, usize) {
        let (mut range, mut keys, mut pages) = (KeyRange::all(), Vec::new(), 0);
        loop {
            let page = snapshot.page(STORE, &range, direction).unwrap();
            pages += 1;
            let rows = page.rows.iter();
            keys.extend(rows.map(|(key, _)| u32::from_be_bytes(key[..].try_into().unwrap())));
            match page.rest {
                Some(rest) => range = rest,
                None => return (keys, pages),
            }
        }
    }

    #[test]
    fn pages_are_small_and_complete_in_both_directions() {
        let mut backend = MemoryBackend::new();
        write(&mut backend, 1, 0..1000, 1);
        let snapshot = backend.reader().unwrap().snapshot().unwrap();
        let expected: Vec<u32> = (0..1000).collect();
        assert_eq!(all(&snapshot, Direction::Forward), (expected.clone(), 4));
        let reversed: Vec<u32> = expected.into_iter().rev().collect();
        assert_eq!(all(&snapshot, Direction::Reverse), (reversed, 4));
        write(&mut backend, 2, 0..8, PAGE_BYTES);
        let large = backend.reader().unwrap().snapshot().unwrap();
        let first = large.page(STORE, &KeyRange::all(), Direction::Forward);
        assert_eq!(first.unwrap().rows.len(), 1);
    }

    /// A snapshot whose reads and whose drop wait.
    struct Slow {
        busy: Arc<Mutex<()>>,
        begins: Sender<()>,
        drops: bool,
    }

    impl Slow {
        fn wait(&self) {
            self.begins.send(()).unwrap();
            drop(self.busy.lock().unwrap());
        }
    }

    impl TakeSnapshot for Slow {
        fn take(&self) -> Result<Box<dyn SnapshotOf>, StoreError> {
            Ok(Box::new(Slow {
                busy: Arc::clone(&self.busy),
                begins: self.begins.clone(),
                drops: true,
            }))
        }
    }

    impl SnapshotOf for Slow {
        fn position(&self) -> Option<&Position> {
            None
        }

        fn get(&mut self, _: StoreId, _: &[u8], _: &mut Vec<u8>) -> Result<bool, StoreError> {
            self.wait();
            self.drops = false;
            Ok(false)
        }

        fn page(&mut self, _: StoreId, _: &KeyRange, _: Direction) -> Result<Page, StoreError> {
            self.drops = false;
            Ok(Page::default())
        }
    }

    impl Drop for Slow {
        fn drop(&mut self) {
            if self.drops {
                self.wait();
            }
        }
    }

    /// Closes while `act` uses a snapshot, which must delay the close. Returns the reader.
    fn close_during(act: impl FnOnce(StateSnapshot) + Send + 'static) -> StateReader {
        let busy = Arc::new(Mutex::new(()));
        let (begins, begun) = channel();
        let reader = StateReader::new(Slow {
            busy: Arc::clone(&busy),
            begins,
            drops: false,
        });
        let snapshot = reader.snapshot().unwrap();
        let held = busy.lock().unwrap();
        let acting = thread::spawn(move || act(snapshot));
        begun.recv().unwrap();
        let closer = reader.clone();
        let closing = thread::spawn(move || closer.close());
        thread::sleep(Duration::from_millis(50));
        assert!(!closing.is_finished(), "it does not wait");
        drop(held);
        closing.join().unwrap();
        acting.join().unwrap();
        reader
    }

    #[test]
    fn the_close_waits_for_a_read_under_way_and_refuses_later_ones() {
        let reader = close_during(|snapshot| {
            let first = snapshot.get(STORE, b"k", &mut Vec::new());
            assert_eq!(first, Ok(false));
            while snapshot.page(STORE, &KeyRange::all(), Direction::Forward)
                != Err(StoreError::Closed)
            {
                thread::yield_now();
            }
        });
        assert_eq!(reader.snapshot().unwrap_err(), StoreError::Closed);
    }

    /// Otherwise the next owner could find the database open for a moment.
    #[test]
    fn the_close_waits_for_a_snapshot_that_is_being_dropped() {
        close_during(drop);
    }

    #[test]
    fn dropped_snapshots_are_forgotten() {
        let mut backend = MemoryBackend::new();
        write(&mut backend, 1, 0..1, 1);
        let reader = backend.reader().unwrap();
        for _ in 0..10 {
            reader.snapshot().unwrap();
        }
        let live = lock(&reader.0).as_ref().map(|open| open.snapshots.len());
        assert_eq!(live, Some(1));
    }
}

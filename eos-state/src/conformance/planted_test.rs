//! Engines with planted bugs. The suite must reject each of them.

use std::cell::RefCell;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use eos_protocol::state::{Position, StoreId};
use tempfile::tempdir;

use super::*;
use crate::cursor::{Cursor, KeyValue};
use crate::testing::Memory;
use crate::{
    Around, Batch, Defences, Direction, InFlight, KeyRange, MemoryBackend, Page, SnapshotOf,
    StateReader, TakeSnapshot,
};

const BUGS: [&str; 13] = [
    "deletes are forgotten",
    "the last key of a range is missing",
    "a reverse scan goes forward",
    "the position is not written",
    "many keys are answered in order of size",
    "an empty value is no value",
    "data come one apply too late",
    "what is over stays",
    "what is over stays where the batch wrote it",
    "only one store is told",
    "a snapshot moves on",
    "a snapshot has half a transaction",
    "a snapshot outlives the engine",
];

type OwnWrite = (StoreId, Vec<u8>, Option<Vec<u8>>);

#[derive(Debug)]
struct Faulty {
    inner: MemoryBackend,
    bug: &'static str,
    late: RefCell<Vec<OwnWrite>>,
    /// The data of its snapshots.
    shown: Arc<Mutex<MemoryBackend>>,
    reader: StateReader,
}

impl Faulty {
    fn has(&self, bug: usize) -> bool {
        self.bug == BUGS[bug]
    }
}

impl StoreBackend for Faulty {
    fn get(&self, store: StoreId, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        let there = self.inner.get(store, key, value)?;
        Ok(there && !(self.has(5) && value.is_empty()))
    }

    fn multi_get(
        &self,
        store: StoreId,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), StoreError> {
        let mut keys = keys.to_vec();
        if self.has(4) {
            keys.sort();
        }
        self.inner.multi_get(store, &keys, found)
    }

    fn scan<'a>(
        &'a self,
        store: StoreId,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Box<dyn Cursor + 'a>, StoreError> {
        let direction = if self.has(2) {
            Direction::Forward
        } else {
            direction
        };
        let rows = self.inner.scan(store, range, direction)?;
        Ok(Box::new(FaultyCursor {
            short: self.has(1),
            next: rows,
        }))
    }

    fn stores(&self) -> Result<Vec<StoreId>, StoreError> {
        let mut stores = self.inner.stores()?;
        if self.has(9) {
            stores.truncate(1);
        }
        Ok(stores)
    }

    fn apply(&mut self, batch: &Batch<'_>, position: &Position) -> Result<(), StoreError> {
        let expired = batch.expired();
        let position = match self.inner.position() {
            Some(old) if self.has(3) => old.clone(),
            _ => position.clone(),
        };
        let own = batch.writes().iter().map(|write| {
            let value = write.value.map(<[u8]>::to_vec);
            (write.store, write.key.to_vec(), value)
        });
        let mut writes: Vec<_> = own
            .filter(|(.., value)| value.is_some() || !self.has(0))
            .collect();
        if self.has(6) {
            writes = self.late.replace(writes);
        }
        let mut batch = Batch::new();
        for (store, key, value) in &writes {
            batch.write(*store, key, value.as_deref());
        }
        if !self.has(7) {
            for expired in expired {
                batch.delete_expired(expired);
            }
        }
        if self.has(8) {
            self.inner.apply(&batch, &position)?;
            let mut again = Batch::new();
            for (store, key, value) in &writes {
                again.write(*store, key, value.as_deref());
            }
            batch = again;
        }
        let mut now = self.inner.clone();
        self.inner.apply(&batch, &position)?;
        let half = batch.writes().len() / 2;
        if self.has(11) && half > 0 {
            let mut first = Batch::new();
            for write in batch.writes().iter().take(half) {
                first.write(write.store, write.key, write.value);
            }
            now.apply(&first, &position)?;
        } else {
            now = self.inner.clone();
        }
        *self.shown.lock().unwrap() = now;
        Ok(())
    }

    fn reader(&self) -> Option<StateReader> {
        Some(self.reader.clone())
    }

    fn position(&self) -> Option<&Position> {
        self.inner.position()
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        if !self.has(12) {
            self.reader.close();
        }
    }
}

/// Takes snapshots of `shown`. If true, a snapshot reads the current data instead: a planted bug.
struct Shown(Arc<Mutex<MemoryBackend>>, bool);

impl TakeSnapshot for Shown {
    fn take(&self) -> Result<Box<dyn SnapshotOf>, StoreError> {
        let now = self.0.lock().unwrap().clone();
        let position = now.position().cloned();
        let data = match self.1 {
            true => Arc::clone(&self.0),
            false => Arc::new(Mutex::new(now)),
        };
        Ok(Box::new(ShownOnce { data, position }))
    }
}

struct ShownOnce {
    data: Arc<Mutex<MemoryBackend>>,
    position: Option<Position>,
}

impl SnapshotOf for ShownOnce {
    fn position(&self) -> Option<&Position> {
        self.position.as_ref()
    }

    fn get(&mut self, store: StoreId, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        self.data.lock().unwrap().get(store, key, value)
    }

    fn page(
        &mut self,
        store: StoreId,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Page, StoreError> {
        let data = self.data.lock().unwrap();
        let mut cursor = data.scan(store, range, direction)?;
        Page::read(&mut *cursor, range, direction)
    }
}

/// Omits the last entry if it is not the only one.
struct FaultyCursor<'a> {
    short: bool,
    next: Box<dyn Cursor + 'a>,
}

impl Cursor for FaultyCursor<'_> {
    fn entry(&self) -> Option<KeyValue<'_>> {
        self.next.entry()
    }

    fn advance(&mut self) -> Result<(), StoreError> {
        self.next.advance()?;
        if self.short {
            self.next.advance()?;
        }
        Ok(())
    }
}

struct Planted(&'static str);

impl Engine for Planted {
    fn open(&self, _: &Path) -> Result<Box<dyn StoreBackend>, StoreError> {
        let shown = Arc::<Mutex<MemoryBackend>>::default();
        let moves_on = self.0 == BUGS[10];
        Ok(Box::new(Faulty {
            inner: MemoryBackend::new(),
            bug: self.0,
            late: RefCell::default(),
            reader: StateReader::new(Shown(Arc::clone(&shown), moves_on)),
            shown,
        }))
    }

    fn lasts(&self) -> Lasts {
        Lasts::Process
    }
}

#[test]
fn the_engine_in_memory_conforms() {
    check(&Memory, tempdir().unwrap().path(), 2_000).unwrap();
}

#[test]
fn every_planted_bug_is_found() {
    check(&Planted("none"), tempdir().unwrap().path(), 100).unwrap();
    for bug in BUGS {
        let found = check(&Planted(bug), tempdir().unwrap().path(), 500);
        assert!(found.is_err(), "the check missed that {bug}");
    }
}

#[test]
fn an_engine_that_forgets_is_found() {
    struct Forgetful;
    impl Engine for Forgetful {
        fn open(&self, dir: &Path) -> Result<Box<dyn StoreBackend>, StoreError> {
            Memory.open(dir)
        }

        fn lasts(&self) -> Lasts {
            Lasts::Disk
        }
    }
    assert!(check(&Forgetful, tempdir().unwrap().path(), 100).is_err());
}

/// An engine that applies a committed transaction only when its owner waits for it.
#[derive(Debug, Default)]
struct Late {
    inner: MemoryBackend,
    pending: Option<Arc<InFlight>>,
    /// Whether the transaction is lost: a planted bug.
    loses: bool,
}

impl Around for Late {
    type Inner = MemoryBackend;

    fn inner(&self) -> &MemoryBackend {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut MemoryBackend {
        &mut self.inner
    }

    fn apply_around(&mut self, batch: &Batch<'_>, position: &Position) -> Result<(), StoreError> {
        self.inner.apply(batch, position)
    }

    fn begin_around(&mut self, in_flight: &Arc<InFlight>) -> Result<(), StoreError> {
        assert!(self.pending.is_none(), "one transaction at a time");
        self.pending = Some(Arc::clone(in_flight));
        Ok(())
    }

    fn end_around(&mut self, wait: bool) -> Poll<Result<(), StoreError>> {
        match self.pending.take_if(|_| wait) {
            Some(_) if self.loses => Poll::Ready(Ok(())),
            Some(in_flight) => {
                Poll::Ready(self.inner.apply(&in_flight.batch(), in_flight.position()))
            }
            None if self.pending.is_some() => Poll::Pending,
            None => Poll::Ready(Ok(())),
        }
    }
}

struct Lates {
    loses: bool,
}

impl Engine for Lates {
    fn open(&self, _: &Path) -> Result<Box<dyn StoreBackend>, StoreError> {
        let loses = self.loses;
        let late = Late::default();
        Ok(Box::new(Late { loses, ..late }))
    }

    fn lasts(&self) -> Lasts {
        Lasts::Process
    }
}

/// Until the engine has applied the transaction, the task store serves reads and scans, and hides deleted ranges.
#[test]
fn an_engine_may_apply_a_transaction_late() {
    check(&Lates { loses: false }, tempdir().unwrap().path(), 2_000).unwrap();
    assert!(check(&Lates { loses: true }, tempdir().unwrap().path(), 100).is_err());
}

#[test]
fn due_stores_conform_over_the_engine_in_memory() {
    check_due(&Memory, tempdir().unwrap().path(), 3_000).unwrap();
    check_due(&Lates { loses: false }, tempdir().unwrap().path(), 1_000).unwrap();
}

#[test]
fn every_missing_defence_of_due_stores_is_found() {
    let removed = [
        Defences {
            removes_handled: false,
            ..Defences::ALL
        },
        Defences {
            lists_behind_mark: false,
            ..Defences::ALL
        },
        Defences {
            forgets_next_due: false,
            ..Defences::ALL
        },
        Defences {
            lists_loaded: false,
            ..Defences::ALL
        },
    ];
    for defences in removed {
        let found = due::check_defended(&Memory, tempdir().unwrap().path(), 2_000, defences);
        assert!(
            found.is_err(),
            "the check missed the missing one of {defences:?}"
        );
    }
}

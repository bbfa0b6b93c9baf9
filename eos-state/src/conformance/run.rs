//! One sequence of operations, on an engine and on the model.

use std::collections::BTreeSet;
use std::path::Path;
use std::task::Poll;

use eos_protocol::state::{Family, StoreId};
use proptest::test_runner::TestCaseError;

use super::model::{Model, Outcome, broke, same};
use super::operation::{Key, Operation, STORES};
use super::snapshots::Snapshots;
use super::{Engine, Lasts, position};
use crate::cache::CommittedCache;
use crate::{CacheMemory, Direction, ExpiredRows, KeyRange, Load, StoreError, TaskStore};

type Rows = Vec<(Key, Vec<u8>)>;

/// The expected content of each layer, including the layers below.
#[derive(Default)]
struct Expected {
    committed: Model,
    kept: Model,
    shown: Model,
    /// The keys that the current record wrote.
    written: BTreeSet<(StoreId, Key)>,
    /// Whether the layer above `committed` has writes, and whether the layer above `kept` has.
    open: (bool, bool),
    seq: u64,
}

struct Run<'a> {
    engine: &'a dyn Engine,
    dir: &'a Path,
    store: Option<TaskStore>,
    memory: CacheMemory,
    /// Caches that share the memory.
    others: Vec<CommittedCache>,
    expected: Expected,
    snapshots: Snapshots,
}

pub(super) fn run(engine: &dyn Engine, dir: &Path, operations: &[Operation]) -> Outcome {
    let mut run = Run {
        engine,
        dir,
        store: None,
        // No cache, a cache that evicts all the time, and one that never does.
        memory: CacheMemory::new([0, 12_000, 1 << 20][operations.len() % 3]),
        others: Vec::new(),
        expected: Expected::default(),
        snapshots: Snapshots::default(),
    };
    run.open()?;
    for operation in operations {
        run.step(operation)?;
    }
    run.compare_all()?;
    run.take_snapshot()?;
    run.snapshots.compare()
}

impl Run<'_> {
    fn open(&mut self) -> Outcome {
        // One engine at a time: the previous one is closed first.
        self.store = None;
        let backend = self.engine.open(self.dir).map_err(broke)?;
        let store = TaskStore::new(backend, STORES).map_err(broke)?;
        self.store = Some(store.cached(&self.memory));
        Ok(())
    }

    fn store(&mut self) -> Result<&mut TaskStore, TestCaseError> {
        let closed = || TestCaseError::fail("the engine is closed");
        self.store.as_mut().ok_or_else(closed)
    }

    fn step(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Put(store, key, value) => {
                self.store()?.put(*store, key, value).map_err(broke)?;
                self.expected.write(*store, key, Some(value));
            }
            Operation::Delete(store, key) => {
                self.store()?.delete(*store, key).map_err(broke)?;
                self.expected.write(*store, key, None);
            }
            Operation::Get(store, key) => self.compare_key(*store, key)?,
            Operation::MultiGet(store, keys) => self.compare_keys(*store, keys)?,
            Operation::Scan(store, range, direction) => {
                self.compare_range(*store, range, *direction)?;
            }
            Operation::KeepRecord => {
                self.store()?.keep_record();
                self.expected.keep();
            }
            Operation::DropRecord => {
                self.store()?.drop_record();
                self.expected.drop_record();
            }
            Operation::Apply(over) => self.apply(over.as_ref())?,
            Operation::ShareCache(others) => {
                self.others.clear();
                let memory = &self.memory;
                (self.others).extend((0..*others).map(|_| CommittedCache::new(memory)));
            }
            Operation::Discard => {
                self.store()?.discard();
                self.expected.discard();
            }
            Operation::Load(writes) => self.load(writes)?,
            Operation::Flush => self.store()?.flush().map_err(broke)?,
            Operation::Reopen => self.reopen()?,
            Operation::Snapshot => self.take_snapshot()?,
        }
        Ok(())
    }

    fn apply(&mut self, over: Option<&ExpiredRows>) -> Outcome {
        self.compare_changes()?;
        // Read before the deletion: the cache must not keep values of the range.
        if let Some(over) = over {
            for (key, _) in self.expected.rows(over.store, &over.range) {
                self.compare_key(over.store, &key)?;
            }
        }
        let seq = self.expected.seq + 1;
        let over: Vec<_> = over.cloned().into_iter().collect();
        let applied = self.store()?.begin_apply(position(seq), over.clone());
        applied.map_err(broke)?;
        let expected = &mut self.expected;
        let gone = expected.forget(&over);
        expected.committed.clone_from(&expected.kept);
        expected.open.0 = false;
        expected.seq = seq;
        self.snapshots.committed(seq, &expected.committed);
        for (store, key) in gone {
            self.compare_key(store, &key)?;
        }
        // Every third transaction stays in flight while the next operations run.
        if seq.is_multiple_of(3) {
            return Ok(());
        }
        self.end_apply()?;
        self.compare_stores()?;
        self.compare_position()
    }

    fn end_apply(&mut self) -> Outcome {
        match self.store()?.end_apply(true) {
            Poll::Ready(applied) => applied.map_err(broke),
            Poll::Pending => Err(TestCaseError::fail(
                "`end_apply` with `wait` returned `Pending`",
            )),
        }
    }

    /// Compares the stores that have a committed key.
    fn compare_stores(&mut self) -> Outcome {
        let held = self.store()?.held().map_err(broke)?;
        let keys = self.expected.committed.keys();
        let expected: BTreeSet<StoreId> = keys.map(|(store, _)| *store).collect();
        same("the stores", held, expected.into_iter().collect())
    }

    /// Checks that the changes for the changelog, applied to the committed state, lead to the transaction's view.
    fn compare_changes(&mut self) -> Outcome {
        let mut after = self.expected.committed.clone();
        for family in [Family::Plain, Family::Windowed] {
            let mut last = None;
            for write in self.store()?.changes(family) {
                let at = (write.store.to_be_bytes(), write.key.to_vec());
                if write.store.family() != family || last.as_ref().is_some_and(|l| *l >= at) {
                    return Err(TestCaseError::fail(format!("{write:?} is out of order")));
                }
                change(&mut after, write.store, write.key, write.value);
                last = Some(at);
            }
        }
        same("the changes", after, self.expected.kept.clone())
    }

    fn load(&mut self, writes: &[(StoreId, Key, Option<Vec<u8>>)]) -> Outcome {
        self.end_apply()?;
        // Read before and after: the cache must not keep old values of the keys.
        for (store, key, _) in writes {
            self.compare_key(*store, key)?;
        }
        let mut load = Load::new();
        for (store, key, value) in writes {
            load.write(*store, key, value.as_deref());
        }
        let seq = self.expected.seq + 1;
        let loaded = self.store()?.begin_load(load, position(seq));
        if self.expected.open != (false, false) {
            return same("loading", loaded, Err(StoreError::OpenTransaction));
        }
        loaded.map_err(broke)?;
        self.end_apply()?;
        let expected = &mut self.expected;
        for (store, key, value) in writes {
            change(&mut expected.committed, *store, key, value.as_deref());
        }
        expected.discard();
        expected.seq = seq;
        self.snapshots.committed(seq, &expected.committed);
        for (store, key, _) in writes {
            self.compare_key(*store, key)?;
        }
        self.compare_all()
    }

    fn take_snapshot(&mut self) -> Outcome {
        let store = self.store()?;
        let (reader, in_flight) = (store.reader(), store.is_applying());
        let Some(reader) = reader else {
            return Ok(());
        };
        let snapshot = reader.snapshot().map_err(broke)?;
        self.snapshots.took(snapshot, self.expected.seq, in_flight)
    }

    fn reopen(&mut self) -> Outcome {
        let reader = self.store()?.reader();
        self.snapshots.compare()?;
        self.open()?;
        self.snapshots.check_closed(reader.as_ref())?;
        match self.engine.lasts() {
            Lasts::Process => {
                self.expected = Expected::default();
                self.snapshots = Snapshots::default();
            }
            Lasts::Disk => self.expected.discard(),
        }
        self.compare_all()
    }

    fn compare_position(&mut self) -> Outcome {
        let seq = self.expected.seq;
        let found = self.store()?.position().cloned();
        same("the position", found, (seq > 0).then(|| position(seq)))
    }

    fn compare_key(&mut self, store: StoreId, key: &[u8]) -> Outcome {
        let mut value = b"what was there before".to_vec();
        let there = self.store()?.get(store, key, &mut value).map_err(broke)?;
        same(
            "a key",
            there.then_some(value),
            self.expected.value(store, key),
        )
    }

    fn compare_keys(&mut self, store: StoreId, keys: &[Key]) -> Outcome {
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let mut found = vec![Vec::new(); keys.len()];
        let each = |place: usize, value: Option<&[u8]>| {
            found[place].push(value.map(<[u8]>::to_vec));
        };
        self.store()?.multi_get(store, &keys, each).map_err(broke)?;
        let expected = (keys.iter()).map(|key| vec![self.expected.value(store, key)]);
        same("many keys", found, expected.collect())
    }

    fn compare_range(&mut self, store: StoreId, range: &KeyRange, way: Direction) -> Outcome {
        let mut scan = self.store()?.scan(store, range, way).map_err(broke)?;
        let mut found = Rows::new();
        while let Some((key, value)) = scan.next().map_err(broke)? {
            found.push((key.to_vec(), value.to_vec()));
        }
        drop(scan);
        let mut expected = self.expected.rows(store, range);
        if way == Direction::Reverse {
            expected.reverse();
        }
        same("a range", found, expected)
    }

    fn compare_all(&mut self) -> Outcome {
        self.end_apply()?;
        self.compare_position()?;
        for (store, _) in STORES {
            self.compare_range(store, &KeyRange::all(), Direction::Forward)?;
            self.compare_range(store, &KeyRange::all(), Direction::Reverse)?;
        }
        let rows: Vec<_> = self.expected.shown.keys().cloned().collect();
        for (store, key) in rows {
            self.compare_key(store, &key)?;
        }
        Ok(())
    }
}

impl Expected {
    fn write(&mut self, store: StoreId, key: &[u8], value: Option<&[u8]>) {
        change(&mut self.shown, store, key, value);
        self.written.insert((store, key.to_vec()));
        self.open.1 = true;
    }

    fn keep(&mut self) {
        self.kept.clone_from(&self.shown);
        self.written.clear();
        self.open = (self.open.0 || self.open.1, false);
    }

    fn drop_record(&mut self) {
        self.shown.clone_from(&self.kept);
        self.written.clear();
        self.open.1 = false;
    }

    fn discard(&mut self) {
        self.kept.clone_from(&self.committed);
        self.shown.clone_from(&self.committed);
        self.written.clear();
        self.open = (false, false);
    }

    /// Deletes the ranges from the next committed state; the current record's writes stay. Returns the deleted keys.
    fn forget(&mut self, over: &[ExpiredRows]) -> Vec<(StoreId, Key)> {
        let is_over = |(store, key): &&(StoreId, Key)| {
            let mut ranges = over.iter();
            ranges.any(|over| over.store == *store && over.range.contains(key))
        };
        let gone: Vec<_> = (self.kept.keys()).filter(is_over).cloned().collect();
        for key in &gone {
            self.kept.remove(key);
            if !self.written.contains(key) {
                self.shown.remove(key);
            }
        }
        gone
    }

    fn value(&self, store: StoreId, key: &[u8]) -> Option<Vec<u8>> {
        self.shown.get(&(store, key.to_vec())).cloned()
    }

    fn rows(&self, store: StoreId, range: &KeyRange) -> Rows {
        let of_store = self.shown.iter().filter(|((id, _), _)| *id == store);
        of_store
            .filter(|((_, key), _)| range.contains(key))
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect()
    }
}

fn change(model: &mut Model, store: StoreId, key: &[u8], value: Option<&[u8]>) {
    match value {
        Some(value) => model.insert((store, key.to_vec()), value.to_vec()),
        None => model.remove(&(store, key.to_vec())),
    };
}

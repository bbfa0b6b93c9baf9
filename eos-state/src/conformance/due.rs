//! Random sequences of operations on due stores, compared with a model of their items.

mod items;
mod operation;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;

use eos_protocol::state::{Family, StoreId};
use eos_protocol::{Clock, Place, Timestamp};
use proptest::test_runner::TestCaseError;

use self::items::{DATED, Item, Items, ROW, ROWS, Rows, STORES, moment};
use self::operation::{Operation, SplitLoad, sequence};
use super::model::{Outcome, broke, same};
use super::operation::Key;
use super::{Engine, Lasts, Violation, position, run_sequences};
use crate::{Defences, Load, NextDue, StoreKind, TaskStore};

/// A store whose rows have no moments.
const PLAIN: StoreId = StoreId::from_be_bytes([0, 0, 0, 3]);
/// The maximum number of items that one operation handles.
const AT_ONCE: usize = 12;

/// Compares due stores over the engine with a model in this many random sequences of operations.
///
/// # Errors
/// The failure, with the shortest sequence found that shows it.
pub fn check_due(engine: &dyn Engine, dir: &Path, sequences: u32) -> Result<(), Violation> {
    check_defended(engine, dir, sequences, Defences::ALL)
}

/// The same check with defences removed.
pub(crate) fn check_defended(
    engine: &dyn Engine,
    dir: &Path,
    sequences: u32,
    defences: Defences,
) -> Result<(), Violation> {
    run_sequences(dir, sequences, &sequence(), |dir, operations| {
        let mut run = Run {
            engine,
            defences,
            dir,
            opened: 0,
            store: None,
            committed: Items::default(),
            kept: Items::default(),
            shown: Items::default(),
            is_open: (false, false),
            changelog: BTreeMap::new(),
            older: BTreeMap::new(),
            has_loaded: false,
            seq: 0,
        };
        run.open()?;
        for operation in operations {
            run.step(operation)?;
        }
        run.compare()
    })
}

/// Returns the name of the store with these rows.
fn name() -> Arc<str> {
    "rows".into()
}

/// A row of a load. `None` deletes the row.
type LoadedRow = ((StoreId, Key), Option<Vec<u8>>);

struct Run<'a> {
    engine: &'a dyn Engine,
    defences: Defences,
    dir: &'a Path,
    /// The number of databases so far.
    opened: usize,
    store: Option<TaskStore>,
    committed: Items,
    kept: Items,
    shown: Items,
    /// Whether the transaction has writes, and whether the current record has.
    is_open: (bool, bool),
    changelog: Rows,
    /// The first version of each row in the changelog.
    older: Rows,
    /// Whether the database has loaded rows since the last transaction. The index may list handled rows among them until the next
    /// one.
    has_loaded: bool,
    seq: u64,
}

impl Run<'_> {
    fn open(&mut self) -> Outcome {
        self.store = None;
        let dir = self.dir.join(self.opened.to_string());
        let backend = self.engine.open(&dir).map_err(broke)?;
        let plain = [PLAIN, ROWS];
        let ids = STORES.iter().map(|(id, _)| *id).chain(plain);
        let stores = ids.map(|id| (id, StoreKind::Point));
        let store = TaskStore::new(backend, stores)
            .and_then(|store| store.with_due(STORES))
            .and_then(|store| {
                store.with_dated(DATED, (ROWS, &name()), |key, row| Ok(moment(key, row)))
            });
        self.store = Some(store.map_err(broke)?.defended(self.defences));
        Ok(())
    }

    fn store(&mut self) -> Result<&mut TaskStore, TestCaseError> {
        let closed = || TestCaseError::fail("the engine is closed");
        self.store.as_mut().ok_or_else(closed)
    }

    fn step(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Put(store, key, due, later, value) => {
                let (store, later) = (STORES[*store], later.unwrap_or(0));
                let moments = (Timestamp(*due), Timestamp(*due + later));
                let task = self.store()?;
                let put = match later {
                    0 => task.put_due(store.0, key, moments.0, value),
                    _ => task.put_due_from(store.0, key, moments, value),
                };
                put.map_err(broke)?;
                self.shown.put(store, key, moments, value);
                self.is_open.1 = true;
            }
            Operation::PutUndated(store, key, value) => {
                let store = STORES[*store].0;
                let put = self.store()?.put_undated(store, key, value);
                put.map_err(broke)?;
                (self.shown.undated).insert((store, key.clone()), value.clone());
                self.is_open.1 = true;
            }
            Operation::PutDated(key, due, has_item) => {
                self.put_dated(key, due.map(Timestamp), *has_item)?;
            }
            Operation::Delete(store, key) => {
                let store = STORES[*store].0;
                let there = self.store()?.delete_due(store, key).map_err(broke)?;
                let expected = self.shown.items.remove(&(store, key.clone())).is_some();
                same("whether the deleted item existed", there, expected)?;
                self.is_open.1 = true;
            }
            Operation::Work(clock, now, again, keeps) => {
                self.work(*clock, Timestamp(*now), *again, *keeps)?;
            }
            Operation::Keep => self.keep()?,
            Operation::Drop => {
                self.store()?.drop_record();
                self.shown.clone_from(&self.kept);
                self.is_open.1 = false;
            }
            Operation::Apply(keeps) => self.apply(*keeps)?,
            Operation::Discard => self.discard()?,
            Operation::Reopen => {
                self.open()?;
                if self.engine.lasts() == Lasts::Process {
                    self.load_all(SplitLoad::Nothing)?;
                }
                self.discard()?;
                self.compare()?;
            }
            Operation::Restore(older, split) => {
                self.opened += 1;
                self.open()?;
                if *older {
                    self.load_older()?;
                }
                self.load_all(*split)?;
                self.discard()?;
                self.compare()?;
            }
            Operation::Reload(split) => {
                self.discard()?;
                self.load_older()?;
                self.load_all(*split)?;
                self.compare()?;
            }
        }
        Ok(())
    }

    fn put_dated(&mut self, key: &Key, due: Option<Timestamp>, has_item: bool) -> Outcome {
        let key = [&[ROW], &key[..]].concat();
        let last = self.shown.dated.get(&key);
        let last = last.and_then(|row| moment(&key, row));
        let is_passed = due.is_some_and(|due| self.shown.is_passed(&key, due));
        let (row, before) = self.shown.put_dated(&key, due, has_item);
        let own = moment(&key, &row);
        let store = self.store()?;
        for (at, expected) in [(last, before.is_none()), (due, is_passed)] {
            if let Some(at) = at {
                let passed = store.has_visited(DATED, &key, at).map_err(broke)?;
                same("whether a moment is passed", passed, expected)?;
            }
        }
        let for_item = due.filter(|_| own.is_none());
        if for_item.is_none() {
            store.delete_due(DATED, &key).map_err(broke)?;
        }
        let put = store.put_dated(DATED, &key, &row, before);
        put.map_err(broke)?;
        if let Some(due) = for_item {
            store.put_due(DATED, &key, due, &[]).map_err(broke)?;
        }
        self.is_open.1 = true;
        Ok(())
    }

    fn work(&mut self, clock: Clock, now: Timestamp, again: Option<i64>, keeps: bool) -> Outcome {
        // Stream time is never before a handled moment, or before the time of a unit.
        let reached = self.shown.reached[clock.number() as usize];
        let mark = self.shown.mark(clock).map(Place::moment);
        let now = reached.max(mark).map_or(now, |time| time.max(now));
        for _ in 0..AT_ONCE {
            let expected = self.shown.first(clock);
            let expected = expected.filter(|(place, item)| item.due.min(place.moment()) <= now);
            let expected = expected.map(|(place, item)| (place, item.clone()));
            let found = loop {
                match self.store()?.next_due(clock, now).map_err(broke)? {
                    NextDue::Moved => self.keep()?,
                    NextDue::Nothing => break None,
                    NextDue::Item(item) => break Some(item),
                }
            };
            let seen = found.as_ref().map(|item| {
                let value = Item {
                    due: item.due,
                    effective: item.place.round,
                    value: item.value.clone(),
                };
                (item.place.clone(), value)
            });
            same("the due item", seen, expected)?;
            let Some(item) = found else {
                return Ok(());
            };
            self.store()?.handle_due(&item).map_err(broke)?;
            let Place { store, key, .. } = &item.place;
            self.shown.items.remove(&(*store, key.clone()));
            // The machine's clock has no mark.
            if clock == Clock::Stream {
                self.shown.marks[clock.number() as usize] = Some(item.place.clone());
            }
            if let Some(again) = again
                && key.first() == Some(&ROW)
            {
                let due = Timestamp(item.due.0 + again);
                self.put_dated(&key[1..].to_vec(), Some(due), false)?;
            } else if let Some(again) = again {
                let due = Timestamp(item.due.0 + again);
                let put = self.store()?.put_due(*store, key, due, b"again");
                put.map_err(broke)?;
                self.shown.put((*store, clock), key, (due, due), b"again");
            }
            self.is_open.1 = true;
            if !keeps {
                return Ok(());
            }
            self.keep()?;
        }
        Ok(())
    }

    fn keep(&mut self) -> Outcome {
        self.store()?.keep_record();
        self.kept.clone_from(&self.shown);
        self.is_open = (self.is_open.0 || self.is_open.1, false);
        Ok(())
    }

    fn discard(&mut self) -> Outcome {
        self.store()?.discard();
        self.kept.clone_from(&self.committed);
        self.shown.clone_from(&self.committed);
        self.is_open = (false, false);
        Ok(())
    }

    fn apply(&mut self, keeps: bool) -> Outcome {
        if keeps {
            self.keep()?;
        }
        let mut changes = Vec::new();
        for write in self.store()?.changes(Family::Plain) {
            let row = write.value.map(<[u8]>::to_vec);
            changes.push(((write.store, write.key.to_vec()), row));
        }
        for (at, row) in changes {
            if at.0.is_reserved() {
                return Err(TestCaseError::fail("the index is in the changelog"));
            }
            if let Some(old) = self.changelog.get(&at) {
                self.older.entry(at.clone()).or_insert_with(|| old.clone());
            }
            match row {
                Some(row) => self.changelog.insert(at, row),
                None => self.changelog.remove(&at),
            };
        }
        self.seq += 1;
        let seq = self.seq;
        let applied = self.store()?.begin_apply(position(seq), Vec::new());
        applied.map_err(broke)?;
        self.committed.clone_from(&self.kept);
        self.has_loaded = false;
        // Every third transaction stays in flight while the next operations run.
        if seq.is_multiple_of(3) {
            return Ok(());
        }
        self.end()?;
        self.compare()
    }

    fn end(&mut self) -> Outcome {
        match self.store()?.end_apply(true) {
            Poll::Ready(applied) => applied.map_err(broke),
            Poll::Pending => Err(TestCaseError::fail("`end_apply` returned `Pending`")),
        }
    }

    /// Loads the changelog. A deleted row is a tombstone.
    fn load_all(&mut self, split: SplitLoad) -> Outcome {
        let all = self.changelog.clone().into_iter();
        let mut all: Vec<_> = all.map(|(at, row)| (at, Some(row))).collect();
        let older = self.older.keys().cloned();
        let gone = older.filter(|at| !self.changelog.contains_key(at));
        all.extend(gone.map(|at| (at, None)));
        let (part, rest): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|((store, key), _)| split.has(*store, key));
        match split.is_first() {
            true => self.load(&part).and_then(|()| self.load(&rest)),
            false => self.load(&rest).and_then(|()| self.load(&part)),
        }
    }

    fn load_older(&mut self) -> Outcome {
        let rows = self.older.clone().into_iter();
        let rows: Vec<_> = rows.map(|(at, row)| (at, Some(row))).collect();
        self.load(&rows)
    }

    fn load(&mut self, rows: &[LoadedRow]) -> Outcome {
        let mut load = Load::new();
        for ((store, key), row) in rows {
            load.write(*store, key, row.as_deref());
        }
        let seq = self.seq;
        self.has_loaded = true;
        self.store()?
            .begin_load(load, position(seq))
            .map_err(broke)?;
        self.end()
    }

    /// Compares all items, and checks that the index has one entry for each item and no other.
    fn compare(&mut self) -> Outcome {
        self.end()?;
        let shown = self.shown.clone();
        let mut listed = Vec::new();
        for clock in Clock::ALL {
            same(
                "the mark",
                self.store()?.mark(clock).map_err(broke)?,
                shown.mark(clock).cloned(),
            )?;
            let places = self.store()?.listed_places(clock).map_err(broke)?;
            for place in places {
                let is_behind = shown.mark(clock).is_none_or(|mark| place > *mark);
                if !is_behind && place.key.first() == Some(&ROW) && self.has_loaded {
                    continue;
                }
                if !is_behind {
                    return Err(TestCaseError::fail(format!(
                        "{place:?} is not behind the mark"
                    )));
                }
                let effective = shown.items.get(&(place.store, place.key.clone()));
                if effective.is_none_or(|item| item.effective < place.round) {
                    return Err(TestCaseError::fail(format!("{place:?} is listed too late")));
                }
                listed.push((place.store, place.key));
            }
        }
        for clock in Clock::ALL {
            self.compare_handled(clock)?;
        }
        listed.sort();
        same(
            "the listed items",
            listed,
            shown.items.keys().cloned().collect(),
        )?;
        for ((store, key), expected) in &shown.undated {
            let mut value = Vec::new();
            let found = self.store()?.get_undated(*store, key, &mut value);
            let found = found.map_err(broke)?.then_some(&value);
            same("a row without a moment", found, Some(expected))?;
        }
        for (key, expected) in &shown.dated {
            let mut value = Vec::new();
            let found = self.store()?.get(ROWS, key, &mut value);
            let found = found.map_err(broke)?.then_some(&value);
            same("a row with a moment", found, Some(expected))?;
        }
        for ((store, key), item) in &shown.items {
            let mut value = Vec::new();
            let due = self
                .store()?
                .get_due(*store, key, &mut value)
                .map_err(broke)?;
            same("an item", (due, &value), (Some(item.due), &item.value))?;
        }
        Ok(())
    }

    /// Compares the moment up to which a clock's items are handled. An item that was put off may be listed earlier.
    fn compare_handled(&mut self, clock: Clock) -> Outcome {
        // The search may have followed the writes of an open record.
        if self.is_open.1 {
            return Ok(());
        }
        let now = Timestamp(100);
        let found = self.store()?.handled_to(clock, now).map_err(broke)?;
        let first = self
            .kept
            .first(clock)
            .map(|(place, _)| place.moment().0 - 1);
        let most = first.map_or(now.0, |first| first.min(now.0));
        let mark = self
            .kept
            .mark(clock)
            .map_or(i64::MIN, |mark| mark.moment().0 - 1);
        if (mark.min(most)..=most).contains(&found.0) {
            return Ok(());
        }
        let text = format!("{clock:?} is handled to {found:?}, expected {mark} to {most}");
        Err(TestCaseError::fail(text))
    }
}

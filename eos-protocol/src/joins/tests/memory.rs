//! A store of rows and due items in memory.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use crate::Timestamp;
use crate::joins::{EachRow, JoinRow, JoinStorage};

/// A store in memory.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) rows: RefCell<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// The planned visits: the moments and the keys of rows.
    pub(super) index: RefCell<BTreeSet<(Timestamp, Vec<u8>)>>,
    /// The moments of items.
    pub(super) items: RefCell<BTreeMap<Vec<u8>, Timestamp>>,
    /// The last visit: its moment and its row.
    pub(super) mark: RefCell<(Timestamp, Vec<u8>)>,
    /// The number of writes of rows with more than one record.
    pub(super) heads: RefCell<usize>,
    /// The number of rows that were read or written.
    pub(super) work: RefCell<usize>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            rows: RefCell::default(),
            index: RefCell::default(),
            items: RefCell::default(),
            mark: RefCell::new((Timestamp(i64::MIN), Vec::new())),
            heads: RefCell::default(),
            work: RefCell::default(),
        }
    }
}

impl Memory {
    /// Rewrites a row as an earlier version of the library wrote it: the moment is that of an item.
    pub(super) fn make_older(&self, key: &[u8]) {
        if let Some(row) = self.rows.borrow_mut().get_mut(key)
            && let Ok(Some(moment)) = JoinRow::moment(key, row)
            && self.index.borrow().contains(&(moment, key.to_vec()))
        {
            row[0] = 1;
            self.items.borrow_mut().insert(key.to_vec(), moment);
        }
    }

    /// Takes the first visit.
    pub(super) fn next(&self, now: Timestamp) -> Option<(Vec<u8>, Timestamp)> {
        let mut index = self.index.borrow_mut();
        let first = index.first().filter(|(moment, _)| *moment <= now)?.clone();
        index.remove(&first);
        let (moment, key) = first.clone();
        let mut items = self.items.borrow_mut();
        if items.get(&key) == Some(&moment) {
            items.remove(&key);
        }
        let mut mark = self.mark.borrow_mut();
        *mark = mark.clone().max(first);
        Some((key, moment))
    }
}

impl JoinStorage for Memory {
    type Error = Infallible;

    fn get(&self, key: &[u8], into: &mut Vec<u8>) -> Result<bool, Infallible> {
        *self.work.borrow_mut() += 1;
        into.clear();
        let rows = self.rows.borrow();
        let row = rows.get(key);
        into.extend_from_slice(row.map_or(&[], |row| row));
        Ok(row.is_some())
    }

    fn put(&self, key: &[u8], row: &[u8]) -> Result<(), Infallible> {
        *self.work.borrow_mut() += 1;
        self.rows.borrow_mut().insert(key.to_vec(), row.to_vec());
        Ok(())
    }

    fn scan(&self, from: &[u8], to: &[u8], each: &mut EachRow<'_>) -> Result<(), Infallible> {
        let _read = (self.rows.borrow().range(from.to_vec()..=to.to_vec()))
            .take_while(|(key, row)| {
                *self.work.borrow_mut() += 1;
                each(key, row).is_continue()
            })
            .count();
        Ok(())
    }

    fn put_dated(
        &self,
        key: &[u8],
        row: &[u8],
        planned: Option<Timestamp>,
    ) -> Result<(), Infallible> {
        let mut index = self.index.borrow_mut();
        if let Some(planned) = planned {
            assert!(index.remove(&(planned, key.to_vec())));
        }
        if let Ok(Some(moment)) = JoinRow::moment(key, row) {
            index.insert((moment, key.to_vec()));
        }
        *self.heads.borrow_mut() += 1;
        self.put(key, row)
    }

    fn has_visited(&self, key: &[u8], moment: Timestamp) -> Result<bool, Infallible> {
        let (last, row) = &*self.mark.borrow();
        Ok((moment, key) <= (*last, row))
    }

    fn put_item(&self, key: &[u8], moment: Timestamp) -> Result<(), Infallible> {
        self.delete_item(key)?;
        self.items.borrow_mut().insert(key.to_vec(), moment);
        self.index.borrow_mut().insert((moment, key.to_vec()));
        Ok(())
    }

    fn delete_item(&self, key: &[u8]) -> Result<(), Infallible> {
        // During a visit, its item is already removed.
        if let Some(moment) = self.items.borrow_mut().remove(key) {
            self.index.borrow_mut().remove(&(moment, key.to_vec()));
        }
        Ok(())
    }
}

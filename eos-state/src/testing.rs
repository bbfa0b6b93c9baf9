//! Shared test code of this crate.

use std::path::Path;

use eos_protocol::state::{Position, StoreId};

use crate::backend::StoreBackend;
use crate::conformance::{Engine, Lasts};
use crate::cursor::{Cursor, KeyValue};
use crate::{Batch, Direction, EngineFault, KeyRange, MemoryBackend, StoreError};

pub(crate) use crate::conformance::position as at;

/// The engine in memory, under test.
pub(crate) struct Memory;

impl Engine for Memory {
    fn open(&self, _: &Path) -> Result<Box<dyn StoreBackend>, StoreError> {
        Ok(Box::new(MemoryBackend::new()))
    }

    fn lasts(&self) -> Lasts {
        Lasts::Process
    }
}

/// An engine that always fails at one kind of call.
#[derive(Debug)]
pub(crate) struct BrokenBackend(&'static str);

impl BrokenBackend {
    pub(crate) const READS: &str = "reads";
    pub(crate) const WRITES: &str = "writes";
    pub(crate) const CURSORS: &str = "cursors";

    pub(crate) const fn failing(kind: &'static str) -> Self {
        Self(kind)
    }

    pub(crate) fn error() -> StoreError {
        StoreError::Damaged {
            path: "/somewhere".into(),
            source: EngineFault::new("planted"),
        }
    }

    fn unless(&self, kind: &str) -> Result<(), StoreError> {
        if self.0 == kind {
            return Err(Self::error());
        }
        Ok(())
    }
}

impl StoreBackend for BrokenBackend {
    fn get(&self, _: StoreId, _: &[u8], _: &mut Vec<u8>) -> Result<bool, StoreError> {
        self.unless(Self::READS).map(|()| false)
    }

    fn multi_get(
        &self,
        _: StoreId,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), StoreError> {
        (0..keys.len()).for_each(|place| found(place, None));
        self.unless(Self::READS)
    }

    fn scan<'a>(
        &'a self,
        _: StoreId,
        _: &KeyRange,
        _: Direction,
    ) -> Result<Box<dyn Cursor + 'a>, StoreError> {
        self.unless(Self::READS)?;
        Ok(Box::new(BrokenCursor(self)))
    }

    fn stores(&self) -> Result<Vec<StoreId>, StoreError> {
        self.unless(Self::READS).map(|()| Vec::new())
    }

    fn apply(&mut self, _: &Batch<'_>, _: &Position) -> Result<(), StoreError> {
        self.unless(Self::WRITES)
    }

    fn position(&self) -> Option<&Position> {
        None
    }
}

struct BrokenCursor<'a>(&'a BrokenBackend);

impl Cursor for BrokenCursor<'_> {
    fn entry(&self) -> Option<KeyValue<'_>> {
        Some((b"a", b"1"))
    }

    fn advance(&mut self) -> Result<(), StoreError> {
        self.0.unless(BrokenBackend::CURSORS)
    }
}

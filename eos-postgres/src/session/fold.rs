//! Rows of one key in one transaction: folded into one, and sorted by key.
//!
//! A statement may touch a row only once (SQLSTATE 21000). Workers that lock shared rows in the same order do not
//! deadlock. So all rows of a transaction are sorted, and not only those of a chunk.

use std::collections::BTreeMap;

use super::chunk::{MAX_BYTES, MAX_ROWS};
use super::pipeline::Request;
use super::places::{Parts, Prepared};
use crate::array::Array;
use crate::error::Failed;
use crate::place::TableShape;
use crate::row;
use crate::value::Kind;

/// The rows of a table with a key.
#[derive(Debug, Default)]
pub(super) struct Fold {
    rows: BTreeMap<Vec<u8>, Folded>,
    weight: usize,
}

/// The combined effect of the records of a key.
#[derive(Debug, Default)]
struct Folded {
    /// Whether a record deletes the key, before the row is written.
    is_deleted: bool,
    row: Option<Vec<u8>>,
}

impl Fold {
    /// Returns the bytes in memory, approximately.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    pub(super) fn push(&mut self, place: &Prepared, parts: &Parts<'_>) -> Result<(), Failed> {
        let Some(shape) = place.keyed() else {
            return Ok(());
        };
        if !self.rows.contains_key(parts.key) {
            self.weight += parts.key.len() + size_of::<Folded>();
            self.rows.insert(parts.key.to_vec(), Folded::default());
        }
        let Some(folded) = self.rows.get_mut(parts.key) else {
            return Ok(());
        };
        let Some(row) = parts.row else {
            folded.is_deleted = true;
            folded.row = None;
            return Ok(());
        };
        let merged = match &folded.row {
            None => row.to_vec(),
            Some(before) if shape.has_sums() => sum(place, shape, before, row)?,
            Some(before) if !is_newer(place, shape, before, row)? => return Ok(()),
            Some(_) => row.to_vec(),
        };
        self.weight += merged.len();
        self.weight -= folded.row.as_ref().map_or(0, Vec::len);
        folded.row = Some(merged);
        Ok(())
    }

    /// Takes all rows as statements, in the order of keys: deletions and other rows in runs.
    pub(super) fn take(&mut self, place: &Prepared) -> Result<Vec<Request>, Failed> {
        self.weight = 0;
        let mut runs = Runs::new(place);
        for (key, folded) in std::mem::take(&mut self.rows) {
            if folded.is_deleted {
                runs.delete(&key)?;
            }
            if let Some(row) = &folded.row {
                runs.write(&key, row)?;
            }
        }
        runs.end();
        Ok(runs.requests)
    }
}

/// Statements for sorted rows. A run has one kind of row, so that all locks are taken in the order of keys.
struct Runs<'p> {
    place: &'p Prepared,
    has_sums: bool,
    requests: Vec<Request>,
    /// The keys of the run.
    keys: Vec<Array>,
    /// The rows of a run that writes.
    rows: Vec<Array>,
    count: usize,
    bytes: usize,
    deletes: bool,
}

impl<'p> Runs<'p> {
    fn new(place: &'p Prepared) -> Self {
        Self {
            place,
            has_sums: place.keyed().is_some_and(TableShape::has_sums),
            requests: Vec::new(),
            keys: place.key_arrays(),
            rows: place.arrays(),
            count: 0,
            bytes: 0,
            deletes: false,
        }
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failed> {
        if !self.deletes {
            self.end();
            self.deletes = true;
        }
        self.place.append_key(&mut self.keys, key)?;
        self.count_row(key.len());
        Ok(())
    }

    fn write(&mut self, key: &[u8], row: &[u8]) -> Result<(), Failed> {
        if self.deletes {
            self.end();
            self.deletes = false;
        }
        self.place.append_key(&mut self.keys, key)?;
        self.place.append(&mut self.rows, key, row)?;
        self.count_row(key.len() + row.len());
        Ok(())
    }

    fn count_row(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes += bytes;
        if self.count >= MAX_ROWS || self.bytes >= MAX_BYTES {
            self.end();
        }
    }

    /// Ends the run. An insert locks rows in the order of its arrays. A join, which updates or deletes, has an order of
    /// its own, so the rows are locked before it.
    fn end(&mut self) {
        if self.count == 0 {
            return;
        }
        let keys = std::mem::replace(&mut self.keys, self.place.key_arrays());
        let rows = std::mem::replace(&mut self.rows, self.place.arrays());
        if (self.deletes || self.has_sums) && self.count > 1 {
            self.requests.extend(self.place.lock(keys.clone()));
        }
        self.requests.extend(if self.deletes {
            self.place.delete(keys)
        } else {
            self.place.write(rows)
        });
        (self.count, self.bytes) = (0, 0);
    }
}

/// Returns whether the second row has a newer version. Without versions, the last row counts.
fn is_newer(
    place: &Prepared,
    shape: &TableShape,
    before: &[u8],
    after: &[u8],
) -> Result<bool, Failed> {
    let Some(version) = shape.newer_by else {
        return Ok(true);
    };
    let number = |row: &[u8]| -> Result<Option<i64>, Failed> {
        let values = place.values(row)?;
        Ok(values.get(version).copied().flatten().and_then(whole))
    };
    Ok(number(after)? > number(before)?)
}

/// Adds the sums of two rows, and takes the other columns of the second one.
fn sum(
    place: &Prepared,
    shape: &TableShape,
    before: &[u8],
    after: &[u8],
) -> Result<Vec<u8>, Failed> {
    let (before, after) = (place.values(before)?, place.values(after)?);
    let mut merged = Vec::new();
    row::begin(&mut merged);
    let columns = shape.columns.iter().zip(before.iter().zip(&after));
    for (column, (before, after)) in columns {
        let value = match (column.is_sum, before, after) {
            (true, Some(before), Some(after)) => {
                let total = add(column.kind, before, after).ok_or_else(|| {
                    let text = format!("the sum of column {} is out of range", column.name);
                    place.refuse(&text)
                })?;
                Some(total)
            }
            (true, Some(only), None) => Some(only.to_vec()),
            (_, _, after) => after.map(<[u8]>::to_vec),
        };
        row::push(&mut merged, |to| match value {
            Some(value) => {
                to.extend_from_slice(&value);
                true
            }
            None => false,
        });
    }
    Ok(merged)
}

/// Decodes a whole number of any width.
fn whole(value: &[u8]) -> Option<i64> {
    match *value {
        [a, b] => Some(i64::from(i16::from_be_bytes([a, b]))),
        [a, b, c, d] => Some(i64::from(i32::from_be_bytes([a, b, c, d]))),
        _ => Some(i64::from_be_bytes(value.try_into().ok()?)),
    }
}

fn add(kind: Kind, before: &[u8], after: &[u8]) -> Option<Vec<u8>> {
    if kind == Kind::F64 {
        let number = |value: &[u8]| Some(f64::from_be_bytes(value.try_into().ok()?));
        return Some((number(before)? + number(after)?).to_be_bytes().to_vec());
    }
    let total = whole(before)?.checked_add(whole(after)?)?;
    match kind {
        Kind::I16 => Some(i16::try_from(total).ok()?.to_be_bytes().to_vec()),
        Kind::I32 => Some(i32::try_from(total).ok()?.to_be_bytes().to_vec()),
        _ => Some(total.to_be_bytes().to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_added_in_their_width() {
        let sum = |kind, a: &[u8], b: &[u8]| add(kind, a, b);
        assert_eq!(
            sum(Kind::I16, &1_i16.to_be_bytes(), &2_i16.to_be_bytes()),
            Some(3_i16.to_be_bytes().to_vec())
        );
        assert_eq!(
            sum(Kind::I16, &i16::MAX.to_be_bytes(), &1_i16.to_be_bytes()),
            None
        );
        assert_eq!(
            sum(Kind::I64, &i64::MAX.to_be_bytes(), &1_i64.to_be_bytes()),
            None
        );
        assert_eq!(
            sum(Kind::F64, &1.5_f64.to_be_bytes(), &2_f64.to_be_bytes()),
            Some(3.5_f64.to_be_bytes().to_vec())
        );
    }
}

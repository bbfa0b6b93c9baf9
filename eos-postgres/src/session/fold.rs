//! Rows of one key in one transaction: folded into one, and sorted by key.
//!
//! A statement may touch a row only once (SQLSTATE 21000). And workers that lock shared rows in one order do not
//! deadlock: so all rows of a transaction are sorted, and not only those of a chunk.

use std::collections::BTreeMap;

use super::chunk::{MAX_BYTES, MAX_ROWS};
use super::pipeline::Request;
use super::places::{Parts, Prepared};
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

/// What the records of a key do together.
#[derive(Debug, Default)]
struct Folded {
    /// Whether a record deletes the key, before the row is written.
    is_deleted: bool,
    row: Option<Vec<u8>>,
}

impl Fold {
    /// The bytes in memory, approximately.
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

    /// Takes all rows as statements: locks where the order of rows needs them, deletions, and writes.
    pub(super) fn take(&mut self, place: &Prepared) -> Result<Vec<Request>, Failed> {
        self.weight = 0;
        let rows = std::mem::take(&mut self.rows);
        let has_sums = place.keyed().is_some_and(TableShape::has_sums);
        let needs_lock = has_sums || rows.values().any(|folded| folded.is_deleted);
        let mut requests = Vec::new();
        if needs_lock && rows.len() > 1 {
            let keys = rows.keys().map(Vec::as_slice);
            requests.extend(by_key(place, keys, |arrays| place.lock(arrays))?);
        }
        let deleted = rows.iter().filter(|(_, folded)| folded.is_deleted);
        let deleted = deleted.map(|(key, _)| key.as_slice());
        requests.extend(by_key(place, deleted, |arrays| place.delete(arrays))?);
        let mut arrays = place.arrays();
        let (mut count, mut bytes) = (0, 0);
        for (key, folded) in &rows {
            let Some(row) = &folded.row else {
                continue;
            };
            place.append(&mut arrays, key, row)?;
            count += 1;
            bytes += key.len() + row.len();
            if count >= MAX_ROWS || bytes >= MAX_BYTES {
                requests.extend(place.write(std::mem::replace(&mut arrays, place.arrays())));
                (count, bytes) = (0, 0);
            }
        }
        if count > 0 {
            requests.extend(place.write(arrays));
        }
        Ok(requests)
    }
}

fn by_key<'a>(
    place: &Prepared,
    keys: impl Iterator<Item = &'a [u8]>,
    request: impl Fn(Vec<crate::array::Array>) -> Option<Request>,
) -> Result<Vec<Request>, Failed> {
    let mut requests = Vec::new();
    let mut arrays = place.key_arrays();
    let mut count = 0;
    for key in keys {
        place.append_key(&mut arrays, key)?;
        count += 1;
        if count >= MAX_ROWS {
            requests.extend(request(std::mem::replace(&mut arrays, place.key_arrays())));
            count = 0;
        }
    }
    if count > 0 {
        requests.extend(request(arrays));
    }
    Ok(requests)
}

/// Whether the second row has a newer version. Without versions, the last row counts.
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

/// A whole number of any width.
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

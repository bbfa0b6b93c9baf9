//! Rows as bytes: between the closures of a table, and its statements.
//!
//! ```text
//! byte 0     version
//! per value  length as u32, big-endian (u32::MAX: NULL), and PostgreSQL's binary format
//! ```
//!
//! A value is copied into the array of a statement as it is.

/// The first byte.
const VERSION: u8 = 1;
/// The length of NULL.
const NULL: u32 = u32::MAX;

/// Starts a row in an empty buffer.
pub(crate) fn begin(row: &mut Vec<u8>) {
    row.push(VERSION);
}

/// Appends a value. `write` returns `false` for NULL.
///
/// A value of 4 GiB or more gets the maximum length. The row is then refused, and the value is
/// never cut.
pub(crate) fn push(row: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> bool) {
    let start = row.len();
    row.extend_from_slice(&NULL.to_be_bytes());
    let body = row.len();
    if !write(row) {
        row.truncate(body);
        return;
    }
    let length = u32::try_from(row.len() - body).unwrap_or(NULL - 1);
    if let Some(place) = row.get_mut(start..body) {
        place.copy_from_slice(&length.to_be_bytes());
    }
}

/// Returns the values of a row. `None` in an item is NULL.
pub(crate) fn values(row: &[u8]) -> Result<Values<'_>, Malformed> {
    match row.split_first() {
        Some((&VERSION, rest)) => Ok(Values(rest)),
        Some((version, _)) => Err(Malformed::Version(*version)),
        None => Err(Malformed::Short),
    }
}

/// An iterator over the values of a row.
#[derive(Debug, Clone)]
pub(crate) struct Values<'a>(&'a [u8]);

impl<'a> Values<'a> {
    /// Values that were the [`rest`](Self::rest) of a row.
    pub(crate) fn bare(rest: &'a [u8]) -> Self {
        Self(rest)
    }

    /// Returns the bytes of the values that are left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }
}

/// Bytes that are no row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("a row in format {0}, but this release knows format {VERSION}")]
    Version(u8),
    #[error("a row that ends too early")]
    Short,
}

impl<'a> Iterator for Values<'a> {
    type Item = Result<Option<&'a [u8]>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let Some((length, rest)) = self.0.split_first_chunk::<4>() else {
            self.0 = &[];
            return Some(Err(Malformed::Short));
        };
        let length = u32::from_be_bytes(*length);
        if length == NULL {
            self.0 = rest;
            return Some(Ok(None));
        }
        let Some((value, rest)) = rest.split_at_checked(length as usize) else {
            self.0 = &[];
            return Some(Err(Malformed::Short));
        };
        self.0 = rest;
        Some(Ok(Some(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Column;

    #[test]
    fn values_come_back() {
        let mut row = Vec::new();
        begin(&mut row);
        push(&mut row, |to| "ab".write(to));
        push(&mut row, |to| None::<i64>.write(to));
        push(&mut row, |to| "".write(to));
        let read: Result<Vec<_>, _> = values(&row).unwrap().collect();
        assert_eq!(read.unwrap(), [Some(&b"ab"[..]), None, Some(&b""[..])]);
        // The bytes of a release are read by the next one only with the same version.
        assert_eq!(
            row,
            [1, 0, 0, 0, 2, b'a', b'b', 255, 255, 255, 255, 0, 0, 0, 0]
        );
    }

    #[test]
    fn other_bytes_are_an_error() {
        assert_eq!(values(&[]).unwrap_err(), Malformed::Short);
        assert_eq!(values(&[2, 0]).unwrap_err(), Malformed::Version(2));
        let mut cut = values(&[1, 0, 0, 0, 9, 1]).unwrap();
        assert_eq!(cut.next(), Some(Err(Malformed::Short)));
        assert_eq!(cut.next(), None);
    }
}

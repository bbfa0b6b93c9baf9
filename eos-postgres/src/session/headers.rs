//! The headers of a record, as bytes.

use super::chunk::RowRef;

/// Returns the headers of a record: name and value, each with its length as a big-endian i32. Length -1 is null.
pub(super) fn headers(row: &RowRef<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut push = |part: Option<&[u8]>| {
        let length = part.map_or(-1, |part| i32::try_from(part.len()).unwrap_or(i32::MAX));
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(part.unwrap_or_default());
    };
    for header in row.headers.iter() {
        push(Some(header.name().as_bytes()));
        push(header.value());
    }
    bytes
}

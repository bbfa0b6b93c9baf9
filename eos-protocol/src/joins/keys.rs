//! The keys of rows.

use super::Side;
use crate::ids::Timestamp;

/// The length of a key behind that of its row: side, time, arrival.
pub(super) const PLACE: usize = 17;

/// Returns the key of a row: the start (8 bytes), the length of the record's key (4) and the record's key.
///
/// The start comes first, so that the rows of old times are one range. The length keeps a key and the rows behind it apart
/// from a longer key that begins with it.
#[must_use]
pub fn head_key(start: Timestamp, key: &[u8]) -> Vec<u8> {
    let mut full = Vec::with_capacity(12 + key.len() + PLACE);
    full.extend_from_slice(&flipped(start));
    let len = u32::try_from(key.len()).unwrap_or(u32::MAX);
    full.extend_from_slice(&len.to_be_bytes());
    full.extend_from_slice(key);
    full
}

/// Returns the record's key of a row's key, and the rest behind it: empty, or the place of one record. `None` if the key is
/// damaged.
#[must_use]
pub fn key_of_head(full: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = full.get(8..)?.split_first_chunk()?;
    let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
    rest.split_at_checked(len)
}

/// Big-endian, with a flipped sign, so that the bytes are in the order of the times.
fn flipped(time: Timestamp) -> [u8; 8] {
    (time.0 ^ i64::MIN).to_be_bytes()
}

/// Returns the key of a record's own row behind its head.
pub(super) fn entry_key(head: &[u8], side: Side, time: Timestamp, arrival: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(head.len() + PLACE);
    key.extend_from_slice(head);
    key.push(u8::from(side == Side::Right));
    key.extend_from_slice(&flipped(time));
    key.extend_from_slice(&arrival.to_be_bytes());
    key
}

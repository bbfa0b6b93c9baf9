//! Fields of rows: bytes with their length in front.

/// Appends bytes. `more` is added to their length.
fn put_len(bytes: &[u8], more: u64, into: &mut Vec<u8>) {
    put_varint(bytes.len() as u64 + more, into);
    into.extend_from_slice(bytes);
}

/// Appends bytes: their length (varint), and they.
pub(crate) fn put(bytes: &[u8], into: &mut Vec<u8>) {
    put_len(bytes, 0, into);
}

/// Appends bytes or null: 0 for null, else length + 1 (varint), and the bytes.
pub(crate) fn put_nullable(bytes: Option<&[u8]>, into: &mut Vec<u8>) {
    match bytes {
        Some(bytes) => put_len(bytes, 1, into),
        None => into.push(0),
    }
}

/// Takes the bytes of [`put`] from the front.
pub(crate) fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = take_varint(rest)?;
    cut(rest, len)
}

/// Takes the bytes of [`put_nullable`] from the front.
pub(crate) fn take_nullable<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    match take_varint(rest)? {
        0 => Some(None),
        len => cut(rest, len - 1).map(Some),
    }
}

/// Takes this number of bytes from the front.
pub(crate) fn cut<'a>(rest: &mut &'a [u8], len: u64) -> Option<&'a [u8]> {
    let (bytes, behind) = rest.split_at_checked(usize::try_from(len).ok()?)?;
    *rest = behind;
    Some(bytes)
}

/// Takes 8 bytes from the front.
pub(crate) fn take_eight(rest: &mut &[u8]) -> Option<[u8; 8]> {
    let (bytes, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*bytes)
}

/// Appends an unsigned LEB128 number.
fn put_varint(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

/// Takes an unsigned LEB128 number from the front.
pub(crate) fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

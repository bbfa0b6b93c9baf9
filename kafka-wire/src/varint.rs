//! Variable-length integers of the protocol.
//!
//! Varints have seven bits per byte, the lowest first, as in Protocol Buffers. Compact lengths are unsigned (KIP-482).
//! The numbers in a record are signed, zigzag (protocol guide, "Record").

use bytes::{Buf, BufMut};

/// The length of the longest varint of 32 bits, in bytes.
pub const BYTES_OF_32: usize = 5;
/// The length of the longest varint of 64 bits, in bytes.
pub const BYTES_OF_64: usize = 10;

/// Decodes an unsigned varint of at most `most` bytes. Returns `None` if it is incomplete or longer.
pub fn take(from: &mut impl Buf, most: usize) -> Option<u64> {
    let mut value = 0;
    for nth in 0..most {
        if !from.has_remaining() {
            return None;
        }
        let byte = from.get_u8();
        value |= u64::from(byte & 0x7f) << (7 * nth);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Appends an unsigned varint.
pub fn put(to: &mut impl BufMut, value: u64) {
    let mut rest = value;
    while rest >= 0x80 {
        to.put_u8(rest as u8 | 0x80);
        rest >>= 7;
    }
    to.put_u8(rest as u8);
}

/// Decodes a zigzag varint of at most 64 bits. Returns `None` if it is incomplete or longer.
pub fn take_signed(from: &mut impl Buf) -> Option<i64> {
    let value = take(from, BYTES_OF_64)?;
    Some((value >> 1) as i64 ^ -((value & 1) as i64))
}

/// Appends a zigzag varint.
pub fn put_signed(to: &mut impl BufMut, value: i64) {
    put(to, (value << 1 ^ value >> 63) as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_varints_of_every_length() {
        for (encoded, value) in [
            (&[0][..], 0),
            (&[1], -1),
            (&[2], 1),
            (&[0x80, 0x01], 64),
            (
                &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
                i64::MAX,
            ),
            (
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
                i64::MIN,
            ),
        ] {
            let mut bytes = encoded;
            assert_eq!(take_signed(&mut bytes), Some(value));
            assert!(bytes.is_empty());
            let mut written = Vec::new();
            put_signed(&mut written, value);
            assert_eq!(written, encoded);
        }
        assert_eq!(take_signed(&mut &[0x80][..]), None);
    }

    #[test]
    fn a_varint_above_its_limit_is_none() {
        assert_eq!(
            take(&mut &[0xff, 0xff, 0xff, 0xff, 0x7f][..], 5),
            Some((1 << 35) - 1)
        );
        assert_eq!(take(&mut &[0x80, 0x80, 0x80, 0x80, 0x80, 0][..], 5), None);
    }
}

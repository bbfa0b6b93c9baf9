//! The rows of a global table's copy.
//!
//! ```text
//! version (1 byte) · number of headers (4 bytes) · each header · the value's bytes as in the topic
//! a header: length of the name (4 bytes) · name · 0, or 1 · length (4 bytes) · value
//! ```
//!
//! The value keeps its bytes, so a table needs no encoder. The row also contains the headers, because a codec may need
//! them.

use crate::client::{Header, Headers};

const VERSION: u8 = 1;

/// Returns the row of a record's value.
pub(crate) fn encode_row(value: &[u8], headers: &Headers) -> Vec<u8> {
    let mut row = vec![VERSION];
    let len = |len: usize| u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes();
    row.extend(len(headers.len()));
    for header in headers {
        row.extend(len(header.name().len()));
        row.extend(header.name().as_bytes());
        row.push(u8::from(header.value().is_some()));
        if let Some(value) = header.value() {
            row.extend(len(value.len()));
            row.extend(value);
        }
    }
    row.extend(value);
    row
}

/// Decodes a row. Returns `None` if the row does not have this version.
pub(super) fn decode_row(row: &[u8]) -> Option<(Headers, &[u8])> {
    let mut rest = row;
    if byte(&mut rest)? != VERSION {
        return None;
    }
    let count = u32::from_be_bytes(chunk(&mut rest)?);
    let mut headers = Headers::new();
    for _ in 0..count {
        let name = std::str::from_utf8(bytes(&mut rest)?).ok()?;
        let value = match byte(&mut rest)? {
            0 => None,
            _ => Some(bytes(&mut rest)?),
        };
        headers.extend([Header::new(name, value)]);
    }
    Some((headers, rest))
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    chunk(rest).map(|[byte]| byte)
}

fn chunk<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (chunk, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*chunk)
}

fn bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(u32::from_be_bytes(chunk(rest)?)).ok()?;
    let (bytes, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_keeps_value_and_headers() {
        let some = Header::new("schema", Some(b"7"));
        for headers in [vec![], vec![some, Header::new("flag", None)]] {
            let headers: Headers = headers.into_iter().collect();
            for value in [&b""[..], b"1.5"] {
                let row = encode_row(value, &headers);
                assert_eq!(decode_row(&row), Some((headers.clone(), value)));
            }
        }
    }

    #[test]
    fn other_bytes_are_no_row() {
        let headers = [Header::new("schema", Some(b"7"))].into_iter().collect();
        let row = encode_row(b"", &headers);
        for len in 0..row.len() {
            assert_eq!(decode_row(&row[..len]), None, "{len} bytes");
        }
        assert_eq!(decode_row(&[2, 0, 0, 0, 0]), None, "another version");
    }
}

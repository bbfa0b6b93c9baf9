//! Order-preserving encodings of keys.

use super::{CodecError, Decode, Encode, Encoded, Field};

/// A key of an [`OrderedStore`](crate::state::OrderedStore), whose bytes sort like the key.
///
/// Text and bytes are stored unchanged; text sorts by code points, like `str`. Integers are big-endian, and signed
/// integers have their sign bit flipped. A pair such as `(String, i64)` sorts by its first part, then by its second. In
/// the first part of a pair, a zero byte in text or bytes is written as `00 01`, and `00 00` marks the end.
///
/// The encoding differs from [`Plain`](super::Plain), which uses Java's format. There, -1 sorts after 1.
#[diagnostic::on_unimplemented(
    message = "the bytes of `{Self}` do not sort as its values do",
    label = "can't be the key of an ordered store",
    note = "`String`, `Vec<u8>`, `u32`, `u64`, `i32`, `i64` and pairs of these can; for a type of your \
            own implement `OrderedKey`, or keep it in a `KeyValueStore`, which has no ranges"
)]
pub trait OrderedKey: Sized + 'static {
    /// Appends the bytes of a key that is the last part.
    fn write_last(&self, into: &mut Vec<u8>);

    /// Appends the bytes of a key that is followed by another part. No other key's bytes may begin with these bytes.
    fn write_first(&self, into: &mut Vec<u8>);

    /// Reads the bytes of [`write_last`](Self::write_last).
    ///
    /// # Errors
    /// [`CodecError`] if the bytes are not a key of this type.
    fn read_last(bytes: &[u8]) -> Result<Self, CodecError>;

    /// Reads the bytes of [`write_first`](Self::write_first), and advances `bytes` past them.
    ///
    /// # Errors
    /// [`CodecError`] if the bytes don't begin with a key of this type.
    fn read_first(bytes: &mut &[u8]) -> Result<Self, CodecError>;
}

/// A prefix of an ordered store's keys: text of text, bytes of bytes, the first part of a pair.
#[diagnostic::on_unimplemented(
    message = "keys `{K}` do not begin with `{Self}`",
    note = "`String` begins with `str`, `Vec<u8>` with `[u8]`, a pair with its first part"
)]
pub trait PrefixOf<K> {
    /// Appends the bytes that the keys begin with.
    fn write_prefix(&self, into: &mut Vec<u8>);
}

impl PrefixOf<String> for str {
    fn write_prefix(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self.as_bytes());
    }
}

impl PrefixOf<Vec<u8>> for [u8] {
    fn write_prefix(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self);
    }
}

impl<A: OrderedKey, B: OrderedKey> PrefixOf<(A, B)> for A {
    fn write_prefix(&self, into: &mut Vec<u8>) {
        self.write_first(into);
    }
}

impl OrderedKey for Vec<u8> {
    fn write_last(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self);
    }

    fn write_first(&self, into: &mut Vec<u8>) {
        write_ended(self, into);
    }

    fn read_last(bytes: &[u8]) -> Result<Self, CodecError> {
        Ok(bytes.to_vec())
    }

    fn read_first(bytes: &mut &[u8]) -> Result<Self, CodecError> {
        read_ended(bytes)
    }
}

impl OrderedKey for String {
    fn write_last(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self.as_bytes());
    }

    fn write_first(&self, into: &mut Vec<u8>) {
        write_ended(self.as_bytes(), into);
    }

    fn read_last(bytes: &[u8]) -> Result<Self, CodecError> {
        text(bytes.to_vec())
    }

    fn read_first(bytes: &mut &[u8]) -> Result<Self, CodecError> {
        text(read_ended(bytes)?)
    }
}

fn text(bytes: Vec<u8>) -> Result<String, CodecError> {
    String::from_utf8(bytes).map_err(|e| CodecError::invalid("UTF-8 text", e))
}

fn write_ended(bytes: &[u8], into: &mut Vec<u8>) {
    for &byte in bytes {
        into.push(byte);
        if byte == 0 {
            into.push(1);
        }
    }
    into.extend_from_slice(&[0, 0]);
}

fn read_ended(bytes: &mut &[u8]) -> Result<Vec<u8>, CodecError> {
    let mut read = Vec::new();
    let mut rest = bytes.iter();
    loop {
        match rest.next() {
            Some(0) => match rest.next() {
                Some(0) => {
                    *bytes = rest.as_slice();
                    return Ok(read);
                }
                Some(1) => read.push(0),
                _ => return Err(CodecError::invalid("a part of a key", "a lone zero byte")),
            },
            Some(&byte) => read.push(byte),
            None => {
                return Err(CodecError::invalid(
                    "a part of a key",
                    "it has no terminator",
                ));
            }
        }
    }
}

macro_rules! integer {
    ($($int:ty, $flip:expr => $what:literal),+) => {$(
        impl OrderedKey for $int {
            fn write_last(&self, into: &mut Vec<u8>) {
                into.extend_from_slice(&(*self ^ $flip).to_be_bytes());
            }

            fn write_first(&self, into: &mut Vec<u8>) {
                self.write_last(into);
            }

            fn read_last(bytes: &[u8]) -> Result<Self, CodecError> {
                let mut rest = bytes;
                match Self::read_first(&mut rest) {
                    Ok(int) if rest.is_empty() => Ok(int),
                    _ => Err(CodecError::invalid($what, format!("{} bytes", bytes.len()))),
                }
            }

            fn read_first(bytes: &mut &[u8]) -> Result<Self, CodecError> {
                let (int, rest) = bytes.split_first_chunk().ok_or_else(|| {
                    CodecError::invalid($what, format!("{} bytes", bytes.len()))
                })?;
                *bytes = rest;
                Ok(Self::from_be_bytes(*int) ^ $flip)
            }
        }
    )+};
}

integer!(
    u32, 0 => "a 4-byte integer",
    i32, i32::MIN => "a 4-byte integer",
    u64, 0 => "an 8-byte integer",
    i64, i64::MIN => "an 8-byte integer"
);

impl<A: OrderedKey, B: OrderedKey> OrderedKey for (A, B) {
    fn write_last(&self, into: &mut Vec<u8>) {
        self.0.write_first(into);
        self.1.write_last(into);
    }

    fn write_first(&self, into: &mut Vec<u8>) {
        self.0.write_first(into);
        self.1.write_first(into);
    }

    fn read_last(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut rest = bytes;
        let first = A::read_first(&mut rest)?;
        Ok((first, B::read_last(rest)?))
    }

    fn read_first(bytes: &mut &[u8]) -> Result<Self, CodecError> {
        let first = A::read_first(bytes)?;
        Ok((first, B::read_first(bytes)?))
    }
}

/// The codec of every [`OrderedKey`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct OrderedCodec;

impl<T: OrderedKey> Decode<T> for OrderedCodec {
    fn decode(&self, bytes: Option<&[u8]>, _: &Field<'_>) -> Result<T, CodecError> {
        T::read_last(bytes.ok_or(CodecError::Null { expected: "a key" })?)
    }
}

impl<T: OrderedKey> Encode<T> for OrderedCodec {
    fn encode(&self, key: &T, into: &mut Vec<u8>, _: &Field<'_>) -> Result<Encoded, CodecError> {
        key.write_last(into);
        Ok(Encoded::Bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    fn last<T: OrderedKey>(key: &T) -> Vec<u8> {
        let mut bytes = Vec::new();
        key.write_last(&mut bytes);
        bytes
    }

    /// All bytes up to this length that mean something, or stand beside what does.
    fn tricky(length: usize) -> Vec<Vec<u8>> {
        let mut all = vec![Vec::new()];
        for _ in 0..length {
            let longer = all
                .iter()
                .flat_map(|key| [0, 1, 2, 0xff].map(|byte| [&key[..], &[byte]].concat()));
            all.extend(longer.collect::<Vec<_>>());
        }
        all.sort();
        all.dedup();
        all
    }

    #[track_caller]
    fn check<T: OrderedKey + Ord + fmt::Debug>(keys: impl IntoIterator<Item = T>) {
        let mut keys: Vec<T> = keys.into_iter().collect();
        keys.sort();
        for pair in keys.windows(2) {
            assert!(last(&pair[0]) <= last(&pair[1]), "{pair:?}");
            assert_eq!(pair[0] == pair[1], last(&pair[0]) == last(&pair[1]));
        }
        for key in keys {
            assert_eq!(T::read_last(&last(&key)).unwrap(), key);
        }
    }

    #[test]
    fn bytes_sort_as_the_keys_do() {
        check([0, 1, -1, 255, 256, -256, i32::MIN, i32::MAX]);
        check([0, 1, -1, 255, 256, -256, i64::MIN, i64::MAX]);
        check([0, 1, 255, 256, u32::MAX]);
        check([0, 1, 255, 256, u64::MAX]);
        check(tricky(3));
        check(["", "a", "\0", "zürich", "z", "\u{ffff}", "\u{10000}"].map(str::to_owned));
    }

    #[test]
    fn a_part_that_something_comes_after_says_where_it_ends() {
        let pairs = |length| {
            let firsts = tricky(length).into_iter();
            firsts.flat_map(move |a| tricky(length).into_iter().map(move |b| (a.clone(), b)))
        };
        check(pairs(2));
        check(pairs(1).flat_map(|pair| tricky(1).into_iter().map(move |c| (pair.clone(), c))));
        check(pairs(1).map(|(a, b)| (a, (b, -1_i64))));
    }

    #[test]
    fn a_prefix_is_what_the_keys_begin_with() {
        for first in tricky(2) {
            let mut prefix = Vec::new();
            PrefixOf::<(Vec<u8>, i32)>::write_prefix(&first, &mut prefix);
            for other in tricky(2) {
                let key = last(&(other.clone(), 7));
                assert_eq!(key.starts_with(&prefix), first == other);
            }
        }
    }

    #[test]
    fn bytes_that_are_not_a_key_are_an_error() {
        let error = |bytes: &[u8]| {
            let read: Result<(Vec<u8>, i32), _> = OrderedKey::read_last(bytes);
            read.unwrap_err().to_string()
        };
        assert_eq!(error(b"abc"), "not a part of a key: it has no terminator");
        assert_eq!(error(b"a\0\x02"), "not a part of a key: a lone zero byte");
        assert_eq!(error(b"a\0\0\x01\x02\x03"), "not a 4-byte integer: 3 bytes");
    }
}

//! The violations of a codec.

use std::fmt::{self, Debug};

/// The first violation of a codec, with the value, the bytes and the fix.
///
/// Values have the format of [`Debug`], and long ones are shortened. Its own `Debug` equals its `Display`, because a
/// failed test shows `Debug`.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The sample was empty.
    #[error("the sample is empty, so nothing was checked. Pass some values")]
    NoSample,

    /// A value of the sample can't be written.
    #[error(
        "{value} can't be written: {error}. If that is intended, remove it from the sample, and \
         check it with `check_refusals`"
    )]
    Unwritable {
        /// The value.
        value: String,
        /// The codec's error.
        error: String,
    },

    /// A value was written that the codec should refuse.
    #[error("{value} is written as {bytes}, where an error was expected")]
    NotRefused {
        /// The value.
        value: String,
        /// Its bytes.
        bytes: Written,
    },

    /// The buffer has lost its content.
    #[error(
        "writing {value} changed what was in the buffer: {before} before, {after} after. Other outputs of the \
         same record are in there. Append: `into.extend_from_slice(..)`, and no `clear`; `truncate` to the length \
         that it had"
    )]
    NotAppended {
        /// The value.
        value: String,
        /// The content before.
        before: Written,
        /// The content after.
        after: Written,
    },

    /// The codec returned null, but appended bytes.
    #[error(
        "{value} is written as {bytes}, and `Encoded::Null`: the bytes are lost. Append nothing to null, or return \
         `Encoded::Bytes`"
    )]
    BytesBesideNull {
        /// The value.
        value: String,
        /// The appended bytes.
        bytes: Written,
    },

    /// Written bytes can't be read.
    #[error(
        "{value} is written as {bytes}, which can't be read: {error}. `decode` must accept all output of `encode`"
    )]
    Unreadable {
        /// The value.
        value: String,
        /// Its bytes.
        bytes: Written,
        /// The codec's error.
        error: String,
    },

    /// Written bytes are read as another value.
    #[error(
        "{value} is written as {bytes}, and read back as {read}. Write every part of a value, and read every part"
    )]
    AnotherValue {
        /// The value.
        value: String,
        /// Its bytes.
        bytes: Written,
        /// The value that was read.
        read: String,
    },

    /// A key has different bytes each time.
    #[error(
        "the key {value} is written as {first}, and as {then} when it is {when}: it would be in \
         another partition, and not be found in its store. Derive the bytes from the key alone, \
         without counters, random numbers or the order of a hash map"
    )]
    OtherBytes {
        /// The key.
        value: String,
        /// Its first bytes.
        first: Written,
        /// The step in between.
        when: &'static str,
        /// Its later bytes.
        then: Written,
    },

    /// Equal keys have different bytes.
    #[error(
        "the keys {key} and {other} are equal, but written as {bytes} and {other_bytes}: they \
         would be in different partitions, and twice in a store. Write only the parts that `==` \
         compares"
    )]
    EqualButOtherBytes {
        /// A key.
        key: String,
        /// Its bytes.
        bytes: Written,
        /// An equal key.
        other: String,
        /// The bytes of the equal key.
        other_bytes: Written,
    },

    /// Different keys have the same bytes.
    #[error(
        "the keys {key} and {other} are both written as {bytes}: a store would keep one in place \
         of the other. Write all parts that `==` compares, and the end of each part"
    )]
    SameBytes {
        /// A key.
        key: String,
        /// Another one.
        other: String,
        /// The bytes of both.
        bytes: Written,
    },

    /// More bytes decide the partition than the key has.
    #[error(
        "the key {key} has the bytes {bytes}, and `deciding_bytes` returns {count} for them: the result must not \
         exceed the length of its argument"
    )]
    DecidingBytesMissing {
        /// The key.
        key: String,
        /// Its bytes.
        bytes: Written,
        /// The result of `deciding_bytes`.
        count: usize,
    },

    /// The deciding bytes differ each time.
    #[error(
        "the partition of the key {key} is decided by {first}, and then by {then}: `deciding_bytes` has to be the \
         same for the same bytes"
    )]
    DecidesOtherwise {
        /// The key.
        key: String,
        /// The first deciding bytes.
        first: Written,
        /// The later deciding bytes.
        then: Written,
    },

    /// Keys with the same part are in different partitions.
    #[error(
        "the keys {key} and {other} have the same part {part}, but their partitions are decided by {decides} and \
         {other_decides}. Write the part first, and let `deciding_bytes` return its length"
    )]
    Apart {
        /// A key.
        key: String,
        /// The bytes that decide its partition.
        decides: Written,
        /// Another key with the same part.
        other: String,
        /// The bytes that decide the other key's partition.
        other_decides: Written,
        /// The part.
        part: Box<str>,
    },

    /// Keys with different parts have the same deciding bytes.
    #[error(
        "the partitions of the keys {key} (of {part}) and {other} (of {other_part}) are both \
         decided by {decides}: these parts differ, but their keys go to the same \
         partition. Let `deciding_bytes` return the length of the whole part"
    )]
    Together {
        /// A key.
        key: String,
        /// Its part.
        part: Box<str>,
        /// A key with another part.
        other: String,
        /// The other part.
        other_part: Box<str>,
        /// The bytes that decide both partitions.
        decides: Written,
    },

    /// The codec panicked.
    #[error(
        "{doing} panicked: {message}. A panic stops the worker, and the codec panics again at the \
         same record after a restart. Return a `CodecError`, which the error policy handles"
    )]
    Panicked {
        /// The call that panicked.
        doing: String,
        /// The panic message.
        message: String,
    },

    /// The same bytes are read differently each time.
    #[error(
        "{bytes} is read as {first}, and after {after} as: {then}. `decode` must keep nothing between calls except \
         empty memory"
    )]
    Remembers {
        /// The bytes.
        bytes: Written,
        /// The first value, as a text.
        first: String,
        /// The step in between.
        after: String,
        /// The later value, or the error.
        then: String,
    },

    /// A value read from foreign bytes can't be written and read again.
    #[error(
        "{bytes} is read as {value}, which {} {then}: such a record can be read but not written. \
         Reject such bytes with a `CodecError`, or write the value that was read",
        match written {
            Some(written) => format!("is written as {written}, and that is read as:"),
            None => "can't be written:".to_owned(),
        }
    )]
    Drifts {
        /// The foreign bytes.
        bytes: Written,
        /// The value read from them.
        value: String,
        /// The bytes of that value, if it was written.
        written: Option<Written>,
        /// The value read from those bytes, or the error.
        then: String,
    },

    /// Bytes don't sort as their keys do.
    #[error(
        "the key {lower} is not above {higher}, but their bytes do not sort like the keys: \
         {lower_bytes}, {higher_bytes}. Ranges would omit keys. Write integers as big-endian with \
         the sign bit flipped. Write text and bytes unchanged, with a terminator below all bytes \
         that they can contain"
    )]
    Misordered {
        /// The lower key, or one of two equal keys.
        lower: String,
        /// Its bytes.
        lower_bytes: Written,
        /// The higher key, or the other equal key.
        higher: String,
        /// Its bytes.
        higher_bytes: Written,
    },

    /// The end of a key in front of other bytes can't be found.
    #[error(
        "the bytes {other_bytes} of the key {other} begin with all of {key}, {bytes}: bytes after \
         the shorter key could be read as part of it. Let `write_first` write a fixed length, or a \
         terminator that no key contains"
    )]
    NoEnd {
        /// The shorter key.
        key: String,
        /// Its bytes.
        bytes: Written,
        /// The longer key.
        other: String,
        /// Its bytes.
        other_bytes: Written,
    },

    /// A key that begins with a prefix is not found by it.
    #[error(
        "the key {key} begins with {prefix}, but its bytes {key_bytes} don't begin with \
         {prefix_bytes}: a scan would omit it. Let `write_prefix` write the common beginning of \
         the bytes of all such keys, without a terminator that they don't have there"
    )]
    NoPrefix {
        /// The prefix.
        prefix: String,
        /// Its bytes.
        prefix_bytes: Written,
        /// The key.
        key: String,
        /// Its bytes.
        key_bytes: Written,
    },

    /// A key that does not begin with a prefix is found by it.
    #[error(
        "the key {key} does not begin with {prefix}, but its bytes {key_bytes} begin with \
         {prefix_bytes}: a scan would return it. Let `write_prefix` of a whole part write its \
         terminator, as `write_first` does"
    )]
    PrefixOfOthers {
        /// The prefix.
        prefix: String,
        /// Its bytes.
        prefix_bytes: Written,
        /// The key.
        key: String,
        /// Its bytes.
        key_bytes: Written,
    },

    /// One of the two forms of a key of an ordered store is wrong.
    #[error("{form}: {violation}")]
    Ordered {
        /// The form.
        form: Form,
        /// The violation.
        violation: Box<Violation>,
    },
}

impl Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One of the two forms of a key in an ordered store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// In front of other bytes: `write_first` and `read_first`. Its violations show the key and the bytes after it.
    First,
    /// At the end: `write_last` and `read_last`.
    Last,
}

impl Form {
    pub(super) fn says(self, violation: Violation) -> Violation {
        match violation {
            Violation::NoSample => Violation::NoSample,
            violation => Violation::Ordered {
                form: self,
                violation: Box::new(violation),
            },
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "`write_first` and `read_first`, with the bytes after the key",
            Self::Last => "`write_last` and `read_last`",
        })
    }
}

/// The encoding of a value: bytes, or null. Null sorts first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Written(pub Option<Vec<u8>>);

/// The maximum number of shown bytes.
const BYTES: usize = 64;
const CHARS: usize = 200;

impl Written {
    pub(super) fn starts_with(&self, prefix: &Written) -> bool {
        match (&self.0, &prefix.0) {
            (Some(bytes), Some(prefix)) => bytes.starts_with(prefix),
            _ => false,
        }
    }
}

impl From<&[u8]> for Written {
    fn from(bytes: &[u8]) -> Self {
        Self(Some(bytes.to_vec()))
    }
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(bytes) = &self.0 else {
            return f.write_str("null");
        };
        match bytes.get(..BYTES) {
            Some(first) if bytes.len() > BYTES => {
                write!(f, "b\"{}…\" ({} bytes)", first.escape_ascii(), bytes.len())
            }
            _ => write!(f, "b\"{}\"", bytes.escape_ascii()),
        }
    }
}

impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A value as a text, shortened.
pub(super) fn shown(value: &(impl Debug + ?Sized)) -> String {
    let text = format!("{value:?}");
    match text.char_indices().nth(CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

//! Keys whose bytes sort as the keys do.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::marker::PhantomData;

use eos_core::codec::{Codec, CodecError, Decode, Encode, Encoded, Field, OrderedKey};

use super::check::{every_two, keys as check_all};
use super::probe::Probe;
use super::violation::{Form, Violation, shown};

/// Bytes behind the first part of a pair, which a codec may mistake for its end or for more of it.
const BEHIND: [&[u8]; 7] = [b"", b"\0", b"\0\0", b"\0\x01", b"\x01", b"a", b"\xff"];

/// Checks the keys of ordered stores. It does the same as [`check_keys`](super::check_keys), with
/// [`write_last`](OrderedKey::write_last) and [`read_last`](OrderedKey::read_last), and with
/// [`write_first`](OrderedKey::write_first) and [`read_first`](OrderedKey::read_first) in front of other bytes, which
/// have to stay. It also checks:
///
/// - Both forms sort as the keys do. Ranges and their order depend on it.
/// - No key's [`write_first`](OrderedKey::write_first) begins with another's. Otherwise the second part of a pair
///   could be mistaken for more of the first.
///
/// Every pair is compared: a few hundred keys are enough.
///
/// ```
/// # use eos_testkit::conformance::codecs::{Violation, check_ordered_keys};
/// # fn main() -> Result<(), Violation> {
/// check_ordered_keys([0, 1, -1, 255, 256, i64::MIN, i64::MAX])?;
/// check_ordered_keys(["", "a", "a\0", "aa", "z"].map(str::to_owned))
/// # }
/// ```
///
/// # Errors
/// The first violation found; [`Violation::NoSample`] without keys.
pub fn check_ordered_keys<K: OrderedKey + Ord + Debug>(
    keys: impl IntoIterator<Item = K>,
) -> Result<(), Violation> {
    let keys: Vec<K> = keys.into_iter().collect();
    let last = Last::new();
    let last = Probe(&last);
    (check_all(&last, &keys))
        .and_then(|()| sorted(&last, &keys))
        .map_err(|violation| Form::Last.says(violation))?;
    first(&last, keys).map_err(|violation| Form::First.says(violation))
}

/// The form as the first part of a pair.
fn first<K: OrderedKey + Ord + Debug>(
    last: &Probe<'_, Last<K>>,
    keys: Vec<K>,
) -> Result<(), Violation> {
    let codec = First::new();
    let probe = Probe(&codec);
    let ended = |key: K| (key, Vec::new());
    let alone: Vec<_> = keys.into_iter().map(ended).collect();
    no_end(&probe, &alone)?;
    sorted(&probe, &alone)?;
    check_all(&probe, &alone)?;
    for behind in BEHIND {
        let copies = alone.iter().map(|(key, _)| copy(last, key));
        let more: Result<Vec<_>, _> = copies.map(|key| Ok((key?, behind.to_vec()))).collect();
        check_all(&probe, &more?)?;
    }
    Ok(())
}

/// Copies a key through its bytes, which are known to be read back unchanged.
fn copy<K: OrderedKey + Debug>(last: &Probe<'_, Last<K>>, key: &K) -> Result<K, Violation> {
    let bytes = last.written(key)?;
    last.decode(&bytes)?.map_err(|error| Violation::Unreadable {
        value: shown(key),
        bytes,
        error: error.to_string(),
    })
}

/// Checks that the bytes sort as the keys do.
fn sorted<K, C>(probe: &Probe<'_, C>, keys: &[K]) -> Result<(), Violation>
where
    K: Ord + Debug,
    C: Codec<K>,
{
    every_two(probe, keys, |(one, one_bytes), (other, other_bytes)| {
        let (lower, higher) = match one.cmp(other) {
            order if order == one_bytes.cmp(other_bytes) => return Ok(()),
            Ordering::Greater => ((other, other_bytes), (one, one_bytes)),
            Ordering::Less | Ordering::Equal => ((one, one_bytes), (other, other_bytes)),
        };
        Err(Violation::Misordered {
            lower: shown(lower.0),
            lower_bytes: lower.1.clone(),
            higher: shown(higher.0),
            higher_bytes: higher.1.clone(),
        })
    })
}

/// Checks that no key's bytes begin with another's.
fn no_end<K, C>(probe: &Probe<'_, C>, keys: &[K]) -> Result<(), Violation>
where
    K: Ord + Debug,
    C: Codec<K>,
{
    every_two(probe, keys, |(one, one_bytes), (other, other_bytes)| {
        if one == other {
            return Ok(());
        }
        let (short, long) = if one_bytes.starts_with(other_bytes) {
            ((other, other_bytes), (one, one_bytes))
        } else if other_bytes.starts_with(one_bytes) {
            ((one, one_bytes), (other, other_bytes))
        } else {
            return Ok(());
        };
        Err(Violation::NoEnd {
            key: shown(short.0),
            bytes: short.1.clone(),
            other: shown(long.0),
            other_bytes: long.1.clone(),
        })
    })
}

/// A key at the end, as the store writes it.
pub(super) struct Last<K>(PhantomData<fn() -> K>);

impl<K> Last<K> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<K: OrderedKey> Decode<K> for Last<K> {
    fn decode(&self, bytes: Option<&[u8]>, _: &Field<'_>) -> Result<K, CodecError> {
        K::read_last(bytes.ok_or(CodecError::Null { expected: "a key" })?)
    }
}

impl<K: OrderedKey> Encode<K> for Last<K> {
    fn encode(&self, key: &K, into: &mut Vec<u8>, _: &Field<'_>) -> Result<Encoded, CodecError> {
        key.write_last(into);
        Ok(Encoded::Bytes)
    }
}

/// A key in front of other bytes.
struct First<K>(PhantomData<fn() -> K>);

impl<K> First<K> {
    fn new() -> Self {
        Self(PhantomData)
    }
}

impl<K: OrderedKey> Decode<(K, Vec<u8>)> for First<K> {
    fn decode(&self, bytes: Option<&[u8]>, _: &Field<'_>) -> Result<(K, Vec<u8>), CodecError> {
        let mut bytes = bytes.ok_or(CodecError::Null { expected: "a key" })?;
        let key = K::read_first(&mut bytes)?;
        Ok((key, bytes.to_vec()))
    }
}

impl<K: OrderedKey> Encode<(K, Vec<u8>)> for First<K> {
    fn encode(
        &self,
        (key, behind): &(K, Vec<u8>),
        into: &mut Vec<u8>,
        _: &Field<'_>,
    ) -> Result<Encoded, CodecError> {
        key.write_first(into);
        into.extend_from_slice(behind);
        Ok(Encoded::Bytes)
    }
}

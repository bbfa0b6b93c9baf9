//! The test suite for codecs.
//!
//! | sample | check |
//! |---|---|
//! | values, of topics and of stores | [`check_values`] |
//! | keys, of topics and of stores | [`check_keys`]; [`check_partitions`] if only a part of them decides the partition |
//! | values that can't be written | [`check_refusals`] |
//! | keys of ordered stores ([`OrderedKey`](eos_core::codec::OrderedKey)) | [`check_ordered_keys`], [`check_prefixes`] |
//!
//! Each check takes your sample and does the same with it as the runtime and a damaged topic will do. Choose the
//! sample as for your own tests: the empty value, the smallest and the largest one, characters that need an escape,
//! null if there is one, and keys that are nearly equal. A sample of one value can't detect a codec that always
//! returns the last one.
//!
//! ```
//! use eos_core::codec::{CodecError, Decode, Encode, Encoded, Field};
//! use eos_testkit::conformance::codecs::{Violation, check_keys, check_values};
//!
//! /// An amount, as digits.
//! #[derive(Debug, PartialEq)]
//! struct Cents(u64);
//!
//! struct Digits;
//!
//! impl Decode<Cents> for Digits {
//!     fn decode(&self, bytes: Option<&[u8]>, _: &Field<'_>) -> Result<Cents, CodecError> {
//!         let bytes = bytes.ok_or(CodecError::null("digits"))?;
//!         let text = str::from_utf8(bytes).map_err(|e| CodecError::invalid("digits", e))?;
//!         let cents = text.parse().map_err(|e| CodecError::invalid("digits", e))?;
//!         Ok(Cents(cents))
//!     }
//! }
//!
//! impl Encode<Cents> for Digits {
//!     fn encode(&self, cents: &Cents, into: &mut Vec<u8>, _: &Field<'_>) -> Result<Encoded, CodecError> {
//!         into.extend_from_slice(cents.0.to_string().as_bytes());
//!         Ok(Encoded::Bytes)
//!     }
//! }
//!
//! fn main() -> Result<(), Violation> {
//!     let sample = || [0, 1, 10, 255, u64::MAX].map(Cents);
//!     check_values(&Digits, sample())?;
//!     check_keys(&Digits, sample())
//! }
//! ```
//!
//! The suite has two limits. A codec that loops forever on damaged bytes, or takes all memory for them, hangs or
//! aborts the test. To prove that your bytes equal those of another program, write a test with bytes from that
//! program.

mod check;
mod damage;
mod deciding_bytes;
mod ordered;
mod partitions;
mod prefixes;
mod probe;
mod violation;

use std::fmt::Debug;

use eos_core::codec::Codec;

pub use ordered::check_ordered_keys;
pub use partitions::check_partitions;
pub use prefixes::check_prefixes;
pub use violation::{Form, Violation, Written};

use check::{Bytes, each};
use probe::Probe;

/// Checks the codec of a topic's or a store's values.
///
/// - Written values are read back unchanged, null included. This also holds after a value was
///   [recycled](eos_core::codec::Encode::recycle), and after unreadable bytes.
/// - Writing appends. The buffer keeps its content, whatever the result: it contains outputs of the same record. With
///   [`Encoded::Null`](eos_core::codec::Encoded::Null) the codec appends nothing.
/// - Damaged bytes (cut off at any length, a flipped bit, extra bytes, null, empty, random) are an error, or another
///   value that can be written and read back. They never cause a panic. A panic would end the worker, and the next
///   worker at the same record, where an error leaves the decision to the [`ErrorPolicy`](eos_core::ErrorPolicy).
///
/// A value's bytes may differ each time, as those of a hash map or an encryption do: nothing in eos compares them.
/// Only [`TestDriver::committed`](crate::TestDriver::committed) does.
///
/// # Errors
/// The first violation found; [`Violation::NoSample`] without values.
pub fn check_values<T: PartialEq + Debug>(
    codec: &(impl Codec<T> + ?Sized),
    values: impl IntoIterator<Item = T>,
) -> Result<(), Violation> {
    let values: Vec<T> = values.into_iter().collect();
    each(&Probe(codec), &values, Bytes::MayDiffer)
}

/// Checks the codec of a topic's or a store's keys. Includes all checks of [`check_values`] and these:
///
/// - A key has the same bytes each time, whether it was read, recycled or created, and equal keys have equal bytes.
///   The bytes decide the partition and find entries of stores.
/// - Different keys have different bytes. Otherwise a store would keep both in one place. At most one key is null.
/// - [`deciding_bytes`](eos_core::codec::Encode::deciding_bytes) never exceed the key's length, and are the same
///   number each time.
///
/// Every pair is compared: a few hundred keys are enough.
///
/// # Errors
/// The first violation found; [`Violation::NoSample`] without keys.
pub fn check_keys<K: PartialEq + Debug>(
    codec: &(impl Codec<K> + ?Sized),
    keys: impl IntoIterator<Item = K>,
) -> Result<(), Violation> {
    let keys: Vec<K> = keys.into_iter().collect();
    check::keys(&Probe(codec), &keys)
}

/// Checks that a codec returns an error each time for values that it can't write, and that the buffer keeps its
/// content. The runtime removes the bytes that the codec appended before the error.
///
/// # Errors
/// The first violation found; [`Violation::NoSample`] without values.
pub fn check_refusals<T: Debug>(
    codec: &(impl Codec<T> + ?Sized),
    values: impl IntoIterator<Item = T>,
) -> Result<(), Violation> {
    let values: Vec<T> = values.into_iter().collect();
    if values.is_empty() {
        return Err(Violation::NoSample);
    }
    // Twice: the codec must refuse the value again.
    for value in values.iter().chain(&values) {
        if let Ok(bytes) = Probe(codec).encode(value)? {
            return Err(Violation::NotRefused {
                value: violation::shown(value),
                bytes,
            });
        }
    }
    Ok(())
}

//! What every codec has to pass.
//!
//! | what | by |
//! |---|---|
//! | values, of topics and of stores | [`check_values`] |
//! | keys, of topics and of stores | [`check_keys`]; [`check_partitions`] if only a part of them decides the partition |
//! | values that can't be written | [`check_refusals`] |
//! | keys of ordered stores ([`OrderedKey`](eos_core::codec::OrderedKey)) | [`check_ordered_keys`], [`check_prefixes`] |
//!
//! Each takes a sample from you and does with it what the runtime and a damaged topic will do. Choose the sample
//! as you would for a test of your own: the empty, the smallest and the largest, what needs an escape, null if
//! there is one, and keys that nearly are the same. With one value alone, a codec that always answers the last one
//! is not found.
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
//!         let bytes = bytes.ok_or(CodecError::Null { expected: "digits" })?;
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
//! What it can't see: a codec that never comes back from damaged bytes, or takes all memory for them, hangs or
//! aborts the test instead of failing it. And another program's bytes: that yours are the ones that it writes is
//! for a test with bytes of its making.

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
/// - What is written is read back as it was, null included; also after a value was
///   [recycled](eos_core::codec::Encode::recycle), and after what can't be read.
/// - Writing appends. What was in the buffer stays, whatever comes of it: outputs of the same record are in
///   there. With [`Encoded::Null`](eos_core::codec::Encoded::Null) it appends nothing.
/// - Bytes that are damaged (cut off at any length, a bit flipped, something behind them, null, nothing, chance)
///   are an error, or another value that can be written and read back. Never a panic: that would end the worker,
///   and the next one at the same record, where an error is the
///   [`ErrorPolicy`](eos_core::ErrorPolicy)'s to decide.
///
/// A value's bytes may be others each time, as those of a hash map are, or of an encryption: nothing in eos
/// compares them. Only [`TestDriver::committed`](crate::TestDriver::committed) does.
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

/// Checks the codec of a topic's or a store's keys: all that [`check_values`] does, and
///
/// - A key has the same bytes each time, whether it was read, recycled or created, and equal keys have equal
///   bytes: they decide the partition, and find what a store keeps.
/// - Other keys have other bytes, or a store keeps both in one place. Of two keys, at most one is null.
/// - [`deciding_bytes`](eos_core::codec::Encode::deciding_bytes) are no more than there are, and as many each time.
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

/// Checks what a codec does with values that it can't write: an error each time, and what was in the buffer
/// stays. What it has appended by then is taken away by the runtime.
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
    // Twice: a refusal must not make it milder.
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

//! The bytes of a key that decide its partition.

use std::fmt::Debug;

use eos_core::codec::Codec;

use super::probe::{Probe, guarded};
use super::violation::{Violation, Written, shown};

/// Checks that the bytes are a part of the key, and the same ones each time.
pub(super) fn check<K, C>(probe: &Probe<'_, C>, keys: &[K]) -> Result<(), Violation>
where
    K: Debug,
    C: Codec<K> + ?Sized,
{
    let all = || keys.iter().map(|key| of_key(probe, key));
    let first: Vec<Written> = all().collect::<Result<_, _>>()?;
    for ((key, first), then) in keys.iter().zip(first).zip(all()) {
        let then = then?;
        if first != then {
            return Err(Violation::DecidesOtherwise {
                key: shown(key),
                first,
                then,
            });
        }
    }
    Ok(())
}

/// The bytes of a key that decide its partition; none for null, because the codec never gets null.
pub(super) fn of_key<K, C>(probe: &Probe<'_, C>, key: &K) -> Result<Written, Violation>
where
    K: Debug,
    C: Codec<K> + ?Sized,
{
    let Written(Some(bytes)) = probe.written(key)? else {
        return Ok(Written(None));
    };
    let doing = || format!("counting the deciding bytes of {}", shown(key));
    let count = guarded(doing, || probe.0.deciding_bytes(&bytes))?;
    match bytes.get(..count) {
        Some(decides) => Ok(decides.into()),
        None => Err(Violation::DecidingBytesMissing {
            key: shown(key),
            bytes: bytes.as_slice().into(),
            count,
        }),
    }
}

//! Checks of single values, and of pairs of values.

use std::fmt::Debug;

use eos_core::codec::Codec;

use super::damage::damaged;
use super::deciding_bytes;
use super::probe::Probe;
use super::violation::{Violation, Written, shown};

/// Whether a value has the same bytes each time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Bytes {
    AreTheSame,
    MayDiffer,
}

pub(super) fn each<T, C>(probe: &Probe<'_, C>, values: &[T], bytes: Bytes) -> Result<(), Violation>
where
    T: PartialEq + Debug,
    C: Codec<T> + ?Sized,
{
    if values.is_empty() {
        return Err(Violation::NoSample);
    }
    let all = values.iter().map(|value| One::new(probe, value, bytes));
    // All values are written before the first is read: this shows a codec that remembers the last one.
    let all: Vec<_> = all.collect::<Result<_, _>>()?;
    all.iter().try_for_each(One::check)?;
    // Violations of the sample itself come first.
    all.iter().try_for_each(One::check_damaged)
}

/// A value with its first bytes.
struct One<'a, 'c, T, C: ?Sized> {
    probe: &'a Probe<'c, C>,
    value: &'a T,
    bytes: Bytes,
    written: Written,
}

impl<'a, 'c, T: PartialEq + Debug, C: Codec<T> + ?Sized> One<'a, 'c, T, C> {
    fn new(probe: &'a Probe<'c, C>, value: &'a T, bytes: Bytes) -> Result<Self, Violation> {
        let written = probe.written(value)?;
        Ok(Self {
            probe,
            value,
            bytes,
            written,
        })
    }

    fn check(&self) -> Result<(), Violation> {
        let read = self.read(&self.written)?;
        let alone = self.probe.written_alone(self.value)?;
        self.same(&alone, "written once more")?;
        let again = self.probe.written(&read)?;
        self.same(&again, "read and written")?;
        self.probe.recycle(read)?;
        self.still("recycling it")?;
        let recycled = self.probe.written(self.value)?;
        self.same(&recycled, "recycled and written")
    }

    fn check_damaged(&self) -> Result<(), Violation> {
        for bytes in damaged(self.written.0.as_deref().unwrap_or_default()) {
            if bytes != self.written {
                self.damaged(&bytes)?;
            }
        }
        Ok(())
    }

    /// Checks that the bytes of a value are read as that value.
    fn read(&self, written: &Written) -> Result<T, Violation> {
        let read = self.probe.decode(written)?;
        let read: T = read.map_err(|error| Violation::Unreadable {
            value: shown(self.value),
            bytes: written.clone(),
            error: error.to_string(),
        })?;
        if read != *self.value {
            return Err(Violation::AnotherValue {
                value: shown(self.value),
                bytes: written.clone(),
                read: shown(&read),
            });
        }
        Ok(read)
    }

    /// Checks another encoding of the same value.
    fn same(&self, written: &Written, when: &'static str) -> Result<(), Violation> {
        if self.bytes == Bytes::AreTheSame && *written != self.written {
            return Err(Violation::OtherBytes {
                value: shown(self.value),
                first: self.written.clone(),
                when,
                then: written.clone(),
            });
        }
        self.read(written).map(drop)
    }

    /// Checks that it can be read as before.
    fn still(&self, after: &str) -> Result<(), Violation> {
        let read: Result<T, _> = self.probe.decode(&self.written)?;
        let then = match read {
            Ok(read) if read == *self.value => return Ok(()),
            Ok(read) => shown(&read),
            Err(error) => error.to_string(),
        };
        Err(Violation::Remembers {
            bytes: self.written.clone(),
            first: shown(self.value),
            after: after.to_owned(),
            then,
        })
    }

    fn damaged(&self, bytes: &Written) -> Result<(), Violation> {
        let found: Result<T, _> = self.probe.decode(bytes)?;
        if let Ok(found) = found {
            keeps(self.probe, bytes, &found)?;
        }
        self.still(&format!("reading {bytes}"))
    }
}

/// Checks that a value read from damaged bytes behaves like any other.
fn keeps<T, C>(probe: &Probe<'_, C>, bytes: &Written, found: &T) -> Result<(), Violation>
where
    T: PartialEq + Debug,
    C: Codec<T> + ?Sized,
{
    // It contains a NaN, which can't be compared.
    if !is_itself(found, found) {
        return Ok(());
    }
    let drifts = |written: Option<Written>, then: String| Violation::Drifts {
        bytes: bytes.clone(),
        value: shown(found),
        written,
        then,
    };
    let written = match probe.encode(found)? {
        Ok(written) => written,
        Err(error) => return Err(drifts(None, error.to_string())),
    };
    match probe.decode::<T>(&written)? {
        Ok(read) if read == *found => Ok(()),
        Ok(read) => Err(drifts(Some(written), shown(&read))),
        Err(error) => Err(drifts(Some(written), error.to_string())),
    }
}

fn is_itself<T: PartialEq>(one: &T, same: &T) -> bool {
    one == same
}

/// All checks of keys.
pub(super) fn keys<K, C>(probe: &Probe<'_, C>, keys: &[K]) -> Result<(), Violation>
where
    K: PartialEq + Debug,
    C: Codec<K> + ?Sized,
{
    // Of two keys with the same bytes, one is not read back. The check for equal bytes names both.
    pairs(probe, keys)?;
    each(probe, keys, Bytes::AreTheSame)?;
    deciding_bytes::check(probe, keys)
}

/// Checks that equal keys have equal bytes, and different keys different bytes.
fn pairs<K, C>(probe: &Probe<'_, C>, keys: &[K]) -> Result<(), Violation>
where
    K: PartialEq + Debug,
    C: Codec<K> + ?Sized,
{
    every_two(probe, keys, |(one, one_bytes), (other, other_bytes)| {
        if one == other && one_bytes != other_bytes {
            return Err(Violation::EqualButOtherBytes {
                key: shown(one),
                bytes: one_bytes.clone(),
                other: shown(other),
                other_bytes: other_bytes.clone(),
            });
        }
        if one != other && one_bytes == other_bytes {
            return Err(Violation::SameBytes {
                key: shown(one),
                other: shown(other),
                bytes: one_bytes.clone(),
            });
        }
        Ok(())
    })
}

/// All pairs of keys in the sample, in its order, with their bytes.
pub(super) fn every_two<K, C>(
    probe: &Probe<'_, C>,
    keys: &[K],
    check: impl Fn((&K, &Written), (&K, &Written)) -> Result<(), Violation>,
) -> Result<(), Violation>
where
    K: Debug,
    C: Codec<K> + ?Sized,
{
    let written = keys.iter().map(|key| Ok((key, probe.written(key)?)));
    let written: Vec<_> = written.collect::<Result<_, Violation>>()?;
    for (at, (one, one_bytes)) in written.iter().enumerate() {
        for (other, other_bytes) in &written[..at] {
            check((other, other_bytes), (one, one_bytes))?;
        }
    }
    Ok(())
}

//! The partitions of keys that share a part.

use std::fmt::Debug;

use eos_core::codec::Codec;

use super::check::keys as check_all;
use super::deciding_bytes::of_key;
use super::probe::Probe;
use super::violation::{Violation, shown};

/// Checks the codec of keys of which only a part decides the partition. Includes all checks of
/// [`check_keys`](super::check_keys). It also checks that the deciding bytes
/// ([`deciding_bytes`](eos_core::codec::Encode::deciding_bytes)) are those of the part. Keys with the same part have
/// the same deciding bytes, and so are in one partition. Keys with another part have others.
///
/// ```
/// # use std::time::Duration;
/// # use eos_core::codec::TimeWindowed;
/// # use eos_core::windows::{Tumbling, Windowed};
/// # use eos_core::Timestamp;
/// # use eos_testkit::conformance::codecs::{Violation, check_partitions};
/// # fn main() -> Result<(), Violation> {
/// let hour = Duration::from_secs(3600);
/// let windowed = |(key, hours): (&str, i64)| Windowed {
///     key: key.to_owned(),
///     window: Tumbling::of(hour).at(Timestamp(hours * 3_600_000)),
/// };
/// let keys = [("a", 1), ("a", 2), ("b", 1), ("", 0)].map(windowed);
/// check_partitions(&TimeWindowed::of(hour), keys, |windowed| windowed.key.clone())
/// # }
/// ```
///
/// # Errors
/// The first violation found; [`Violation::NoSample`] without keys.
pub fn check_partitions<K: PartialEq + Debug, P: PartialEq + Debug>(
    codec: &(impl Codec<K> + ?Sized),
    keys: impl IntoIterator<Item = K>,
    part: impl Fn(&K) -> P,
) -> Result<(), Violation> {
    let keys: Vec<K> = keys.into_iter().collect();
    let probe = Probe(codec);
    check_all(&probe, &keys)?;
    let mut decided = Vec::new();
    for key in &keys {
        let decides = of_key(&probe, key)?;
        decided.push((key, part(key), decides));
    }
    for (at, (one, one_part, one_decides)) in decided.iter().enumerate() {
        for (other, other_part, other_decides) in &decided[..at] {
            if (one_part == other_part) == (one_decides == other_decides) {
                continue;
            }
            let (key, other) = (shown(other), shown(one));
            return Err(if one_part == other_part {
                Violation::Apart {
                    key,
                    decides: other_decides.clone(),
                    other,
                    other_decides: one_decides.clone(),
                    part: shown(one_part).into(),
                }
            } else {
                Violation::Together {
                    key,
                    part: shown(other_part).into(),
                    other,
                    other_part: shown(one_part).into(),
                    decides: one_decides.clone(),
                }
            });
        }
    }
    Ok(())
}

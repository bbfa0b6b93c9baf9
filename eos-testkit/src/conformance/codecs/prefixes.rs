//! Prefixes of an ordered store's keys.

use std::convert::Infallible;
use std::fmt::Debug;

use eos_core::codec::{Encoded, OrderedKey, PrefixOf};

use super::ordered::Last;
use super::probe::{Probe, appended};
use super::violation::{Violation, Written, shown};

/// Checks the prefixes of an ordered store: a scan by a prefix finds exactly the keys that begin with it, as defined
/// by `begins`. Pass prefixes of the sample's keys, of no key, and some that are nearly one.
///
/// ```
/// # use eos_testkit::conformance::codecs::{Violation, check_prefixes};
/// # fn main() -> Result<(), Violation> {
/// let visits = [("ada", 1), ("adam", 1), ("ada\0", 2)];
/// let visits = visits.map(|(user, time)| (user.to_owned(), time));
/// let users = ["ada", "adam", "a", ""].map(str::to_owned);
/// check_prefixes::<(String, i64), String>(visits, &users, |visit, user| visit.0 == *user)
/// # }
/// ```
///
/// # Errors
/// The first violation found; [`Violation::NoSample`] without keys or without prefixes.
pub fn check_prefixes<'p, K, P>(
    keys: impl IntoIterator<Item = K>,
    prefixes: impl IntoIterator<Item = &'p P>,
    begins: impl Fn(&K, &P) -> bool,
) -> Result<(), Violation>
where
    K: OrderedKey + Debug,
    P: PrefixOf<K> + Debug + ?Sized + 'p,
{
    let last = Last::new();
    let written = |key: K| Ok((Probe(&last).written(&key)?, key));
    let keys: Vec<_> = keys.into_iter().map(written).collect::<Result<_, _>>()?;
    let mut checked = 0;
    for prefix in prefixes {
        let bytes = prefix_bytes(prefix)?;
        for (written, key) in &keys {
            checked += 1;
            let starts = written.starts_with(&bytes);
            if starts != begins(key, prefix) {
                let (prefix, key) = (shown(prefix), shown(key));
                let (prefix_bytes, key_bytes) = (bytes, written.clone());
                return Err(if starts {
                    Violation::PrefixOfOthers {
                        prefix,
                        prefix_bytes,
                        key,
                        key_bytes,
                    }
                } else {
                    Violation::NoPrefix {
                        prefix,
                        prefix_bytes,
                        key,
                        key_bytes,
                    }
                });
            }
        }
    }
    if checked == 0 {
        return Err(Violation::NoSample);
    }
    Ok(())
}

fn prefix_bytes<K, P: PrefixOf<K> + Debug + ?Sized>(prefix: &P) -> Result<Written, Violation> {
    let doing = || format!("writing the prefix {}", shown(prefix));
    let write = |into: &mut Vec<u8>| {
        prefix.write_prefix(into);
        Ok::<_, Infallible>(Encoded::Bytes)
    };
    match appended(b"before", prefix, doing, write)? {
        Ok(written) => Ok(written),
        Err(never) => match never {},
    }
}

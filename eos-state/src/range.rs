//! Ranges of keys, in the order of their bytes.

use std::ops::{Bound, RangeBounds};

/// The direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the smallest key up.
    Forward,
    /// From the largest key down.
    Reverse,
}

/// A range of keys, from a start (included) to an end (excluded).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    from: Vec<u8>,
    to: Option<Vec<u8>>,
}

impl KeyRange {
    /// Returns every key.
    #[must_use]
    pub const fn all() -> Self {
        Self {
            from: Vec::new(),
            to: None,
        }
    }

    /// Returns the keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        Self {
            from: prefix.to_vec(),
            to: after_prefix(prefix),
        }
    }

    /// Returns the keys between two bounds. An inverted range holds no key.
    #[must_use]
    pub fn between<'k>(range: impl RangeBounds<&'k [u8]>) -> Self {
        let from = match range.start_bound() {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => just_after(key),
        };
        let to = match range.end_bound() {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(just_after(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
        };
        Self { from, to }
    }

    /// The same range of keys that have this prefix in front.
    #[must_use]
    pub fn behind(&self, prefix: &[u8]) -> Self {
        Self {
            from: [prefix, &self.from].concat(),
            to: match &self.to {
                Some(to) => Some([prefix, to].concat()),
                None => after_prefix(prefix),
            },
        }
    }

    /// Returns the part of the range above this key.
    #[must_use]
    pub fn after(&self, key: &[u8]) -> Self {
        Self {
            from: just_after(key).max(self.from.clone()),
            to: self.to.clone(),
        }
    }

    /// Returns the part of the range below this key.
    #[must_use]
    pub fn before(&self, key: &[u8]) -> Self {
        let to = self.to.as_deref().map_or(key, |to| to.min(key));
        Self {
            from: self.from.clone(),
            to: Some(to.to_vec()),
        }
    }

    /// Returns the first possible key in the range.
    #[must_use]
    pub fn from(&self) -> &[u8] {
        &self.from
    }

    /// Returns the first key above the range; `None` without an upper end.
    #[must_use]
    pub fn to(&self) -> Option<&[u8]> {
        self.to.as_deref()
    }

    /// The same range for a `BTreeMap`, which panics on an inverted range.
    pub(crate) fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let to = self.to().map_or(Bound::Unbounded, Bound::Excluded);
        (Bound::Included(self.from()), to)
    }

    /// Returns whether the range is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.to().is_some_and(|to| to <= self.from())
    }

    /// Returns whether the key is in the range.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.from() <= key && self.to().is_none_or(|to| key < to)
    }
}

/// Returns the smallest key above this one.
fn just_after(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

/// Returns the smallest key above all keys with the prefix; `None` if it is all 0xff or empty.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut next = prefix[..=last].to_vec();
    next[last] += 1;
    Some(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_prefix_of_0xff_has_no_end() {
        assert_eq!(KeyRange::prefix(&[0xff, 0xff]).to(), None);
        assert_eq!(KeyRange::prefix(&[1, 0xff]).to(), Some(&[2][..]));
        assert_eq!(KeyRange::prefix(&[]), KeyRange::all());
    }

    proptest! {
        #[test]
        fn a_prefix_range_holds_exactly_what_begins_with_it(
            prefix in proptest::collection::vec(0xfd_u8.., 0..3),
            key in proptest::collection::vec(0xfd_u8.., 0..4),
        ) {
            prop_assert_eq!(KeyRange::prefix(&prefix).contains(&key), key.starts_with(&prefix));
        }

        #[test]
        fn a_range_behind_a_prefix_holds_its_keys_with_the_prefix(
            prefix in proptest::collection::vec(0xfd_u8.., 0..3),
            a in proptest::collection::vec(0xfe_u8.., 0..3),
            b in proptest::option::of(proptest::collection::vec(0xfe_u8.., 0..3)),
            key in proptest::collection::vec(0xfd_u8.., 0..6),
        ) {
            let to = b.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let range = KeyRange::between((Bound::Included(&a[..]), to));
            let inner = key.strip_prefix(&prefix[..]);
            let expected = inner.is_some_and(|inner| range.contains(inner));
            prop_assert_eq!(range.behind(&prefix).contains(&key), expected);
        }

        #[test]
        fn bounds_mean_what_they_mean_in_std(
            a in proptest::collection::vec(0u8..3, 0..3),
            b in proptest::collection::vec(0u8..3, 0..3),
            key in proptest::collection::vec(0u8..3, 0..4),
            kinds in (0u8..3, 0u8..3),
        ) {
            let bound = |kind, key| match kind {
                0 => Bound::Unbounded,
                1 => Bound::Included(key),
                _ => Bound::Excluded(key),
            };
            let std = (bound(kinds.0, &a[..]), bound(kinds.1, &b[..]));
            let range = KeyRange::between(std);
            prop_assert_eq!(range.contains(&key), std.contains(&&key[..]));
            prop_assert!(!range.is_empty() || !range.contains(&key));
        }
    }
}

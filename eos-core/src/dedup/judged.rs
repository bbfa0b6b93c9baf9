//! A value with the status of its record's id.

use eos_protocol::identity::Seen;

/// A value, and the status of its record's id. Returned by [`Dedup::judge_by`](super::Dedup::judge_by).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Judged<V> {
    /// The value.
    pub value: V,
    /// The status of the id.
    pub seen: Seen,
}

impl<V> Judged<V> {
    pub(crate) fn new(value: V, seen: Seen) -> Self {
        Self { value, seen }
    }
}

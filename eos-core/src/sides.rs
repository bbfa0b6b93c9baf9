//! The sides of an outer join.

/// The values of an outer join: that of one side, or those of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sides<L, R> {
    /// Only the left side has a value.
    Left(L),
    /// Only the right side has a value.
    Right(R),
    /// Both sides have a value.
    Both(L, R),
}

impl<L, R> Sides<L, R> {
    /// Returns the sides that have a value, if one has.
    pub(crate) fn of(left: Option<L>, right: Option<R>) -> Option<Self> {
        match (left, right) {
            (Some(left), Some(right)) => Some(Self::Both(left, right)),
            (Some(left), None) => Some(Self::Left(left)),
            (None, Some(right)) => Some(Self::Right(right)),
            (None, None) => None,
        }
    }
}

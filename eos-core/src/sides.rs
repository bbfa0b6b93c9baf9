//! Values of the sides of a join.

use eos_protocol::joins::Side;

/// The values of an outer join: of [`Stream::outer_join_within`](crate::Stream::outer_join_within), or of
/// [`Table::outer_join`](crate::Table::outer_join).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sides<V, W> {
    /// The left value, without a partner.
    Left(V),
    /// The right value, without a partner.
    Right(W),
    /// A pair.
    Both(V, W),
}

impl<V, W> Sides<V, W> {
    /// Returns the sides that have a value. `None` if both are missing.
    pub(crate) fn of(left: Option<V>, right: Option<W>) -> Option<Self> {
        match (left, right) {
            (Some(left), Some(right)) => Some(Self::Both(left, right)),
            (Some(left), None) => Some(Self::Left(left)),
            (None, Some(right)) => Some(Self::Right(right)),
            (None, None) => None,
        }
    }
}

/// A value of one side of a join.
#[derive(Debug, Clone)]
pub(crate) enum Sided<V, W> {
    Left(V),
    Right(W),
}

impl<V, W> Sided<V, W> {
    pub(crate) fn into_result(self) -> Result<V, W> {
        match self {
            Self::Left(value) => Ok(value),
            Self::Right(value) => Err(value),
        }
    }

    pub(crate) fn side(&self) -> Side {
        match self {
            Self::Left(_) => Side::Left,
            Self::Right(_) => Side::Right,
        }
    }

    pub(crate) fn alone(&self) -> Sides<&V, &W> {
        match self {
            Self::Left(value) => Sides::Left(value),
            Self::Right(value) => Sides::Right(value),
        }
    }

    /// Returns both values, if they are of different sides.
    pub(crate) fn with<'a>(&'a self, other: &'a Self) -> Option<Sides<&'a V, &'a W>> {
        match (self, other) {
            (Self::Left(left), Self::Right(right)) | (Self::Right(right), Self::Left(left)) => {
                Some(Sides::Both(left, right))
            }
            _ => None,
        }
    }
}

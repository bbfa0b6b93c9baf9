//! Joins of two streams: which records belong together, when a record closes, and how a store keeps open records.
//!
//! Both sides of a join have one store. A row of it has the records of one key in one stretch of time, those of both
//! sides. So a record reads two rows at most and writes one. A row that grows too large is *spread*: each of its records
//! becomes a row of its own behind it.
//!
//! **A closed record has no further pairs**, in every kind of join. So no record is both alone and in a pair, even if
//! closed records are still stored.

mod joining;
mod keys;
mod row;
mod spread;
mod terms;
mod within;

#[cfg(test)]
mod tests;

pub use joining::{Arrival, Arrived, EachRow, JoinError, JoinStorage, Joining};
pub use keys::{head_key, key_of_head};
pub use row::{JoinRow, JoinRowError};
pub use spread::{SpreadEntry, Stored};
pub use terms::{JoinTerms, OtherJoin};
pub use within::Within;

/// A side of a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The stream that the method is called on.
    Left,
    /// The other stream.
    Right,
}

impl Side {
    /// Both sides.
    pub const ALL: [Self; 2] = [Self::Left, Self::Right];

    /// The name in headers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Right => "right",
        }
    }

    /// The other side.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }
}

/// The results that a join has for records without a partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JoinKind {
    /// None.
    Inner,
    /// One for each record of the left side.
    Left,
    /// One for each record of both sides.
    Outer,
}

impl JoinKind {
    /// Returns whether a record of this side goes out alone if it has no pair when it closes.
    #[must_use]
    pub const fn emits_alone(self, side: Side) -> bool {
        match self {
            Self::Inner => false,
            Self::Left => matches!(side, Side::Left),
            Self::Outer => true,
        }
    }

    /// The method that declares the join.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Inner => "join_within",
            Self::Left => "left_join_within",
            Self::Outer => "outer_join_within",
        }
    }

    const fn number(self) -> u8 {
        match self {
            Self::Inner => 0,
            Self::Left => 1,
            Self::Outer => 2,
        }
    }

    const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Inner),
            1 => Some(Self::Left),
            2 => Some(Self::Outer),
            _ => None,
        }
    }
}

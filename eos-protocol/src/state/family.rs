//! The two kinds of stores.

use std::fmt;

/// The changelog of a stage and the column family of a task's database to which a store belongs.
///
/// Windowed stores have their own: expired windows are deleted with the changelog's front (DeleteRecords), which
/// would delete a plain store's keys, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// A key stays until it is deleted.
    Plain,
    /// A key belongs to a window, and is deleted with it.
    Windowed,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Plain, Self::Windowed];
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Windowed => "windowed",
        })
    }
}

/// One value for each family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PerFamily<T> {
    /// The value of the plain stores.
    pub plain: T,
    /// The value of the windowed stores.
    pub windowed: T,
}

impl<T> PerFamily<T> {
    /// Builds each family's value.
    pub fn from_fn(mut of: impl FnMut(Family) -> T) -> Self {
        Self {
            plain: of(Family::Plain),
            windowed: of(Family::Windowed),
        }
    }

    /// One family's value.
    pub const fn get(&self, family: Family) -> &T {
        match family {
            Family::Plain => &self.plain,
            Family::Windowed => &self.windowed,
        }
    }

    /// One family's value, mutable.
    pub const fn get_mut(&mut self, family: Family) -> &mut T {
        match family {
            Family::Plain => &mut self.plain,
            Family::Windowed => &mut self.windowed,
        }
    }

    /// Converts each family's value.
    pub fn map<U>(self, mut f: impl FnMut(T) -> U) -> PerFamily<U> {
        PerFamily {
            plain: f(self.plain),
            windowed: f(self.windowed),
        }
    }

    /// Iterates over the families with their values.
    pub fn iter(&self) -> impl Iterator<Item = (Family, &T)> {
        Family::ALL
            .into_iter()
            .map(|family| (family, self.get(family)))
    }
}

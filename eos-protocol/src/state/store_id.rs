//! The id of a store in keys.

use std::fmt;

use super::{Family, OwnRows};
use crate::identity::{IdScope, SeenKind};

/// The bit that marks the id of a windowed store.
const WINDOWED: u32 = 0x8000_0000;
/// The mark behind the name of a store whose values have times. No name contains a zero.
const STAMPED: &str = "\0stamped";
/// The mark behind the name of a store whose rows have moments.
const DUE: &str = "\0due";

/// A store's number: the first four bytes of its keys, in the database and in the changelog.
///
/// FNV-1a (32 bit) of the store's name, followed by a mark if values begin with a time or rows have moments. The top
/// bit is set for windowed stores instead, so the id alone shows the changelog of a key. The smallest id of each family
/// is reserved for its commit record; a name with this hash gets the next id. If two names of one app have the same id,
/// the declaration of stores is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId(u32);

impl StoreId {
    /// The id of a plain store.
    #[must_use]
    pub const fn plain(name: &str) -> Self {
        Self::named(name, "", 0)
    }

    /// The id of a windowed store.
    #[must_use]
    pub const fn windowed(name: &str) -> Self {
        Self::named(name, "", WINDOWED)
    }

    /// The id of a store whose values begin with a time, as the stores of operators do. It differs from the id of a
    /// store without times of the same name, so neither store reads the other's values.
    #[must_use]
    pub const fn stamped(family: Family, name: &str) -> Self {
        let class = match family {
            Family::Plain => 0,
            Family::Windowed => WINDOWED,
        };
        Self::named(name, STAMPED, class)
    }

    /// The id of a plain store whose rows have moments, as timers do.
    #[must_use]
    pub const fn due(name: &str) -> Self {
        Self::named(name, DUE, 0)
    }

    /// The id of a deduplication store. It differs for each kind and scope, because their keys and values do.
    #[must_use]
    pub fn seen(name: &str, kind: SeenKind, scope: IdScope) -> Self {
        let (kind, class) = match kind {
            SeenKind::Fixed => ("fixed", WINDOWED),
            SeenKind::Sliding => ("sliding", WINDOWED),
            SeenKind::TimeEmbedded => ("time-embedded", WINDOWED),
            SeenKind::Ever => ("ever", 0),
        };
        let scope = match scope {
            IdScope::Key => "key",
            IdScope::Partition => "partition",
            IdScope::TenantAndKey => "tenant-key",
            IdScope::TenantAndPartition => "tenant-partition",
        };
        Self::named(name, &format!("\0seen-{kind}-{scope}"), class)
    }

    /// Returns whether this is the id of a deduplication store of this name, of any kind and scope.
    #[must_use]
    pub fn is_seen(self, name: &str) -> bool {
        self.seen_kind(name).is_some()
    }

    /// The kind of the deduplication store of this name with this id, if it is one.
    #[must_use]
    pub fn seen_kind(self, name: &str) -> Option<SeenKind> {
        SeenKind::ALL.into_iter().find(|kind| {
            let mut scopes = IdScope::ALL.into_iter();
            scopes.any(|scope| Self::seen(name, *kind, scope) == self)
        })
    }

    /// The id of an operator's store whose rows have a format of their own.
    #[must_use]
    pub const fn own(name: &str, rows: OwnRows) -> Self {
        let class = if rows.are_windowed() { WINDOWED } else { 0 };
        Self::named(name, rows.mark(), class)
    }

    /// Returns the operator whose store of this name has this id.
    #[must_use]
    pub fn own_rows(self, name: &str) -> Option<OwnRows> {
        let mut all = OwnRows::ALL.into_iter();
        all.find(|rows| Self::own(name, *rows) == self)
    }

    /// The reserved id of a family's commit record.
    #[must_use]
    pub const fn commit_record(family: Family) -> Self {
        match family {
            Family::Plain => Self(0),
            Family::Windowed => Self(WINDOWED),
        }
    }

    const fn named(name: &str, mark: &str, class: u32) -> Self {
        let hash = hashed(hashed(0x811c_9dc5, name.as_bytes()), mark.as_bytes());
        Self::clear_of_reserved((hash & !WINDOWED) | class)
    }

    const fn clear_of_reserved(id: u32) -> Self {
        Self(if id & !WINDOWED == 0 { id + 1 } else { id })
    }

    /// Returns whether the id belongs to a windowed store.
    #[must_use]
    pub const fn is_windowed(self) -> bool {
        self.0 & WINDOWED != 0
    }

    /// Returns whether it is the id of a commit record.
    #[must_use]
    pub const fn is_reserved(self) -> bool {
        self.0 & !WINDOWED == 0
    }

    /// The changelog of its keys.
    #[must_use]
    pub const fn family(self) -> Family {
        if self.is_windowed() {
            Family::Windowed
        } else {
            Family::Plain
        }
    }

    /// The first bytes of its keys.
    #[must_use]
    pub const fn to_be_bytes(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }

    /// The id at the beginning of a key.
    #[must_use]
    pub const fn from_be_bytes(bytes: [u8; 4]) -> Self {
        Self(u32::from_be_bytes(bytes))
    }
}

const fn hashed(mut hash: u32, bytes: &[u8]) -> u32 {
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u32).wrapping_mul(0x0100_0193);
        i += 1;
    }
    hash
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The ids are on disk and in topics: another hash would orphan all state.
    #[test]
    fn ids_are_pinned() {
        assert_eq!(StoreId::plain("").to_string(), "011c9dc5");
        assert_eq!(StoreId::plain("counts").to_string(), "59ffbb85");
        assert_eq!(StoreId::windowed("counts").to_string(), "d9ffbb85");
        let stamped = |family| StoreId::stamped(family, "counts").to_string();
        assert_eq!(stamped(Family::Plain), "59bf3a0f");
        assert_eq!(stamped(Family::Windowed), "d9bf3a0f");
        assert_eq!(StoreId::due("counts").to_string(), "09cc8adb");
        let seen = |kind, scope| StoreId::seen("counts", kind, scope).to_string();
        assert_eq!(seen(SeenKind::Fixed, IdScope::Key), "d0ffeca5");
        assert_eq!(seen(SeenKind::Sliding, IdScope::Key), "ab5bb42d");
        assert_eq!(seen(SeenKind::Ever, IdScope::Key), "0854a881");
        let ids = SeenKind::ALL.map(|kind| IdScope::ALL.map(|scope| seen(kind, scope)));
        let ids: std::collections::BTreeSet<String> = ids.into_iter().flatten().collect();
        assert_eq!(ids.len(), 16);
        assert_eq!(seen(SeenKind::Fixed, IdScope::Partition), "a0c6bc44");
        assert_eq!(seen(SeenKind::TimeEmbedded, IdScope::Key), "dc89ca65");
        let own = OwnRows::ALL.map(|rows| StoreId::own("counts", rows));
        assert_eq!(
            own.map(|id| id.to_string()),
            [
                "56868844", "2cd90096", "06e2cb72", "77d2c21a", "3d3c19ce", "0651e91b", "7c9def73",
                "54ae07ee", "8dd130fe", "30f34afa", "1b4eeff1", "13933292", "1588f3cc"
            ]
        );
        for (id, rows) in own.into_iter().zip(OwnRows::ALL) {
            assert_eq!(id.own_rows("counts"), Some(rows));
            assert_eq!(id.own_rows("other"), None);
        }
    }

    #[test]
    fn a_name_that_hashes_to_a_commit_record_moves_on_by_one() {
        for family in Family::ALL {
            let reserved = StoreId::commit_record(family);
            assert!(reserved.is_reserved());
            assert_eq!(reserved.family(), family);
            let moved = StoreId::clear_of_reserved(reserved.0);
            assert_eq!(moved.0, reserved.0 + 1);
            assert_eq!(moved.family(), family);
        }
    }

    proptest! {
        #[test]
        fn the_id_alone_tells_the_family(name in ".*") {
            let (plain, windowed) = (StoreId::plain(&name), StoreId::windowed(&name));
            prop_assert_eq!(plain.family(), Family::Plain);
            prop_assert_eq!(windowed.family(), Family::Windowed);
            prop_assert!(windowed.is_windowed() && !plain.is_windowed());
            prop_assert!(!plain.is_reserved() && !windowed.is_reserved());
            prop_assert_eq!(windowed.to_be_bytes()[0] & 0x80, 0x80);
            prop_assert_eq!(StoreId::from_be_bytes(plain.to_be_bytes()), plain);
        }
    }
}

//! The names of a task's stores.

use std::fmt;
use std::sync::Arc;

use super::{Family, StoreId};

/// The maximum length of the list in a transaction name, in bytes. Each committed offset has the list in its metadata,
/// and by default the broker accepts 4,096 bytes (`offset.metadata.max.bytes`).
const LONGEST: usize = 300;

/// The names of a task's stores, and of the steps that have seen all of their rows.
///
/// Keys in a changelog or database have only the id of their store, a hash. With the names in the committed offsets,
/// an error about a renamed store can show the old name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreNames {
    /// The sorted names, separated by commas. Names of stores contain no comma.
    joined: Arc<str>,
}

impl Default for StoreNames {
    fn default() -> Self {
        let joined = Arc::from("");
        Self { joined }
    }
}

impl StoreNames {
    /// Creates a list from names in any order. The list is empty if it would exceed 300 bytes.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut names: Vec<&str> = names.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        let joined = names.join(",");
        match joined.len() {
            0..=LONGEST => Self {
                joined: joined.into(),
            },
            _ => Self::default(),
        }
    }

    /// Parses a list of at least one name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let are_names = text.split(',').all(|name| !name.is_empty());
        let joined = || Arc::from(text);
        are_names.then(|| Self { joined: joined() })
    }

    /// Returns whether the list has no names.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.joined.is_empty()
    }

    /// Returns the names in sorted order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.joined.split(',').filter(|name| !name.is_empty())
    }

    /// Returns whether the list shows that a step with this name is new. An empty list shows nothing.
    #[must_use]
    pub fn lacks(&self, name: &str) -> bool {
        !self.is_empty() && self.iter().all(|known| known != name)
    }

    /// Returns the name of the store with this id.
    #[must_use]
    pub fn of_id(&self, id: StoreId) -> Option<&str> {
        self.iter().find(|name| {
            let raw = [
                StoreId::plain(name),
                StoreId::windowed(name),
                StoreId::due(name),
            ];
            let is_own = id.own_rows(name).is_some() || id.is_seen(name);
            is_own
                || raw.contains(&id)
                || Family::ALL.iter().any(|&f| StoreId::stamped(f, name) == id)
        })
    }
}

impl fmt::Display for StoreNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.joined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{IdScope, SeenKind};
    use crate::state::OwnRows;

    #[test]
    fn an_id_has_the_name_of_its_store() {
        let names = StoreNames::of(["visits", "balances"]);
        for id in [
            StoreId::plain("visits"),
            StoreId::windowed("visits"),
            StoreId::stamped(Family::Plain, "visits"),
            StoreId::stamped(Family::Windowed, "visits"),
            StoreId::own("visits", OwnRows::Sessions),
            StoreId::seen("visits", SeenKind::Fixed, IdScope::Key),
        ] {
            assert_eq!(names.of_id(id), Some("visits"), "{id}");
        }
        assert_eq!(names.of_id(StoreId::plain("visit")), None);
        assert_eq!(StoreNames::default().of_id(StoreId::plain("")), None);
    }

    #[test]
    fn a_list_without_a_name_shows_that_its_step_is_new() {
        let names = StoreNames::of(["visits", "balances"]);
        assert!(names.lacks("visit"));
        assert!(!names.lacks("visits"));
        assert!(!StoreNames::default().lacks("visits"));
    }

    #[test]
    fn a_list_that_is_too_long_is_omitted() {
        let names: Vec<String> = (0..100).map(|n| format!("store-number-{n}")).collect();
        let all = StoreNames::of(names.iter().map(String::as_str));
        assert!(all.is_empty(), "{all}");
        let some = StoreNames::of(names[..15].iter().map(String::as_str));
        assert_eq!(some.iter().count(), 15);
    }
}

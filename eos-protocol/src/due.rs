//! The order of due items.
//!
//! A due item is a key of a store with a moment, for example a timer. Items of one clock are handled in the order of
//! their [`Place`]s. The last handled place is a committed mark: an item is never handled at or before the mark, so a
//! search for the next item starts behind it.

use crate::Timestamp;
use crate::state::StoreId;

/// The clock that a moment refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Clock {
    /// Stream time: the highest timestamp that the task has taken.
    Stream,
    /// The clock of the machine.
    Wall,
}

impl Clock {
    /// Every clock.
    pub const ALL: [Clock; 2] = [Clock::Stream, Clock::Wall];

    /// The clock's number in keys and marks.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Clock::Stream => 0,
            Clock::Wall => 1,
        }
    }

    /// The clock with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Clock::Stream),
            1 => Some(Clock::Wall),
            _ => None,
        }
    }
}

/// The place of a due item in the order of its clock: by moment, then by store, then by key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The moment under which the index lists the item.
    pub moment: Timestamp,
    /// The store of the item.
    pub store: StoreId,
    /// The key of the item in its store.
    pub key: Vec<u8>,
}

impl Place {
    /// Returns the moment under which the index lists an item: `due`, or the first moment that puts the item behind
    /// `mark`, the last handled place.
    ///
    /// An item that is set into the past would otherwise be before the mark, where no search finds it.
    #[must_use]
    pub fn listed_at(
        due: Timestamp,
        store: StoreId,
        key: &[u8],
        mark: Option<&Place>,
    ) -> Timestamp {
        let Some(mark) = mark else {
            return due;
        };
        if due > mark.moment {
            return due;
        }
        let is_behind = (store, key) > (mark.store, &mark.key[..]);
        Timestamp(mark.moment.0.saturating_add(i64::from(!is_behind)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_name_clocks() {
        for clock in Clock::ALL {
            assert_eq!(Clock::from_number(clock.number()), Some(clock));
        }
        assert_eq!(Clock::from_number(2), None);
    }

    proptest! {
        #[test]
        fn an_item_is_listed_at_the_first_place_behind_the_mark_that_is_not_before_its_moment(
            due in 0_i64..6,
            (store, marked_store) in (1_u8..3, 1_u8..3),
            (key, marked_key) in (proptest::collection::vec(0_u8..2, 0..3), proptest::collection::vec(0_u8..2, 0..3)),
            moment in 0_i64..6,
        ) {
            let id = |n| StoreId::from_be_bytes([0, 0, 0, n]);
            let mark = Place { moment: Timestamp(moment), store: id(marked_store), key: marked_key };
            let listed = |moment| Place { moment: Timestamp(moment), store: id(store), key: key.clone() };
            let expected = (due..).map(listed).find(|place| *place > mark).unwrap();
            let found = Place::listed_at(Timestamp(due), id(store), &key, Some(&mark));
            prop_assert_eq!(found, expected.moment);
            prop_assert_eq!(Place::listed_at(Timestamp(due), id(store), &key, None), Timestamp(due));
        }
    }
}

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
    /// Stream time: the highest timestamp of the task's records.
    Stream,
    /// The clock of the machine.
    Wall,
    /// Stream time, for items without visible effects. Their order and their delay do not matter.
    Background,
}

impl Clock {
    /// All clocks.
    pub const ALL: [Clock; 3] = [Clock::Stream, Clock::Wall, Clock::Background];

    /// The number of the clock in keys and marks.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Clock::Stream => 0,
            Clock::Wall => 1,
            Clock::Background => 2,
        }
    }

    /// The clock with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Clock::Stream),
            1 => Some(Clock::Wall),
            2 => Some(Clock::Background),
            _ => None,
        }
    }
}

/// A point of the order of due items: a moment and a round within it. There are 1,024 rounds in a millisecond.
///
/// An item that is set into the past is due in the next round of the last handled moment. The next millisecond may be
/// later than any record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Round(i64);

impl Round {
    /// The number of bits of a round.
    const ROUNDS: u32 = 10;

    /// The first round of a moment. A moment more than 140,000 years away is clamped.
    #[must_use]
    pub const fn of(moment: Timestamp) -> Self {
        let at = moment.0;
        let last = Place::LAST.0;
        let at = if at > last { last } else { at };
        let at = if at < -last { -last } else { at };
        Self(at << Self::ROUNDS)
    }

    /// The moment.
    #[must_use]
    pub const fn moment(self) -> Timestamp {
        Timestamp(self.0 >> Self::ROUNDS)
    }

    const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The number of the round, for keys and rows.
    #[must_use]
    pub const fn number(self) -> i64 {
        self.0
    }

    /// The round with this number.
    #[must_use]
    pub const fn from_number(number: i64) -> Self {
        Self(number)
    }
}

/// The place of a due item in the order of its clock: by round, then by store, then by key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The point under which the index lists the item.
    pub round: Round,
    /// The store of the item.
    pub store: StoreId,
    /// The key of the item in its store.
    pub key: Vec<u8>,
}

impl Place {
    /// The last moment of an item, in milliseconds since 1970.
    pub const LAST: Timestamp = Timestamp::LAST_DUE;

    /// The moment of the place.
    #[must_use]
    pub const fn moment(&self) -> Timestamp {
        self.round.moment()
    }

    /// Returns the point under which the index lists an item: `due`, or the first one that puts the item behind `mark`,
    /// the last handled place.
    ///
    /// An item that is set into the past would otherwise be before the mark, where no search finds it.
    #[must_use]
    pub fn listed_at(due: Timestamp, store: StoreId, key: &[u8], mark: Option<&Place>) -> Round {
        let round = Round::of(due);
        match mark {
            Some(mark) if round <= mark.round => match (store, key) > (mark.store, &mark.key[..]) {
                true => mark.round,
                false => mark.round.next(),
            },
            _ => round,
        }
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
        assert_eq!(Clock::from_number(3), None);
    }

    #[test]
    fn ticks_are_in_the_order_of_moments_and_within_their_range() {
        for at in [i64::MIN, -2, -1, 0, 1, 1_700_000_000_000, i64::MAX] {
            let (round, at) = (
                Round::of(Timestamp(at)),
                at.clamp(-Place::LAST.0, Place::LAST.0),
            );
            assert_eq!(round.moment(), Timestamp(at));
            assert_eq!(round.next().moment(), Timestamp(at));
            assert!(round.next() < Round::of(Timestamp(at + 1)) || at == Place::LAST.0);
            assert_eq!(Round::from_number(round.number()), round);
        }
    }

    proptest! {
        #[test]
        fn an_item_is_listed_at_the_first_place_behind_the_mark_that_is_not_before_its_moment(
            due in 0_i64..4,
            (store, marked_store) in (1_u8..3, 1_u8..3),
            (key, marked_key) in (proptest::collection::vec(0_u8..2, 0..3), proptest::collection::vec(0_u8..2, 0..3)),
            (moment, rounds) in (0_i64..4, 0_usize..3),
        ) {
            let id = |n| StoreId::from_be_bytes([0, 0, 0, n]);
            let round = std::iter::successors(Some(Round::of(Timestamp(moment))), |it| Some(it.next()));
            let mark = Place { round: round.clone().nth(rounds).unwrap(), store: id(marked_store), key: marked_key };
            let listed = |round| Place { round, store: id(store), key: key.clone() };
            let due_round = Round::of(Timestamp(due));
            let places = std::iter::successors(Some(due_round), |it| Some(it.next())).map(listed);
            let expected = places.into_iter().find(|place| *place > mark).unwrap();
            let found = Place::listed_at(Timestamp(due), id(store), &key, Some(&mark));
            prop_assert_eq!(found, expected.round);
            prop_assert_eq!(Place::listed_at(Timestamp(due), id(store), &key, None), due_round);
            // An item that is due at once has the moment of the mark.
            prop_assert!(due > moment || found.moment() == Timestamp(moment));
        }
    }
}

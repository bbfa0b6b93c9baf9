//! The next number of a key, and its waiting numbers.

use std::collections::BTreeSet;

use super::held::{put_varint, take_varint};

/// The format of rows that this version writes, and the newest that it reads.
const FORMAT: u8 = 1;

/// The next number of a key, and the numbers that wait behind a gap.
///
/// A row is the format (1 byte), the next number (16 bytes, because the number after the last one has 65 bits), and the
/// distance of each waiting number from the one before it (varint), the first from the next number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    next: u128,
    waiting: BTreeSet<u64>,
}

/// What to do with a number that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Forward it. Then take those that follow, with [`Turn::take_next`].
    Next,
    /// Keep it: numbers before it are missing.
    Waits,
    /// It was forwarded, given up, or it waits already.
    Late,
    /// The distance from the next number is longer than allowed.
    TooFar {
        /// The distance.
        gap: u64,
    },
}

/// A row of numbers can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TurnError {
    /// Another version of eos wrote it.
    #[error("the row has format {0}, and this version of eos reads format {FORMAT}")]
    Format(u8),
    /// Bytes are missing, or a number is too large.
    #[error("the row is cut short")]
    Short,
}

impl Turn {
    /// The turn of a key without records.
    #[must_use]
    pub fn starting_at(first: u64) -> Self {
        Self {
            next: first.into(),
            waiting: BTreeSet::new(),
        }
    }

    /// The next number. It is above the highest `u64` once all numbers were forwarded.
    #[must_use]
    pub fn next(&self) -> u128 {
        self.next
    }

    /// The lowest number that waits.
    #[must_use]
    pub fn lowest(&self) -> Option<u64> {
        self.waiting.first().copied()
    }

    /// The numbers that wait below this one.
    pub fn below(&self, number: u64) -> impl Iterator<Item = u64> {
        self.waiting.range(..number).copied()
    }

    /// The number of waiting records.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Judges a number. `max_gap`: the longest allowed distance from the next number.
    #[must_use]
    pub fn arrives(&self, number: u64, max_gap: u64) -> Arrival {
        let Some(gap) = u128::from(number).checked_sub(self.next) else {
            return Arrival::Late;
        };
        let gap = u64::try_from(gap).unwrap_or(u64::MAX);
        match gap {
            _ if self.waiting.contains(&number) => Arrival::Late,
            0 => Arrival::Next,
            _ if gap > max_gap => Arrival::TooFar { gap },
            _ => Arrival::Waits,
        }
    }

    /// Notes that a number waits.
    pub fn wait(&mut self, number: u64) {
        self.waiting.insert(number);
    }

    /// Notes that the next number was forwarded.
    pub fn forwarded(&mut self) {
        self.next = self.next.saturating_add(1);
    }

    /// Takes the next number if it waits.
    pub fn take_next(&mut self) -> Option<u64> {
        let lowest = self
            .lowest()
            .filter(|lowest| u128::from(*lowest) <= self.next)?;
        self.waiting.remove(&lowest);
        self.forwarded();
        Some(lowest)
    }

    /// Gives up the missing numbers before this one. Numbers that wait stay. Returns whether numbers were missing.
    pub fn give_up_before(&mut self, number: u64) -> bool {
        let is_ahead = u128::from(number) > self.next;
        if is_ahead {
            self.next = number.into();
        }
        is_ahead
    }

    /// Takes the waiting numbers up to this one, and gives up the missing ones between them.
    pub fn take_up_to(&mut self, number: u64) -> Vec<u64> {
        self.next = self.next.max(u128::from(number) + 1);
        let rest = match number.checked_add(1) {
            Some(behind) => self.waiting.split_off(&behind),
            None => BTreeSet::new(),
        };
        let taken = std::mem::replace(&mut self.waiting, rest);
        taken.into_iter().collect()
    }

    /// Appends the row.
    pub fn encode(&self, into: &mut Vec<u8>) {
        into.push(FORMAT);
        into.extend_from_slice(&self.next.to_be_bytes());
        let mut last = self.next;
        for number in &self.waiting {
            let number = u128::from(*number);
            let distance = u64::try_from(number.saturating_sub(last)).unwrap_or(u64::MAX);
            put_varint(distance, into);
            last = number;
        }
    }

    /// Reads a row of [`encode`](Self::encode).
    ///
    /// # Errors
    /// [`TurnError`] for a newer format, or if bytes are missing.
    pub fn decode(row: &[u8]) -> Result<Self, TurnError> {
        let (format, rest) = row.split_first().ok_or(TurnError::Short)?;
        if *format != FORMAT {
            return Err(TurnError::Format(*format));
        }
        let (next, mut rest) = rest.split_first_chunk().ok_or(TurnError::Short)?;
        let next = u128::from_be_bytes(*next);
        let (mut last, mut waiting) = (next, BTreeSet::new());
        while !rest.is_empty() {
            let distance = take_varint(&mut rest).ok_or(TurnError::Short)?;
            last = last.saturating_add(distance.into());
            waiting.insert(u64::try_from(last).map_err(|_| TurnError::Short)?);
        }
        Ok(Self { next, waiting })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_is_next_waits_or_is_late() {
        let mut turn = Turn::starting_at(5);
        turn.wait(8);
        for (number, expected) in [
            (4, Arrival::Late),
            (5, Arrival::Next),
            (6, Arrival::Waits),
            (8, Arrival::Late),
            (15, Arrival::Waits),
            (16, Arrival::TooFar { gap: 11 }),
            (u64::MAX, Arrival::TooFar { gap: u64::MAX - 5 }),
        ] {
            assert_eq!(turn.arrives(number, 10), expected, "{number}");
        }
    }

    #[test]
    fn the_last_number_comes_once() {
        let mut turn = Turn::starting_at(u64::MAX);
        assert_eq!(turn.arrives(u64::MAX, 0), Arrival::Next);
        turn.forwarded();
        assert_eq!(turn.arrives(u64::MAX, 0), Arrival::Late);
        assert_eq!(turn.take_next(), None);
        let mut turn = Turn::starting_at(0);
        turn.wait(u64::MAX);
        assert_eq!(turn.take_up_to(u64::MAX), [u64::MAX]);
        assert_eq!(turn.next(), 1 << 64);
        let mut row = Vec::new();
        turn.encode(&mut row);
        assert_eq!(Turn::decode(&row), Ok(turn));
    }

    #[test]
    fn the_format_is_pinned_and_damage_is_an_error() {
        let mut turn = Turn::starting_at(2);
        turn.wait(5);
        turn.wait(300);
        let mut row = Vec::new();
        turn.encode(&mut row);
        let next = [0; 15];
        assert_eq!(row, [&[1][..], &next, &[2, 3, 0xa7, 2]].concat());
        assert_eq!(Turn::decode(b""), Err(TurnError::Short));
        assert_eq!(Turn::decode(&row[..16]), Err(TurnError::Short));
        assert_eq!(Turn::decode(&row[..19]), Err(TurnError::Short));
        row[0] = 2;
        assert_eq!(Turn::decode(&row), Err(TurnError::Format(2)));
    }

    proptest! {
        /// In any order within the gap, with repetitions, each number is forwarded once, in order.
        #[test]
        fn any_order_is_put_right(
            mut numbers in proptest::collection::vec(0_u64..20, 0..60),
            first in prop_oneof![Just(0), Just(u64::MAX - 19)],
        ) {
            numbers.extend((0..20).rev());
            let (mut turn, mut out) = (Turn::starting_at(first), Vec::new());
            for number in numbers.iter().map(|n| first + n) {
                match turn.arrives(number, 19) {
                    Arrival::Next => {
                        turn.forwarded();
                        out.push(number);
                    }
                    Arrival::Waits => turn.wait(number),
                    Arrival::Late => {}
                    Arrival::TooFar { .. } => prop_assert!(false),
                }
                out.extend(std::iter::from_fn(|| turn.take_next()));
                let mut row = Vec::new();
                turn.encode(&mut row);
                prop_assert_eq!(Turn::decode(&row), Ok(turn.clone()));
            }
            prop_assert_eq!(turn.waiting(), 0);
            prop_assert_eq!(out, (0..20).map(|n| first + n).collect::<Vec<_>>());
        }

        #[test]
        fn what_is_given_up_never_comes_again(
            waiting in proptest::collection::btree_set(1_u64..30, 1..10),
            up_to in 0_u64..30,
        ) {
            let mut turn = Turn::starting_at(0);
            waiting.iter().for_each(|number| turn.wait(*number));
            let mut other = turn.clone();
            let taken = turn.take_up_to(up_to);
            prop_assert_eq!(&taken, &waiting.range(..=up_to).copied().collect::<Vec<_>>());
            prop_assert_eq!(turn.arrives(up_to, 100), Arrival::Late);
            let lowest = other.lowest().unwrap();
            prop_assert!(other.give_up_before(lowest));
            prop_assert_eq!(other.take_next(), Some(lowest));
            prop_assert_eq!(other.arrives(lowest - 1, 100), Arrival::Late);
        }
    }
}

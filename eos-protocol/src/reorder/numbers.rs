//! The next number and the waiting count of a key.

use crate::fields::take_varint;

/// The format of rows that this version writes, and the newest that it reads.
const FORMAT: u8 = 2;
/// The earlier format. It also lists the waiting numbers, which the keys of the waiting records contain as well.
const WITH_NUMBERS: u8 = 1;

/// The next number of a key, and the count of records that wait behind a gap.
///
/// The waiting records have rows of their own, in the order of their numbers. So the cost of a record does not depend
/// on the number of waiting records. A row contains the format (1 byte), the next number (16 bytes) and the count
/// (8 bytes). The next number has 16 bytes, because the number after the last one has 65 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    next: u128,
    waiting: u64,
}

/// The action for a number that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Forward it. Then take those that follow.
    Next,
    /// Keep it, unless it waits already: numbers before it are missing.
    Waits,
    /// It was forwarded or given up.
    Late,
    /// The distance from the next number is longer than allowed. It may wait already.
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
    #[error(
        "the numbers of a key have format {0}, but this version reads up to {FORMAT}: run the newest version that ever used \
         this state"
    )]
    Format(u8),
    /// Bytes are missing.
    #[error(
        "the numbers of a key are cut short: another program wrote to the changelog. Start under another app name"
    )]
    Short,
}

impl Turn {
    /// The turn of a key without records.
    #[must_use]
    pub const fn starting_at(first: u64) -> Self {
        Self {
            next: first as u128,
            waiting: 0,
        }
    }

    /// The next number. It is above the highest `u64` once all numbers were forwarded.
    #[must_use]
    pub const fn next(&self) -> u128 {
        self.next
    }

    /// The number of waiting records.
    #[must_use]
    pub const fn waiting(&self) -> u64 {
        self.waiting
    }

    /// The next number, if a record may wait with it.
    #[must_use]
    pub fn next_waiting(&self) -> Option<u64> {
        u64::try_from(self.next).ok().filter(|_| self.waiting > 0)
    }

    /// The numbers before this one that may wait, if any may.
    #[must_use]
    pub fn below(&self, number: u64) -> Option<std::ops::Range<u64>> {
        let next = self.next_waiting()?;
        (next < number).then_some(next..number)
    }

    /// Judges a number. `max_gap`: the longest allowed distance from the next number.
    #[must_use]
    pub fn arrives(&self, number: u64, max_gap: u64) -> Arrival {
        let Some(gap) = u128::from(number).checked_sub(self.next) else {
            return Arrival::Late;
        };
        let gap = u64::try_from(gap).unwrap_or(u64::MAX);
        match gap {
            0 => Arrival::Next,
            _ if gap > max_gap => Arrival::TooFar { gap },
            _ => Arrival::Waits,
        }
    }

    /// Notes that a record waits.
    pub const fn wait(&mut self) {
        self.waiting = self.waiting.saturating_add(1);
    }

    /// Notes that waiting records have left.
    pub const fn left(&mut self, records: u64) {
        self.waiting = self.waiting.saturating_sub(records);
    }

    /// Continues after a number that leaves, and gives up missing numbers before it. Returns whether there were any.
    pub fn pass(&mut self, number: u64) -> bool {
        let (before, number) = (self.next, u128::from(number));
        self.next = before.max(number + 1);
        number > before
    }

    /// Appends the row.
    pub fn encode(&self, into: &mut Vec<u8>) {
        into.push(FORMAT);
        into.extend_from_slice(&self.next.to_be_bytes());
        into.extend_from_slice(&self.waiting.to_be_bytes());
    }

    /// Reads a row of [`encode`](Self::encode), or of the format before.
    ///
    /// # Errors
    /// [`TurnError`] for a newer format, or if bytes are missing.
    pub fn decode(row: &[u8]) -> Result<Self, TurnError> {
        let (format, rest) = row.split_first().ok_or(TurnError::Short)?;
        if ![FORMAT, WITH_NUMBERS].contains(format) {
            return Err(TurnError::Format(*format));
        }
        let (next, rest) = rest.split_first_chunk().ok_or(TurnError::Short)?;
        let waiting = match *format {
            FORMAT => u64::from_be_bytes(rest.try_into().map_err(|_| TurnError::Short)?),
            _ => count(rest)?,
        };
        Ok(Self {
            next: u128::from_be_bytes(*next),
            waiting,
        })
    }
}

/// Counts the numbers in a row of the format before: the distance of each one from the one before it, as varints.
fn count(mut rest: &[u8]) -> Result<u64, TurnError> {
    let mut numbers = 0;
    while !rest.is_empty() {
        take_varint(&mut rest).ok_or(TurnError::Short)?;
        numbers += 1;
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_is_next_waits_or_is_late() {
        let turn = Turn::starting_at(5);
        for (number, expected) in [
            (4, Arrival::Late),
            (5, Arrival::Next),
            (6, Arrival::Waits),
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
        turn.wait();
        assert_eq!(turn.arrives(u64::MAX, 0), Arrival::Next);
        assert!(!turn.pass(u64::MAX));
        assert_eq!(turn.arrives(u64::MAX, 0), Arrival::Late);
        assert_eq!((turn.next(), turn.next_waiting()), (1 << 64, None));
        let mut row = Vec::new();
        turn.encode(&mut row);
        assert_eq!(Turn::decode(&row), Ok(turn));
    }

    #[test]
    fn numbers_below_are_looked_for_only_if_records_wait() {
        let mut turn = Turn::starting_at(3);
        assert_eq!((turn.below(9), turn.next_waiting()), (None, None));
        turn.wait();
        assert_eq!((turn.below(9), turn.next_waiting()), (Some(3..9), Some(3)));
        assert_eq!(turn.below(3), None);
        turn.left(1);
        assert_eq!(turn.below(9), None);
    }

    #[test]
    fn the_format_is_pinned_and_damage_is_an_error() {
        let mut turn = Turn::starting_at(2);
        turn.wait();
        turn.wait();
        let mut row = Vec::new();
        turn.encode(&mut row);
        let next = [0; 15];
        assert_eq!(
            row,
            [&[2][..], &next, &[2, 0, 0, 0, 0, 0, 0, 0, 2]].concat()
        );
        assert_eq!(Turn::decode(b""), Err(TurnError::Short));
        assert_eq!(Turn::decode(&row[..16]), Err(TurnError::Short));
        assert_eq!(Turn::decode(&row[..24]), Err(TurnError::Short));
        row.push(0);
        assert_eq!(Turn::decode(&row), Err(TurnError::Short));
        row[0] = 3;
        assert_eq!(Turn::decode(&row), Err(TurnError::Format(3)));
        row[0] = 0;
        assert_eq!(Turn::decode(&row), Err(TurnError::Format(0)));
    }

    /// Numbers 5 and 300 wait behind 2.
    #[test]
    fn the_format_before_is_read() {
        let next = [0; 15];
        let row = [&[1][..], &next, &[2, 3, 0xa7, 2]].concat();
        let turn = Turn::decode(&row).unwrap();
        assert_eq!((turn.next(), turn.waiting()), (2, 2));
        assert_eq!(Turn::decode(&row[..19]), Err(TurnError::Short));
        assert_eq!(Turn::decode(&row[..17]), Ok(Turn::starting_at(2)));
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
            let mut waiting = BTreeSet::new();
            for number in numbers.iter().map(|n| first + n) {
                match turn.arrives(number, 19) {
                    Arrival::Next => {
                        prop_assert!(!turn.pass(number));
                        out.push(number);
                    }
                    Arrival::Waits if waiting.insert(number) => turn.wait(),
                    Arrival::Waits | Arrival::Late => {}
                    Arrival::TooFar { .. } => prop_assert!(false),
                }
                while let Some(next) = turn.next_waiting().filter(|next| waiting.remove(next)) {
                    turn.left(1);
                    prop_assert!(!turn.pass(next));
                    out.push(next);
                }
                prop_assert_eq!(turn.waiting(), waiting.len() as u64);
                let mut row = Vec::new();
                turn.encode(&mut row);
                prop_assert_eq!(Turn::decode(&row), Ok(turn));
            }
            prop_assert_eq!(turn.waiting(), 0);
            prop_assert_eq!(out, (0..20).map(|n| first + n).collect::<Vec<_>>());
        }

        #[test]
        fn what_is_given_up_never_comes_again(first in 0_u64..9, number in 0_u64..30) {
            let mut turn = Turn::starting_at(first);
            prop_assert_eq!(turn.pass(number), number > first);
            prop_assert_eq!(turn.next(), u128::from(first.max(number + 1)));
            for lower in 0..=number {
                prop_assert_eq!(turn.arrives(lower, 100), Arrival::Late);
            }
        }
    }
}

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const LIMITS: RoundLimits = RoundLimits {
    read: 3,
    letters: 2,
    bytes: 100,
};

/// A stored letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Letter {
    /// Rounds from this one on write it.
    From(usize),
    /// This start does not write it.
    Never,
}

#[derive(Debug, Clone)]
enum Event {
    Arrives(u8, Letter),
    Round,
    /// A round whose transaction is aborted.
    Abort,
    /// The task moves to a process without a cut.
    Moves,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let letter = prop_oneof![
        3 => Just(Letter::Never),
        1 => (0..60_usize).prop_map(Letter::From),
    ];
    let event = prop_oneof![
        4 => (any::<u8>(), letter).prop_map(|(key, letter)| Event::Arrives(key, letter)),
        4 => Just(Event::Round),
        1 => Just(Event::Abort),
        1 => Just(Event::Moves),
    ];
    prop::collection::vec(event, 0..120)
}

/// A start of a replay: its rows, its place, its cut and the number of rounds.
#[derive(Debug, Clone, Default)]
struct Start {
    rows: BTreeMap<Vec<u8>, Letter>,
    place: Vec<u8>,
    cut: Vec<u8>,
    rounds: usize,
    /// The number of rows that the last round read.
    read: usize,
}

impl Start {
    fn arrives(&mut self, key: u8, letter: Letter) {
        let key = vec![key];
        if letter != Letter::Never && self.place > key {
            self.place.clone_from(&key);
        }
        self.rows.insert(key, letter);
    }

    fn round(&mut self) {
        let mut round = Round::new(self.place.clone(), std::mem::take(&mut self.cut), LIMITS);
        let rows: Vec<_> = self.rows.range(round.next().to_vec()..).collect();
        let rows: Vec<_> = rows
            .into_iter()
            .map(|(key, it)| (key.clone(), *it))
            .collect();
        let (mut is_end, mut left) = (false, rows.into_iter());
        self.read = 0;
        while !round.is_full() {
            let Some((key, letter)) = left.next() else {
                is_end = true;
                break;
            };
            self.read += 1;
            let next = [&key[..], &[0]].concat();
            match letter {
                Letter::Never => round.passes(next),
                Letter::From(first) if self.rounds < first => round.leaves(next),
                Letter::From(_) => {
                    round.writes(1, next);
                    self.rows.remove(&key);
                }
            }
        }
        self.rounds += 1;
        let is_done = self.rows.values().all(|it| *it == Letter::Never);
        assert!(is_done || !round.is_last(is_end), "{self:?}");
        self.place = round.place().to_vec();
        self.cut = round.cut(is_end).unwrap_or_default();
    }
}

/// The cut survives an abort, which brings the written letters back. The next round must not begin between two letters of a
/// key.
#[test]
fn a_cut_is_in_front_of_the_letters_that_an_abort_brings_back() {
    let mut round = Round::new(Vec::new(), Vec::new(), LIMITS);
    round.passes(vec![1, 0]);
    round.passes(vec![2, 0]);
    round.writes(1, vec![3, 0]);
    assert!(round.is_full());
    assert_eq!(round.cut(false), Some(vec![2, 0]));
}

proptest! {
    /// A busy key has a new letter in each round, and sorts before all others.
    #[test]
    fn a_busy_key_hides_no_letters(keys in prop::collection::btree_map(1u8.., any::<bool>(), 0..60)) {
        let mut start = Start::default();
        for (key, is_written) in &keys {
            start.arrives(*key, if *is_written { Letter::From(0) } else { Letter::Never });
        }
        // A walk through all rows takes a round for three rows, and two letters make a round full.
        for _ in 0..4 * (keys.len() + 2) {
            start.arrives(0, Letter::From(0));
            start.round();
        }
        start.rows.remove(&vec![0]);
        let left = start.rows.values().filter(|it| **it != Letter::Never);
        prop_assert_eq!(left.count(), 0, "{:?}", start);
    }

    #[test]
    fn each_letter_is_written_and_each_other_one_is_passed(events in events()) {
        let mut start = Start::default();
        for event in events {
            match event {
                Event::Arrives(key, letter) => start.arrives(key, letter),
                Event::Round => start.round(),
                Event::Abort => {
                    let before = start.clone();
                    start.round();
                    // The cut is no row, so it survives the abort.
                    let (cut, rounds) = (start.cut, start.rounds);
                    start = Start { cut, rounds, ..before };
                }
                Event::Moves => start.cut.clear(),
            }
        }
        start.rounds = start.rounds.max(60);
        // At worst, each letter takes one walk through all rows, three rows per round.
        let most = (start.rows.len() + 2) * (start.rows.len() / LIMITS.read + 2);
        for _ in 0..most {
            start.round();
        }
        let left = start.rows.values().filter(|it| **it != Letter::Never);
        prop_assert_eq!(left.count(), 0, "{:?}", start);
        prop_assert_eq!(start.read, 0, "a round reads rows that this start does not write");
    }
}

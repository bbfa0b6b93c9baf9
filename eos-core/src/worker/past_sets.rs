//! Handlers of timers that set moments into the past without end.

use std::collections::BTreeMap;

use eos_protocol::state::StoreId;
use eos_protocol::{Clock, Timestamp};
use eos_state::{DueItem, SetItem};

use crate::topology::ROUNDS;

/// The maximum number of moments of a clock whose rounds are counted. Handlers without end use the same ones again, and
/// a place that becomes free goes to the moment that the handler sets.
const COUNTED: usize = 10_000;

/// The moments that handlers have set and that are due, by clock.
///
/// It counts how often in a row handlers set a moment no later than their own one. Moments that records set begin at
/// zero: any number of records may set any number of moments into the past. A handler that catches up, moment after
/// moment, is not counted.
#[derive(Debug, Default)]
pub(super) struct PastSets([BTreeMap<(StoreId, Vec<u8>), u32>; 3]);

impl PastSets {
    /// Returns whether the item is the last one of too many rounds. It is then forgotten, because it is not handled.
    pub(super) fn exceed(&mut self, item: &DueItem) -> bool {
        let counted = self.of(item.clock);
        if counted.is_empty() {
            return false;
        }
        let key = (item.place.store, item.place.key.clone());
        let exceeds = counted.get(&key).is_some_and(|rounds| *rounds > ROUNDS);
        if exceeds {
            counted.remove(&key);
        }
        exceeds
    }

    /// Takes the moments that the handler of an item has set. `now` is the time of its clock.
    pub(super) fn handled(
        &mut self,
        item: &DueItem,
        now: Timestamp,
        set: impl IntoIterator<Item = SetItem>,
    ) {
        let counted = self.of(item.clock);
        let own = (item.place.store, item.place.key.clone());
        let rounds = counted.remove(&own).unwrap_or(0);
        for it in set {
            let rounds = rounds + u32::from(it.due <= item.due);
            if rounds == 0 || it.due > now {
                continue;
            }
            let key = (it.store, it.key);
            if counted.len() < COUNTED || counted.contains_key(&key) {
                counted.insert(key, rounds);
            }
        }
    }

    /// Ends the count of a clock.
    #[inline]
    pub(super) fn end(&mut self, clock: Clock) {
        let counted = self.of(clock);
        if !counted.is_empty() {
            counted.clear();
        }
    }

    fn of(&mut self, clock: Clock) -> &mut BTreeMap<(StoreId, Vec<u8>), u32> {
        &mut self.0[usize::from(clock.number())]
    }
}

#[cfg(test)]
mod tests {
    use eos_protocol::{Place, Round};

    use super::*;

    const NOW: Timestamp = Timestamp(10_000);

    fn store() -> StoreId {
        StoreId::due("timer")
    }

    fn item(clock: Clock, key: &str, due: i64) -> DueItem {
        DueItem {
            clock,
            place: Place {
                round: Round::of(Timestamp(due)),
                store: store(),
                key: key.into(),
            },
            due: Timestamp(due),
            value: Vec::new(),
        }
    }

    fn set(key: &str, due: i64) -> SetItem {
        SetItem {
            store: store(),
            key: key.into(),
            due: Timestamp(due),
        }
    }

    /// Returns the number of items until the rounds exceed, of a handler that sets the key and the moment of this
    /// function.
    fn run(
        rounds: &mut PastSets,
        clock: Clock,
        next: impl Fn(u32) -> (String, i64),
    ) -> Option<u32> {
        let (mut key, mut due) = ("k".to_owned(), 9);
        for n in 0..3 * ROUNDS {
            let item = item(clock, &key, due);
            if rounds.exceed(&item) {
                return Some(n);
            }
            (key, due) = next(n);
            rounds.handled(&item, NOW, [set(&key, due)]);
        }
        None
    }

    #[test]
    fn a_handler_that_goes_back_or_stands_still_exceeds_the_rounds() {
        let mut rounds = PastSets::default();
        let same = |_| ("k".to_owned(), 9);
        assert_eq!(run(&mut rounds, Clock::Wall, same), Some(ROUNDS + 1));
        assert_eq!(run(&mut rounds, Clock::Stream, same), Some(ROUNDS + 1));
        // Keys in turn, and a step forward after each step back.
        let turns = |n: u32| ((n % 7).to_string(), 9 - i64::from(n % 2));
        let found = run(&mut rounds, Clock::Wall, turns);
        assert!(found.is_some_and(|n| n <= 2 * ROUNDS + 2), "{found:?}");
        assert_eq!(rounds.of(Clock::Wall).len(), 0, "nothing is kept");
    }

    #[test]
    fn a_handler_that_goes_forward_does_not() {
        let mut rounds = PastSets::default();
        let later = |n: u32| ("k".to_owned(), 10 + i64::from(n));
        assert_eq!(run(&mut rounds, Clock::Wall, later), None);
        assert_eq!(rounds.of(Clock::Wall).len(), 0);
        // A moment after now waits for the clock.
        let waits = |_| ("k".to_owned(), NOW.0 + 1);
        assert_eq!(run(&mut rounds, Clock::Wall, waits), None);
    }

    #[test]
    fn each_clock_has_a_count_of_its_own_which_ends() {
        let mut rounds = PastSets::default();
        let same = |_| ("k".to_owned(), 9);
        let of = |clock| item(clock, "k", 9);
        for _ in 0..=ROUNDS {
            assert!(!rounds.exceed(&of(Clock::Wall)));
            rounds.handled(&of(Clock::Wall), NOW, [set("k", 9)]);
            // The worker looks for items of stream time before each item of the machine's clock.
            rounds.end(Clock::Stream);
        }
        assert_eq!(run(&mut rounds, Clock::Stream, same), Some(ROUNDS + 1));
        rounds.end(Clock::Wall);
        assert!(!rounds.exceed(&of(Clock::Wall)));
    }

    #[test]
    fn the_count_of_many_moments_is_bounded_and_still_ends_a_loop() {
        let mut rounds = PastSets::default();
        let first = item(Clock::Wall, "k", 9);
        let many = (0..2 * COUNTED).map(|n| set(&format!("{n:06}"), 9));
        rounds.handled(&first, NOW, many);
        assert_eq!(rounds.of(Clock::Wall).len(), COUNTED);
        let again = item(Clock::Wall, "000000", 9);
        for _ in 1..=ROUNDS {
            assert!(!rounds.exceed(&again));
            rounds.handled(&again, NOW, [set("000000", 9)]);
        }
        assert!(rounds.exceed(&again));
    }
}

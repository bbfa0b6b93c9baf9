//! Handlers of timers that set moments into the past without end.

use eos_protocol::state::StoreId;
use eos_protocol::{Clock, Timestamp};
use eos_state::DueItem;

/// The number of times that handlers may set moments into the past before no item is due.
pub(super) const ROUNDS: u32 = 1_000;

/// The due items of a task, by clock.
///
/// It counts the items whose own moment is not after that of the item before. The count of a clock ends when no item of
/// this clock is due. A record ends the count of stream time, because any number of late records may set moments into the
/// past. It does not end that of the machine's clock, whose items and records alternate.
#[derive(Debug, Default)]
pub(super) struct Rounds([Count; 3]);

#[derive(Debug, Default)]
struct Count {
    last: Option<(Timestamp, StoreId, Vec<u8>)>,
    back: u32,
}

impl Rounds {
    /// Counts an item. Returns whether there are too many.
    pub(super) fn exceed(&mut self, item: &DueItem) -> bool {
        let count = self.of(item.clock);
        let this = (item.due, item.place.store, item.place.key.clone());
        count.back += u32::from(count.last.as_ref().is_some_and(|last| this <= *last));
        count.last = Some(this);
        count.back > ROUNDS
    }

    /// Ends the count of a clock.
    pub(super) fn end(&mut self, clock: Clock) {
        *self.of(clock) = Count::default();
    }

    fn of(&mut self, clock: Clock) -> &mut Count {
        &mut self.0[usize::from(clock.number())]
    }
}

#[cfg(test)]
mod tests {
    use eos_protocol::{Place, Round};

    use super::*;

    #[test]
    fn each_clock_has_a_count_of_its_own() {
        let item = |clock| DueItem {
            clock,
            place: Place {
                round: Round::of(Timestamp(9)),
                store: StoreId::due("timer"),
                key: b"k".to_vec(),
            },
            due: Timestamp(9),
            value: Vec::new(),
        };
        let mut rounds = Rounds::default();
        for _ in 0..=ROUNDS {
            assert!(!rounds.exceed(&item(Clock::Wall)));
            // The worker looks for items of stream time before each item of the machine's clock.
            rounds.end(Clock::Stream);
        }
        assert!(rounds.exceed(&item(Clock::Wall)));
        assert!(!rounds.exceed(&item(Clock::Stream)));
        rounds.end(Clock::Wall);
        assert!(!rounds.exceed(&item(Clock::Wall)));
    }
}

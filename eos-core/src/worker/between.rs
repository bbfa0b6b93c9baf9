//! The due items that may come between two records.

use eos_protocol::Clock;

/// The items without an order relative to records that may still come before the next record.
///
/// Items of the machine's clock and records alternate. Background items keep up with the records that set them: as many
/// as were set since the record before, and one more, so that a backlog of items shrinks. Neither waits for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Between {
    wall: u32,
    background: u32,
    /// Whether an item came since the last record.
    any: bool,
}

impl Default for Between {
    fn default() -> Self {
        Self {
            wall: 1,
            background: 1,
            any: false,
        }
    }
}

impl Between {
    /// Returns whether an item of this clock may come.
    pub(super) fn may_come(&self, clock: Clock) -> bool {
        match clock {
            Clock::Stream => true,
            Clock::Wall => self.wall > 0,
            Clock::Background => self.background > 0,
        }
    }

    /// Records that an item came.
    pub(super) fn came(&mut self, clock: Clock) {
        let left = match clock {
            Clock::Stream => return,
            Clock::Wall => &mut self.wall,
            Clock::Background => &mut self.background,
        };
        *left = left.saturating_sub(1);
        self.any = true;
    }

    /// Begins the turn of a record. `set` background items were set since the record before. Returns whether an item
    /// came since then, so that further ones may be due.
    pub(super) fn record(&mut self, set: u32) -> bool {
        let any = self.any;
        *self = Self {
            background: set.saturating_add(1),
            ..Self::default()
        };
        any
    }

    /// Returns the state in which no item comes before the next record.
    pub(super) fn record_first() -> Self {
        Self {
            wall: 0,
            background: 0,
            any: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of background items that come before the next record.
    fn background(between: &mut Between) -> usize {
        let mut came = 0;
        while between.may_come(Clock::Background) {
            between.came(Clock::Background);
            came += 1;
        }
        came
    }

    #[test]
    fn background_items_keep_up_with_records() {
        let mut between = Between::default();
        assert_eq!(background(&mut between), 1);
        between.record(3);
        assert_eq!(background(&mut between), 4);
        between.record(0);
        assert_eq!(background(&mut between), 1);
    }

    #[test]
    fn an_item_of_the_machines_clock_costs_no_background_item() {
        let mut between = Between::default();
        between.came(Clock::Wall);
        assert!(!between.may_come(Clock::Wall));
        assert_eq!(background(&mut between), 1);
        assert!(between.record(0), "items came");
        assert!(between.may_come(Clock::Wall));
        assert!(!between.record(0), "none came");
    }

    #[test]
    fn a_record_that_was_given_back_is_first() {
        let mut between = Between::record_first();
        assert!(!between.may_come(Clock::Wall) && !between.may_come(Clock::Background));
        assert!(between.may_come(Clock::Stream));
        assert!(between.record(0));
    }
}

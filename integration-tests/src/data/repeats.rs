//! Records that repeat earlier ones, as a producer sends them after it received no response.

use crate::kill::Random;

/// The share of records that repeat an earlier one. The number of a record decides whether it does.
#[derive(Debug, Clone, Copy)]
pub struct Repeats {
    percent: u64,
    /// The largest distance to the first record of an event.
    within: u64,
}

impl Repeats {
    /// Makes `percent` of a hundred records repeat an earlier one.
    pub fn percent(percent: u64) -> Repeats {
        Repeats {
            percent,
            within: u64::MAX,
        }
    }

    /// Limits the distance to the first record of an event. A record that is further behind is a new event.
    #[must_use]
    pub fn within(self, records: u64) -> Repeats {
        Repeats {
            within: records,
            ..self
        }
    }

    /// Returns the number of the first record of the event of record `seq`. This is `seq` itself, unless the record
    /// repeats another.
    pub fn event(self, seq: u64) -> u64 {
        let mut event = seq;
        while let Some(earlier) = self.repeated_by(event) {
            event = earlier;
        }
        match seq - event <= self.within {
            true => event,
            false => seq,
        }
    }

    /// Returns the number of the record that record `seq` repeats. Half of the repetitions come within 20 records, and
    /// a quarter at any distance.
    fn repeated_by(self, seq: u64) -> Option<u64> {
        let mut random = Random::new(seq);
        if seq == 0 || random.roll() % 100 >= self.percent {
            return None;
        }
        let most = match random.roll() % 4 {
            0 | 1 => 20,
            2 => 1_000,
            _ => seq,
        };
        Some(seq - 1 - random.roll() % most.min(seq))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: u64 = 100_000;

    #[test]
    fn the_share_is_the_given_one_and_repetitions_are_near_and_far() {
        let repeats = Repeats::percent(10);
        let behind = |seq| seq - repeats.event(seq);
        let behind: Vec<u64> = (0..RECORDS).map(behind).filter(|it| *it > 0).collect();
        let count = |from, to| {
            let within = behind.iter().filter(|it| (from..to).contains(*it));
            within.count() as u64 * 1_000 / RECORDS
        };
        assert!((95..105).contains(&count(1, RECORDS)), "{}", behind.len());
        assert!(count(1, 21) > 40, "{} are close", count(1, 21));
        assert!(
            count(1_000, RECORDS) > 20,
            "{} are far",
            count(1_000, RECORDS)
        );
    }

    #[test]
    fn the_first_record_of_an_event_repeats_none() {
        let repeats = Repeats::percent(50);
        for seq in 0..10_000 {
            let event = repeats.event(seq);
            assert!(event <= seq && repeats.event(event) == event);
        }
    }

    #[test]
    fn a_bound_cuts_only_far_repetitions() {
        let all = Repeats::percent(10);
        let near = all.within(500);
        for seq in 0..RECORDS {
            let (event, cut) = (all.event(seq), near.event(seq));
            assert_eq!(cut, if seq - event <= 500 { event } else { seq });
            assert_eq!(near.event(cut), cut);
        }
    }

    #[test]
    fn without_a_share_no_record_repeats_another() {
        assert!((0..10_000).all(|seq| Repeats::percent(0).event(seq) == seq));
    }
}

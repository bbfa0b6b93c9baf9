//! The choice of a task's next input (KIP-353, KIP-695).
//!
//! A task takes records in the order of their timestamps, across its inputs. That order covers only the fetched
//! records: an input without a fetched record may have an earlier one on the broker. So a task waits for an empty
//! input as long as the broker has, or may have, a record for it. With `max.task.idle.ms` it waits a while longer for
//! a late producer. This is the rule of `PartitionGroup#readyToProcess` in Kafka Streams since 3.0.
//!
//! Within one input the order is the partition's order, regardless of the timestamps.

use std::time::Duration;

use crate::ids::{Offset, Timestamp};
use crate::time::Now;

/// The time for which a task waits for an input without records while another input has one (`max.task.idle.ms`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MaxIdle {
    /// No wait, not even for records that are known to be on the broker. The task takes any fetched record (-1).
    Never,
    /// The task waits as long as the broker has or may have records for the input, and then this long for a producer.
    For(Duration),
}

impl Default for MaxIdle {
    /// Kafka's default: waits only for records on the broker.
    fn default() -> Self {
        Self::For(Duration::ZERO)
    }
}

/// An invalid value of `max.task.idle.ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "max.task.idle.ms can't be {value}. Use -1 for no wait, 0 to wait for records that are on the \
     broker, or the number of milliseconds to wait longer for a producer"
)]
pub struct BadMaxIdle {
    /// The value.
    pub value: i64,
}

impl MaxIdle {
    /// Parses the number of the setting.
    ///
    /// # Errors
    /// [`BadMaxIdle`] below -1.
    pub fn from_millis(value: i64) -> Result<Self, BadMaxIdle> {
        match u64::try_from(value) {
            Ok(ms) => Ok(Self::For(Duration::from_millis(ms))),
            Err(_) if value == -1 => Ok(Self::Never),
            Err(_) => Err(BadMaxIdle { value }),
        }
    }
}

/// Whether the broker has records of an input that are not fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lag {
    /// No end of the partition was reported since the start or the last rewind.
    Unknown,
    /// The broker had no further record at the last reported end.
    Zero,
    /// The broker has further records.
    Positive,
}

impl Lag {
    /// The lag of a partition with the next offset `next` and the last reported end `end`. For a read_committed
    /// reader, `end` is the last stable offset. The high watermark would count records of an open transaction. The task
    /// can't fetch these, however long it waits.
    #[must_use]
    pub fn of(next: Offset, end: Option<Offset>) -> Self {
        match end {
            None => Self::Unknown,
            Some(end) if end > next => Self::Positive,
            Some(_) => Self::Zero,
        }
    }
}

/// The fetched records of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Supply {
    /// A record. A record without a timestamp counts as the earliest of all.
    Head {
        /// Its timestamp.
        timestamp: Option<Timestamp>,
    },
    /// No record is fetched.
    Empty {
        /// Whether the broker has records.
        lag: Lag,
    },
}

/// The decision about the next record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pick {
    /// Take the record of this input.
    Take(usize),
    /// An input has a record, but an empty input may have an earlier one. Decide again after a fetch or a newly
    /// reported end, and at the latest after this time, if there is one.
    Wait(Option<Duration>),
    /// No input has a record.
    Nothing,
}

/// Merges the inputs of one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merge {
    max_idle: MaxIdle,
    /// For each input, the time since which it has had no record, here or on the broker. The value stays while the task
    /// continues without the input, so the task waits once per drought and not once per record.
    dry_since: Vec<Option<Now>>,
}

impl Merge {
    /// Creates a merge for a task with this many inputs.
    #[must_use]
    pub fn new(max_idle: MaxIdle, inputs: usize) -> Self {
        Self {
            max_idle,
            dry_since: vec![None; inputs],
        }
    }

    /// Chooses the input with the earliest head. Among equal heads, the first input wins.
    ///
    /// `now` may be some milliseconds old, because it only measures the wait for producers. A rewind needs no reset
    /// here, as long as the lags are [`Unknown`](Lag::Unknown) after it.
    pub fn pick(&mut self, now: Now, inputs: impl IntoIterator<Item = Supply>) -> Pick {
        if self.dry_since.len() <= 1 {
            // A single input needs no merge and no wait.
            return match inputs.into_iter().next() {
                Some(Supply::Head { .. }) => Pick::Take(0),
                _ => Pick::Nothing,
            };
        }
        let mut first: Option<(Option<Timestamp>, usize)> = None;
        let mut wait = Wait::No;
        for (at, (supply, dry_since)) in inputs.into_iter().zip(&mut self.dry_since).enumerate() {
            match supply {
                Supply::Head { timestamp } => {
                    *dry_since = None;
                    if first.is_none_or(|(earliest, _)| timestamp < earliest) {
                        first = Some((timestamp, at));
                    }
                }
                Supply::Empty { lag } => wait = wait.max(self.max_idle.wait(now, lag, dry_since)),
            }
        }
        match (first, wait) {
            (None, _) => Pick::Nothing,
            (Some((_, at)), Wait::No) => Pick::Take(at),
            (Some(_), Wait::For(left)) => Pick::Wait(Some(left)),
            (Some(_), Wait::UntilHeard) => Pick::Wait(None),
        }
    }
}

/// The reasons to wait for an empty input, from the shortest wait to the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wait {
    No,
    For(Duration),
    UntilHeard,
}

impl MaxIdle {
    fn wait(self, now: Now, lag: Lag, dry_since: &mut Option<Now>) -> Wait {
        match (self, lag) {
            (Self::Never, _) => Wait::No,
            (Self::For(_), Lag::Unknown | Lag::Positive) => {
                *dry_since = None;
                Wait::UntilHeard
            }
            (Self::For(most), Lag::Zero) => {
                let since = *dry_since.get_or_insert(now);
                match most.saturating_sub(now.since(since)) {
                    Duration::ZERO => Wait::No,
                    left => Wait::For(left),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNKNOWN: Supply = Supply::Empty { lag: Lag::Unknown };
    const DRY: Supply = Supply::Empty { lag: Lag::Zero };
    const BEHIND: Supply = Supply::Empty { lag: Lag::Positive };

    fn head(time: i64) -> Supply {
        Supply::Head {
            timestamp: Some(Timestamp(time)),
        }
    }

    fn at(ms: u64) -> Now {
        Now(Duration::from_millis(ms))
    }

    fn wait(ms: u64) -> Pick {
        Pick::Wait(Some(Duration::from_millis(ms)))
    }

    fn millis(ms: i64) -> MaxIdle {
        MaxIdle::from_millis(ms).unwrap()
    }

    #[test]
    fn the_earliest_head_is_taken_and_the_first_of_equals() {
        let mut merge = Merge::new(MaxIdle::default(), 3);
        assert_eq!(
            merge.pick(at(0), [head(7), head(5), head(6)]),
            Pick::Take(1)
        );
        assert_eq!(
            merge.pick(at(0), [head(7), head(5), head(5)]),
            Pick::Take(1)
        );
        let timeless = Supply::Head { timestamp: None };
        assert_eq!(
            merge.pick(at(0), [head(i64::MIN), timeless, timeless]),
            Pick::Take(1)
        );
    }

    #[test]
    fn a_single_input_never_waits() {
        let mut merge = Merge::new(millis(1000), 1);
        assert_eq!(merge.pick(at(0), [head(7)]), Pick::Take(0));
        for empty in [UNKNOWN, DRY, BEHIND] {
            assert_eq!(merge.pick(at(0), [empty]), Pick::Nothing);
        }
    }

    #[test]
    fn kip_695_by_default_a_task_waits_for_what_is_on_the_broker_only() {
        let mut merge = Merge::new(MaxIdle::default(), 2);
        assert_eq!(merge.pick(at(0), [head(7), UNKNOWN]), Pick::Wait(None));
        assert_eq!(merge.pick(at(0), [head(7), BEHIND]), Pick::Wait(None));
        assert_eq!(merge.pick(at(0), [head(7), DRY]), Pick::Take(0));
        assert_eq!(merge.pick(at(0), [DRY, UNKNOWN]), Pick::Nothing);
    }

    #[test]
    fn minus_one_takes_available_records() {
        let mut merge = Merge::new(millis(-1), 3);
        assert_eq!(merge.pick(at(0), [BEHIND, head(7), UNKNOWN]), Pick::Take(1));
    }

    #[test]
    fn a_dry_input_is_waited_for_once_not_before_each_record() {
        let mut merge = Merge::new(millis(100), 2);
        assert_eq!(merge.pick(at(10), [head(7), DRY]), wait(100));
        assert_eq!(merge.pick(at(70), [head(7), DRY]), wait(40));
        assert_eq!(merge.pick(at(110), [head(7), DRY]), Pick::Take(0));
        assert_eq!(merge.pick(at(111), [head(8), DRY]), Pick::Take(0));
        // The input had a record: the next drought is another one.
        assert_eq!(merge.pick(at(112), [head(8), head(1)]), Pick::Take(1));
        assert_eq!(merge.pick(at(112), [head(8), DRY]), wait(100));
        // The same holds if the broker turned out to have more records that did not arrive.
        assert_eq!(merge.pick(at(150), [head(8), BEHIND]), Pick::Wait(None));
        assert_eq!(merge.pick(at(160), [head(8), DRY]), wait(100));
    }

    #[test]
    fn a_drought_counts_from_when_it_was_seen_even_while_nothing_is_at_hand() {
        let mut merge = Merge::new(millis(100), 2);
        assert_eq!(merge.pick(at(0), [DRY, DRY]), Pick::Nothing);
        assert_eq!(merge.pick(at(500), [head(7), DRY]), Pick::Take(0));
    }

    #[test]
    fn droughts_run_at_the_same_time() {
        let mut merge = Merge::new(millis(100), 4);
        assert_eq!(merge.pick(at(0), [head(7), DRY, head(9), DRY]), wait(100));
        assert_eq!(merge.pick(at(50), [head(7), DRY, DRY, DRY]), wait(100));
        assert_eq!(
            merge.pick(at(120), [head(7), DRY, DRY, UNKNOWN]),
            Pick::Wait(None)
        );
        assert_eq!(merge.pick(at(150), [head(7), DRY, DRY, DRY]), wait(100));
        assert_eq!(merge.pick(at(250), [head(7), DRY, DRY, DRY]), Pick::Take(0));
    }

    #[test]
    fn a_lag_is_known_by_the_end() {
        let offset = |n| Offset::new(n).unwrap();
        assert_eq!(Lag::of(offset(3), None), Lag::Unknown);
        assert_eq!(Lag::of(offset(3), Some(offset(4))), Lag::Positive);
        assert_eq!(Lag::of(offset(3), Some(offset(3))), Lag::Zero);
        // The end was reported before the last records arrived.
        assert_eq!(Lag::of(offset(3), Some(offset(2))), Lag::Zero);
    }

    #[test]
    fn kafkas_number_is_checked() {
        assert_eq!(millis(0), MaxIdle::default());
        assert_eq!(
            MaxIdle::from_millis(-2).unwrap_err().to_string(),
            "max.task.idle.ms can't be -2. Use -1 for no wait, 0 to wait for records that are on \
             the broker, or the number of milliseconds to wait longer for a producer"
        );
    }

    fn supply() -> impl Strategy<Value = Supply> {
        prop_oneof![
            (0i64..5).prop_map(head),
            Just(Supply::Head { timestamp: None }),
            Just(UNKNOWN),
            Just(DRY),
            Just(BEHIND),
        ]
    }

    fn idle() -> impl Strategy<Value = MaxIdle> {
        prop_oneof![Just(-1), Just(0), 1i64..200].prop_map(millis)
    }

    proptest! {
        #[test]
        fn inputs_in_order_come_out_in_order(
            mut inputs in prop::collection::vec(prop::collection::vec(0i64..50, 0..20), 1..5),
        ) {
            for input in &mut inputs {
                input.sort_unstable();
            }
            let mut merge = Merge::new(MaxIdle::default(), inputs.len());
            let mut next = vec![0; inputs.len()];
            let mut out = Vec::new();
            loop {
                let supply = inputs.iter().zip(&next).map(|(input, &n): (_, &usize)| {
                    input.get(n).map_or(DRY, |&time| head(time))
                });
                let Pick::Take(from) = merge.pick(at(0), supply) else { break };
                out.push((inputs[from][next[from]], from));
                next[from] += 1;
            }
            prop_assert_eq!(out.len(), inputs.iter().map(Vec::len).sum::<usize>());
            prop_assert!(out.is_sorted(), "{:?}", out);
        }

        #[test]
        fn only_an_input_that_has_a_record_gives_one(
            supplies in prop::collection::vec(supply(), 0..5), idle in idle(),
        ) {
            let mut merge = Merge::new(idle, supplies.len());
            let heads = supplies.iter().any(|s| matches!(s, Supply::Head { .. }));
            match merge.pick(at(0), supplies.iter().copied()) {
                Pick::Take(from) => {
                    let taken = matches!(supplies[from], Supply::Head { .. });
                    prop_assert!(taken);
                }
                Pick::Wait(_) => prop_assert!(heads),
                Pick::Nothing => prop_assert!(!heads),
            }
        }

        #[test]
        fn a_wait_with_a_limit_ends_by_itself(
            before in prop::collection::vec((0u64..50, prop::collection::vec(supply(), 3)), 0..8),
            supplies in prop::collection::vec(supply(), 3), idle in idle(),
        ) {
            let mut merge = Merge::new(idle, 3);
            let mut now = at(0);
            for (step, supplies) in before {
                now = now.after(Duration::from_millis(step));
                merge.pick(now, supplies);
            }
            if let Pick::Wait(Some(left)) = merge.pick(now, supplies.iter().copied()) {
                prop_assert!(!left.is_zero());
                prop_assert!(matches!(idle, MaxIdle::For(most) if left <= most));
                let then = merge.pick(now.after(left), supplies.iter().copied());
                prop_assert!(matches!(then, Pick::Take(_)), "{then:?}");
            }
        }

        #[test]
        fn no_task_waits_when_the_broker_has_nothing_and_the_wait_is_zero(
            supplies in prop::collection::vec(
                prop_oneof![(0i64..5).prop_map(head), Just(DRY)], 0..5,
            ),
        ) {
            let mut merge = Merge::new(MaxIdle::default(), supplies.len());
            let pick = merge.pick(at(0), supplies);
            prop_assert!(!matches!(pick, Pick::Wait(_)), "{pick:?}");
        }
    }
}

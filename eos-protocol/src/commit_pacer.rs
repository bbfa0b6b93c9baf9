//! The time to the next commit, from the commits' cost.
//!
//! Two lower bounds apply.
//!
//! - *The worker's time.* While a commit runs, the worker takes no records, so commits may cost a share of the
//!   worker's busy time. A worker that is idle half of the time loses nothing to a commit in its idle time. Without
//!   this distinction, the few milliseconds of broker wait in every commit would keep an idle worker from committing
//!   soon, which is where it matters most.
//! - *The broker.* Every commit writes an offset or a marker to each partition that it touched, so commits times
//!   partitions have a limit per second.
//!
//! `commit.interval.ms` is the upper bound, regardless of the cost.
//!
//! (A commit whenever a poll finds no record does not work: under a steady stream every poll finds one.)

use std::time::Duration;

use crate::commit_policy::{CommitPolicy, Pace};

/// The weight of one commit is an eighth. The pace follows a change of load within some commits, and a worker between
/// idle and busy settles between them.
const WEIGHT: u32 = 8;

/// A commit that costs more than this multiple of the usual cost is an accident: a broker that collected garbage, or
/// a machine that was busy with other work.
const USUAL: u32 = 4;

/// The weight of an accident is a sixty-fourth. A single accident hardly shows, and repeated accidents count in full.
const RARE: u32 = 64;

/// The cost of one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommitCost {
    /// The time for which the commit kept the worker from taking records: its calls, and the wait for its markers.
    pub took: Duration,
    /// The idle time of the worker since the previous commit. Zero if it is unknown, so that the whole cost counts.
    pub idle: Duration,
    /// The number of partitions that the commit touched: those whose offsets it carried, and the known ones among those
    /// that it wrote to.
    pub partitions: u32,
}

/// Finds the time to the next commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitPacer {
    /// The configured policy.
    configured: CommitPolicy,
    /// The policy with the current interval.
    current: CommitPolicy,
    /// The smoothed time that a commit takes from records, without accidents.
    usual: Duration,
    /// The time of accidents, per commit.
    accidents: Duration,
}

impl CommitPacer {
    /// Begins with the shortest allowed time, since no cost is known yet.
    #[must_use]
    pub fn new(configured: CommitPolicy) -> Self {
        let mut pacer = Self {
            configured,
            current: configured,
            usual: Duration::ZERO,
            accidents: Duration::ZERO,
        };
        pacer.set(0);
        pacer
    }

    /// The policy for the open transaction: the configured policy with the current interval.
    #[must_use]
    pub fn policy(&self) -> &CommitPolicy {
        &self.current
    }

    /// The smoothed time that a commit takes from records.
    #[must_use]
    pub fn cost(&self) -> Duration {
        self.usual + self.accidents
    }

    /// Records a finished commit.
    pub fn committed(&mut self, commit: CommitCost) {
        let charged = commit.took.saturating_sub(commit.idle);
        let charged = charged.min(self.most_charged());
        let usual = charged.min(self.most_usual());
        self.usual = (self.usual * (WEIGHT - 1) + usual) / WEIGHT;
        self.accidents = (self.accidents * (RARE - 1) + (charged - usual)) / RARE;
        self.set(commit.partitions);
    }

    /// A commit that hung for seconds does not predict the next one. It counts for no more than the longest interval,
    /// or the cost that this interval affords.
    fn most_charged(&self) -> Duration {
        let interval = self.configured.interval;
        match self.configured.pace {
            Pace::Fixed => interval,
            Pace::Adaptive { percent, .. } => spent_in(interval, percent).max(interval),
        }
    }

    /// The cost from which a commit is an accident (docs/design/0031). At full weight, one commit of 40 ms would keep
    /// a worker that is idle half of the time from committing soon for the next dozen commits.
    fn most_usual(&self) -> Duration {
        match self.configured.pace {
            Pace::Fixed => Duration::MAX,
            Pace::Adaptive { least, percent, .. } => {
                let known = self.cost().max(spent_in(least, percent));
                known.saturating_mul(USUAL)
            }
        }
    }

    fn set(&mut self, partitions: u32) {
        self.current.interval = match self.configured.pace {
            Pace::Fixed => self.configured.interval,
            Pace::Adaptive {
                least,
                percent,
                partitions_per_second,
            } => least
                .max(affordable(self.cost(), percent))
                .max(tolerable(partitions, partitions_per_second))
                .min(self.configured.interval),
        };
    }
}

/// The interval at which a commit of this cost takes `percent` of the interval and the commit together.
fn affordable(cost: Duration, percent: u32) -> Duration {
    match percent {
        0 => Duration::MAX,
        1..100 => cost.saturating_mul(100 - percent) / percent,
        _ => Duration::ZERO,
    }
}

/// The affordable cost of a commit after this interval: the inverse of [`affordable`]. Zero if any cost is
/// affordable.
fn spent_in(interval: Duration, percent: u32) -> Duration {
    match percent {
        0..100 => interval.saturating_mul(percent) / (100 - percent),
        _ => Duration::ZERO,
    }
}

/// Returns the time that commits to this number of partitions take at this rate.
fn tolerable(partitions: u32, per_second: u32) -> Duration {
    match per_second {
        0 => Duration::MAX,
        rate => Duration::from_secs(1).saturating_mul(partitions) / rate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn adaptive() -> CommitPolicy {
        CommitPolicy {
            interval: ms(100),
            pace: Pace::Adaptive {
                least: ms(10),
                percent: 10,
                partitions_per_second: 2000,
            },
            ..CommitPolicy::default()
        }
    }

    fn cost(took: Duration, idle: Duration, partitions: u32) -> CommitCost {
        CommitCost {
            took,
            idle,
            partitions,
        }
    }

    /// The interval after many commits of this cost.
    fn settled(policy: CommitPolicy, commit: CommitCost) -> Duration {
        let mut pacer = CommitPacer::new(policy);
        for _ in 0..1000 {
            pacer.committed(commit);
        }
        pacer.policy().interval
    }

    #[test]
    fn the_default_commits_after_ten_to_a_hundred_milliseconds() {
        assert_eq!(CommitPolicy::default(), adaptive());
        assert_eq!(
            CommitPacer::new(CommitPolicy::default()).policy().interval,
            ms(10)
        );
    }

    #[test]
    fn a_costly_commit_comes_later() {
        let after = |took| settled(adaptive(), cost(took, Duration::ZERO, 6));
        assert_eq!(after(ms(1)), ms(10), "nine milliseconds would do");
        let middle = after(ms(5));
        assert!(middle > ms(44) && middle <= ms(45), "{middle:?}");
        assert_eq!(after(ms(20)), ms(100));
    }

    #[test]
    fn what_the_worker_would_have_idled_through_costs_nothing() {
        let after = |idle| settled(adaptive(), cost(ms(5), idle, 6));
        assert_eq!(after(ms(9)), ms(10));
        let middle = after(ms(3));
        assert!(middle > ms(17) && middle <= ms(18), "{middle:?}");
    }

    #[test]
    fn the_broker_is_spared_when_many_partitions_are_touched() {
        let after = |partitions| settled(adaptive(), cost(ms(1), ms(9), partitions));
        assert_eq!(after(20), ms(10));
        assert_eq!(after(64), ms(32));
        assert_eq!(after(1000), ms(100), "the interval is a promise");
    }

    #[test]
    fn a_large_share_is_kept_too() {
        let policy = CommitPolicy {
            pace: Pace::Adaptive {
                least: Duration::ZERO,
                percent: 75,
                partitions_per_second: 2000,
            },
            ..adaptive()
        };
        let after = |took| settled(policy, cost(took, Duration::ZERO, 1));
        let third = after(ms(150));
        assert!(third > ms(49) && third <= ms(50), "{third:?}");
        assert!(after(ms(5000)) > ms(99));
    }

    #[test]
    fn a_fixed_pace_ignores_the_cost() {
        let fixed = CommitPolicy {
            pace: Pace::Fixed,
            ..adaptive()
        };
        let mut pacer = CommitPacer::new(fixed);
        assert_eq!(pacer.policy(), &fixed);
        pacer.committed(cost(ms(500), ms(0), 5000));
        assert_eq!(pacer.policy(), &fixed);
    }

    #[test]
    fn one_slow_commit_does_not_put_off_the_next_ones() {
        let mut pacer = CommitPacer::new(adaptive());
        pacer.committed(cost(ms(40), ms(5), 6));
        assert_eq!(pacer.policy().interval, ms(10));
    }

    #[test]
    fn where_commits_cost_something_a_slow_one_puts_off_the_next_by_half() {
        let mut pacer = CommitPacer::new(adaptive());
        let mut after = |took| {
            pacer.committed(cost(took, Duration::ZERO, 6));
            pacer.policy().interval
        };
        let before = (0..200).map(|_| after(ms(3))).last().unwrap();
        assert!(before > ms(26) && before <= ms(27), "{before:?}");
        let slow = after(ms(40));
        assert!(slow > ms(40) && slow < ms(42), "{slow:?}");
    }

    #[test]
    fn commits_that_do_cost_more_are_believed() {
        let mut pacer = CommitPacer::new(adaptive());
        let mut believed = |_: &usize| {
            pacer.committed(cost(ms(8), Duration::ZERO, 6));
            pacer.policy().interval > ms(45)
        };
        // At full weight it would be the eighth.
        assert_eq!((1..100).find(&mut believed), Some(9));
    }

    #[test]
    fn a_pace_without_a_least_interval_learns_too() {
        let pace = Pace::Adaptive {
            least: Duration::ZERO,
            percent: 10,
            partitions_per_second: 2000,
        };
        let policy = CommitPolicy { pace, ..adaptive() };
        let after = |took| settled(policy, cost(took, Duration::ZERO, 1));
        assert!(after(ms(8)) > ms(71), "{:?}", after(ms(8)));
    }

    #[test]
    fn commits_that_hung_are_soon_forgotten() {
        let forgotten_after = |hung| {
            let mut pacer = CommitPacer::new(adaptive());
            for _ in 0..hung {
                pacer.committed(cost(Duration::from_secs(20), Duration::ZERO, 6));
            }
            let slowest = pacer.policy().interval;
            let mut spent = Duration::ZERO;
            while pacer.policy().interval > ms(10) {
                spent += pacer.policy().interval;
                pacer.committed(cost(ms(1), Duration::ZERO, 6));
            }
            (slowest, spent)
        };
        let (slowest, spent) = forgotten_after(1);
        assert!(
            slowest < ms(20) && spent < ms(3000),
            "{slowest:?}, {spent:?}"
        );
        let (slowest, spent) = forgotten_after(20);
        assert!(
            slowest == ms(100) && spent < ms(7000),
            "{slowest:?}, {spent:?}"
        );
    }

    /// Runs a worker that gets work for `percent` of its time, with a commit that takes `took`. Returns the length of
    /// its cycles, and their idle part.
    fn worker_under(percent: u32, took: Duration) -> (Duration, Duration) {
        let mut pacer = CommitPacer::new(adaptive());
        let (mut interval, mut idle) = (Duration::ZERO, Duration::ZERO);
        let mut backlog = Duration::ZERO;
        for _ in 0..1000 {
            interval = pacer.policy().interval;
            let work = backlog + interval * percent / 100;
            idle = interval.saturating_sub(work);
            backlog = work.saturating_sub(interval) + took * percent / 100;
            pacer.committed(cost(took, idle, 6));
        }
        (interval, idle)
    }

    #[test]
    fn the_pace_goes_from_soon_to_seldom_with_the_load() {
        let at = |percent| worker_under(percent, ms(8)).0;
        assert_eq!(at(1), ms(10));
        let half = at(50);
        assert!(half > ms(15) && half < ms(25), "{half:?}");
        assert!(at(80) > half, "{:?}", at(80));
        let full = at(100);
        assert!(
            full > ms(71) && full <= ms(72),
            "nine times the cost: {full:?}"
        );
    }

    fn any_policy() -> impl Strategy<Value = CommitPolicy> {
        (1u64..500, 0u64..500, 0u32..150, 0u32..5000).prop_map(|(most, least, percent, rate)| {
            CommitPolicy {
                interval: ms(most),
                pace: Pace::Adaptive {
                    least: ms(least),
                    percent,
                    partitions_per_second: rate,
                },
                ..CommitPolicy::default()
            }
        })
    }

    proptest! {
        #[test]
        fn the_interval_is_never_out_of_bounds(
            policy in any_policy(),
            commits in prop::collection::vec((0u64..100_000, 0u64..10_000, any::<u32>()), 0..50),
        ) {
            let Pace::Adaptive { least, .. } = policy.pace else { unreachable!() };
            let mut pacer = CommitPacer::new(policy);
            for (took, idle, partitions) in commits {
                pacer.committed(cost(Duration::from_micros(took), ms(idle), partitions));
                let interval = pacer.policy().interval;
                prop_assert!(interval <= policy.interval);
                prop_assert!(interval >= least.min(policy.interval));
            }
        }

        #[test]
        fn commits_take_their_share_unless_the_interval_forces_them(
            policy in any_policy(), took in 0u64..50_000,
        ) {
            let Pace::Adaptive { percent, .. } = policy.pace else { unreachable!() };
            let took = Duration::from_micros(took);
            let (mut open, mut spent) = (Duration::ZERO, Duration::ZERO);
            let mut pacer = CommitPacer::new(policy);
            for n in 0..400 {
                pacer.committed(cost(took, Duration::ZERO, 0));
                // The pacer learns from the first cycles.
                if n >= 100 {
                    open += pacer.policy().interval;
                    spent += took;
                }
            }
            let share = 100.0 * spent.as_secs_f64() / (open + spent).as_secs_f64();
            // Averages of whole nanoseconds stay a few below.
            let forced = pacer.policy().interval + Duration::from_micros(1) >= policy.interval;
            prop_assert!(forced || share <= f64::from(percent) * 1.01, "{share} %");
        }

        #[test]
        fn commits_take_their_share_also_where_some_of_them_are_dear(
            cheap in 0u64..3_000, dear in 0u64..60_000, one_in in 1usize..20,
        ) {
            let mut pacer = CommitPacer::new(adaptive());
            let (mut open, mut spent, mut forced) = (Duration::ZERO, Duration::ZERO, false);
            for n in 0..4000 {
                let took = Duration::from_micros(if n % one_in == 0 { dear } else { cheap });
                pacer.committed(cost(took, Duration::ZERO, 0));
                // The pacer learns from the first cycles.
                if n >= 1000 {
                    let interval = pacer.policy().interval;
                    forced |= interval == adaptive().interval;
                    open += interval;
                    spent += took;
                }
            }
            let share = 100.0 * spent.as_secs_f64() / (open + spent).as_secs_f64();
            prop_assert!(forced || share <= 10.2, "{share} %");
        }

        #[test]
        fn commits_touch_their_number_of_partitions_unless_the_interval_forces_them(
            policy in any_policy(), touched in prop::collection::vec(0u32..500, 1..50),
        ) {
            let Pace::Adaptive { partitions_per_second, .. } = policy.pace else { unreachable!() };
            let mut pacer = CommitPacer::new(policy);
            for partitions in touched {
                pacer.committed(cost(Duration::ZERO, Duration::ZERO, partitions));
                let interval = pacer.policy().interval;
                let allowed = f64::from(partitions_per_second) * interval.as_secs_f64();
                prop_assert!(
                    interval == policy.interval || f64::from(partitions) <= allowed * 1.001,
                    "{partitions} in {interval:?}"
                );
            }
        }
    }
}

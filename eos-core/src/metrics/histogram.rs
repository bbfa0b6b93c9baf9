//! Histograms of durations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the buckets in microseconds. A decade has six, so the error of a quantile is a quarter at most.
/// A commit without load takes some milliseconds, and its deadline is ten seconds.
const BOUNDS: [u64; 27] = [
    500, 700, 1_000, 1_500, 2_000, 3_000, 5_000, 7_000, 10_000, 15_000, 20_000, 30_000, 50_000,
    70_000, 100_000, 150_000, 200_000, 300_000, 500_000, 700_000, 1_000_000, 1_500_000, 2_000_000,
    3_000_000, 5_000_000, 7_000_000, 10_000_000,
];

/// The bounded buckets, and one for longer durations.
const BUCKETS: usize = BOUNDS.len() + 1;

/// A histogram of durations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    spent: DurationStats,
    buckets: [u64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            spent: DurationStats::default(),
            buckets: [0; BUCKETS],
        }
    }
}

impl Histogram {
    /// The number of the durations, their sum and their maximum.
    #[must_use]
    pub fn stats(&self) -> DurationStats {
        self.spent
    }

    /// The duration that this share of all durations does not exceed: 0.5 is the median, 0.99 the 99th percentile.
    /// Interpolated within its bucket. `None` if the histogram is empty.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let count: u64 = self.buckets.iter().sum();
        if count == 0 {
            return None;
        }
        let rank = share.clamp(0.0, 1.0) * count as f64;
        let (mut below, mut lower) = (0, Duration::ZERO);
        for (upper, here) in self.uppers().zip(self.buckets) {
            // No duration is longer than the maximum, so it bounds its own bucket.
            let upper = upper.unwrap_or(self.spent.max).min(self.spent.max);
            if here > 0 && rank <= (below + here) as f64 {
                let part = ((rank - below as f64) / here as f64).clamp(0.0, 1.0);
                return Some(lower + upper.saturating_sub(lower).mul_f64(part));
            }
            below += here;
            lower = upper;
        }
        Some(self.spent.max)
    }

    /// The upper bound and the count of each bucket, in order. The last bucket has no bound. Bounds are inclusive.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> + '_ {
        self.uppers().zip(self.buckets)
    }

    fn uppers(&self) -> impl Iterator<Item = Option<Duration>> + use<> {
        let bounded = BOUNDS.into_iter().map(|us| Some(Duration::from_micros(us)));
        bounded.chain([None])
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.spent.add(other.spent);
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            *mine += theirs;
        }
    }
}

/// A [`DurationStats`] that one thread writes and others read.
#[derive(Debug, Default)]
pub(super) struct SpentMeter {
    count: AtomicU64,
    nanos: AtomicU64,
    max_nanos: AtomicU64,
}

impl SpentMeter {
    pub(super) fn record(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.max_nanos.fetch_max(nanos, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> DurationStats {
        let duration = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Ordering::Relaxed));
        DurationStats {
            count: self.count.load(Ordering::Relaxed),
            total: duration(&self.nanos),
            max: duration(&self.max_nanos),
        }
    }
}

/// A [`Histogram`] that one thread writes and others read.
#[derive(Debug, Default)]
pub(super) struct HistogramMeter {
    spent: SpentMeter,
    buckets: [AtomicU64; BUCKETS],
}

impl HistogramMeter {
    pub(super) fn record(&self, took: Duration) {
        self.spent.record(took);
        let at = BOUNDS.partition_point(|&us| Duration::from_micros(us) < took);
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn read(&self) -> Histogram {
        let mut read = Histogram {
            spent: self.spent.read(),
            ..Histogram::default()
        };
        for (to, from) in read.buckets.iter_mut().zip(&self.buckets) {
            *to = from.load(Ordering::Relaxed);
        }
        read
    }
}

/// The number, sum and maximum of durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DurationStats {
    /// The number of durations.
    pub count: u64,
    /// Their sum.
    pub total: Duration,
    /// The longest one.
    pub max: Duration,
}

impl DurationStats {
    /// The average; zero if there are none.
    #[must_use]
    pub fn mean(&self) -> Duration {
        let nanos = self.total.as_nanos() / u128::from(self.count.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    pub(super) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.total = self.total.saturating_add(other.total);
        self.max = self.max.max(other.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn of(durations: impl IntoIterator<Item = Duration>) -> Histogram {
        let meter = HistogramMeter::default();
        durations.into_iter().for_each(|d| meter.record(d));
        meter.read()
    }

    #[test]
    fn each_one_is_in_the_first_bucket_that_holds_it() {
        let histogram = of([ms(0), Duration::from_micros(500), ms(1), ms(30_000)]);
        let filled: Vec<_> = histogram.buckets().filter(|(_, n)| *n > 0).collect();
        assert_eq!(
            filled,
            [
                (Some(Duration::from_micros(500)), 2),
                (Some(ms(1)), 1),
                (None, 1)
            ]
        );
        assert_eq!(histogram.stats().count, 4);
        assert_eq!(histogram.stats().max, ms(30_000));
    }

    /// Compares the estimates with the true quantiles.
    #[test]
    fn quantiles_are_off_by_a_quarter_at_most() {
        let mut taken: Vec<Duration> = (0..5_000_u64)
            .map(|n| Duration::from_micros(800 + (n * n) % 90_000))
            .collect();
        let histogram = of(taken.iter().copied());
        taken.sort_unstable();
        for share in [0.01, 0.1, 0.5, 0.9, 0.99, 1.0] {
            let at = ((taken.len() as f64 * share) as usize).clamp(1, taken.len()) - 1;
            let (truth, told) = (taken[at], histogram.quantile(share).unwrap());
            let ratio = told.as_secs_f64() / truth.as_secs_f64();
            assert!(
                (0.75..=1.25).contains(&ratio),
                "{share}: {told:?}, in truth {truth:?}"
            );
        }
    }

    #[test]
    fn the_extremes_are_reported_without_extrapolation() {
        assert_eq!(of([]).quantile(0.5), None);
        assert_eq!(of([ms(12_345)]).quantile(1.0), Some(ms(12_345)));
        assert!(of([ms(4); 100]).quantile(0.99).unwrap() <= ms(4));
    }

    #[test]
    fn those_of_two_workers_add_up() {
        let mut sum = of([ms(2), ms(9)]);
        sum.add(&of([ms(40)]));
        assert_eq!(sum, of([ms(2), ms(9), ms(40)]));
    }
}

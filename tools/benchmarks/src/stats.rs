//! Medians, ratios, percentiles.

/// A figure of one side divided by the same figure of another, by round.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ratio {
    /// The figure and the two sides.
    pub(crate) name: &'static str,
    /// The ratio of each round.
    pub(crate) rounds: Vec<f64>,
}

impl Ratio {
    /// Returns the median of the rounds.
    pub(crate) fn median(&self) -> f64 {
        median(self.rounds.clone())
    }
}

/// Latencies, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Latencies {
    pub(crate) count: usize,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Latencies {
    pub(crate) fn of(mut all: Vec<f64>) -> Self {
        all.sort_unstable_by(f64::total_cmp);
        Self {
            count: all.len(),
            p50: percentile(&all, 50.0),
            p99: percentile(&all, 99.0),
            max: percentile(&all, 100.0),
        }
    }
}

/// Returns the median, which is the mean of the two middle values for an even number. NaN if there are no values.
pub(crate) fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    let half = all.len() / 2;
    match (all.len() % 2, all.get(half), all.get(half.wrapping_sub(1))) {
        (0, Some(above), Some(below)) => (above + below) / 2.0,
        (1, Some(middle), _) => *middle,
        _ => f64::NAN,
    }
}

/// Returns the value that this percentage of the sorted values does not exceed (nearest rank).
pub(crate) fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    let at = rank.clamp(1, sorted.len().max(1)) - 1;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// Rounds to three decimal places.
pub(crate) fn rounded(figure: f64) -> f64 {
    (figure * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middles_and_ranks() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(vec![]).is_nan());
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&hundred, 50.0), 50.0);
        assert_eq!(percentile(&hundred, 99.0), 99.0);
        assert_eq!(percentile(&hundred, 100.0), 100.0);
        assert_eq!(percentile(&[7.0], 99.0), 7.0);
        assert!(percentile(&[], 50.0).is_nan());
    }
}

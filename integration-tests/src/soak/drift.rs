//! Detection of growth in a series.

/// The growth that a series may have: a share of its early value, and units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Allowance {
    /// A share of the early value.
    pub share: f64,
    /// Units in addition to the share.
    pub units: f64,
}

/// Early and late values of a series.
///
/// The first sixth does not count: caches and buffers fill. Medians ignore the spikes around a kill.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// The median of the second sixth.
    pub early: f64,
    /// The median of the last sixth.
    pub late: f64,
    /// The largest late value of a flat series.
    pub limit: f64,
}

/// The fewest values in a sixth.
const FEWEST: usize = 6;

impl Drift {
    /// Compares the second sixth of the values with the last one. Returns `None` if a sixth has fewer than six values.
    pub fn of(values: &[f64], allowance: Allowance) -> Option<Drift> {
        let sixth = values.len() / 6;
        if sixth < FEWEST {
            return None;
        }
        let early = median(values.get(sixth..2 * sixth)?)?;
        let late = median(values.get(values.len() - sixth..)?)?;
        Some(Drift {
            early,
            late,
            limit: early * (1.0 + allowance.share) + allowance.units,
        })
    }

    /// Returns whether the series stayed within its allowance. A fall is no leak.
    pub fn is_flat(&self) -> bool {
        self.late <= self.limit
    }
}

/// Returns the middle value, or the smaller one of two.
fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENTH: Allowance = Allowance {
        share: 0.10,
        units: 0.0,
    };
    const UNITS: Allowance = Allowance {
        share: 0.0,
        units: 6.0,
    };
    /// The number of samples of an hour, one every 5 seconds.
    const HOUR: usize = 720;

    fn is_flat(allowance: Allowance, value: impl Fn(usize) -> f64) -> bool {
        let values: Vec<_> = (0..HOUR).map(value).collect();
        Drift::of(&values, allowance).unwrap().is_flat()
    }

    #[test]
    fn buffers_that_fill_and_empty_are_flat() {
        assert!(is_flat(TENTH, |_| 100.0));
        assert!(is_flat(TENTH, |at| 100.0 + (at % 40) as f64));
        // Memory at the start, before the first sixth has ended.
        assert!(is_flat(TENTH, |at| 50.0 + at.min(119) as f64));
        // Files of a member that takes over tasks and returns them, every third minute.
        assert!(is_flat(UNITS, |at| {
            if at % 36 < 3 { 90.0 } else { 60.0 }
        }));
        assert!(is_flat(UNITS, |at| 90.0 - at as f64 / 30.0));
    }

    #[test]
    fn each_planted_leak_is_found() {
        // A fifth of the memory in an hour.
        assert!(!is_flat(TENTH, |at| 100.0 + 20.0 * at as f64 / HOUR as f64));
        assert!(!is_flat(TENTH, |at| 100.0
            + (at % 40) as f64
            + 40.0 * at as f64 / HOUR as f64));
        // A file for every third kill, with a kill every minute.
        assert!(!is_flat(UNITS, |at| 60.0 + (at / 36) as f64));
        // A step that stays.
        assert!(!is_flat(UNITS, |at| if at > 500 { 67.0 } else { 60.0 }));
    }

    #[test]
    fn the_limit_is_the_last_flat_value() {
        let values = |late: f64| {
            let mut values = vec![100.0; 36];
            values[30..].fill(late);
            values
        };
        assert!(Drift::of(&values(110.0), TENTH).unwrap().is_flat());
        assert!(!Drift::of(&values(110.1), TENTH).unwrap().is_flat());
        assert!(Drift::of(&values(106.0), UNITS).unwrap().is_flat());
        assert!(!Drift::of(&values(107.0), UNITS).unwrap().is_flat());
    }

    #[test]
    fn few_values_prove_nothing() {
        assert_eq!(Drift::of(&[1.0; 35], TENTH), None);
        assert!(Drift::of(&[1.0; 36], TENTH).is_some());
    }
}

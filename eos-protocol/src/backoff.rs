//! Waits between tries.

use std::time::Duration;

/// Waits that double from `first` to `most`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The wait before the second try. The first try comes at once.
    pub first: Duration,
    /// The longest wait.
    pub most: Duration,
}

impl Backoff {
    /// The wait before try number `tries + 1`, after `tries` tries in quick succession.
    #[must_use]
    pub fn before(&self, tries: u32) -> Duration {
        match tries {
            0 => Duration::ZERO,
            n => self
                .first
                .saturating_mul(1u32.checked_shl(n - 1).unwrap_or(u32::MAX))
                .min(self.most),
        }
    }

    /// Spreads a wait over its upper half, so that two workers that collided don't meet again.
    /// `entropy` is any random number.
    #[must_use]
    pub fn jitter(wait: Duration, entropy: u64) -> Duration {
        let half = wait / 2;
        let span = u64::try_from(half.as_micros()).unwrap_or(u64::MAX);
        half + Duration::from_micros(if span == 0 { 0 } else { entropy % (span + 1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_its_limit() {
        let backoff = Backoff {
            first: Duration::from_millis(100),
            most: Duration::from_millis(500),
        };
        let waits: Vec<_> = [0, 1, 2, 3, 4, 99]
            .map(|n| backoff.before(n).as_millis())
            .into();
        assert_eq!(waits, [0, 100, 200, 400, 500, 500]);
    }

    #[test]
    fn jitter_stays_in_the_upper_half() {
        let wait = Duration::from_millis(100);
        for entropy in [0, 1, 7, 49_999, 50_000, 50_001, u64::MAX] {
            let jittered = Backoff::jitter(wait, entropy);
            assert!(jittered >= wait / 2 && jittered <= wait, "{jittered:?}");
        }
        assert_eq!(Backoff::jitter(Duration::ZERO, 5), Duration::ZERO);
    }
}

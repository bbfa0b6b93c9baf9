//! Monotonic times and deadlines.

use std::time::Duration;

/// A moment on a clock that never goes back, as time since that clock's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Now(pub Duration);

impl Now {
    /// The moment this much later.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }

    /// The time since `earlier`; zero if it lies in the future.
    #[must_use]
    #[inline]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// The moment by which a whole chain of calls has to end.
///
/// The chain creates it once and shares it: each call gets the time that the previous calls left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Deadline(Now);

impl Deadline {
    /// A deadline this long from now.
    #[must_use]
    pub fn after(now: Now, wait: Duration) -> Self {
        Self(now.after(wait))
    }

    /// The remaining time.
    #[must_use]
    pub fn remaining(self, now: Now) -> Duration {
        self.0.since(now)
    }

    /// Returns whether no time remains.
    #[must_use]
    pub fn passed(self, now: Now) -> bool {
        self.remaining(now).is_zero()
    }

    /// The time that one call may block: `most`, but never past the deadline.
    #[must_use]
    pub fn slice(self, now: Now, most: Duration) -> Duration {
        self.remaining(now).min(most)
    }

    /// A deadline this much earlier. The difference is reserved for later calls.
    #[must_use]
    pub fn reserving(self, floor: Duration) -> Self {
        Self(Now(self.0.0.saturating_sub(floor)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_calls_of_a_chain_share_what_is_left() {
        let deadline = Deadline::after(Now(ms(100)), ms(50));
        assert_eq!(deadline.remaining(Now(ms(120))), ms(30));
        assert_eq!(deadline.slice(Now(ms(120)), ms(10)), ms(10));
        assert_eq!(deadline.slice(Now(ms(145)), ms(10)), ms(5));
        assert!(!deadline.passed(Now(ms(149))));
        assert!(deadline.passed(Now(ms(150))));
        assert_eq!(deadline.slice(Now(ms(999)), ms(10)), ms(0));
    }

    #[test]
    fn a_floor_is_kept_back_for_what_must_still_fit() {
        let deadline = Deadline::after(Now(ms(0)), ms(50)).reserving(ms(20));
        assert!(deadline.passed(Now(ms(30))));
    }
}

//! Time as a value: read at the edge, handed in.

use std::time::Duration;

/// A moment on a clock that never goes back, as time since that clock's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Now(pub Duration);

impl Now {
    /// This much later.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }

    /// How long ago `earlier` was; zero if it is yet to come.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// The moment by which a whole chain of calls has to be done.
///
/// It is made once and shared: each call of the chain gets what the ones before it left over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Deadline(Now);

impl Deadline {
    /// This long from now.
    #[must_use]
    pub fn after(now: Now, wait: Duration) -> Self {
        Self(now.after(wait))
    }

    /// What is left.
    #[must_use]
    pub fn remaining(self, now: Now) -> Duration {
        self.0.since(now)
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn passed(self, now: Now) -> bool {
        self.remaining(now).is_zero()
    }

    /// How long one call may block: `most`, but never past the deadline.
    #[must_use]
    pub fn slice(self, now: Now, most: Duration) -> Duration {
        self.remaining(now).min(most)
    }

    /// This much sooner: what is kept back for the calls that must still fit in afterwards.
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

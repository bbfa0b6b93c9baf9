//! The cached schedule of a task's ticks.

use eos_protocol::{Clock, Timestamp};

use crate::rules;

/// For each clock, the time from which each tick counts as set. `None` if the worker must read the rows of the ticks.
///
/// The worker queries due items before each record. The cache spares it a read of these rows each time.
#[derive(Debug, Default)]
pub(super) struct Ticks([Option<Timestamp>; 3]);

impl Ticks {
    /// Returns whether each tick is set at this time of the clock.
    #[inline]
    pub(super) fn are_set(&self, clock: Clock, now: Timestamp) -> bool {
        self.0[usize::from(clock.number())]
            .is_some_and(|from| from <= now && rules::keeps_set_ticks())
    }

    /// Records that each tick is set from this time of the clock on, until [`forget`](Self::forget).
    pub(super) fn set_from(&mut self, clock: Clock, from: Timestamp) {
        self.0[usize::from(clock.number())] = Some(from);
    }

    /// Clears the schedule, because a tick was handled or removed, or dropped effects may have set one.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.0 = [None; 3];
    }
}

/// Returns whether a tick counts as set, and the next multiple of its period.
///
/// A clock that was ahead leaves a tick in the far future. Such a tick counts as not set. If the clock is set back by less
/// than a period, or the task moves to a machine whose clock is a little behind, the handled tick must not run again.
///
/// A tick at another time than a multiple is one of a former period. It still runs if it is due.
pub(super) fn is_set(at: Option<Timestamp>, period: i64, now: Timestamp) -> (bool, i64) {
    let next = (now.0.div_euclid(period) + 1).saturating_mul(period);
    let latest = match rules::keeps_set_ticks() {
        true => next.saturating_add(period),
        false => next,
    };
    let is_set = at.is_some_and(|at| at <= now || at.0 <= latest && at.0.rem_euclid(period) == 0);
    (is_set, next)
}

/// Returns the tick after one at `at`, which runs at the time `now`: a multiple of the period.
pub(super) fn next(at: Timestamp, period: i64, now: Timestamp) -> Timestamp {
    let periods = at.max(now).0.div_euclid(period) + 1;
    Timestamp(periods.saturating_mul(period))
}

/// Returns the number of multiples of the period after a tick at `at`, up to the time `now`.
pub(super) fn missed(at: Timestamp, period: i64, now: Timestamp) -> u64 {
    let periods = now.0.div_euclid(period) - at.0.div_euclid(period);
    periods.max(0).unsigned_abs()
}

/// Returns the first time of the clock at which a tick at this time counts as set.
pub(super) fn set_from(at: Timestamp, period: i64) -> Timestamp {
    match at.0.rem_euclid(period) {
        0 => Timestamp((at.0 / period).saturating_sub(2).saturating_mul(period)),
        _ => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read_again_after_each_change() {
        let mut ticks = Ticks::default();
        let now = Timestamp(5);
        assert!(!ticks.are_set(Clock::Wall, now));
        ticks.set_from(Clock::Wall, Timestamp(5));
        assert!(ticks.are_set(Clock::Wall, now));
        assert!(
            !ticks.are_set(Clock::Wall, Timestamp(4)),
            "the clock was set back"
        );
        assert!(!ticks.are_set(Clock::Stream, now));
        ticks.forget();
        assert!(!ticks.are_set(Clock::Wall, now));
    }

    /// A tick of a former period is at no multiple.
    #[test]
    fn missed_ticks_are_the_multiples_behind_a_tick() {
        let of = |at, now| missed(Timestamp(at), 24, Timestamp(now));
        assert_eq!((of(24, 24), of(24, 47), of(24, 48)), (0, 0, 1));
        assert_eq!((of(13, 23), of(13, 25), of(13, 49)), (0, 1, 2));
        assert_eq!(of(48, 24), 0, "the clock was set back");
        assert_eq!(next(Timestamp(13), 24, Timestamp(25)), Timestamp(48));
    }

    #[test]
    fn the_first_time_at_which_a_tick_is_set_is_exact() {
        for (at, period) in (-20..20).flat_map(|at| (1..9).map(move |period| (at, period))) {
            for now in -60..60 {
                let (at, now) = (Timestamp(at), Timestamp(now));
                let is_set = is_set(Some(at), period, now).0;
                assert_eq!(
                    is_set,
                    now >= set_from(at, period),
                    "{at:?} {period} {now:?}"
                );
            }
        }
    }
}

//! The schedule of faults: a pure function of the scenario and its seed.

use std::time::Duration;

/// A small generator of random numbers (SplitMix64). The same seed gives the same numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a generator with this seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// Returns the next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns an index below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        (self.roll() % len.max(1) as u64) as usize
    }

    /// Returns a number between `from` and `to`.
    pub fn share(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * (self.roll() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strike {
    /// SIGKILL to a process, which is started again at once.
    Kill,
    /// SIGKILL to a process that has just been started, which is started again at once.
    KillInStart {
        /// The time that the process has run.
        after: Duration,
    },
    /// SIGTERM to a process, which is started again once it has ended.
    Roll,
    /// The start of one more process.
    Join,
    /// SIGINT to the process that was started last. It is not started again.
    Leave,
    /// The end of a random process, which is not started again.
    Part(Parting),
}

/// The ways in which a process ends and is not started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parting {
    /// SIGINT: the process leaves its group.
    Leave,
    /// SIGTERM: a static member keeps its place in the group for the next process in its slot.
    Retire,
    /// SIGKILL.
    Vanish,
}

/// A fault and its time after the first record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The time after the first record.
    pub at: Duration,
    /// The fault.
    pub strike: Strike,
}

/// Plans `kills` kills over the whole of `span`, with the first one early and the last one late. For every five kills,
/// plans one of each other fault in between.
pub(super) fn kills(kills: usize, span: Duration, random: &mut Random) -> Vec<Step> {
    let at = |share: f64| span.mul_f64(share);
    let window = 1.0 / kills.max(1) as f64;
    let mut steps = Vec::new();
    for nth in 0..kills {
        let (from, to) = match nth {
            0 => (0.0, 0.5),
            _ if nth + 1 == kills => (0.3, 0.8),
            _ => (0.0, 1.0),
        };
        let share = (nth as f64 + random.share(from, to)) * window;
        let strike = Strike::Kill;
        steps.push(Step {
            at: at(share),
            strike,
        });
    }
    let others = kills.div_ceil(5);
    for nth in 0..others {
        let mut within = |from: f64, to: f64| {
            let share = (nth as f64 + random.share(from, to)) / others as f64;
            at(0.05 + 0.8 * share)
        };
        let times = [within(0.0, 0.3), within(0.3, 0.5), within(0.5, 0.7)];
        let (last, after) = (
            within(0.7, 1.0),
            Duration::from_millis(random.roll() % 1_000),
        );
        let strikes = [
            (times[0], Strike::Join),
            (times[1], Strike::Roll),
            (times[2], Strike::KillInStart { after }),
            (last, Strike::Leave),
        ];
        steps.extend(strikes.map(|(at, strike)| Step { at, strike }));
    }
    steps.sort_by_key(|step| step.at);
    steps
}

/// Plans joins and partings in turn, one per `every`, until the end of `span`. Of five partings, three are by SIGINT,
/// one by SIGTERM and one by SIGKILL.
pub(super) fn churn(every: Duration, span: Duration, random: &mut Random) -> Vec<Step> {
    use Parting::{Leave, Retire, Vanish};
    const WAYS: [Parting; 5] = [Leave, Vanish, Leave, Retire, Leave];
    // The seed selects the first way.
    let first = random.index(WAYS.len());
    let mut steps = Vec::new();
    for nth in 0_u32.. {
        let at = every * (nth + 1);
        if at + every > span {
            break;
        }
        let strike = match nth % 2 {
            0 => Strike::Join,
            _ => Strike::Part(WAYS[(first + nth as usize / 2) % WAYS.len()]),
        };
        steps.push(Step { at, strike });
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_plan_and_another_seed_another() {
        let span = Duration::from_secs(40);
        let of = |seed| kills(25, span, &mut Random::new(seed));
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }

    #[test]
    fn kills_cover_the_span_and_who_joins_leaves() {
        for seed in 0..200 {
            let span = Duration::from_secs(40);
            let steps = kills(25, span, &mut Random::new(seed));
            let killed: Vec<_> = steps.iter().filter(|s| s.strike == Strike::Kill).collect();
            assert_eq!(killed.len(), 25);
            assert!(killed[0].at <= span.mul_f64(0.02), "{killed:?}");
            assert!(killed[24].at >= span.mul_f64(0.97), "{killed:?}");
            let visits = steps.iter().filter_map(|s| match s.strike {
                Strike::Join => Some(true),
                Strike::Leave => Some(false),
                _ => None,
            });
            assert!(visits.eq([true, false].repeat(5)));
        }
    }

    #[test]
    fn churn_joins_and_parts_in_turn_and_in_every_way() {
        for seed in 0..20 {
            let (every, span) = (Duration::from_secs(3), Duration::from_secs(36));
            let steps = churn(every, span, &mut Random::new(seed));
            assert_eq!(steps.len(), 11);
            assert!(steps.iter().step_by(2).all(|s| s.strike == Strike::Join));
            let parted = steps.iter().skip(1).step_by(2).map(|s| s.strike);
            let parted: Vec<_> = parted.collect();
            for way in [Parting::Leave, Parting::Retire, Parting::Vanish] {
                assert!(parted.contains(&Strike::Part(way)), "{way:?}: {parted:?}");
            }
            let apart = steps
                .windows(2)
                .all(|pair| pair[1].at - pair[0].at == every);
            assert!(apart && steps[0].at == every, "{steps:?}");
        }
    }
}

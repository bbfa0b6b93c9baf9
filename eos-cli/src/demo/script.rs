//! The kill schedule, a pure function of the seed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The pause between two kills is about a second, and irregular.
const SHORTEST_PAUSE_MS: u64 = 600;
const LONGEST_PAUSE_MS: u64 = 1_400;

/// A future kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cue {
    /// The time since the kill before it.
    pub(crate) pause: Duration,
    /// The index of the process, from 0.
    pub(crate) victim: usize,
}

/// An endless sequence of cues.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    random: u64,
    processes: usize,
}

impl Script {
    pub(crate) fn new(seed: u64, processes: usize) -> Script {
        Script {
            random: seed,
            processes,
        }
    }

    /// SplitMix64: small, and good enough to choose victims by.
    fn number(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Iterator for Script {
    type Item = Cue;

    fn next(&mut self) -> Option<Cue> {
        let pause = SHORTEST_PAUSE_MS + self.number() % (LONGEST_PAUSE_MS - SHORTEST_PAUSE_MS);
        let victim = self.number() % self.processes.max(1) as u64;
        Some(Cue {
            pause: Duration::from_millis(pause),
            victim: victim as usize,
        })
    }
}

/// Returns a short number from the clock, which differs from run to run.
pub(crate) fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::from(now.map_or(1, |now| now.subsec_micros())) % 10_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(seed: u64, kills: usize) -> Vec<Cue> {
        Script::new(seed, 3).take(kills).collect()
    }

    #[test]
    fn a_seed_repeats_its_script_and_another_does_not() {
        assert_eq!(first(7, 20), first(7, 20));
        assert_ne!(first(7, 20), first(8, 20));
    }

    #[test]
    fn everybodys_turn_comes_about_once_a_second() {
        for seed in 0..50 {
            let cues = first(seed, 60);
            let total: Duration = cues.iter().map(|cue| cue.pause).sum();
            let seconds = total.as_secs();
            assert!((50..=70).contains(&seconds), "{seed}: {seconds} s");
            let killed = |process| cues.iter().any(|cue| cue.victim == process);
            assert!((0..3).all(killed), "{seed}");
            assert!(!killed(3));
        }
    }
}

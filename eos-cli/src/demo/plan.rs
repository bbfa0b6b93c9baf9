//! The plan of a run: the input, its rate, and the number of kills.

use std::fmt;
use std::time::Duration;

use super::fleet::PROCESSES;
use super::text::grouped;
use super::topics::{INPUT, OUTPUTS};

/// Workers in each process: threads with a consumer and a producer of their own.
pub(crate) const WORKERS: usize = 2;

/// The time without kills before the end of the input. After a later kill, too few records would be
/// left to show the recovery.
const QUIET_END: Duration = Duration::from_millis(1_500);

/// The plan of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Lines to send.
    pub(crate) lines: u64,
    /// Words in them.
    pub(crate) words: u64,
    /// Lines per second.
    pub(crate) rate: u64,
    /// The seed of the kill schedule.
    pub(crate) seed: u64,
    /// Whether no process is killed.
    pub(crate) calm: bool,
    /// Whether the demo started this Kafka, which then ends with the demo.
    pub(crate) own_kafka: bool,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan {
            lines,
            words,
            rate,
            seed,
            calm,
            ..
        } = self;
        writeln!(
            f,
            "{} lines of Alice in Wonderland ({} words), {} a second ─► {INPUT} ─► {PROCESSES} processes \
             of 06-word-count, {WORKERS} workers each ─► {}",
            grouped(*lines),
            grouped(*words),
            grouped(*rate),
            OUTPUTS.join(" + ")
        )?;
        match calm {
            true => writeln!(f, "No process is killed (--calm)"),
            false => writeln!(
                f,
                "About once a second one of them is killed with SIGKILL (--seed {seed} makes the same \
                 choices again)"
            ),
        }
    }
}

impl Plan {
    /// Returns the time that it takes to send the input.
    pub(crate) fn span(&self) -> Duration {
        Duration::from_secs_f64(self.lines as f64 / self.rate as f64)
    }

    /// Returns the number of input lines after which no process is killed.
    pub(crate) fn last_kill(&self) -> u64 {
        if self.calm {
            return 0;
        }
        let quiet = self.rate as f64 * QUIET_END.as_secs_f64();
        self.lines.saturating_sub(quiet as u64)
    }

    /// Returns the lowest number of kills that proves something. A kill waits for the recovery from
    /// the kill before it, so a slow machine has fewer than one kill per second.
    pub(crate) fn fewest_kills(&self) -> u64 {
        if self.calm {
            return 0;
        }
        (self.span().saturating_sub(QUIET_END).as_secs() / 8).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(lines: u64) -> Plan {
        Plan {
            lines,
            words: 9 * lines,
            rate: 20_000,
            seed: 7,
            calm: false,
            own_kafka: true,
        }
    }

    #[test]
    fn a_plan_may_kill_no_process() {
        let calm = Plan {
            calm: true,
            ..plan(400_000)
        };
        assert_eq!((calm.fewest_kills(), calm.last_kill()), (0, 0));
        assert!(calm.to_string().contains("No process is killed"));
    }

    #[test]
    fn there_must_be_some_kills_and_the_more_the_longer_it_runs() {
        assert_eq!(plan(10).fewest_kills(), 1);
        assert_eq!(plan(400_000).fewest_kills(), 2);
        assert_eq!(
            (plan(10).last_kill(), plan(400_000).last_kill()),
            (0, 370_000)
        );
    }

    #[test]
    fn the_plan_says_what_flows_where_and_how_to_repeat_it() {
        let text = plan(400_000).to_string();
        for part in ["400,000 lines", "─► word-counts", "--seed 7"] {
            assert!(text.contains(part), "{text}");
        }
    }
}

//! The kills, each with its consequences.

use std::time::{Duration, Instant};

use super::text::{counted, seconds};
use super::watch::Watch;

/// A process that was killed and started again.
#[derive(Debug, Clone)]
pub(crate) struct Kill {
    /// The time of the kill.
    pub(crate) at: Instant,
    /// The number of the process, from 1.
    pub(crate) process: usize,
    /// The process id that it had.
    pub(crate) pid: u32,
    /// The number of transactions that it left open.
    pub(crate) open: u64,
    /// The time until every partition of every output had new committed records. `None` before
    /// that.
    pub(crate) recovery: Option<Duration>,
}

impl Kill {
    /// Returns the kill as one line of text.
    pub(crate) fn line(&self) -> String {
        let Kill {
            process, pid, open, ..
        } = self;
        let open = match open {
            0 => "no transaction".to_owned(),
            open => counted(*open, "transaction"),
        };
        let back = match self.recovery {
            Some(time) => format!("back after {}", seconds(time)),
            None => "not back yet".to_owned(),
        };
        format!("killed worker process {process} (pid {pid}) with {open} open; {back}")
    }
}

/// All kills, in order. The recovery from the last one may still be under way.
#[derive(Debug, Default)]
pub(crate) struct Kills(Vec<Kill>);

impl Kills {
    pub(crate) fn add(&mut self, kill: Kill) {
        self.0.push(kill);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// Returns whether the pipeline has recovered from the last kill.
    pub(crate) fn is_calm(&self) -> bool {
        self.0.last().is_none_or(|kill| kill.recovery.is_some())
    }

    /// Returns the last kill, if the pipeline has just recovered from it.
    pub(crate) fn recovered(&mut self, watch: &Watch) -> Option<&Kill> {
        let last = self.0.last_mut().filter(|kill| kill.recovery.is_none())?;
        last.recovery = watch.recovery(last.at);
        last.recovery.is_some().then_some(&*last)
    }

    pub(crate) fn into_inner(self) -> Vec<Kill> {
        self.0
    }
}

/// Returns the median and the maximum of some times.
pub(crate) fn median_and_longest(mut times: Vec<Duration>) -> Option<(Duration, Duration)> {
    times.sort_unstable();
    Some((*times.get(times.len() / 2)?, *times.last()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_is_one_line() {
        let mut kill = Kill {
            at: Instant::now(),
            process: 2,
            pid: 4711,
            open: 3,
            recovery: Some(Duration::from_millis(704)),
        };
        assert_eq!(
            kill.line(),
            "killed worker process 2 (pid 4711) with 3 transactions open; back after 0.70 s"
        );
        (kill.open, kill.recovery) = (0, None);
        assert_eq!(
            kill.line(),
            "killed worker process 2 (pid 4711) with no transaction open; not back yet"
        );
    }

    #[test]
    fn the_median_is_one_of_the_times() {
        let of = |times: &[u64]| {
            let times = times.iter().copied().map(Duration::from_millis).collect();
            median_and_longest(times).map(|(a, b)| (a.as_millis(), b.as_millis()))
        };
        assert_eq!(of(&[300, 100, 900]), Some((300, 900)));
        assert_eq!(of(&[5]), Some((5, 5)));
        assert_eq!(of(&[]), None);
    }
}

//! The phases of a commit, and their durations.

use std::time::Duration;

use eos_protocol::{Event, Now};

/// A phase of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// The remaining records go to the producer, and the changes of stores (changelog).
    Seal,
    /// `send_offsets_to_transaction`.
    SendOffsets,
    /// The wait until the brokers have acknowledged every output. Runs beside `SendOffsets`.
    Drain,
    /// `commit_transaction`.
    Commit,
    /// The changes of stores go to their databases.
    Apply,
}

impl Phase {
    /// All phases, in order.
    pub const ALL: [Self; 5] = [
        Self::Seal,
        Self::SendOffsets,
        Self::Drain,
        Self::Commit,
        Self::Apply,
    ];

    /// The name of the phase in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Seal => "seal",
            Self::SendOffsets => "send_offsets",
            Self::Drain => "drain",
            Self::Commit => "commit",
            Self::Apply => "apply",
        }
    }
}

/// The durations of one commit's phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Phases {
    pub(crate) seal: Duration,
    pub(crate) send_offsets: Duration,
    pub(crate) drain: Duration,
    pub(crate) commit: Duration,
    pub(crate) apply: Duration,
    pub(crate) whole: Duration,
}

impl Phases {
    pub(super) fn of(&self, phase: Phase) -> Duration {
        match phase {
            Phase::Seal => self.seal,
            Phase::SendOffsets => self.send_offsets,
            Phase::Drain => self.drain,
            Phase::Commit => self.commit,
            Phase::Apply => self.apply,
        }
    }
}

/// Returns the time in milliseconds, for a log line.
pub(crate) fn in_ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// Times one commit by the actions and events of the transaction machine.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch {
    /// The time at which the machine requested the seal.
    since: Now,
    sealed: Option<Now>,
    offsets_sent: Option<Now>,
    drained: Option<Now>,
    known: Option<Now>,
}

impl Stopwatch {
    /// Starts at the end of intake.
    pub(crate) fn start(now: Now) -> Self {
        Self {
            since: now,
            ..Self::default()
        }
    }

    /// Records the time of an event that ends a phase. Ignores other events.
    pub(crate) fn heard(&mut self, event: Event, now: Now) {
        match event {
            Event::Sealed => self.sealed = Some(now),
            Event::OffsetsSent => self.offsets_sent = Some(now),
            Event::Drained => self.drained = Some(now),
            _ => {}
        }
    }

    /// Records the time at which the commit is known.
    pub(crate) fn known(&mut self, now: Now) {
        self.known = Some(now);
    }

    /// Ends the commit. Returns the durations of its phases.
    pub(crate) fn stop(&self, now: Now) -> Phases {
        let sealed = self.sealed.unwrap_or(self.since);
        let offsets_sent = self.offsets_sent.unwrap_or(sealed);
        let drained = self.drained.unwrap_or(sealed);
        let known = self.known.unwrap_or(now);
        Phases {
            seal: sealed.since(self.since),
            send_offsets: offsets_sent.since(sealed),
            drain: drained.since(sealed),
            commit: known.since(offsets_sent.max(drained)),
            apply: now.since(known),
            whole: now.since(self.since),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn timed(events: &[(u64, Event)]) -> Phases {
        let mut watch = Stopwatch::start(Now(ms(100)));
        for &(at, event) in events {
            watch.heard(event, Now(ms(at)));
        }
        watch.known(Now(ms(120)));
        watch.stop(Now(ms(127)))
    }

    #[test]
    fn offsets_and_outputs_go_side_by_side_whichever_ends_first() {
        for (offsets_sent, drained) in [(105, 114), (114, 105)] {
            let phases = timed(&[
                (101, Event::Sealed),
                (offsets_sent, Event::OffsetsSent),
                (drained, Event::Drained),
                (118, Event::Tick),
            ]);
            assert_eq!(phases.seal, ms(1));
            assert_eq!(phases.send_offsets, ms(offsets_sent - 101));
            assert_eq!(phases.drain, ms(drained - 101));
            assert_eq!((phases.commit, phases.apply), (ms(6), ms(7)));
            assert_eq!(phases.whole, ms(27));
        }
    }

    #[test]
    fn at_least_once_sends_no_offsets_before_its_commit() {
        let phases = timed(&[(101, Event::Sealed), (105, Event::Drained)]);
        assert_eq!(phases.send_offsets, Duration::ZERO);
        assert_eq!((phases.drain, phases.commit), (ms(4), ms(15)));
    }

    #[test]
    fn milliseconds_are_rounded_to_microseconds() {
        assert_eq!(in_ms(Duration::from_nanos(1_234_567)), 1.235);
    }
}

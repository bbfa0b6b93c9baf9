//! Asks for a partition's last stable offset beside everything else.

use std::task::Poll;
use std::time::{Duration, Instant};

use eos_protocol::TopicPartition;

use super::ffi::OffsetSpec;
use super::lookups::{Lookup, Lookups};

/// Minimum interval between two queries of one partition: another producer's transaction may stay open.
const PAUSE: Duration = Duration::from_millis(50);

/// How long the broker may take.
const ANSWER: Duration = Duration::from_secs(5);

/// A query that no caller waits for.
#[derive(Debug, Default)]
pub(super) struct Probe {
    asked: Option<Instant>,
    /// What was asked, and the high watermark of when it was.
    open: Option<(Lookup, i64)>,
}

impl Probe {
    /// Asks, unless the last question is open or was put just now.
    pub(super) fn ask(&mut self, lookups: &Lookups, of: &TopicPartition, high: i64) {
        let soon = self.asked.is_some_and(|asked| asked.elapsed() < PAUSE);
        if self.open.is_some() || soon {
            return;
        }
        self.asked = Some(Instant::now());
        let lookup = lookups.ask(std::slice::from_ref(of), OffsetSpec::End, ANSWER);
        self.open = Some((lookup, high));
    }

    /// The last stable offset, if it came just now, and the high watermark of when it was asked for.
    /// A question that failed is put again.
    pub(super) fn answer(&mut self) -> Option<(i64, i64)> {
        let (lookup, high) = self.open.as_ref()?;
        let Poll::Ready(answer) = lookup.poll(Duration::ZERO) else {
            return None;
        };
        let high = *high;
        self.open = None;
        let stable = answer.ok()?.into_iter().find(|entry| entry.code == 0)?;
        Some((stable.offset, high))
    }
}

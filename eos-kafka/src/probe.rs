//! Queries a partition's last stable offset in the background.

use std::task::Poll;
use std::time::{Duration, Instant};

use eos_protocol::TopicPartition;

use super::ffi::OffsetSpec;
use super::lookups::{Lookup, Lookups};

/// Minimum interval between two queries of one partition: another producer's transaction may stay open.
const PAUSE: Duration = Duration::from_millis(50);

/// The time limit of a response.
const ANSWER: Duration = Duration::from_secs(5);

/// A query that no caller waits for.
#[derive(Debug, Default)]
pub(super) struct Probe {
    asked: Option<Instant>,
    /// The query in flight, and the high watermark at the time of the query.
    open: Option<(Lookup, i64)>,
}

impl Probe {
    /// Sends a query, unless one is in flight or was sent just now.
    pub(super) fn ask(&mut self, lookups: &Lookups, of: &TopicPartition, high: i64) {
        let soon = self.asked.is_some_and(|asked| asked.elapsed() < PAUSE);
        if self.open.is_some() || soon {
            return;
        }
        self.asked = Some(Instant::now());
        let lookup = lookups.ask(std::slice::from_ref(of), OffsetSpec::End, ANSWER);
        self.open = Some((lookup, high));
    }

    /// Returns a newly received last stable offset, and the high watermark at the time of the query. A failed query is
    /// repeated.
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

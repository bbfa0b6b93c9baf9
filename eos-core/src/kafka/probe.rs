//! Asks for a partition's last stable offset beside everything else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use eos_protocol::TopicPartition;

use super::ffi::{Client, OffsetSpec, Queue};
use super::wake::Wake;

/// How often one partition is asked for, at most: somebody else's transaction may stay open.
const PAUSE: Duration = Duration::from_millis(50);

/// How long the broker may take.
const ANSWER: Duration = Duration::from_secs(5);

/// A question that nobody waits for.
#[derive(Debug, Default)]
pub(super) struct Probe {
    asked: Option<Instant>,
    /// Where the answer comes, and the high watermark of when it was asked for.
    open: Option<(Queue, i64)>,
}

impl Probe {
    /// Asks, unless the last question is open or was put just now.
    pub(super) fn ask(
        &mut self,
        client: &Arc<Client>,
        of: &TopicPartition,
        high: i64,
        wake: &Arc<Wake>,
    ) {
        let soon = self.asked.is_some_and(|asked| asked.elapsed() < PAUSE);
        if self.open.is_some() || soon {
            return;
        }
        self.asked = Some(Instant::now());
        let queue = Queue::fresh(client).waking(wake);
        let of = std::slice::from_ref(of);
        // What can't be asked is asked again.
        if client
            .ask_offsets(of, OffsetSpec::End, ANSWER, &queue)
            .is_ok()
        {
            self.open = Some((queue, high));
        }
    }

    /// The last stable offset, if it came just now, and the high watermark of when it was asked for.
    pub(super) fn answer(&mut self) -> Option<(i64, i64)> {
        let (queue, high) = self.open.as_ref()?;
        let (high, event) = (*high, queue.poll(Duration::ZERO)?);
        let stable = match event.check() {
            Ok(()) => event.offsets().into_iter().find(|entry| entry.code == 0),
            Err(_) => None,
        };
        drop(event);
        self.open = None;
        stable.map(|entry| (entry.offset, high))
    }
}

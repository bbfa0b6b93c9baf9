//! The pause of a task.

use std::sync::Arc;

use eos_protocol::{Pause, TopicName, Verdict};

use crate::error_policy::LastResort;
use crate::paused::PauseTicket;
use crate::topology::Fault;

/// The pause of a task.
#[derive(Debug)]
pub(super) struct TaskPause {
    pub(super) rule: Pause,
    pub(super) ticket: PauseTicket,
    pub(super) fault: Arc<Fault>,
    /// The numbers that the record had in orders. A decision to give it up passes over them.
    pub(super) numbers: Vec<(usize, Vec<u8>)>,
    /// The topic of dead letters, and its output.
    pub(super) letters: Option<(TopicName, usize)>,
}

impl TaskPause {
    /// Returns whether the task waits for a decision.
    pub(super) fn stands_still(&self) -> bool {
        self.rule.stands_still() && self.ticket.decision().is_none()
    }

    pub(super) fn last_resort(&self, verdict: Verdict) -> (LastResort, Option<usize>) {
        match (verdict, &self.letters) {
            (Verdict::DeadLetter, Some((topic, output))) => {
                (LastResort::DeadLetter(topic.clone()), Some(*output))
            }
            _ => (LastResort::Skip, None),
        }
    }
}

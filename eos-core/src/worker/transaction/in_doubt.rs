//! What became of a commit that had no clean answer.

use std::task::Poll;

use eos_protocol::{Committed, Event, Outcome, outcome};

use super::{SLICE, Worker};
use crate::client::{Client, CommittedOffset, Source};
use crate::failpoints::{self, Defence};

impl<C: Client> Worker<C> {
    /// Rule 6: what became of the transaction, by the names beside the stable offsets.
    pub(super) fn read_outcome(&mut self) {
        if !self.membership.holds() {
            // Somebody else went on with its tasks: nothing of it is ours any more.
            self.calls.read_outcome = false;
            return self.feed(Event::Resolved(Outcome::Aborted));
        }
        let touched = self.tasks.values().filter(|t| t.progress.touched());
        let partitions: Vec<_> = touched
            .flat_map(|t| t.progress.inputs())
            .map(|i| i.partition.clone())
            .collect();
        let committed = if partitions.is_empty() {
            Poll::Ready(Ok(Vec::new()))
        } else {
            self.source.committed(&partitions, SLICE)
        };
        let Poll::Ready(committed) = committed else {
            return;
        };
        match committed {
            // Some are still held by a transaction: all of them decide.
            Ok(committed) if committed.len() < partitions.len() => {}
            Ok(committed) => {
                self.calls.read_outcome = false;
                let verdict = self.judge(&committed);
                tracing::info!(
                    app = %self.spec.app, worker = %self.spec.id, ?verdict,
                    "the transaction in doubt is decided"
                );
                // Somebody else has committed since: its tasks are closed, and start anew where the
                // group says, if they are still ours.
                if verdict == Outcome::Dirty {
                    if !failpoints::undefended(Defence::Dirty) {
                        self.evict();
                    }
                    return self.feed(Event::Resolved(Outcome::Aborted));
                }
                self.feed(Event::Resolved(verdict));
            }
            Err(error) => {
                self.calls.read_outcome = false;
                self.failed(error);
            }
        }
    }

    fn judge(&self, committed: &[CommittedOffset]) -> Outcome {
        if failpoints::undefended(Defence::InDoubt) {
            return Outcome::Aborted;
        }
        let mut verdict = None;
        for task in self.tasks.values().filter(|t| t.progress.touched()) {
            let inputs = task.progress.inputs();
            let found: Vec<Committed> = committed
                .iter()
                .filter(|c| inputs.iter().any(|i| i.partition == c.partition))
                .map(as_committed)
                .collect();
            let one = outcome(task.progress.sealed(), task.progress.last(), &found);
            match verdict {
                None => verdict = Some(one),
                Some(other) if other != one => return Outcome::Dirty,
                Some(_) => {}
            }
        }
        // Nothing of it is ours any more: there is nothing to apply.
        verdict.unwrap_or(Outcome::Aborted)
    }
}

pub(super) fn as_committed(c: &CommittedOffset) -> Committed {
    Committed {
        partition: c.partition.clone(),
        offset: c.offset,
        metadata: c.metadata.clone(),
    }
}

//! Gives each task its turn, for as long as the transaction may grow.

use std::time::Duration;

use eos_protocol::TaskId;

use super::record::Done;
use super::{Counters, Worker};
use crate::client::Client;

/// How long one step may take records before it looks around again.
const STRETCH: Duration = Duration::from_millis(5);

impl<C: Client> Worker<C> {
    /// Processes records for a while. Answers whether there may be more at once.
    pub(super) fn intake(&mut self) -> bool {
        if !self.send_rest() || !self.accepts() || !self.merge_held() {
            return false;
        }
        let begun = self.env.about_now();
        let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        let mut any = false;
        for n in 0..ids.len() {
            let id = ids[(self.turn + n) % ids.len()];
            // A task is taken out while it is at work: its records write into the worker.
            let Some(mut task) = self.tasks.remove(&id) else {
                continue;
            };
            let mut failure = None;
            let mut more = true;
            while more && failure.is_none() {
                match self.process(&mut task) {
                    Done::Nothing => break,
                    Done::Next => {}
                    Done::Wait => more = false,
                    Done::Failed(error) => failure = Some(*error),
                }
                any = true;
                // Looked at after each record: any of them may be slow.
                let now = self.env.about_now();
                more &= self.due(now).is_none() && now.since(begun) < STRETCH;
            }
            self.tasks.insert(id, task);
            self.catch_up();
            if let Some(error) = failure {
                self.fail_record(error);
                return true;
            }
            if !more {
                self.turn = (self.turn + n + 1) % ids.len();
                return true;
            }
        }
        any
    }

    /// Makes what was done in this step known.
    pub(super) fn count(&mut self) {
        Counters::add(
            &self.counters.records_in,
            std::mem::take(&mut self.processed),
        );
        Counters::add(&self.counters.records_out, std::mem::take(&mut self.sent));
        Counters::add(&self.counters.skipped, std::mem::take(&mut self.skipped));
        Counters::add(
            &self.counters.dead_letters,
            std::mem::take(&mut self.dead_letters),
        );
        Counters::add(&self.counters.retries, std::mem::take(&mut self.retries));
    }
}

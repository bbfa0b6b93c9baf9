//! Gives each task its turn, for as long as the transaction may grow.

use std::collections::VecDeque;
use std::time::Duration;

use eos_protocol::TaskId;

use super::Worker;
use super::record::Done;
use crate::client::Client;
use crate::metrics::Count;

/// How long one step may take records before it looks around again.
const STRETCH: Duration = Duration::from_millis(5);

/// How many records a task takes before it is another one's turn, in an app with repartition topics. Few, so that
/// tasks with much to do stay side by side in time: what they write there is read in the order in which it was
/// written, and windows close by the youngest record. It costs a tenth of the CPU time of an app that does little
/// else, so others do without.
const TURN: usize = 32;

impl<C: Client> Worker<C> {
    /// Processes records for a while. Answers whether there may be more at once.
    pub(super) fn intake(&mut self) -> bool {
        if !self.send_rest() || !self.accepts() || !self.merge_held() {
            return false;
        }
        let begun = self.env.about_now();
        self.last_read = begun;
        let turn = match self.repartitions.is_empty() {
            true => usize::MAX,
            false => TURN,
        };
        let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        let first = self.turn % ids.len().max(1);
        let mut turns: VecDeque<TaskId> =
            ids[first..].iter().chain(&ids[..first]).copied().collect();
        let mut any = false;
        while let Some(id) = turns.pop_front() {
            // A task is taken out while it is at work: its records write into the worker.
            let Some(mut task) = self.tasks.remove(&id) else {
                continue;
            };
            let mut failure = None;
            let (mut more, mut dry) = (true, false);
            for _ in 0..turn {
                match self.process(&mut task) {
                    Done::Nothing => {
                        dry = true;
                        break;
                    }
                    Done::Next => {}
                    Done::Wait => more = false,
                    Done::Failed(error) => failure = Some(*error),
                }
                any = true;
                // The clock was looked at after the record: any of them may be slow.
                let now = self.last_read;
                more &= self.due(now).is_none() && now.since(begun) < STRETCH;
                if !more || failure.is_some() {
                    break;
                }
            }
            self.tasks.insert(id, task);
            self.catch_up();
            if let Some(error) = failure {
                self.fail_record(error);
                return true;
            }
            if !more {
                self.turn = ids.iter().position(|one| *one > id).unwrap_or_default();
                return true;
            }
            if !dry {
                turns.push_back(id);
            }
        }
        any
    }

    /// Makes what was done in this step known.
    pub(super) fn count(&mut self) {
        for (what, number) in [
            (Count::RecordsIn, &mut self.processed),
            (Count::RecordsOut, &mut self.sent),
            (Count::Skipped, &mut self.skipped),
            (Count::DeadLetters, &mut self.dead_letters),
            (Count::Late, &mut self.late_records),
            (Count::Retried, &mut self.retries),
            (Count::RestoredRecords, &mut self.restored_records),
            (Count::RestoredBytes, &mut self.restored_bytes),
        ] {
            self.meter.count(what, std::mem::take(number));
        }
    }
}

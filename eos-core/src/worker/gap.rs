//! Records that came before a rewind and do not come after it (design rule 8).

use std::task::Poll;

use eos_protocol::{CallSite, Deadline, ErrorClass, Offset, TopicPartition, code};

use super::task::Task;
use super::{RecordsOf, SLICE, Worker, WorkerError};
use crate::client::{Client, ClientError, Source};

/// The first record of a partition after a rewind is a later one than before it, each time.
#[derive(Debug, Clone)]
pub(super) struct Gap {
    partition: TopicPartition,
    /// The record that came first before the rewind.
    expected: Offset,
    /// The one that comes first now.
    got: Offset,
    /// By when the log's bounds are known, by the brokers' time.
    deadline: Deadline,
}

impl<C: Client> Worker<C> {
    /// A record is missing: the task waits until the log is known to have lost it.
    pub(super) fn look_for_missing(
        &mut self,
        task: &Task<RecordsOf<C>>,
        input: usize,
        expected: Offset,
        got: Offset,
    ) {
        let Some(input) = task.progress.inputs().get(input) else {
            return;
        };
        let partition = input.partition.clone();
        if self.gaps.iter().any(|gap| gap.partition == partition) {
            return;
        }
        let now = self.brokers.at(self.env.now());
        self.gaps.push(Gap {
            partition,
            expected,
            got,
            deadline: Deadline::after(now, self.spec.offsets_deadline),
        });
    }

    /// Finds out whether the log has lost the record: it was deleted if the log begins after it, and may
    /// have been if the topic is compacted. Otherwise the client skipped it.
    pub(super) fn explain_gaps(&mut self) -> Result<(), WorkerError> {
        let Some(gap) = self.gaps.first().cloned() else {
            return Ok(());
        };
        let partition = gap.partition;
        let misses = |task: &Task<_>| task.progress.misses(&partition, gap.expected);
        if !self.tasks.values().any(misses) {
            // Revoked or rewound meanwhile.
            self.gaps.remove(0);
            return Ok(());
        }
        let late = gap.deadline.passed(self.brokers.at(self.env.now()));
        match self.source.bounds(std::slice::from_ref(&partition), SLICE) {
            Poll::Pending if late => Err(WorkerError::Client(ClientError::new(
                CallSite::Bounds,
                code::LOCAL_TIMED_OUT,
                format!(
                    "record {} of {partition} is missing, and no broker reported where the log begins",
                    gap.expected
                ),
            ))),
            Poll::Pending => Ok(()),
            Poll::Ready(Err(error)) if error.class() == ErrorClass::Retriable && !late => Ok(()),
            Poll::Ready(Err(error)) => Err(WorkerError::Client(error)),
            Poll::Ready(Ok(bounds)) => {
                self.gaps.remove(0);
                let deleted = bounds.first().is_some_and(|log| gap.expected < log.first);
                if deleted || self.spec.compacted.contains(&partition.topic) {
                    tracing::warn!(
                        app = %self.spec.app, worker = %self.spec.id, %partition,
                        from = %gap.expected, to = %gap.got,
                        "records of an aborted transaction are not in the log any more, going on behind them"
                    );
                    for task in self.tasks.values_mut() {
                        task.progress.lost(&partition);
                    }
                } else {
                    self.give_up(WorkerError::RecordsSkipped {
                        partition,
                        expected: gap.expected,
                        got: gap.got,
                    });
                }
                Ok(())
            }
        }
    }
}

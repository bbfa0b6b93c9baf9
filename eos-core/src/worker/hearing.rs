//! What the client reports.

use std::task::Poll;

use eos_protocol::{CallSite, Deadline, ErrorClass, Event, Offset, TopicPartition, code};

use super::rebalance::Change;
use super::record::rewind_to;
use super::task::Readiness;
use super::{SLICE, Worker, WorkerError, error};
use crate::client::{Client, ClientError, Source, SourceEvent};

/// A report that an offset is not in the log.
#[derive(Debug, Clone)]
pub(super) struct OutOfRange {
    partition: TopicPartition,
    /// The one that was fetched.
    asked: Option<Offset>,
    /// By when the log's bounds are known.
    deadline: Deadline,
}

impl<C: Client> Worker<C> {
    /// Takes the client's events in. A rebalance is answered later, in order.
    pub(super) fn hear(&mut self) -> Result<(), WorkerError> {
        while let Some(event) = self.source.poll() {
            match event {
                SourceEvent::Assigned(partitions) => {
                    self.joined = true;
                    self.changes.push_back(Change::Assigned(partitions));
                }
                SourceEvent::Revoked { partitions, lost } => {
                    self.changes.push_back(Change::Revoked { partitions, lost });
                }
                SourceEvent::OutOfRange { partition, asked } => {
                    let now = self.env.now();
                    for one in &mut self.restoring {
                        one.out_of_range(&partition, now);
                    }
                    if self.tasks.values().any(|t| t.reads(&partition)) {
                        let deadline = Deadline::after(now, self.spec.offsets_deadline);
                        self.out_of_range.push(OutOfRange {
                            partition,
                            asked,
                            deadline,
                        });
                    }
                }
                SourceEvent::Topics(report) => self.compare_topics(&report),
                SourceEvent::Failed(error) => self.consumer_failed(error),
            }
        }
        // A partition that is about to go needs no explanation.
        if !self.out_of_range.is_empty() && self.changes.is_empty() {
            self.explain_out_of_range()?;
        }
        Ok(())
    }

    /// The consumer reports an error of its own.
    pub(super) fn consumer_failed(&mut self, error: ClientError) {
        match error.class() {
            ErrorClass::Retriable => {
                tracing::debug!(worker = %self.spec.id, %error, "the consumer goes on");
            }
            _ => self.give_up(error::from_client(self.spec.identity.as_str(), error)),
        }
    }

    /// Stops for good, without committing what is open: it can't be trusted to be complete, or
    /// can't be fenced, or is of a topic that is no more.
    pub(super) fn give_up(&mut self, error: WorkerError) {
        if self.failure.is_none() {
            self.failure = Some(error);
            self.deferred.push(Event::Lost);
        }
    }

    /// Fetches a partition from where its task is.
    ///
    /// librdkafka sees on one thread that an offset is gone and acts on another, where nobody asks whether the
    /// partition was assigned anew meanwhile (`rd_kafka_offset_reset`): it stops what was just begun.
    fn seek_again(&mut self, partition: TopicPartition, wanted: Offset) {
        for task in self.tasks.values_mut() {
            let mut inputs = task.progress.inputs().iter();
            let Some(input) = inputs.position(|input| input.partition == partition) else {
                continue;
            };
            task.drop_fetched_of(input);
            if matches!(task.readiness, Readiness::Ready | Readiness::Unclaimed) {
                task.readiness = Readiness::Rewinding;
            }
        }
        rewind_to(&mut self.rewinds, partition, wanted);
    }

    /// Says where the log begins and ends that lacks the offset we asked for.
    fn explain_out_of_range(&mut self) -> Result<(), WorkerError> {
        let Some(OutOfRange {
            partition,
            asked,
            deadline,
        }) = self.out_of_range.first().cloned()
        else {
            return Ok(());
        };
        let wanted = self.tasks.values().flat_map(|t| t.progress.inputs());
        let wanted = wanted
            .filter(|i| i.partition == partition)
            .map(|i| i.next)
            .next();
        let Some(wanted) = wanted else {
            // Revoked meanwhile: the next owner will find out.
            self.out_of_range.remove(0);
            return Ok(());
        };
        if asked.is_some_and(|asked| asked < wanted) {
            tracing::debug!(
                worker = %self.spec.id, %partition, ?asked, %wanted,
                "an offset from before the last rebalance or rewind is gone, seeking again"
            );
            self.out_of_range.remove(0);
            self.seek_again(partition, wanted);
            return Ok(());
        }
        let late = deadline.passed(self.env.now());
        match self.source.bounds(std::slice::from_ref(&partition), SLICE) {
            Poll::Pending if late => Err(WorkerError::Client(ClientError::new(
                CallSite::Bounds,
                code::LOCAL_TIMED_OUT,
                format!(
                    "offset {wanted} of {partition} is not in the log, and no broker said where the \
                     log begins and ends"
                ),
            ))),
            Poll::Pending => Ok(()),
            Poll::Ready(Err(error)) if error.class() == ErrorClass::Retriable && !late => Ok(()),
            Poll::Ready(Err(error)) => Err(WorkerError::Client(error)),
            Poll::Ready(Ok(bounds)) => {
                let (first, end) = bounds
                    .first()
                    .map_or((Offset::ZERO, Offset::ZERO), |b| (b.first, b.end));
                // Only what its reader committed is deleted of a topic of our own: there is another reader,
                // and the group has not told us yet.
                if first > wanted && self.repartitions.contains(&partition.topic) && !late {
                    return Ok(());
                }
                self.out_of_range.remove(0);
                let group = self.spec.app.as_str().to_owned();
                self.give_up(WorkerError::OffsetOutOfRange {
                    partition,
                    group,
                    wanted,
                    first,
                    end,
                });
                Ok(())
            }
        }
    }
}

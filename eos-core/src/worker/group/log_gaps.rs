//! Offsets and records that are missing in the logs.

use std::task::Poll;

use eos_protocol::{CallSite, Deadline, ErrorClass, Offset, TopicPartition, code};

use super::Group;
use crate::client::{Client, ClientError, OffsetBounds, Source};
use crate::worker::pipeline::MissingRecord;
use crate::worker::shared::Shared;
use crate::worker::task::Task;
use crate::worker::tasks::Tasks;
use crate::worker::{RecordsOf, SLICE, WorkerError};

/// The gaps that wait for the bounds of a log.
#[derive(Debug, Default)]
pub(super) struct LogGaps {
    out_of_range: Vec<OutOfRange>,
    missing: Vec<Missing>,
}

/// A partition whose next offset is outside of the log.
#[derive(Debug, Clone)]
struct OutOfRange {
    partition: TopicPartition,
    /// The requested offset.
    asked: Option<Offset>,
    /// The deadline for the log's bounds, in broker time.
    deadline: Deadline,
}

/// A record that was delivered before a rewind, but not after it (design rule 8).
#[derive(Debug, Clone)]
struct Missing {
    partition: TopicPartition,
    /// The offset that was delivered first before the rewind.
    expected: Offset,
    /// The offset that was delivered first after it.
    got: Offset,
    /// The deadline for the log's bounds, in broker time.
    deadline: Deadline,
}

impl LogGaps {
    pub(super) fn is_empty(&self) -> bool {
        self.out_of_range.is_empty() && self.missing.is_empty()
    }
}

impl Group {
    /// Records the client's report of an offset outside of the log.
    pub(in crate::worker) fn out_of_range<C: Client>(
        &mut self,
        shared: &Shared<C>,
        partition: TopicPartition,
        asked: Option<Offset>,
    ) {
        let deadline = bounds_deadline(shared);
        self.gaps.out_of_range.push(OutOfRange {
            partition,
            asked,
            deadline,
        });
    }

    /// Records a missing record. Its task waits for the proof that the log has lost it.
    pub(in crate::worker) fn missing<C: Client>(&mut self, shared: &Shared<C>, it: MissingRecord) {
        let missing = &mut self.gaps.missing;
        if missing.iter().any(|gap| gap.partition == it.partition) {
            return;
        }
        missing.push(Missing {
            partition: it.partition,
            expected: it.expected,
            got: it.got,
            deadline: bounds_deadline(shared),
        });
    }

    /// Explains the next gap. Returns the error that stops the worker, if there is one.
    pub(in crate::worker) fn explain_gaps<C: Client>(
        &mut self,
        shared: &Shared<C>,
        source: &mut C::Source,
        tasks: &mut Tasks<RecordsOf<C>>,
    ) -> Result<Option<WorkerError>, WorkerError> {
        // A partition in a pending revocation needs no explanation.
        if !self.changes.is_empty() {
            return Ok(None);
        }
        if let Some(gap) = self.gaps.out_of_range.first().cloned() {
            return self.explain_out_of_range(shared, source, tasks, gap);
        }
        if let Some(gap) = self.gaps.missing.first().cloned() {
            return self.explain_missing(shared, source, tasks, gap);
        }
        Ok(None)
    }

    /// Reads the bounds of the log without the wanted offset.
    fn explain_out_of_range<C: Client>(
        &mut self,
        shared: &Shared<C>,
        source: &mut C::Source,
        tasks: &mut Tasks<RecordsOf<C>>,
        OutOfRange {
            partition,
            asked,
            deadline,
        }: OutOfRange,
    ) -> Result<Option<WorkerError>, WorkerError> {
        let Some(wanted) = tasks.next_offset(&partition) else {
            // The partition was revoked meanwhile, so the next owner detects the gap.
            self.gaps.out_of_range.remove(0);
            return Ok(None);
        };
        if asked.is_some_and(|asked| asked < wanted) {
            tracing::debug!(
                worker = %shared.spec.id, %partition, ?asked, %wanted,
                "an offset from before the last rebalance or rewind is gone; seeking again"
            );
            self.gaps.out_of_range.remove(0);
            // One thread of librdkafka detects that an offset is gone, and another thread acts
            // (`rd_kafka_offset_reset`). The second thread does not check for a new assignment meanwhile, so it stops
            // the new fetch.
            let others = tasks.rewind(&partition);
            self.seek(others.into_iter().chain([(partition, wanted)]));
            return Ok(None);
        }
        let late = deadline.passed(shared.broker_time());
        let what = || format!("offset {wanted} of {partition} is not in the log");
        let Some(bounds) = bounds_of::<C>(shared, source, &partition, late, what)? else {
            return Ok(None);
        };
        let (first, end) = (bounds.first, bounds.end);
        // The app purges its own topics only before the reader's committed offset. So there is another reader, and the
        // group has not reported its commit yet.
        if first > wanted && shared.topology.is_repartition(&partition.topic) && !late {
            return Ok(None);
        }
        self.gaps.out_of_range.remove(0);
        Ok(Some(WorkerError::OffsetOutOfRange {
            partition,
            group: shared.spec.app.as_str().to_owned(),
            in_ledger: shared.client.keeps_origins(),
            wanted,
            first,
            end,
        }))
    }

    /// Determines whether the log has lost the record. The record was deleted if the log begins after it. It may be
    /// deleted if the topic is compacted. Otherwise the client skipped it.
    fn explain_missing<C: Client>(
        &mut self,
        shared: &Shared<C>,
        source: &mut C::Source,
        tasks: &mut Tasks<RecordsOf<C>>,
        Missing {
            partition,
            expected,
            got,
            deadline,
        }: Missing,
    ) -> Result<Option<WorkerError>, WorkerError> {
        let misses = |task: &Task<_>| task.progress.misses(&partition, expected);
        if !tasks.values().any(misses) {
            // The partition was revoked or rewound meanwhile.
            self.gaps.missing.remove(0);
            return Ok(None);
        }
        let late = deadline.passed(shared.broker_time());
        let what = || format!("record {expected} of {partition} is missing");
        let Some(bounds) = bounds_of::<C>(shared, source, &partition, late, what)? else {
            return Ok(None);
        };
        self.gaps.missing.remove(0);
        let deleted = expected < bounds.first;
        if !deleted && !shared.spec.compacted.contains(&partition.topic) {
            return Ok(Some(WorkerError::RecordsSkipped {
                partition,
                expected,
                got,
            }));
        }
        tracing::warn!(
            app = %shared.spec.app, worker = %shared.spec.id, %partition, from = %expected, to = %got,
            "the log has lost records of an aborted transaction; skipping them"
        );
        for task in tasks.values_mut() {
            task.progress.lost(&partition);
        }
        Ok(None)
    }

    /// Returns whether the explanation of a gap is in progress.
    pub(super) fn explains(&self) -> bool {
        !self.gaps.is_empty()
    }
}

fn bounds_deadline<C>(shared: &Shared<C>) -> Deadline {
    Deadline::after(shared.broker_time(), shared.spec.offsets_deadline)
}

/// Returns the beginning and the end of a log, or `None` while they are unknown.
fn bounds_of<C: Client>(
    shared: &Shared<C>,
    source: &mut C::Source,
    partition: &TopicPartition,
    late: bool,
    what: impl Fn() -> String,
) -> Result<Option<OffsetBounds>, WorkerError> {
    match source.bounds(std::slice::from_ref(partition), SLICE) {
        Poll::Pending if late => Err(WorkerError::Client(ClientError::new(
            CallSite::Bounds,
            code::LOCAL_TIMED_OUT,
            format!(
                "{}, and no broker reported where the log begins and ends",
                what()
            ),
        ))),
        Poll::Pending => Ok(None),
        Poll::Ready(Err(error)) if error.class() == ErrorClass::Retriable && !late => Ok(None),
        Poll::Ready(Err(error)) => Err(WorkerError::Client(error)),
        Poll::Ready(Ok(bounds)) => {
            shared.broker_answered();
            let nothing = OffsetBounds {
                partition: partition.clone(),
                first: Offset::ZERO,
                end: Offset::ZERO,
            };
            Ok(Some(bounds.into_iter().next().unwrap_or(nothing)))
        }
    }
}

//! Assigned partitions whose tasks have not started yet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use eos_protocol::{
    Deadline, ErrorClass, MissingOffsets, Now, Offset, Start, TaskId, TopicName, TopicPartition,
};

use crate::client::{ClientError, OffsetBounds};
use crate::rules;
use crate::worker::WorkerError;
use crate::worker::repeats::Repeats;
use crate::worker::shared::Shared;

/// The pause between an error of a query and the next query.
pub(super) const QUERY_PAUSE: Duration = Duration::from_millis(100);

/// Assigned partitions whose start offsets are being read.
#[derive(Debug)]
pub(super) struct Resolving {
    /// The partitions whose committed offsets are not stable yet.
    pub(super) partitions: Vec<TopicPartition>,
    /// The deadline for stable offsets, in broker time.
    pub(super) deadline: Deadline,
    /// The tasks whose committed offsets are known.
    pub(super) starts: Vec<Found>,
    /// The time of the next query: an immediate response may be the same again.
    pub(super) not_before: Option<Now>,
    /// Committed offsets that were missing in the log. A previous owner may have advanced and purged them, so they are
    /// read once more.
    pub(super) gone: BTreeMap<TopicPartition, Offset>,
    /// Counts reports of missing committed offsets.
    missing: MissingOffsets,
    pub(super) proofs: Proofs,
    /// The last error of a query.
    last_error: Option<ClientError>,
    /// The failed queries in a row.
    repeats: Repeats,
}

impl Resolving {
    pub(super) fn by(deadline: Deadline) -> Self {
        Self {
            partitions: Vec::new(),
            deadline,
            starts: Vec::new(),
            not_before: None,
            gone: BTreeMap::new(),
            missing: MissingOffsets::default(),
            proofs: Proofs::default(),
            last_error: None,
            repeats: Repeats::default(),
        }
    }

    /// Removes these partitions, which now belong to another worker.
    pub(super) fn forget(&mut self, partitions: &[TopicPartition]) {
        self.partitions.retain(|p| !partitions.contains(p));
        self.starts
            .retain(|found| !partitions.contains(&found.driving));
        for partition in partitions {
            self.missing.forget(partition);
        }
    }

    /// Returns a response, or the default after an error of a broker. The query is repeated a little later.
    pub(super) fn or_later<C, T: Default>(
        &mut self,
        shared: &Shared<C>,
        now: Now,
        response: Result<T, WorkerError>,
    ) -> Result<T, WorkerError> {
        match response {
            Err(WorkerError::Client(error)) if error.class() == ErrorClass::Retriable => {
                if let Some(warning) = self.repeats.record(error.call, &error.to_string(), now) {
                    warning.log(shared, &error);
                }
                self.last_error = Some(error);
                self.not_before = Some(now.after(QUERY_PAUSE));
                Ok(T::default())
            }
            response => response,
        }
    }

    /// Returns the error of an assignment that did not start in time.
    pub(super) fn unresolved(&mut self, deadline: Duration) -> WorkerError {
        let last = self.last_error.take();
        if self.partitions.is_empty()
            && let Some(error) = last
        {
            return WorkerError::Client(error);
        }
        WorkerError::OffsetsUnstable {
            partitions: self.partitions.len() + self.starts.len(),
            waited_s: deadline.as_secs(),
            last,
        }
    }

    /// Removes the tasks that would start over because of a missing offset, until the group has reported it missing
    /// often enough.
    pub(super) fn doubt_missing<C>(&mut self, shared: &Shared<C>) {
        if !rules::rereads_missing_offsets() {
            return;
        }
        let all = self.starts.len();
        let missing = &mut self.missing;
        self.starts
            .retain(|found| missing.confirm(&found.driving, &found.start));
        if self.starts.len() < all {
            tracing::debug!(
                app = %shared.spec.app, worker = %shared.spec.id, tasks = all - self.starts.len(),
                "the group reports no committed offset; querying again"
            );
            self.not_before = Some(shared.now().after(MissingOffsets::PAUSE));
        }
    }
}

/// A task whose committed offsets are known.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) driving: TopicPartition,
    pub(super) task: TaskId,
    pub(super) start: Start,
    /// The metadata of the driving partition's offset.
    pub(super) metadata: String,
}

/// The results of the checks of repartition topics with records.
#[derive(Debug, Default)]
pub(super) struct Proofs {
    /// The topics whose records were written by this group.
    pub(super) own: BTreeSet<TopicName>,
    /// The number of reports without an offset: see [`MissingOffsets`].
    pub(super) missing: BTreeMap<TopicName, u32>,
}

/// Returns the bounds by partition, because a worker may own thousands of partitions.
pub(super) fn by_partition(bounds: &[OffsetBounds]) -> BTreeMap<&TopicPartition, &OffsetBounds> {
    bounds.iter().map(|b| (&b.partition, b)).collect()
}

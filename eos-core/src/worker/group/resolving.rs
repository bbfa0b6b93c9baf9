//! Assigned partitions on their way to become tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use eos_protocol::{
    Deadline, ErrorClass, MissingOffsets, Now, Offset, Start, TaskId, TopicName, TopicPartition,
};

use crate::client::ClientError;
use crate::rules;
use crate::worker::WorkerError;
use crate::worker::shared::Shared;

/// How long after an error the brokers are queried again.
pub(super) const QUERY_PAUSE: Duration = Duration::from_millis(100);

/// Assigned partitions whose start offsets are being read.
#[derive(Debug)]
pub(super) struct Resolving {
    /// Those whose committed offsets are not stable yet.
    pub(super) partitions: Vec<TopicPartition>,
    /// Deadline for stable offsets, in broker time.
    pub(super) deadline: Deadline,
    /// Those whose offsets are known, and how their tasks start.
    pub(super) starts: Vec<Found>,
    /// No query leaves before: a response that comes at once may be the same again.
    pub(super) not_before: Option<Now>,
    /// Committed offsets that the log lacked. A previous owner may have advanced and purged them: they are read once
    /// more.
    pub(super) gone: BTreeMap<TopicPartition, Offset>,
    /// Counts reports of missing committed offsets.
    missing: MissingOffsets,
    pub(super) proofs: Proofs,
    /// The last error of a query.
    last_error: Option<ClientError>,
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
        }
    }

    /// These partitions belong to another worker now.
    pub(super) fn forget(&mut self, partitions: &[TopicPartition]) {
        self.partitions.retain(|p| !partitions.contains(p));
        self.starts
            .retain(|found| !partitions.contains(&found.driving));
        for partition in partitions {
            self.missing.forget(partition);
        }
    }

    /// A response, or the default where a broker could not give one: the query is repeated a little later.
    pub(super) fn or_later<T: Default>(
        &mut self,
        now: Now,
        response: Result<T, WorkerError>,
    ) -> Result<T, WorkerError> {
        match response {
            Err(WorkerError::Client(error)) if error.class() == ErrorClass::Retriable => {
                self.last_error = Some(error);
                self.not_before = Some(now.after(QUERY_PAUSE));
                Ok(T::default())
            }
            response => response,
        }
    }

    /// Why an assignment did not start in time.
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

    /// Leaves out the tasks that would start over because an offset is missing, until the group has reported it
    /// missing often enough.
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
    /// The metadata beside the offset of the driving partition.
    pub(super) metadata: String,
}

/// Proofs about repartition topics with records.
#[derive(Debug, Default)]
pub(super) struct Proofs {
    /// Topics whose records are the group's own.
    pub(super) own: BTreeSet<TopicName>,
    /// How often the group reported no offset: see [`MissingOffsets`].
    pub(super) missing: BTreeMap<TopicName, u32>,
}

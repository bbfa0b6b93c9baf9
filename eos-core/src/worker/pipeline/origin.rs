//! The origin of a record.

use eos_protocol::{Clock, Offset, TaskId, Timestamp, TopicPartition};

use crate::client::{Client, Headers};
use crate::ctx::Origin;
use crate::worker::own_moments::OwnMoments;
use crate::worker::shared::Shared;
use crate::worker::task_state::TaskState;

/// Returns the origin of a record at this place. `seen` is the stream time before it. A record that runs again after moments
/// of its key keeps the wall-clock time of its first run.
#[inline(always)]
pub(super) fn origin<'r, C: Client>(
    shared: &Shared<C>,
    task: TaskId,
    (partition, offset, timestamp): (&'r TopicPartition, Offset, Option<Timestamp>),
    seen: Option<Timestamp>,
    (state, own): (Option<&TaskState>, Option<&OwnMoments>),
    headers: &'r Headers,
) -> Origin<'r> {
    let now = wall_clock(shared, state);
    Origin {
        task,
        partition,
        offset,
        timestamp,
        stream_time: seen.max(timestamp),
        handled_to: seen,
        wall_clock: match own {
            None => now,
            Some(own) => first_wall_clock(own, partition, offset).or(now),
        },
        takes_moments: true,
        headers,
    }
}

/// Returns the wall-clock time of the record's first run, if the record runs again.
#[inline(never)]
fn first_wall_clock(
    own: &OwnMoments,
    partition: &TopicPartition,
    offset: Offset,
) -> Option<Timestamp> {
    own.wall_clock.filter(|_| own.is_of(partition, offset))
}

/// Returns the time of the machine's clock, if a timer of the task uses it.
pub(super) fn wall_clock<C: Client>(
    shared: &Shared<C>,
    state: Option<&TaskState>,
) -> Option<Timestamp> {
    state
        .is_some_and(|state| state.has_due_of(Clock::Wall))
        .then(|| shared.env.wall_clock())
}

//! Moments of a record's key that come before the record.

use eos_protocol::{Offset, TopicPartition};

use crate::timer::OwnTimer;

/// The timers of a step, for the key of a record. Their moments up to the time of the record come before the record.
#[derive(Debug)]
pub(super) struct OwnMoments {
    /// The record.
    pub(super) partition: TopicPartition,
    pub(super) offset: Offset,
    pub(super) timers: Vec<OwnTimer>,
}

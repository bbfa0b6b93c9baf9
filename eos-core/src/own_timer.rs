//! A timer of a step, for one key.

use eos_protocol::{Clock, Timestamp};

/// A timer of a step, for the key of the step's record.
#[derive(Debug)]
pub(crate) struct OwnTimer {
    /// The index of the timer's store.
    pub(crate) store: usize,
    /// The encoded key.
    pub(crate) key: Vec<u8>,
    pub(crate) clock: Clock,
    /// The time of the record, by this clock.
    pub(crate) now: Timestamp,
    /// The stream time up to which all items were handled before the unit of the record.
    pub(crate) handled_to: Option<Timestamp>,
}

//! A processed record or due item, and its fate.

use eos_protocol::{Clock, ItemName, Offset, TaskId, Timestamp};

/// A processed record or due item. Its effects are in the scratch.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker) struct Processed {
    pub(in crate::worker) task: TaskId,
    pub(super) unit: Unit,
    pub(super) timestamp: Option<Timestamp>,
    /// The fate of the record, if it failed.
    pub(super) failed: Option<Failed>,
}

/// The origin of the effects in the scratch.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unit {
    Record {
        input: usize,
        offset: Offset,
    },
    /// A due item of this clock.
    Due(Clock, ItemName),
    /// A change of the index of due items of this clock.
    Index(Clock),
}

impl Processed {
    /// Returns the input and the offset of a record.
    pub(super) fn record(&self) -> Option<(usize, Offset)> {
        match self.unit {
            Unit::Record { input, offset } => Some((input, offset)),
            Unit::Due(..) | Unit::Index(_) => None,
        }
    }
}

/// The fate of a failed record, or of the records of a failed item, with their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failed {
    Skipped(u64),
    DeadLetter(u64),
}

impl Processed {
    /// Marks the record as left out. It does not advance stream time.
    pub(super) fn left_out(self) -> Self {
        Self {
            timestamp: None,
            ..self
        }
    }

    /// Marks the record as failed. It does not advance stream time, because its timestamp may be as wrong as the rest.
    pub(super) fn failed(self, how: Failed) -> Self {
        Self {
            timestamp: None,
            failed: Some(how),
            ..self
        }
    }
}

//! The calls of a transaction in flight.

use eos_protocol::{Event, Nonce, Now};

use crate::client::OffsetToCommit;

/// A call into the client that may take several steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::worker) enum Call {
    SendOffsets,
    Init,
    Flush,
    Commit,
    Abort,
    CommitThroughConsumer,
}

impl Call {
    /// All calls, in the order of their execution in one step.
    pub(in crate::worker) const ALL: [Self; 6] = [
        Self::SendOffsets,
        Self::Init,
        Self::Flush,
        Self::Commit,
        Self::Abort,
        Self::CommitThroughConsumer,
    ];

    /// Returns the event of the call's success.
    pub(in crate::worker) fn event(self) -> Event {
        match self {
            Self::SendOffsets => Event::OffsetsSent,
            Self::Init => Event::Initialized,
            Self::Flush => Event::Drained,
            Self::Commit | Self::CommitThroughConsumer => Event::Committed,
            Self::Abort => Event::Aborted,
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The machine's requests that are not done yet.
#[derive(Debug, Default)]
pub(super) struct Calls {
    under_way: u8,
    /// The time to build the next producer.
    pub(super) build_at: Option<Now>,
    /// Whether the intake has ended: results, changes and offsets remain to be sent.
    pub(super) seal: bool,
    /// Whether to read the committed offsets, which decide an in-doubt commit.
    pub(super) read_outcome: bool,
    /// The name of the attempt that is being sealed.
    pub(super) nonce: Option<Nonce>,
    /// The offsets of the sealed transaction.
    pub(super) offsets: Vec<OffsetToCommit>,
    /// The time before which a failed call is not repeated, because it may fail at once again.
    pub(super) pause_until: Option<Now>,
    /// Whether the machine has stopped.
    pub(super) over: bool,
}

impl Calls {
    /// Clears all requests, but not the stop of the machine.
    pub(super) fn clear(&mut self) {
        *self = Self {
            over: self.over,
            ..Self::default()
        };
    }

    pub(super) fn begin(&mut self, call: Call) {
        self.under_way |= call.bit();
    }

    pub(super) fn end(&mut self, call: Call) {
        self.under_way &= !call.bit();
    }

    pub(super) fn is_under_way(&self, call: Call) -> bool {
        self.under_way & call.bit() != 0
    }

    pub(super) fn is_busy(&self) -> bool {
        self.under_way != 0 || self.seal || self.read_outcome
    }
}

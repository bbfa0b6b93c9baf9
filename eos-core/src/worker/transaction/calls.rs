//! The calls of a transaction that are under way.

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
    /// All calls, in the order in which one step makes them.
    pub(in crate::worker) const ALL: [Self; 6] = [
        Self::SendOffsets,
        Self::Init,
        Self::Flush,
        Self::Commit,
        Self::Abort,
        Self::CommitThroughConsumer,
    ];

    /// The event of its success.
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

/// What the machine asked for and is not done yet.
#[derive(Debug, Default)]
pub(super) struct Calls {
    under_way: u8,
    /// When the next producer is built.
    pub(super) build_at: Option<Now>,
    /// Intake has ended: results and changes are to be sent, and the offsets to be gathered.
    pub(super) seal: bool,
    /// The committed offsets are to be read: they decide a commit in doubt.
    pub(super) read_outcome: bool,
    /// The name of the attempt that is being sealed.
    pub(super) nonce: Option<Nonce>,
    /// The offsets of the sealed transaction.
    pub(super) offsets: Vec<OffsetToCommit>,
    /// Until when a failed call is not repeated: it may fail at once.
    pub(super) pause_until: Option<Now>,
    /// The machine has stopped.
    pub(super) over: bool,
}

impl Calls {
    /// None, but whether the machine has stopped.
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

//! The twelve states.

/// The state of a worker's transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// There is no producer. No transaction is open or undecided.
    Cold,
    /// A new producer fences its predecessors and ends their open transactions.
    Initializing,
    /// No transaction is open. An idle worker stays here and holds back no last stable offset.
    Idle,
    /// The offsets of the next records are being committed, before the records are processed (at most once only).
    Claiming,
    /// A transaction is open and takes records.
    Open,
    /// The worker takes no record. It finishes the records under way and seals the overlay.
    Sealing,
    /// The offsets are being added while the outputs drain. The state ends when both are done.
    SendingOffsets,
    /// EndTxn(commit) may have left. From here on only its response counts, never an abort.
    Committing,
    /// The transaction is being aborted.
    Aborting,
    /// The commit had no clean response. A new producer decides it, and the committed offsets show the outcome.
    InDoubt,
    /// The producer is dropped and its open transaction lost. A new producer is being built.
    Fenced,
    /// Only an operator can fix the cause.
    Failed,
}

impl State {
    /// All states.
    pub const ALL: [Self; 12] = [
        Self::Cold,
        Self::Initializing,
        Self::Idle,
        Self::Claiming,
        Self::Open,
        Self::Sealing,
        Self::SendingOffsets,
        Self::Committing,
        Self::Aborting,
        Self::InDoubt,
        Self::Fenced,
        Self::Failed,
    ];
}

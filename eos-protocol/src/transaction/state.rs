//! The eleven states.

/// Where a worker's transaction stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// There is no producer. Nothing is open, nothing undecided.
    Cold,
    /// A new producer fences its predecessors and ends what they left open.
    Initializing,
    /// Nothing is open. An idle worker stays here and holds back no last stable offset.
    Idle,
    /// A transaction is open and takes records.
    Open,
    /// No record is taken any more; what is under way is finished, the overlay is sealed.
    Sealing,
    /// The offsets are being added while the outputs drain; it ends when both are done.
    SendingOffsets,
    /// EndTxn(commit) may have left. From here on only its answer counts, never an abort.
    Committing,
    /// The transaction is being aborted.
    Aborting,
    /// The commit had no clean answer: a new producer decides it, the committed offsets tell.
    InDoubt,
    /// The producer is over and what it left open is lost; a new one is on its way.
    Fenced,
    /// Only a person helps.
    Failed,
}

impl State {
    /// All states.
    pub const ALL: [Self; 11] = [
        Self::Cold,
        Self::Initializing,
        Self::Idle,
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

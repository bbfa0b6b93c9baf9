//! The phase of a transaction, and its valid calls.

use super::Writer;

/// The phase of the transaction (`rd_kafka_txn_state_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not initialised.
    New,
    /// No transaction is open.
    Ready,
    /// A transaction is open.
    Open,
    /// A commit was requested and has no response.
    Committing,
    /// An abort was requested and has no response.
    Aborting,
}

impl Writer {
    /// Whether it can be initialised, or the reason.
    pub(in crate::client) fn inits(&self) -> Result<(), &'static str> {
        match self.phase {
            Phase::New => Ok(()),
            Phase::Ready => Err("of a producer that is initialised"),
            Phase::Open | Phase::Committing | Phase::Aborting => Err("while a transaction is open"),
        }
    }

    /// Begins a transaction, or returns the reason.
    pub(in crate::client) fn begin(&mut self) -> Result<(), &'static str> {
        if self.is_transactional() {
            match self.phase {
                Phase::Ready => self.phase = Phase::Open,
                Phase::New => return Err("before the producer is initialised"),
                Phase::Open => return Err("while a transaction is open"),
                Phase::Committing => return Err("while a commit has no response"),
                Phase::Aborting => return Err("while an abort has no response"),
            }
        }
        self.added.clear();
        self.with_offsets = false;
        if !self.fatal {
            self.failed = None;
        }
        Ok(())
    }

    /// Whether a transaction takes records and offsets, or the reason.
    pub(in crate::client) fn takes(&self) -> Result<(), &'static str> {
        match self.phase {
            _ if !self.is_transactional() || self.fatal => Ok(()),
            Phase::Open => Ok(()),
            Phase::New | Phase::Ready => Err("without a transaction"),
            Phase::Committing | Phase::Aborting => Err("while the transaction ends"),
        }
    }

    /// Whether the transaction can be ended in this way, or the reason.
    pub(in crate::client) fn ends(&self, commits: bool) -> Result<(), &'static str> {
        match (self.phase, commits) {
            _ if self.fatal => Ok(()),
            (Phase::Open, _) | (Phase::Committing, true) | (Phase::Aborting, false) => Ok(()),
            (Phase::New | Phase::Ready, _) => Err("without a transaction"),
            (Phase::Committing, false) => Err("while a commit has no response"),
            (Phase::Aborting, true) => Err("while an abort has no response"),
        }
    }
}

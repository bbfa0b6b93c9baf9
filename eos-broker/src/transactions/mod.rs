//! The transaction coordinator: which producer may use a transactional id, and how its transaction ends.
//!
//! ```text
//!              InitProducerId            AddPartitions, AddOffsets        EndTxn
//!   (nothing) ───────────────► Empty ──────────────────────► Ongoing ──────────► PrepareCommit
//!                                ▲                            │ time-out,          PrepareAbort
//!                                │                            │ InitProducerId        │ markers are
//!                                │                            ▼ (epoch + 1)           ▼ written
//!                                └──── InitProducerId ──── PrepareAbort ─► CompleteCommit, CompleteAbort
//! ```
//! The rules are those of Kafka's `TransactionCoordinator` and `TransactionMetadata` for clients of the
//! first transaction protocol. Every decision is made here; the broker writes the markers.

mod coordinator;
mod state;

pub(crate) use coordinator::{Initialized, Markers, Transactions};
pub(crate) use state::{Participant, State, Transaction};

//! The transaction coordinator: owners of ids and outcomes of transactions.
//!
//! ```text
//!              InitProducerId            AddPartitions, AddOffsets        EndTxn
//!   (nothing) ───────────────► Empty ──────────────────────► Ongoing ──────────► PrepareCommit
//!                                ▲                            │ timeout,           PrepareAbort
//!                                │                            │ InitProducerId        │ markers are
//!                                │                            ▼ (epoch + 1)           ▼ written
//!                                └──── InitProducerId ──── PrepareAbort ─► CompleteCommit, CompleteAbort
//! ```
//! The rules are those of Kafka's `TransactionCoordinator` and `TransactionMetadata` for clients of the first
//! transaction protocol. The coordinator makes every decision, and the broker writes the markers.

mod coordinator;
mod state;

pub(crate) use coordinator::{Initialized, Markers, Transactions};
pub(crate) use state::{Participant, State, Transaction};

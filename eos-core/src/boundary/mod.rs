//! Effects outside of Kafka, in the same transaction as their positions.
//!
//! A [`Ledger`] is a store that takes rows and the positions of their inputs in one transaction, such as a database.
//! An app with a ledger commits no Kafka transactions. It reads records from Kafka, and each of its transactions writes
//! the rows of some records, and moves the positions of their partitions behind them. One rule follows: *the position
//! is where the effect is*.
//!
//! Users of eos take a finished ledger, such as the crate `eos-postgres`. This module is for authors of ledgers.
//!
//! # Obligations
//! An implementation guarantees the following. `eos_testkit::conformance::ledger` has a test for each.
//!
//! | | obligation |
//! |---|---|
//! | L1 | After [`Positions::take_over`] has returned a position, no transaction under a lower epoch can commit for that partition, and the position contains everything that such transactions committed. |
//! | L2 | Effects and positions of a transaction become durable together, at [`Session::commit`] only. |
//! | L3 | [`Session::set`] fails unless the epoch and the stored offset of *every* partition are as expected. Its result is known before the commit begins. |
//! | L4 | Nothing is visible before the commit. An abort and a dropped session leave nothing behind. |
//! | L5 | [`Session::commit`] returns `Ok` only for a committed transaction. After an error, the transaction may be committed or not, and the session is spoiled. |
//! | L6 | A spoiled session is never used again. [`Positions::take_over`] returns the outcome of its last transaction. |
//! | L7 | A position goes back only together with its effects, for example after a failover that lost commits. |
//! | L8 | The ids of the cluster and the topic are stored with a position. A position of another cluster or topic is a [`LedgerFailure::Fatal`] error. |

mod ledger;
mod ledgered;
mod place;

pub use eos_protocol::ledger::{Epoch, Expected, Move, Taken};
pub use ledger::{
    Answer, Effect, Identity, Ledger, LedgerError, LedgerFailure, LedgerTotals, Origin, Plan,
    Positions, Session,
};
pub(crate) use ledgered::Books;
#[doc(hidden)]
pub use ledgered::Ledgered;
pub use place::{Place, Row};

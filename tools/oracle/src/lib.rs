//! Decides whether a history processed each input exactly once.
//!
//! The evidence consists of inputs, outputs, committed offsets and state. The verdict has an example of each violation.
//!
//! ```text
//! Evidence ──► judge ──► Verdict ──► text
//!   ├── input, keys       records of the input
//!   ├── outputs           records for committed readers       ──► outputs, order: lost, doubled, reordered,
//!   │                                                               foreign, rekeyed, torn
//!   │     └── running     values that add up by key           ──► running: stale
//!   ├── committed         offsets of the group                ──► offsets
//!   ├── transactions      batches, markers, coordinators      ──► aborted, open: aborted, open, hanging
//!   └── state             copies of stores                    ──► state: state_ahead, state_behind, state_wrong
//! ```
//!
//! The oracle does no I/O, and uses neither the runtime nor a client. So it judges both a real Kafka and a simulation
//! in memory. The tests plant each kind of violation into synthetic evidence, and the oracle must find it.
//!
//! The oracle makes assumptions about the application under test. Each input record leads to one record in each output,
//! with the same key and the input's number in `seq`. If the application uses transactions, each of them contains the
//! offsets of its inputs beside its outputs. If the application keeps state, a [`Fold`] defines the expected state from
//! the inputs of one partition, which are the inputs of a task.
//! [`split`] makes evidence of this kind from the evidence of a deduplication.
//!
//! # Example
//! ```
//! use eos_oracle::{Evidence, Expectation, Input, Keys, Output, Row, judge, text};
//!
//! let mut keys = Keys::default();
//! let key = keys.intern(Some(b"berlin"));
//! let row = |seq, offset| Row { seq: Some(seq), key, partition: 0, offset, value: 0 };
//! let evidence = Evidence {
//!     input: Input::new("cities", vec![row(0, 0), row(1, 1)], vec![2])?,
//!     outputs: vec![Output {
//!         topic: "enriched".into(),
//!         // The second input was processed twice.
//!         rows: vec![row(0, 0), row(1, 1), row(1, 3)],
//!         ..Output::default()
//!     }],
//!     committed: Some(vec![Some(2)]),
//!     keys,
//!     ..Evidence::default()
//! };
//!
//! let verdict = judge(&evidence, Expectation::Finished);
//! assert_eq!(verdict.doubled.count, 1);
//! assert_eq!(
//!     verdict.doubled.examples[0].to_string(),
//!     "seq 1, key berlin, enriched-0, offset 3: it is also at enriched-0, offset 1"
//! );
//! assert!(text(&evidence, &verdict).contains("VIOLATED doubled: 1"));
//! # Ok::<(), eos_oracle::InputError>(())
//! ```
#![forbid(unsafe_code)]

mod aborted;
mod decide;
mod events;
mod evidence;
mod examples;
mod fold;
mod input;
mod keys;
mod offsets;
mod open;
mod order;
mod outputs;
mod records;
mod report;
mod running;
mod state;
#[cfg(test)]
mod tests;
mod verdict;

pub use decide::judge;
pub use events::split;
pub use evidence::{Evidence, Expectation, LogEnd, Output, StateCopy};
pub use fold::{Contents, Fold};
pub use input::{Input, InputError};
pub use kafka_wire::{
    CONSUMER_OFFSETS, LoggedTransaction, Marker, OpenProducer, Span, TransactionState,
};
pub use keys::{Key, Keys};
pub use records::{InputRecord, Row};
pub use report::text;
pub use verdict::{Example, Finding, Verdict};

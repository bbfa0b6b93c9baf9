//! Decides from Kafka whether a run processed each input exactly once.
//!
//! ```text
//! Kafka ──► read ──► Evidence ──► judge ──► Verdict ──► text
//!            here    └──────── eos_oracle ────────┘
//! ```
//!
//! The reader does not judge, and the oracle does not read. So the tests of the oracle need no broker: they plant each
//! kind of violation into synthetic evidence, and the oracle must find it.

mod read;

pub use eos_oracle::{
    Evidence, Example, Expectation, Finding, Input, Key, Keys, LogEnd, Output, Row, Verdict, judge,
    split, text,
};
pub use read::{Question, read};

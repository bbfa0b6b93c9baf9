//! Whether a run processed each input exactly once, decided from what it left in Kafka.
//!
//! ```text
//! Kafka ──► read ──► Evidence ──► judge ──► Verdict ──► text
//!            here    └──────── eos_oracle ────────┘
//! ```
//!
//! Reading does no judging and deciding does no reading: every kind of violation is planted into
//! evidence made by hand and must be found (the oracle's own tests), without a broker.

mod read;

pub use eos_oracle::{
    Evidence, Example, Expectation, Finding, Input, Key, Keys, LogEnd, Output, Row, Verdict, judge,
    text,
};
pub use read::{Question, read};

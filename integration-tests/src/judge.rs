//! Whether a run processed each input exactly once, decided from what it left in Kafka.
//!
//! ```text
//! Kafka ──► read ──► Evidence ──► decide ──► Verdict ──► report
//! ```
//!
//! Reading does no judging and deciding does no reading: every kind of violation is planted into
//! evidence made by hand and must be found (`decide::tests`), without a broker.
//!
//! It assumes of the application under test only that each input record leads to one record in
//! each output, with the same key and the input's number in `seq`; and, if it uses transactions, that
//! each of them holds what it read as offsets beside what it wrote. It knows nothing of how.

mod aborted;
mod decide;
mod evidence;
mod offsets;
mod open;
mod order;
mod read;
mod report;
mod verdict;

pub use decide::{Expectation, judge};
pub use evidence::{Evidence, Input, Key, Keys, LogEnd, Output, Row};
pub use read::{Question, read};
pub use report::text;
pub use verdict::{Example, Finding, Verdict};

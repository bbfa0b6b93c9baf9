//! The kill test: programs die again and again under load, and the judge says what came of it.
//! In a churn they come and go without end instead.
//!
//! ```text
//! generator ──► cities ──► processes of the app ──► outputs ──► judge
//!                             ▲  kill, roll, join, leave        ▲
//!     plan (seeded) ──► scenario ◄── watch: how far is the committed output?
//! ```
//!
//! A test whose faults did not happen, or happened while nothing flowed, proves nothing: each
//! fault is counted at its place in the stream, and a run with too few of them fails.

mod load;
mod outcome;
mod plan;
mod run;
mod scenario;
mod watch;

pub use load::Load;
pub use outcome::{Fault, Judged, Kill, Outcome, Rebalances};
pub use plan::{Parting, Random, Step, Strike};
pub use run::run;
pub use scenario::{Course, Members, Programs, Promise, Scenario};
pub use watch::{Sample, Watch};
